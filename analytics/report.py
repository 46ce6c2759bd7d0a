"""The report: four decisions, their metrics against the window before, and what to look at first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from analytics.metrics.declarations import DECISIONS, GROUPINGS, METRICS, NOT_COMPUTED, Metric
from analytics.query import MetricError, metric
from pickwise.events import DEFAULT_PROJECT

#: A finding needs so many observations; below, chance decides.
_MIN_N = 20
#: Findings named at the top.
_FIRST = 5
_SEVERITIES = ("bad", "warn")
#: Status of a value over too few observations to be held against its thresholds; durations and spells are counted.
FEW = "few"
_COUNTED = ("s", "spells")


def report(
    connection: duckdb.DuckDBPyConnection,
    project: str = DEFAULT_PROJECT,
    start: datetime | None = None,
    end: datetime | None = None,
    by: Sequence[str] = (),
) -> dict[str, Any]:
    """The report over events with ``start`` <= time < ``end``.

    ``decisions``: for each of the four, its ``question`` and ``metrics``; each metric has its whole ``value``, ``n``,
    ``low``, ``high`` (latencies: ``rows`` by stage), ``previous`` (the same over the window of equal length before;
    None without a ``start``), ``change``, ``status`` (`ok`, `warn`, `bad`, `few` below 20 observations, or None
    without data or thresholds), and with ``by`` the ``rows`` of the groupings that it supports (None where it
    supports none of them). ``look_first``: what is beyond its threshold, worst first, with the skill that contributes
    most.

    Raises MetricError for a grouping that no metric knows.
    """
    for grouping in by:
        if grouping in NOT_COMPUTED:
            raise MetricError(f"by: {grouping} is not computed yet")
        if grouping not in GROUPINGS:
            raise MetricError(f"by: expected some of {', '.join(GROUPINGS)}; got {grouping!r:.80}")
    stop = datetime.now(UTC) if start is not None and end is None else end
    before = None if start is None or stop is None else (start - (stop - start), start)
    measured = [_measure(connection, declared, project, (start, stop), before, by) for declared in METRICS]
    decisions = [
        {"decision": name, "question": question, "metrics": [m for m in measured if m["decision"] == name]}
        for name, question in DECISIONS.items()
    ]
    return {
        "project": project,
        "from": _iso(start),
        "to": _iso(stop),
        "previous": None if before is None else {"from": _iso(before[0]), "to": _iso(before[1])},
        "by": list(by),
        "look_first": _look_first(connection, project, (start, stop), measured),
        "decisions": decisions,
    }


Window = tuple[datetime | None, datetime | None]


def _measure(
    connection: duckdb.DuckDBPyConnection,
    declared: Metric,
    project: str,
    window: Window,
    before: Window | None,
    by: Sequence[str],
) -> dict[str, Any]:
    def ask(span: Window, groups: Sequence[str] = ()) -> list[dict[str, Any]]:
        start, end = span
        found = metric(connection, declared.name, project=project, start=start, end=end, by=groups)["rows"]
        return list(found)

    measured: dict[str, Any] = {
        "metric": declared.name,
        "decision": declared.decision,
        "unit": declared.unit,
        "good": declared.good,
        "meaning": declared.meaning,
    }
    supported = [grouping for grouping in by if grouping in declared.groupings]
    now, then = ask(window), ask(before) if before is not None else None
    if "stage" in declared.groupings:
        past = {row["stage"]: row for row in then or []}
        rows = [row | {"previous_p99": past.get(row["stage"], {}).get("p99")} for row in now]
        measured |= {"value": None, "n": sum(row["n"] for row in now), "low": None, "high": None, "previous": None}
        return measured | {"change": None, "status": None, "rows": ask(window, supported) if supported else rows}
    (whole,) = now
    previous = then[0] if then else None
    return measured | {
        "value": whole["value"],
        "n": whole["n"],
        "low": whole["low"],
        "high": whole["high"],
        "previous": previous,
        "change": _difference(whole["value"], previous["value"] if previous else None),
        "status": _status(declared, whole["value"], whole["n"]),
        "rows": ask(window, supported) if supported else None,
    }


def _difference(value: float | None, previous: float | None) -> float | None:
    return None if value is None or previous is None else value - previous


def _status(declared: Metric, value: float | None, n: int) -> str | None:
    if value is None or declared.warn is None or declared.bad is None:
        return None
    if n < _MIN_N and declared.unit not in _COUNTED:
        return FEW
    if _beyond(declared, value, declared.bad):
        return "bad"
    return "warn" if _beyond(declared, value, declared.warn) else "ok"


def _beyond(declared: Metric, value: float, threshold: float) -> bool:
    return value < threshold if declared.good == "up" else value > threshold


def _look_first(
    connection: duckdb.DuckDBPyConnection, project: str, window: Window, measured: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Metrics beyond their thresholds, worst first."""
    by_name = {declared.name: declared for declared in METRICS}
    found = [m for m in measured if m["status"] in _SEVERITIES]
    found.sort(key=lambda m: (_SEVERITIES.index(m["status"]), -_excess(by_name[m["metric"]], m["value"])))
    findings = []
    for m in found[:_FIRST]:
        declared = by_name[m["metric"]]
        threshold = declared.bad if m["status"] == "bad" else declared.warn
        assert threshold is not None
        culprit = _culprit(connection, declared, project, window)
        findings.append(
            {
                "metric": declared.name,
                "decision": declared.decision,
                "severity": m["status"],
                "value": m["value"],
                "n": m["n"],
                "threshold": threshold,
                "skill": culprit,
                "sentence": _sentence(declared, m, threshold, culprit),
            }
        )
    return findings


