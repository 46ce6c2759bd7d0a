from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranker.decay import DAY_S
from ranker.success import MAX_KAPPA, SuccessCounts, success_by_skill

NOW = 1_700_000_000.0


def calls(rows: Sequence[tuple[str, str, float, bool, str | None]]) -> pl.DataFrame:
    """(skill, domain, age in days, ok, error kind)"""
    return pl.DataFrame(
        [(s, d, NOW - age * DAY_S, ok, kind) for s, d, age, ok, kind in rows],
        schema={
            "skill_id": pl.String,
            "domain": pl.String,
            "ended": pl.Float64,
            "ok": pl.Boolean,
            "error_kind": pl.String,
        },
        orient="row",
    )


def of(frame: pl.DataFrame, skill: str) -> dict[str, float]:
    return frame.row(by_predicate=pl.col("skill_id") == skill, named=True)


def test_estimate_by_hand() -> None:
    # One domain of two skills (k < 5: κ = 50); s = 2, n = 4: p_d = 3/6. `a`: 1 ok now, 1 failure 14 days old: d = 1, ½.
    found = success_by_skill(
        calls(
            [
                ("a", "x", 0, True, None),
                ("a", "x", 14, False, "timeout"),
                ("b", "x", 0, True, None),
                ("b", "x", 28, False, "http_5xx"),
            ]
        ),
        NOW,
    )
    a = of(found, "a")
    assert a["prior"] == 0.5
    assert a["kappa"] == MAX_KAPPA
    assert a["n_effective"] == pytest.approx(1.5)
    assert a["success"] == pytest.approx((1 + 50 * 0.5) / (1.5 + 50))
    p = 26 / 51.5
    assert a["success_logit"] == pytest.approx(np.log(p / (1 - p)))
    assert of(found, "b")["success"] == pytest.approx((1 + 25) / (1.25 + 50))


def test_caller_faults_are_left_out() -> None:
    rows = [("a", "x", 1.0, True, None)] * 3
    faults = [("a", "x", 1.0, False, kind) for kind in ("invalid_arguments", "not_found", "cancelled")]
    assert success_by_skill(calls([*rows, *faults]), NOW).equals(success_by_skill(calls(rows), NOW))


def kleinman(oks: list[int], counts: list[int]) -> float:
    """κ computed as the formula reads, over lists."""
    n, p = np.array(counts, float), np.array(oks, float) / np.array(counts, float)
    pd, k, total = (sum(oks) + 1) / (sum(counts) + 2), len(counts), sum(counts)
    s = (n * (p - pd) ** 2).sum() / (pd * (1 - pd))
    rho = (s - (k - 1)) / (total - (n**2).sum() / total - (k - 1))
    return 50.0 if rho <= 0 else float(np.clip(1 / rho - 1, 5, 50))


@given(st.lists(st.tuples(st.integers(2, 30), st.floats(0, 1)), min_size=5, max_size=12))
def test_running_kappa_is_kleinmans(skills: list[tuple[int, float]]) -> None:
    counts = SuccessCounts()
    counts.grow(len(skills))
    oks = [round(n * share) for n, share in skills]
    for row, (n, _) in enumerate(skills):
        for index in range(n):
            counts.add(row, NOW, index < oks[row])
    found = counts.at(np.arange(len(skills)), NOW)
    assert found.kappa[0] == pytest.approx(kleinman(oks, [n for n, _ in skills]), rel=1e-6)


def test_a_skill_that_moves_takes_its_counts_along() -> None:
    moved, straight = SuccessCounts(), SuccessCounts()
    for counts, first in ((moved, "old"), (straight, "new")):
        counts.grow(1)
        counts.set_domain(0, first)
        counts.add(0, NOW, True)
        counts.add(0, NOW, False)
        counts.set_domain(0, "new")
    rows = np.array([0])
    assert moved.at(rows, NOW).success == straight.at(rows, NOW).success
    assert moved.at(rows, NOW).prior == [0.5]


def test_order_of_arrival_does_not_matter() -> None:
    rows = [("a", "x", float(age), age % 3 > 0, None if age % 3 else "timeout") for age in range(0, 900, 7)]
    assert of(success_by_skill(calls(rows), NOW), "a") == pytest.approx(
        of(success_by_skill(calls(rows[::-1]), NOW), "a")
    )
