from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from ranker import blend, features, logit


def fit(lists: list[np.ndarray], picked: list[int], weights: list[float]) -> np.ndarray:
    return logit.fit(lists, picked, weights, blend.PRIOR, blend.PRIOR_STRENGTH)


def matrix(**columns: list[float]) -> features.Matrix:
    found = np.full((2, len(features.NAMES)), np.nan, dtype=np.float32)
    for name, values in columns.items():
        found[:, features.NAMES.index(name)] = values
    return found


def inputs_of(found: features.Matrix) -> dict[str, list[float]]:
    return {term.feature: values.tolist() for term, values in zip(blend.TERMS, blend.inputs(found).T, strict=True)}


def test_history_takes_the_description_s_place_as_it_grows() -> None:
    # No success, and six: s = 6 ÷ 8.
    x = inputs_of(matrix(semantic=[0.4, 0.4], history_centroid=[np.nan, 0.8], history_support=[0.0, np.log1p(6)]))
    assert x["semantic"] == pytest.approx([0.4, 0.1], rel=1e-5)
    assert x["history_centroid"] == pytest.approx([0.0, 0.6], rel=1e-5)
    assert x["history_support"] == pytest.approx([0.0, 0.75], rel=1e-5)


def test_sent_scores_count_as_shares_of_the_best() -> None:
    x = inputs_of(matrix(bm25=[3.0, 12.0], rerank=[-1.0, np.nan], history_support=[0.0, 0.0]))
    assert x["bm25"] == pytest.approx([0.25, 1.0])
    assert x["rerank"] == [0.0, 0.0]
    assert np.isfinite(blend.inputs(matrix(history_support=[0.0, 0.0]))).all()


def test_an_unregistered_skill_is_described_by_the_dense_score_sent() -> None:
    x = inputs_of(matrix(semantic=[np.nan, 0.2], dense=[0.7, 0.9], history_support=[0.0, 0.0]))
    assert x["semantic"] == pytest.approx([0.7, 0.2], rel=1e-5)


def test_without_picks_it_is_the_prior() -> None:
    assert (fit([], [], []) == blend.PRIOR).all()


def lists_of(truth: np.ndarray, count: int, seed: int) -> tuple[list[np.ndarray], list[int]]:
    """Lists of eight, picked by the logit model with ``truth``."""
    rng = np.random.default_rng(seed)
    lists = [rng.random((8, len(blend.TERMS))) for _ in range(count)]
    # The largest of utility plus Gumbel noise is the logit choice.
    return lists, [int(np.argmax(values @ truth + rng.gumbel(size=8))) for values in lists]


def test_many_picks_tell_the_coefficients_and_few_keep_the_prior() -> None:
    truth = np.linspace(0, 6, len(blend.TERMS))
    lists, picked = lists_of(truth, 20_000, 1)
    assert fit(lists, picked, [1.0] * len(lists)) == pytest.approx(truth, abs=0.25)
    few = fit(lists[:20], picked[:20], [1.0] * 20)
    assert np.abs(few - blend.PRIOR).max() < np.abs(truth - blend.PRIOR).max() / 2


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_it_ends_at_a_minimum(seed: int) -> None:
    """No allowed direction leads further down: an independent gradient of the same loss."""
    rng = np.random.default_rng(seed)
    lists = [rng.random((int(rng.integers(2, 6)), len(blend.TERMS))) for _ in range(12)]
    picked = [int(rng.integers(len(values))) for values in lists]
    weights = rng.uniform(0.5, 10, len(lists))
    found = fit(lists, picked, weights.tolist())
    spread = np.maximum(np.concatenate(lists).std(axis=0), 1e-3)

    def loss(b: np.ndarray) -> float:
        missed = [np.log(np.exp(x @ b).sum()) - (x @ b)[pick] for x, pick in zip(lists, picked, strict=True)]
        return float(
            weights @ missed / weights.mean() + blend.PRIOR_STRENGTH / 2 * ((spread * (b - blend.PRIOR)) ** 2).sum()
        )

    slope = approx_fprime(found, loss, 1e-6)
    assert (found >= 0).all()
    assert (np.abs(slope[found > 1e-6]) < 0.05).all()
    assert (slope[found <= 1e-6] > -0.05).all()
