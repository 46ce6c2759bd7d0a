"""The document of one metric: its shape, windows, groups and refusals."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from analytics.metrics.declarations import METRICS
from analytics.query import MetricError, metric
from tests.analytics.conftest import House, at, moment


@pytest.fixture
def calls(house: House) -> House:
    """Four calls, one an hour from noon; the first two of model m, the third failed."""
    return house.events(
        *(
            {"type": "call", "event_id": f"c{i}", "time": at(3600 * i), "skill_id": "a", "ok": i != 2}
            | {"model": "m" if i < 2 else None, "environment": "production"}
            for i in range(4)
        )
    )


def test_the_document(calls: House) -> None:
    found = metric(calls.connect(), "failed_tool_rate", start=moment(0), end=moment(7200 * 2), by=["model"])
    wilson = {"value": 0.5, "n": 2, "low": pytest.approx(0.0945, abs=1e-4), "high": pytest.approx(0.9055, abs=1e-4)}
    assert found == {
        "metric": "failed_tool_rate",
        "unit": "fraction",
        "from": "2026-03-02T12:00:00Z",
        "to": "2026-03-02T16:00:00Z",
        "by": ["model"],
        "rows": [
            {"model": "m", "value": 0.0, "n": 2, "low": 0.0, "high": pytest.approx(0.6576, abs=1e-4)},
            {"model": None, **wilson},
        ],
    }


def test_a_window_holds_its_start_and_not_its_end(calls: House) -> None:
    def n(start: datetime | None, end: datetime | None) -> int:
        (row,) = metric(calls.connect(), "failed_tool_rate", start=start, end=end)["rows"]
        return int(row["n"])

    assert n(None, None) == 4
    assert n(moment(3600), moment(7200)) == 1
    assert n(moment(3600), None) == 3
    assert n(None, moment(7200)) == 2
    # A time without a zone is UTC, one with a zone is itself.
    assert n(moment(3600).replace(tzinfo=None), None) == 3
    assert n(moment(3600).astimezone(timezone(timedelta(hours=8))), None) == 3


def test_hours_and_days(calls: House) -> None:
    hours = metric(calls.connect(), "failed_tool_rate", by=["hour"])["rows"]
    assert [(row["hour"], row["value"]) for row in hours] == [
        ("2026-03-02T12:00:00Z", 0.0),
        ("2026-03-02T13:00:00Z", 0.0),
        ("2026-03-02T14:00:00Z", 1.0),
        ("2026-03-02T15:00:00Z", 0.0),
    ]
    days = metric(calls.connect(), "failed_tool_rate", by=["day", "environment"])["rows"]
    assert [(row["day"], row["environment"], row["n"]) for row in days] == [("2026-03-02", "production", 4)]


@pytest.mark.parametrize("declared", METRICS, ids=lambda declared: declared.name)
def test_nothing_there_is_one_row_of_nothing(house: House, declared: Any) -> None:
    (row,) = metric(house.connect(), declared.name, project="nobody")["rows"]
    assert row["n"] == 0
    assert {row[key] for key in row if key not in ("n", "left_out")} == {None}


def test_every_metric_takes_all_its_groupings_together(calls: House) -> None:
    connection = calls.connect()
    for declared in METRICS:
        for row in metric(connection, declared.name, by=declared.groupings)["rows"]:
            assert set(declared.groupings) <= set(row)
        for grouping in declared.groupings:
            metric(connection, declared.name, by=[grouping])


def test_grouping_latencies_by_stage_is_no_other_question(calls: House) -> None:
    connection = calls.connect()
    assert (
        metric(connection, "stage_latency_ms", by=["stage"])["rows"] == metric(connection, "stage_latency_ms")["rows"]
    )


@pytest.mark.parametrize(
    ("name", "by", "reason"),
    [
        ("no_such", [], "metric: expected one of acceptance_rate, .*got 'no_such'"),
        ("zero_pick_rate", ["skill"], "by: zero_pick_rate can be grouped by agent, model, .*got 'skill'"),
        ("loop_rate", ["cluster"], "by: loop_rate can be grouped by"),
        ("failed_tool_rate", ["ok; drop table calls"], "by: failed_tool_rate can be grouped by"),
    ],
)
def test_what_cannot_be_asked_is_said(house: House, name: str, by: list[str], reason: str) -> None:
    with pytest.raises(MetricError, match=reason):
        metric(house.connect(), name, by=by)
