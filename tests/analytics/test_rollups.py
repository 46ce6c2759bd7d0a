"""Rollups equal rows: whatever came late, twice, in pieces or was removed; counts to the last, quantiles within 2 %."""

from __future__ import annotations

import random
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics import frames, merge, nightly, query, rollups
from analytics import settle as settling
from analytics.labels import LabelStore
from analytics.metrics.declarations import METRICS, Metric
from analytics.query import metric
from analytics.rollups import Span, measure_of
from analytics.segments import SegmentStore
from analytics.settle import is_due, settle
from collector.control import Control
from collector.tables import FACT_TABLES
from tests.analytics.conftest import House, at, moment
from tests.analytics.worlds import random_world, write_worlds

#: Whole hours, parts of hours, less than an hour; seconds after noon.
_WINDOWS = [
    (None, None),
    (-36_000.0, 36_000.0),
    (-20_123.0, 40_010.5),
    (None, 1_000.0),
    (600.0, 1_800.0),
    (900_000.0, None),
]
_LISTS = [
    [],
    ["hour"],
    ["day"],
    ["skill"],
    ["domain"],
    ["skill", "hour"],
    ["domain", "day"],
    ["error_kind"],
    ["skill", "error_kind"],
]


def asked(declared: Metric) -> list[list[str]]:
    """The groupings of a metric that its rollups answer."""
    return [by for by in _LISTS if {*by} <= {*declared.groupings} and measure_of(declared, by)]


def assert_equal(found: dict[str, Any], expected: dict[str, Any], where: object) -> None:
    groups = [name for name in ("stage", *found["by"]) if name in (found["rows"] or [{}])[0]]

    def keyed(document: dict[str, Any]) -> dict[tuple[Any, ...], dict[str, Any]]:
        return {tuple(row[name] for name in groups): row for row in document["rows"]}

    assert keyed(found).keys() == keyed(expected).keys(), where
    for key, row in keyed(found).items():
        for name, value in keyed(expected)[key].items():
            approximate = name in ("p50", "p95", "p99") or ("p50" in row and name == "value")
            wanted = (
                pytest.approx(value, rel=0.02 if approximate else 1e-12, abs=1e-12)
                if isinstance(value, float)
                else value
            )
            assert row[name] == wanted, (where, key, name)


def compare(
    rolled: duckdb.DuckDBPyConnection, whole: duckdb.DuckDBPyConnection, project: str, chance: random.Random
) -> None:
    """Every metric by some of what its rollups hold, and the frames of the dashboard, over some window."""
    start, end = (None if seconds is None else moment(seconds) for seconds in chance.choice(_WINDOWS))
    for declared in METRICS:
        answered = asked(declared)
        for by in chance.sample(answered, min(3, len(answered))):
            found, expected = (
                metric(connection, declared.name, project=project, by=by, start=start, end=end)
                for connection in (rolled, whole)
            )
            assert_equal(found, expected, (project, declared.name, by, start, end))
    skills = (frames.skills(connection, project=project, start=start, end=end) for connection in (rolled, whole))
    assert_alike(*(frame.sort("skill_id") for frame in skills))
    assert frames.kept(rolled, project=project) == frames.kept(whole, project=project)
    contents = [nightly.fingerprints(connection, project, moment(90_000)) for connection in (rolled, whole)]
    assert contents[0] == contents[1]


def assert_alike(one: pl.DataFrame, other: pl.DataFrame) -> None:
    """Equal but for the rounding of sums, and the width of buckets."""
    inexact = {"latency_mean_ms": 1e-9, "latency_p99_ms": 0.02}
    assert one.drop(inexact).equals(other.drop(inexact))
    for name, rel in inexact.items():
        for found, expected in zip(one[name], other[name], strict=True):
            assert found == (expected and pytest.approx(expected, rel=rel))


