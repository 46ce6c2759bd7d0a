"""The bootstrap interval: against a slow one that draws unit by unit, and where it is known."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.bootstrap import bootstrap_mean


def width(bounds: tuple[float, float] | tuple[None, None]) -> float:
    low, high = bounds
    assert low is not None
    assert high is not None
    return high - low


def test_nothing_has_no_interval() -> None:
    assert bootstrap_mean([], []) == (None, None)


def test_one_unit_or_equal_ones_leave_nothing_to_chance() -> None:
    assert bootstrap_mean([0.5], [1]) == (0.5, 0.5)
    assert bootstrap_mean([2.0, 2.0, 2.0], [4, 4, 4]) == (0.5, 0.5)


def test_the_share_of_a_coin_has_the_interval_of_its_binomial() -> None:
    # 400 queries, 0.3 of them found: 0.3 ± 1.96 · √(0.3 · 0.7 ÷ 400) = 0.3 ± 0.0449.
    assert bootstrap_mean([1.0] * 120 + [0.0] * 280, [1] * 400) == pytest.approx((0.2551, 0.3449), abs=0.004)


def test_it_agrees_with_drawing_unit_by_unit() -> None:
    chance = random.Random(1)
    units = [(chance.random() * n, n) for n in chance.choices([1, 2, 7], k=60)]
    means = []
    for _ in range(5_000):
        drawn = chance.choices(units, k=len(units))
        means.append(sum(total for total, _ in drawn) / sum(n for _, n in drawn))
    slow = np.quantile(means, (0.025, 0.975))
    assert bootstrap_mean(*zip(*units, strict=True)) == pytest.approx(tuple(slow), abs=0.01)


def test_units_are_drawn_whole() -> None:
    # The same 100 values: ten queries of ten equal lists each say far less than a hundred queries.
    values = [float(i % 2) for i in range(10)]
    apart = bootstrap_mean([value for value in values for _ in range(10)], [1] * 100)
    together = bootstrap_mean([10 * value for value in values], [10] * 10)
    assert width(together) > 2 * width(apart)


UNITS = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 5)), min_size=1, max_size=40)


@given(units=UNITS, seed=st.integers(0, 2**16))
def test_the_order_of_the_units_does_not_matter(units: list[tuple[float, int]], seed: int) -> None:
    totals, counts = zip(*units, strict=True)
    bounds = bootstrap_mean(totals, counts)
    shuffled = random.Random(seed).sample(units, len(units))
    assert bootstrap_mean(*zip(*shuffled, strict=True)) == bounds
    means = [total / count for total, count in units]
    assert width(bounds) >= 0
    assert all(min(means) - 1e-9 <= bound <= max(means) + 1e-9 for bound in bounds if bound is not None)
