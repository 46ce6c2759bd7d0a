from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from pickwise.scores import SCORES
from ranker import blend, features, logit
from ranker.features.base import Context
from ranker.state import State
from ranker.turns import Turn


def fit(lists: list[np.ndarray], picked: list[int], weights: list[float]) -> np.ndarray:
    return logit.fit(lists, picked, weights, blend.NORMAL_PRIOR)[0]


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


def test_keywords_count_again_in_cjk_only() -> None:
    told = {"bm25": [3.0, 12.0], "overlap": [0.5, 0.2], "history_support": [0.0, 0.0]}
    assert inputs_of(matrix(**told, query_script=[0.0, 0.0]))["query_script"] == [0, 0]
    assert inputs_of(matrix(**told, query_script=[1.0, 1.0]))["query_script"] == pytest.approx([1.75, 1.6])


def test_the_script_of_a_chinese_query_is_the_one_the_blend_looks_for() -> None:
    turn = Turn("t", 0.0, "明天会下雨吗", np.zeros(0, np.float32), ["s"], {name: np.array([np.nan]) for name in SCORES})
    found = features.compute(Context(turn, State(0)))
    assert found[0, features.NAMES.index("query_script")] == blend.CJK_CODE


def test_asked_before_is_the_same_query_and_not_one_like_it() -> None:
    known = {"history_support": np.log1p([6.0, 6.0]).tolist()}
    found = inputs_of(matrix(history_nearest=[0.9, 1.0], **known))["history_nearest_lead"]
    assert found == pytest.approx([0, 0.75], abs=1e-5)


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
    assert fit(lists, picked, [1.0] * len(lists)) == pytest.approx(truth, abs=0.4)
    few = fit(lists[:20], picked[:20], [1.0] * 20)
    moved = np.abs(few - blend.PRIOR) / blend.NORMAL_PRIOR.deviation
    assert np.median(moved) < 1 < np.median(np.abs(truth - blend.PRIOR) / blend.NORMAL_PRIOR.deviation)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_it_ends_at_a_minimum(seed: int) -> None:
    """No allowed direction leads further down: an independent gradient of the same loss."""
    rng = np.random.default_rng(seed)
    lists = [rng.random((int(rng.integers(2, 6)), len(blend.TERMS))) for _ in range(12)]
    picked = [int(rng.integers(len(values))) for values in lists]
    weights = rng.uniform(0.5, 10, len(lists))
    codes = [np.arange(len(values)) for values in lists]
    of_places = logit.Prior(np.array([0.0, -1.0, -1.0, -2.0, -2.0]), np.array([0.0, 0.7, 0.7, 0.7, 0.7]))
    found = np.concatenate(
        logit.fit(lists, picked, weights.tolist(), blend.NORMAL_PRIOR, logit.Places(codes, of_places))
    )
    terms = len(blend.TERMS)
    assert found[terms] == 0  # held

    def loss(b: np.ndarray) -> float:
        utilities = [x @ b[:terms] + b[terms:][code] for x, code in zip(lists, codes, strict=True)]
        missed = [np.log(np.exp(u).sum()) - u[pick] for u, pick in zip(utilities, picked, strict=True)]
        off = (b[:terms] - blend.PRIOR) / blend.NORMAL_PRIOR.deviation
        off_place = (b[terms + 1 :] - of_places.mean[1:]) / of_places.deviation[1:]
        return float(weights @ missed / weights.mean() + (off @ off + off_place @ off_place) / 2)

    slope = approx_fprime(found, loss, 1e-6)
    bounded, free = slope[:terms], slope[terms + 1 :]
    assert (found[:terms] >= 0).all()
    assert (np.abs(bounded[found[:terms] > 1e-6]) < 0.05).all()
    assert (bounded[found[:terms] <= 1e-6] > -0.05).all()
    assert (np.abs(free) < 0.05).all()


def test_lists_together_are_worked_out_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranker.blend._AT_ONCE", 4)
    rng = np.random.default_rng(0)
    matrices = [rng.normal(size=(length, len(features.NAMES))).astype(np.float32) for length in (1, 3, 10, 2, 7, 1, 5)]
    for found in matrices:
        found[rng.random(found.shape) < 0.3] = np.nan
        found[:, features.NAMES.index("query_script")] = rng.integers(2)
        found[:, features.NAMES.index("history_support")] = rng.random(len(found))
    together = blend.inputs_of(matrices)
    assert len(together) == len(matrices)
    for worked_out, matrix_ in zip(together, matrices, strict=True):
        np.testing.assert_allclose(worked_out, blend.inputs(matrix_))
    assert blend.inputs_of([]) == []