def test_windows_are_split_at_whole_hours() -> None:
    time = datetime(2026, 3, 2, 12, 30, tzinfo=UTC)
    hour = rollups._STEPS["hour"]
    whole, edges = Span(time, time + 3 * hour).split(hour)
    at_13, at_15 = time.replace(hour=13, minute=0), time.replace(hour=15, minute=0)
    assert whole == Span(at_13, at_15)
    assert edges == [Span(time, at_13), Span(at_15, time + 3 * hour)]
    assert Span(at_13, at_15).split(hour) == (Span(at_13, at_15), [])
    assert Span(None, time).split(hour) == (Span(None, time.replace(minute=0)), [Span(time.replace(minute=0), time)])
    assert Span(time, time.replace(minute=45)).split(hour) == (None, [Span(time, time.replace(minute=45))])


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(chance=st.randoms(use_true_random=False))
def test_rollups_equal_rows(tmp_path_factory: pytest.TempPathFactory, chance: random.Random) -> None:
    worlds = {project: random_world(chance, most=chance.choice([6, 40])) for project in ("one", "two")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query, "_MANY", -1)
        patch.setattr(settling, "_CHUNK_FACTS", chance.choice([15, 150_000]))
        patch.setattr(merge, "_MOST_SEGMENTS", chance.choice([1, 12]))
        house = write_worlds(House(tmp_path_factory.mktemp("rolled")), worlds, settled=True)
        if chance.random() < 0.5:
            removed = pl.col("session_id").is_in([chance.choice(["s1", "s2"])])
            for table in ("selections", "calls"):
                house.lake.replace(table, removed)
        if chance.random() < 0.3:
            settle(house.folder)
        whole = House(tmp_path_factory.mktemp("whole"))
        for table in (*FACT_TABLES, "query_clusters", "clusters"):
            rows = house.lake.read(table)
            if rows.height:
                whole.lake.append(table, rows)
        with closing(Control(whole.folder)) as control:
            for project, world in worlds.items():
                LabelStore(control).put(project, list(world.labels.values()))
        with house.connect() as rolled, whole.connect() as raw:
            for project in ("one", "two", "nobody"):
                compare(rolled, raw, project, chance)
            tables = rolled.execute("select table_name from duckdb_tables()").fetchall()
            assert not any(
                name.startswith("rolled_")
                for (name,) in raw.execute("select table_name from duckdb_tables()").fetchall()
            )
            has_segments = bool(SegmentStore(house.folder).manifest().segments)
            assert has_segments == any(name.startswith("rolled_acceptance") for (name,) in tables)


def test_sessions_that_a_window_cuts(house: House) -> None:
    """Three equal calls in a row are a loop in a window that has all three, as rows have it."""
    hours: dict[str, tuple[int, ...]] = {
        "early": (-1, -1, -1),
        "late": (2, 2, 2),
        "cut at the start": (-1, 0, 0),
        "cut at the end": (1, 1, 2),
    }
    hours |= {"inside": (0, 1, 1), "cut at both": (-1, 0, 0, 0, 2), "single": (1,)}
    for name, times in hours.items():
        for i, hour in enumerate(times):
            event = {"type": "call", "event_id": f"{name}{i}", "session_id": name, "time": at(3600 * hour + 60 + i)}
            house.events(event | {"skill_id": "x", "ok": True, "arguments": {"q": 1}})
    window: dict[str, Any] = {"start": moment(0), "end": moment(7200)}

    def found() -> dict[str, tuple[float, int]]:
        with house.connect() as connection:
            rows = metric(connection, "loop_rate", by=["hour"], **window)["rows"]
            whole = metric(connection, "loop_rate", **window)["rows"]
        return {row.get("hour", "whole"): (row["value"], row["n"]) for row in (*rows, *whole)}

    expected = {"2026-03-02T12:00:00Z": (2 / 3, 3), "2026-03-02T13:00:00Z": (0.0, 2), "whole": (2 / 5, 5)}
    assert found() == expected
    settle(house.folder)
    assert found() == expected
    with house.connect() as connection:
        (loops,) = [measure for measure in rollups.all_measures() if measure.of_sessions]
        assert rollups.rolled(connection, loops) is not None


def test_rollups_of_another_version_are_made_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.events(
        {"type": "selection", "event_id": "a", "time": at(0), "ranked": True, "candidates": [{"skill_id": "x"}]}
    )
    settle(house.folder)
    before = SegmentStore(house.folder).manifest()
    monkeypatch.setattr(rollups, "version", lambda: "another")
    assert is_due(house.folder)
    # Until they are made again, rows answer.
    with house.connect() as connection:
        assert rollups.rolled(connection, rollups.SKIPS) is None
        assert metric(connection, "acceptance_rate")["rows"][0]["n"] == 1
    settle(house.folder)
    after = SegmentStore(house.folder).manifest()
    assert after.rollups == "another"
    assert [segment.files["selections"] for segment in after.segments] == [
        s.files["selections"] for s in before.segments
    ]
    assert [segment.files["rollups"] for segment in after.segments] != [s.files["rollups"] for s in before.segments]
    with house.connect() as connection:
        assert rollups.rolled(connection, rollups.SKIPS) is not None
        assert metric(connection, "acceptance_rate")["rows"][0]["n"] == 1
