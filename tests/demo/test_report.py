"""The table: what is better, what is noise, and the caveat."""

from __future__ import annotations

import io

from rich.console import Console

from demo.report import ROWS, SIMULATED, Comparison, Measured, Row, RunReport, show

RATE = Row("acceptance_rate", "up")


def printed(report: RunReport) -> str:
    console = Console(file=io.StringIO(), width=400, force_terminal=False)
    show(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def line(report: RunReport, metric: str) -> str:
    (found,) = [text for text in printed(report).splitlines() if metric in text]
    return found


def test_it_says_that_the_agents_are_simulated() -> None:
    assert SIMULATED.split(":")[0] in printed(RunReport())


def test_better_and_worse_need_intervals_that_do_not_overlap() -> None:
    low, high, between = Measured(0.5, 100, 0.45, 0.55), Measured(0.7, 100, 0.65, 0.75), Measured(0.6, 9, 0.4, 0.8)
    down = Row("skip_rate", "down")
    assert "better" in line(RunReport(metrics=[(RATE, low, high)]), "acceptance_rate")
    assert "worse" in line(RunReport(metrics=[(RATE, high, low)]), "acceptance_rate")
    assert "in noise" in line(RunReport(metrics=[(RATE, low, between)]), "acceptance_rate")
    assert "better" in line(RunReport(metrics=[(down, high, low)]), "skip_rate")
    assert "worse" in line(RunReport(metrics=[(down, low, high)]), "skip_rate")


def test_the_table_fits_into_80_columns() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    busy = Measured(0.123456, 30_000, 0.101234, 0.154321)
    show(RunReport(metrics=[(row, busy, busy) for row in ROWS]), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "…" not in text
    assert "hallucinated_tool_rate 12.3% (10.1–15.4) 30000 12.3% (10.1–15.4) 30000 in noise" in text


def test_the_outage_is_not_counted_as_success_of_learning() -> None:
    report = RunReport(healthy=[(RATE, Measured(0.6, 900, 0.57, 0.63), Measured(0.62, 900, 0.59, 0.65))])
    text = printed(report)
    assert "The first column includes a planted outage" in text
    assert "acceptance_rate: 60.0% (57.0–63.0) → 62.0% (59.0–65.0) in noise" in text


def test_nothing_measured_is_no_number() -> None:
    text = line(RunReport(metrics=[(RATE, Measured(None, 0), Measured(0.5, 1, 0.1, 0.9))]), "acceptance_rate")
    assert "–" in text
    assert "None" not in text


def test_every_part_is_told() -> None:
    report = RunReport(
        ndcg=Comparison(400, (0.5, 0.45, 0.55), (0.7, 0.65, 0.75), (0.2, 0.15, 0.25), 0.97),
        status_changes=[
            {"skill_id": "x", "previous_status": "active", "status": "degraded", "reason": "failing",
             "evidence": {"calls": 40, "success_high": 0.31234, "rule": "failing"}}
        ],
        alerts=[
            {"time": "2026-01-01T10:00:09Z", "rule": "fallback_usage", "state": "resolved", "message": "over"},
            {"time": "2026-01-01T10:00:01Z", "rule": "fallback_usage", "state": "firing", "message": "0.9 > 0.01"},
        ],
        deliveries=[{"rule": "fallback_usage", "state": "firing"}],
        routes=["degraded", "probe", "recovered"],
        training={"decision": "promoted", "version": "m1", "reason": "lower bound 0.02 > 0",
                  "evidence": {"guards": [{"name": "golden", "outcome": "passed", "detail": "ok"}]}},
    )  # fmt: skip
    text = printed(report)
    assert "97% of these lists ordered by the model" in text
    assert "difference +0.200 (+0.150 to +0.250)" in text
    assert "x: active → degraded (failing; calls 40, success_high 0.312)" in text
    assert text.index("firing: 0.9 > 0.01") < text.index("resolved: over")
    assert "delivered to the webhook on loopback: fallback_usage firing" in text
    assert "degraded → probe → recovered" in text
    assert "Training: promoted m1: lower bound 0.02 > 0" in text
    assert "golden          passed         ok" in text


def test_the_document_is_plain() -> None:
    import msgspec

    report = RunReport(metrics=[(RATE, Measured(0.5, 10, 0.2, 0.8), Measured(None, 0))])
    (row,) = msgspec.json.decode(msgspec.json.encode(report.document()))["metrics"]
    assert row["metric"] == "acceptance_rate"
    assert row["before"]["n"] == 10
    assert row["after"]["value"] is None
