"""Every metric by every grouping, on random events, against an implementation that shares nothing with it."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics.metrics.declarations import INHERENT, METRICS, Metric
from analytics.query import metric
from tests.analytics.conftest import House, moment
from tests.analytics.slow_metrics import OBSERVERS, Asked, Slow, slow_rows
from tests.analytics.worlds import REGISTRY, random_world, world, write_worlds

#: Windows that cut through the days of the worlds, seconds after noon.
_WINDOWS = [(None, None), (0.0, 86_400.0), (-20_000.0, None), (None, 20_500.0), (500_000.0, None)]


def assert_same(connection: duckdb.DuckDBPyConnection, project: str, slow: Slow, declared: Metric, **asked: Any) -> int:
    """Compare a metric with its slow twin, in values, denominators and intervals; how many rows have a value."""
    start, end = asked.get("window", (None, None))
    by, judge = tuple(asked.get("by", ())), bool(asked.get("judge"))
    window: Any = {"start": None if start is None else moment(start), "end": None if end is None else moment(end)}
    rows = metric(connection, declared.name, project=project, by=by, judge=judge, **window)["rows"]
    inherent = [name for name in INHERENT if name in declared.groupings]
    keys = list(dict.fromkeys([*inherent, *declared.always_by, *by]))
    of_skills = "skill" in keys or "domain" in keys
    expected = slow_rows(slow, declared.name, declared.kind, keys, Asked(start, end, of_skills, judge))
    if not expected and not by:
        (row,) = rows
        assert row["n"] == 0
        assert {row[name] for name in row if name not in ("n", "left_out")} == {None}
        return 0
    found = {tuple(row[key] for key in keys): row for row in rows}
    wanted = {tuple(row[key] for key in keys): row for row in expected}
    assert len(found) == len(rows)
    assert found.keys() == wanted.keys(), (project, declared.name, asked)
    for group, row in found.items():
        _assert_alike(row, wanted[group], keys, (project, declared.name, asked, group))
    return sum(row["n"] > 0 for row in rows)


def _assert_alike(row: dict[str, Any], wanted: dict[str, Any], keys: list[str], where: Any) -> None:
    for name in set(row) - set(keys) - {"cluster_name"}:
        value = wanted.get(name)
        if name in ("low", "high") and name not in wanted:  # a bootstrap's interval, or none
            assert row[name] is None or row["low"] <= row["value"] + 1e-12 <= row["high"] + 2e-12, where
        else:
            assert row[name] == (value if value is None else pytest.approx(value, abs=1e-9)), (where, name)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[House, dict[str, Slow]]:
    """Two projects with hundreds of selections, one of which declares its registry, and one without an event."""
    sizes = {"selection": 300, "call": 500, "feedback": 250, "route": 30}
    worlds = {
        "declared": world(random.Random(1), sizes, REGISTRY),
        "observed": world(random.Random(2), sizes, ()),
        "empty": world(random.Random(3), dict.fromkeys(sizes, 0), ()),
    }
    house = write_worlds(House(tmp_path_factory.mktemp("large")), worlds)
    return house, {project: Slow(found) for project, found in worlds.items()}


@pytest.mark.parametrize("declared", METRICS, ids=lambda declared: declared.name)
def test_every_metric_by_every_grouping(large: tuple[House, dict[str, Slow]], declared: Metric) -> None:
    house, twins = large
    connection = house.connect()
    compared = 0
    for grouping in declared.groupings:
        compared += assert_same(connection, "declared", twins["declared"], declared, by=[grouping])
    for project, slow in twins.items():
        compared += assert_same(connection, project, slow, declared)
        assert_same(connection, project, slow, declared, by=declared.groupings, judge=True)
    for window in _WINDOWS:
        assert_same(connection, "observed", twins["observed"], declared, window=window, judge=True)
    assert compared > len(declared.groupings)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    chance=st.randoms(use_true_random=False),
    window=st.sampled_from(_WINDOWS),
    judge=st.booleans(),
    settled=st.booleans(),
    depth=st.integers(min_value=0, max_value=2),
)
def test_random_events(chance: random.Random, window: Any, judge: bool, settled: bool, depth: int) -> None:
    worlds = {project: random_world(chance) for project in ("one", "two")}
    with TemporaryDirectory() as folder:
        house = write_worlds(House(Path(folder)), worlds, settled=settled)
        connection = house.connect()
        for project, found in worlds.items():
            slow = Slow(found)
            for declared in METRICS:
                by = chance.sample(declared.groupings, min(depth, len(declared.groupings)))
                assert_same(connection, project, slow, declared, window=window, judge=judge, by=by)
        connection.close()


def test_every_metric_has_a_slow_twin() -> None:
    assert set(OBSERVERS) == {declared.name for declared in METRICS}
