"""Trees asked through the C API answer as LightGBM's own package does."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest

from ranker.trees import Trees, TreesUnusable


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 6)).astype(np.float32)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    return rows


@pytest.fixture(scope="module")
def booster(rows: np.ndarray) -> lgb.Booster:
    wanted = np.nan_to_num(rows[:, 0] + rows[:, 1] * rows[:, 2])
    return lgb.train({"verbosity": -1, "num_threads": 1}, lgb.Dataset(rows, wanted), num_boost_round=20)


def test_scores_and_leaves_are_those_of_the_package(booster: lgb.Booster, rows: np.ndarray) -> None:
    trees = Trees(booster.model_to_string())
    assert trees.num_trees() == 20
    np.testing.assert_array_equal(trees.predict(rows), booster.predict(rows))
    np.testing.assert_array_equal(trees.predict(rows[:1]), booster.predict(rows[:1]))
    np.testing.assert_array_equal(trees.predict(rows, pred_leaf=True), booster.predict(rows, pred_leaf=True))
    # A part of the columns of a wider matrix is no contiguous memory.
    wide = np.repeat(rows, 2, axis=1)
    np.testing.assert_array_equal(trees.predict(wide[:, ::2]), booster.predict(rows))


def test_their_shape_is_told(booster: lgb.Booster) -> None:
    assert Trees(booster.model_to_string()).dump_model()["tree_info"] == booster.dump_model()["tree_info"]


def test_what_is_no_model_is_refused(booster: lgb.Booster, rows: np.ndarray) -> None:
    with pytest.raises(TreesUnusable, match="number of classes"):
        Trees("tree\nrubbish")
    with pytest.raises(TreesUnusable, match="number of features"):
        Trees(booster.model_to_string()).predict(rows[:, :3])
