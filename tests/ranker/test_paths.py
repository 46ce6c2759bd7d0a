"""Contributions along paths sum to the score of the model, whatever the candidate."""

from __future__ import annotations

import lightgbm as lgb
import msgspec
import numpy as np
import pytest

from ranker import features
from ranker.models import Model, load
from ranker.paths import PathContributions
from tests.ranker.conftest import Project


@pytest.fixture(scope="module")
def model(trained: Project) -> Model:
    return load(trained.data_dir, "default", trained.result["version"], "hashed-words/1")


def test_contributions_and_base_sum_to_the_score(model: Model) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(200, len(features.NAMES))).astype(np.float32)
    matrix[rng.random(matrix.shape) < 0.2] = np.nan
    found = PathContributions(model).of(matrix)
    assert found.shape == (200, len(model.meta.features) + 1)
    np.testing.assert_allclose(found.sum(axis=1), model.score([matrix])[0])


def test_the_base_is_that_of_shap_and_unused_features_add_nothing(model: Model) -> None:
    matrix = np.random.default_rng(1).normal(size=(50, len(features.NAMES))).astype(np.float32)
    trees = Model(model.booster, msgspec.structs.replace(model.meta, blend={}))
    found = PathContributions(trees).of(matrix)
    booster = lgb.Booster(model_str=model.booster.model_to_string())
    shap = np.asarray(booster.predict(matrix, pred_contrib=True, num_threads=1))
    np.testing.assert_allclose(found[:, -1], shap[:, -1])
    unused = booster.feature_importance() == 0
    assert unused.any()
    assert not found[:, :-1][:, unused].any()
    # Both tell the same features apart: they differ in how they share what features do together.
    assert np.corrcoef(found[:, :-1].ravel(), shap[:, :-1].ravel())[0, 1] > 0.9


def test_one_candidate(model: Model) -> None:
    matrix = np.full((1, len(features.NAMES)), np.nan, dtype=np.float32)
    np.testing.assert_allclose(PathContributions(model).of(matrix).sum(), model.score([matrix])[0][0])
