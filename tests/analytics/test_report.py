"""The report: four decisions, change from the window before, and what to look at first."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from analytics.metrics.declarations import DECISIONS, METRICS
from analytics.query import MetricError
from analytics.report import report
from analytics.report_text import render_markdown, render_text
from tests.analytics.conftest import House, at, moment

HOUR = 3600


@pytest.fixture
def worse(house: House) -> House:
    """An hour in which 2 of 40 calls failed, then one in which 20 did, most of them of `broken`."""
    events: list[dict[str, Any]] = []
    for hour, failures in ((0, 2), (1, 20)):
        for i in range(40):
            failed = i < failures
            skill = "broken|[red]" if failed and i > 1 else "fine"
            kind = {"error_kind": "timeout"} if failed else {}
            time = {"time": at(hour * HOUR + i), "event_id": f"{hour}-{i}", "latency_ms": 10.0 * (hour + 1)}
            events.append({"type": "call", "skill_id": skill, "ok": not failed} | kind | time)
    return house.events(*events)


def found_in(found: dict[str, Any], name: str) -> dict[str, Any]:
    (measured,) = [m for decision in found["decisions"] for m in decision["metrics"] if m["metric"] == name]
    return dict(measured)


def test_every_metric_stands_under_its_decision(worse: House) -> None:
    found = report(worse.connect())
    assert [decision["decision"] for decision in found["decisions"]] == list(DECISIONS)
    names = [m["metric"] for decision in found["decisions"] for m in decision["metrics"]]
    assert sorted(names) == sorted(metric.name for metric in METRICS)


def test_change_is_against_the_window_of_equal_length_before(worse: House) -> None:
    found = report(worse.connect(), "default", moment(HOUR), moment(2 * HOUR))
    assert found["previous"] == {"from": "2026-03-02T12:00:00Z", "to": "2026-03-02T13:00:00Z"}
    failed = found_in(found, "failed_tool_rate")
    assert (failed["value"], failed["previous"]["value"]) == (0.5, 0.05)
    assert failed["change"] == pytest.approx(0.45)
    (calls,) = found_in(found, "stage_latency_ms")["rows"]
    assert (calls["p99"], calls["previous_p99"]) == (20.0, 10.0)


def test_without_a_start_there_is_no_window_before(worse: House) -> None:
    found = report(worse.connect())
    assert found["previous"] is None
    assert found_in(found, "failed_tool_rate")["change"] is None


def test_what_to_look_at_first_names_the_skill(worse: House) -> None:
    found = report(worse.connect(), "default", moment(HOUR), moment(2 * HOUR))
    (first,) = found["look_first"]
    assert (first["metric"], first["severity"], first["n"]) == ("failed_tool_rate", "bad", 40)
    assert first["skill"] == {"skill": "broken|[red]", "count": 18, "n": 18}
    assert "50.0 %" in first["sentence"]


def test_few_observations_are_no_finding(worse: House) -> None:
    found = report(worse.connect(), "default", moment(HOUR), moment(HOUR + 10))
    assert found_in(found, "failed_tool_rate")["status"] == "few"
    assert found["look_first"] == []
    assert "Too few observations to judge (n < 20): " in render_markdown(found)


def test_by_breaks_down_what_supports_it(worse: House) -> None:
    found = report(worse.connect(), "default", by=["skill", "error_kind"])
    kinds = {(row["skill"], row["error_kind"]) for row in found_in(found, "failed_tool_rate")["rows"]}
    assert kinds == {("broken|[red]", "timeout"), ("fine", "timeout")}
    assert found_in(found, "zero_pick_rate")["rows"] is None


def test_an_unknown_grouping_is_an_error(house: House) -> None:
    with pytest.raises(MetricError, match="expected some of skill"):
        report(house.connect(), by=["colour"])


def test_renderings_say_the_same(worse: House) -> None:
    found = report(worse.connect(), "default", moment(HOUR), moment(2 * HOUR), ["skill"])
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(render_text(found))
    text, markdown = console.export_text(), render_markdown(found)
    for rendered in (text, markdown):
        assert "failed_tool_rate" in rendered
        assert "+45.0 pp" in rendered
        assert "20.0" in rendered
        for metric in METRICS:
            assert metric.name in rendered
    # Names are data: neither markup nor a cell's border.
    assert "broken|[red]" in text
    assert "broken\\|[red]" in markdown


def test_an_empty_lake_reports_nothing_amiss(house: House) -> None:
    found = report(house.connect())
    assert found["look_first"] == []
    assert "No events in this project and window." in render_markdown(found)
