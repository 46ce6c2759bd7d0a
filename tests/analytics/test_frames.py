"""Frames for a dashboard, on an example and on nothing."""

from __future__ import annotations

import polars as pl
import pytest

from analytics import frames
from tests.analytics.conftest import NOON, House, at, entry, moment

HOUR = 3600


@pytest.fixture
def shop(house: House) -> House:
    house.write(entry("a", domain="d"), entry("idle"), entry("gone", is_active=False))
    listed = {"candidates": [{"skill_id": "a"}, {"skill_id": "b"}], "ranked": True}
    return house.events(
        {"type": "selection", "event_id": "s1", "time": at(0), "picks": ["b"]} | listed,
        {"type": "selection", "event_id": "s2", "time": at(HOUR), "picks": []} | listed,
        {"type": "call", "event_id": "c1", "time": at(1), "skill_id": "b", "ok": True, "latency_ms": 4.0}
        | {"selection_id": "s1"},
        {"type": "call", "event_id": "c2", "time": at(2), "skill_id": "b", "ok": False, "latency_ms": -1.0}
        | {"selection_id": "s1"},
    )


def test_a_metric_over_time(shop: House) -> None:
    series = frames.metric_series(shop.connect(), "acceptance_rate", every="hour")
    assert series.select("time", "value", "n").rows() == [(moment(0), 1.0, 1), (moment(HOUR), 0.0, 1)]
    days = frames.metric_series(shop.connect(), "stage_latency_ms", every="day")
    assert days.select("time", "stage", "p99", "n", "left_out").rows() == [
        (moment(-12 * HOUR), "call", 4.0, 1, 1),
    ]


def test_skills_that_are_registered_offered_or_called(shop: House) -> None:
    found = {row["skill_id"]: row for row in frames.skills(shop.connect()).to_dicts()}
    assert set(found) == {"a", "b", "idle", "gone"}
    assert (found["a"]["domain"], found["a"]["impressions"], found["a"]["skips"]) == ("d", 2, 1)
    assert (found["b"]["is_active"], found["b"]["calls"], found["b"]["success"]) == (None, 2, 0.5)
    assert (found["b"]["acceptance"], found["b"]["latency_p99_ms"]) == (0.5, 4.0)
    assert (found["idle"]["calls"], found["idle"]["success"], found["gone"]["is_active"]) == (0, None, False)


def test_the_newest_selections_come_first(shop: House) -> None:
    found = frames.matching_selections(shop.connect()).to_dicts()
    assert [(row["event_id"], row["best_rank"], row["calls"], row["failed"]) for row in found] == [
        ("s2", None, 0, 0),
        ("s1", 2, 2, 1),
    ]
    assert frames.matching_selections(shop.connect(), limit=1).height == 1


def test_the_newest_alerts_come_first(shop: House) -> None:
    base = {"project": "default", "date": NOON.date()}
    for hour, alert_id in ((0, "old"), (1, "new")):
        shop.lake.append("alerts", pl.DataFrame([base | {"time": moment(hour * HOUR), "alert_id": alert_id}]))
    assert frames.alerts(shop.connect())["alert_id"].to_list() == ["new", "old"]


def test_frames_of_nothing_keep_their_columns(house: House) -> None:
    connection = house.connect()
    assert frames.metric_series(connection, "acceptance_rate").columns == ["time", "value", "n", "low", "high"]
    for frame in (
        frames.skills(connection),
        frames.matching_selections(connection),
        frames.alerts(connection),
    ):
        assert frame.height == 0
        assert frame.columns