def _excess(declared: Metric, value: float) -> float:
    """How far beyond its threshold, in units of the threshold's distance from good."""
    warn, bad = declared.warn or 0.0, declared.bad or 0.0
    return (value - warn) / (bad - warn) if bad != warn else 0.0


def _culprit(
    connection: duckdb.DuckDBPyConnection, declared: Metric, project: str, window: Window
) -> dict[str, Any] | None:
    """The skill with most of the observations that speak against the metric."""
    if "skill" not in declared.groupings:
        return None
    start, end = window
    rows = metric(connection, declared.name, project=project, start=start, end=end, by=["skill"])["rows"]
    against = [
        (round(row["n"] * (row["value"] if declared.good == "down" else 1 - row["value"])), row)
        for row in rows
        if row["skill"] is not None and row["value"] is not None
    ]
    count, row = max(against, key=lambda pair: (pair[0], pair[1]["skill"]), default=(0, None))
    return None if row is None or count == 0 else {"skill": row["skill"], "count": count, "n": row["n"]}


def _sentence(declared: Metric, m: dict[str, Any], threshold: float, culprit: dict[str, Any] | None) -> str:
    direction = "below" if declared.good == "up" else "above"
    said = f"{declared.name} is {show(m['value'], declared.unit)} (n = {m['n']}), {direction}"
    said += f" {show(threshold, declared.unit)}."
    if culprit is None:
        return said
    return f"{said} Most against it: {culprit['skill']} ({culprit['count']} of {culprit['n']})."


def show(value: float | None, unit: str) -> str:
    """A value as people read it."""
    if value is None:
        return "–"
    return f"{value * 100:.1f} %" if unit == "fraction" else f"{value:,.1f}" if unit != "spells" else f"{value:,.0f}"


def _interval(m: dict[str, Any]) -> str:
    return "" if m.get("low") is None else f"{show(m['low'], m['unit'])} to {show(m['high'], m['unit'])}"


def _change(m: dict[str, Any]) -> str:
    if m["change"] is None:
        return ""
    return f"{m['change'] * 100:+.1f} pp" if m["unit"] == "fraction" else f"{m['change']:+,.1f}"


_COLUMNS = ("metric", "value", "95 % interval", "n", "change", "")
_STAGE_COLUMNS = ("stage", "p50", "p95", "p99", "n", "left out")


def _cells(m: dict[str, Any]) -> list[str]:
    return [m["metric"], show(m["value"], m["unit"]), _interval(m), f"{m['n']:,}", _change(m), m["status"] or ""]


