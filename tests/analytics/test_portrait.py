"""One skill's portrait, counted by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from analytics import portrait
from tests.analytics.conftest import NOON, House, at, entry, moment

DAY = 86_400


@pytest.fixture
def weather(house: House) -> House:
    """`w/weather` is offered four times: picked at rank 1, passed over twice for `forecast`, once for `radar`."""
    house.write(entry("w/weather", name="weather", domain="sky", description="Today's weather"), entry("forecast"))

    def selection(i: int, listed: str, picks: list[str]) -> dict[str, object]:
        listing = [{"skill_id": skill} for skill in listed.split()]
        event = {"type": "selection", "event_id": f"s{i}", "time": at(i * DAY), "query": f"query {i}", "ranked": True}
        return event | {"candidates": listing, "picks": picks}

    return house.events(
        selection(0, "w/weather forecast", ["weather"]),
        selection(1, "w/weather forecast", ["forecast"]),
        selection(2, "w/weather forecast", ["forecast"]),
        selection(3, "w/weather radar", ["radar"]),
        *(
            {"type": "call", "event_id": f"c{i}", "time": at(i), "skill_id": name, "ok": i < 3, "latency_ms": 10.0 * i}
            | ({} if i < 3 else {"error_kind": "timeout"})
            for i, name in enumerate(["weather", "w/weather", "weather", "weather"])
        ),
    )


def test_a_portrait(weather: House) -> None:
    found = portrait.skill(weather.connect(), "default", "w/weather")
    assert found is not None
    assert (found["entry"]["name"], found["entry"]["entry"]["domain"]) == ("weather", "sky")
    assert (found["impressions"], found["picks"], found["skips"], found["acceptance"]) == (4, 1, 3, 0.25)
    # A bare name that only this entry bears is this skill.
    assert (found["calls"], found["finished"], found["failed"], found["success"]) == (4, 4, 1, 0.75)
    assert found["success_low"] == pytest.approx(0.3006, abs=1e-4)
    assert found["error_kinds"] == {"timeout": 1}
    assert (found["latency_mean_ms"], found["latency_n"]) == (15.0, 4)
    assert found["latency_p99_ms"] == pytest.approx(29.7)
    # Nothing describes `forecast` or `radar`, so no overlap is known.
    assert found["confused_with"] == [
        {"skill_id": "forecast", "n": 2, "first": 4, "overlap": None},
        {"skill_id": "radar", "n": 1, "first": 4, "overlap": None},
    ]
    assert [trigger["query"] for trigger in found["triggers"]] == ["query 0"]
    assert [(day["day"], day["impressions"], day["calls"]) for day in found["series"]] == [
        ("2026-03-02", 1, 4),
        ("2026-03-03", 1, 0),
        ("2026-03-04", 1, 0),
        ("2026-03-05", 1, 0),
    ]


def test_a_window_narrows_it(weather: House) -> None:
    found = portrait.skill(weather.connect(), "default", "w/weather", moment(DAY), moment(3 * DAY))
    assert found is not None
    assert (found["impressions"], found["calls"], found["success"]) == (2, 0, None)
    assert found["confused_with"] == [{"skill_id": "forecast", "n": 2, "first": 2, "overlap": None}]


def test_the_newest_status_and_weights(weather: House) -> None:
    for hours, status in ((1, "degraded"), (2, "active")):
        time = datetime(2026, 3, 2, hours, tzinfo=UTC)
        row = {"project": "default", "date": NOON.date(), "time": time, "skill_id": "w/weather"}
        weather.lake.append("skill_status", pl.DataFrame([row | {"status": status}]))
        weather.lake.append("weights", pl.DataFrame([row | {"version": f"v{hours}", "heat": 0.1 * hours}]))
    found = portrait.skill(weather.connect(), "default", "w/weather")
    assert found is not None
    assert (found["status"]["status"], found["weights"]["version"]) == ("active", "v2")


def test_a_skill_that_was_only_called_has_no_entry(weather: House) -> None:
    found = portrait.skill(
        weather.events({"type": "call", "skill_id": "ghost", "event_id": "g"}).connect(), "default", "ghost"
    )
    assert found is not None
    assert (found["entry"], found["calls"], found["impressions"]) == (None, 1, 0)


def test_what_nothing_knows_is_none(weather: House) -> None:
    assert portrait.skill(weather.connect(), "default", "nothing") is None
    assert portrait.skill(weather.connect(), "other", "w/weather") is None
