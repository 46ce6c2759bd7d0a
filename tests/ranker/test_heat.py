from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from ranker.decay import DAY_S
from ranker.examination import PositionFactors
from ranker.heat import heat_by_skill

NOW = 1_700_000_000.0
SCHEMA = {
    "selection": pl.String,
    "at": pl.Float64,
    "model": pl.String,
    "randomized": pl.Boolean,
    "skill_id": pl.String,
    "rank": pl.Int64,
    "picked": pl.Boolean,
}
THETA = [PositionFactors(0.0, {"m": [1.0, 0.5]})]


def shown(lists: list[tuple[float, list[str], str | None]]) -> pl.DataFrame:
    """(age in days, skills in order, the picked one)"""
    rows: list[dict[str, Any]] = []
    for index, (age, skills, pick) in enumerate(lists):
        for rank, skill in enumerate(skills, 1):
            common = {"selection": f"s{index}", "at": NOW - age * DAY_S, "model": "m", "randomized": False}
            rows.append(common | {"skill_id": skill, "rank": rank, "picked": skill == pick})
    return pl.DataFrame(rows, schema=SCHEMA)


def heats(frame: pl.DataFrame) -> dict[str, float]:
    return dict(frame.select("skill_id", "heat").iter_rows())


def test_by_hand() -> None:
    # Lists (a, b): b picked now, nothing picked 7 days ago (d = ½). θ = 1, ½.
    # r̄ = 1 ÷ (1.5·1 + 1.5·½) = 4/9; expected: a 1.5·4/9, b 1.5·½·4/9; clicks: a 0, b 1.
    found = heat_by_skill(shown([(0, ["a", "b"], "b"), (7, ["a", "b"], None)]), NOW, THETA)
    a, b = 10 / (10 + 1.5 * 4 / 9), 11 / (10 + 0.75 * 4 / 9)
    assert heats(found) == pytest.approx({"a": a / (1 + a), "b": b / (1 + b)})
    assert found["heat_log"].to_list() == pytest.approx([np.log(a), np.log(b)])


def test_without_theta_it_is_neutral() -> None:
    found = heat_by_skill(shown([(0, ["a", "b"], "a")] * 50), NOW)
    assert heats(found) == {"a": 0.5, "b": 0.5}


def test_exposure_alone_does_not_raise_it() -> None:
    few = heats(heat_by_skill(shown([(0, ["a", "b"], "b")] * 20), NOW, THETA))
    many = heats(heat_by_skill(shown([(0, ["a", "b"], "b")] * 20 + [(0, ["a", "c"], None)] * 60), NOW, THETA))
    assert many["a"] <= few["a"]


def test_a_later_model_says_nothing_about_the_past() -> None:
    found = heat_by_skill(shown([(0, ["a", "b"], "a")] * 9), NOW, [PositionFactors(NOW + 1, {"m": [1.0, 0.5]})])
    assert heats(found) == {"a": 0.5, "b": 0.5}