def _is_latency(m: dict[str, Any]) -> bool:
    return bool(m["rows"]) and "p95" in m["rows"][0]


def _stage_cells(row: dict[str, Any]) -> list[str]:
    quantiles = [show(row[name], "ms") for name in ("p50", "p95", "p99")]
    return [row["stage"] or "–", *quantiles, f"{row['n']:,}", f"{row['left_out']:,}"]


def _group_cells(m: dict[str, Any], by: Sequence[str]) -> list[list[str]]:
    """The rows of the groupings asked for, each a line under its metric."""
    if _is_latency(m):
        return []
    return [
        [
            "  " + ", ".join(f"{row[group]}" for group in by if group in row),
            show(row["value"], m["unit"]),
            _interval(row | {"unit": m["unit"]}),
            f"{row['n']:,}",
            "",
            "",
        ]
        for row in m["rows"] or []
    ]


def _window_title(found: dict[str, Any]) -> str:
    if found["from"] is None and found["to"] is None:
        return f"Project {found['project']}, all that is kept"
    return f"Project {found['project']}, {found['from'] or 'the beginning'} to {found['to'] or 'now'}"


def _nothing_to_look_at(found: dict[str, Any]) -> str:
    measured = [m for decision in found["decisions"] for m in decision["metrics"] if not _is_latency(m)]
    if not any(m["n"] for m in measured):
        return "No events in this project and window."
    few = [m["metric"] for m in measured if m["status"] == FEW]
    too_few = f" Too few observations to judge (n < {_MIN_N}): {', '.join(few)}." if few else ""
    return f"Nothing is beyond its threshold.{too_few}"


def render_text(found: dict[str, Any]) -> RenderableType:
    """The report for a terminal."""
    parts: list[RenderableType] = [Text(_window_title(found), style="bold")]
    parts.append(Text("Look first:" if found["look_first"] else _nothing_to_look_at(found)))
    colours = {"bad": "red", "warn": "yellow", "ok": "green"}
    parts += [Text(f"  {f['sentence']}", style=colours[f["severity"]]) for f in found["look_first"]]
    for decision in found["decisions"]:
        title = f"{decision['decision'].capitalize()}: {decision['question']}"
        table = Table(*_COLUMNS, title=title, title_justify="left")
        for m in decision["metrics"]:
            if not _is_latency(m):
                table.add_row(*map(escape, _cells(m)), style=colours.get(m["status"] or "", ""))
            for cells in _group_cells(m, found["by"]):
                table.add_row(*map(escape, cells), style="dim")
        parts.append(table)
        for m in decision["metrics"]:
            if _is_latency(m):
                latencies = Table(*_STAGE_COLUMNS, title=m["metric"], title_justify="left")
                for row in m["rows"]:
                    latencies.add_row(*map(escape, _stage_cells(row)))
                parts.append(latencies)
    return Group(*parts)


def render_markdown(found: dict[str, Any]) -> str:
    """The report as Markdown."""
    lines = [f"# {_window_title(found)}", ""]
    lines += ["## Look first", ""] if found["look_first"] else [_nothing_to_look_at(found), ""]
    lines += [f"- **{f['severity']}** {f['sentence']}" for f in found["look_first"]]
    for decision in found["decisions"]:
        lines += ["", f"## {decision['decision'].capitalize()}", "", decision["question"], "", *_head(_COLUMNS)]
        for m in decision["metrics"]:
            if not _is_latency(m):
                lines.append(_line(_cells(m)))
            lines += [_line(cells) for cells in _group_cells(m, found["by"])]
        for m in decision["metrics"]:
            if _is_latency(m):
                lines += ["", f"`{m['metric']}`", "", *_head(_STAGE_COLUMNS)]
                lines += [_line(_stage_cells(row)) for row in m["rows"]]
    return "\n".join(lines) + "\n"


def _head(columns: Sequence[str]) -> list[str]:
    return [_line(columns), "|" + "---|" * len(columns)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat().replace("+00:00", "Z")
