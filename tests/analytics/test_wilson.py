"""The Wilson interval against known values, and against the macro that the metrics use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from analytics.wilson import wilson
from tests.analytics.conftest import House


@given(st.integers(1, 5_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_scipy_agrees(pair: tuple[int, int]) -> None:
    expected = binomtest(*pair).proportion_ci(0.95, method="wilson")
    assert wilson(*pair) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_no_observation_tells_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def test_more_successes_than_trials_are_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and n"):
        wilson(3, 2)


@given(st.lists(st.integers(0, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=1))
def test_arrays_agree_with_scalars_and_hold_the_rate(pairs: list[tuple[int, int]]) -> None:
    low, high = wilson(np.array([k for k, _ in pairs]), np.array([n for _, n in pairs]))
    assert list(zip(low, high, strict=True)) == [wilson(k, n) for k, n in pairs]
    assert all(lo <= k / n <= hi for lo, hi, (k, n) in zip(low, high, pairs, strict=True) if n)


def test_the_metrics_use_the_same_interval(house: House) -> None:
    row = house.row("select wilson_low(7, 23) as low, wilson_high(7, 23) as high")
    assert (row["low"], row["high"]) == pytest.approx(wilson(7, 23), abs=1e-12)
