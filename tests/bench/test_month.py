"""A simulated month: the same for a seed, and what was planted is in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from analytics.tables import Tables
from bench.month import Month
from collector.lake import Lake
from tests.bench.small_month import MONTH


def of_skill(month: Month, skill: int, first: int, last: int) -> pl.DataFrame:
    calls = pl.concat([month.frames(day)[1] for day in range(first, last)])
    return calls.filter(pl.col("skill_id") == month.skill_names()[skill])


def test_a_seed_is_one_month() -> None:
    for one, again in zip(MONTH.frames(9), MONTH.frames(9), strict=True):
        assert one.equals(again)
    assert not replace(MONTH, seed=1).frames(9)[1].equals(MONTH.frames(9)[1])


def test_a_skill_fails_in_its_days() -> None:
    before, after = of_skill(MONTH, 0, 0, 8), of_skill(MONTH, 0, 8, 12)
    assert before["ok"].mean() == pytest.approx(0.95, abs=0.05)
    assert after["ok"].mean() == pytest.approx(0.05, abs=0.06)
    assert after.filter("ok")["error_kind"].null_count() == after.filter("ok").height


def test_a_surge_is_one_day() -> None:
    usual = of_skill(MONTH, 3, 0, 9).height / 9
    assert 4 < of_skill(MONTH, 3, 9, 10).height / usual < 8
    assert of_skill(MONTH, 3, 10, 11).height < 2.5 * usual


def test_a_new_skill_is_registered_and_offered_from_its_day_on(tmp_path: Path) -> None:
    MONTH.write(tmp_path)
    (name,) = MONTH.skill_names()[12:]
    tables = Tables(tmp_path)
    (entry,) = tables.sql(f"select valid_from, version from skills where skill_id = '{name}'")
    assert (entry["valid_from"].date(), entry["version"]) == (MONTH.first_day.date().replace(day=9), "1")
    days = tables.sql(f"select distinct date_trunc('day', time) d from candidates where skill_id = '{name}' order by d")
    assert [row["d"].day for row in days] == [9, 10, 11, 12]
    classes = tables.sql(f"select distinct name_class from calls where skill_id = '{name}'")
    assert [row["name_class"] for row in classes] == ["known"]
    versions = tables.sql(f"select version from skills where skill_id = '{MONTH.skill_names()[0]}' order by valid_from")
    assert [row["version"] for row in versions] == ["1", "2"]


def test_an_unused_skill_is_never_called(tmp_path: Path) -> None:
    month = replace(MONTH, troubles=[replace(MONTH.troubles[0], skill=10, first=0, volume=0.0)])
    month.write_day(Lake(tmp_path), 0)
    assert of_skill(month, 10, 0, 12).height == 0
    assert of_skill(MONTH, 10, 0, 12).height > 0
