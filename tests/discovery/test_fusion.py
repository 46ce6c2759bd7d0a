"""Fusion of the two arms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from discovery.fusion import RRF_K, alpha_for, min_max, reciprocal_rank, weighted

scores = hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e6, 1e6))


@given(scores)
def test_min_max_stays_between_0_and_1_and_keeps_the_order(values: np.ndarray) -> None:
    scaled = min_max(values)
    assert ((scaled >= 0) & (scaled <= 1)).all()
    assert (np.diff(scaled[np.argsort(values, kind="stable")]) >= 0).all()


def test_equal_scores_say_nothing() -> None:
    assert min_max(np.array([3.0, 3.0])).tolist() == [0.5, 0.5]
    assert min_max(np.array([])).size == 0


def test_weighting() -> None:
    fused = weighted(np.array([0.0, 10.0]), np.array([0.8, 0.2]), 0.25)
    assert fused.tolist() == [0.75, 0.25]


def test_reciprocal_rank_fusion_with_its_constant() -> None:
    fused = reciprocal_rank(np.array([5.0, 0.0, 1.0]), np.array([0.1, 0.9, 0.5]), 0.2)
    assert fused == pytest.approx([1 / (RRF_K + 3) + 1 / (RRF_K + 1), 1 / (RRF_K + 1), 2 / (RRF_K + 2)])


def test_without_weight_bm25_adds_nothing_to_rrf() -> None:
    dense = np.array([0.1, 0.9])
    assert reciprocal_rank(np.array([9.0, 0.0]), dense, 0.0).argmax() == 1


def test_alpha_follows_script_and_drops_when_the_terms_are_unknown() -> None:
    assert alpha_for("where is my parcel", 0.5) == 0.2
    assert alpha_for("我的快递到哪了", 0.5) == 0.4
    assert alpha_for("我的快递到哪了", 0.09) == 0.0
    assert alpha_for("where is my parcel", 0.5, {"latin": 0.35}) == 0.35
    assert alpha_for("我的快递到哪了", 0.5, {"latin": 0.35}) == 0.4
