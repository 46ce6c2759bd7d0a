"""The report: four decisions, their metrics against the window before, and what to look at first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb

from analytics import chains
from analytics.cluster_weakness import clusters_by_weakness
from analytics.confusion import confusions
from analytics.metrics.declarations import BY_NAME, DECISIONS, GROUPINGS, METRICS, MIN_N, Metric
from analytics.query import MetricError, metric
from pickwise.events import DEFAULT_PROJECT

#: Findings named at the top, and rows of each list below the metrics.
_FIRST = 5
_SEVERITIES = ("bad", "warn")
#: Status of a value over too few observations to be held against its thresholds; durations and spells are counted.
FEW = "few"
_COUNTED = ("s", "spells")
_TIMES = ("s", "ms")


def report(
    connection: duckdb.DuckDBPyConnection,
    project: str = DEFAULT_PROJECT,
    start: datetime | None = None,
    end: datetime | None = None,
    by: Sequence[str] = (),
    *,
    with_lists: bool = True,
) -> dict[str, Any]:
    """The report over events with ``start`` <= time < ``end``.

    ``decisions``: for each of the four, its ``question`` and ``metrics``; each metric has its whole ``value``, ``n``,
    ``low``, ``high`` (latencies: ``rows`` by stage; recall: that of one depth, and ``rows`` by k;
    drift: that of the version pair seen most, and ``rows`` by pair), ``previous`` (the same over the window of equal
    length before; None without a ``start``), ``change``, ``status`` (`ok`, `warn`, `bad`, `few` below 20 observations,
    or None without data or thresholds), and with ``by`` the ``rows`` of the groupings that it supports (None where it
    supports none of them). ``look_first``: what is beyond its threshold, worst first, with the skill that contributes
    most.

    ``with_lists``, the first of: ``confused``: pairs of skills (``analytics.confusion``); ``weak_clusters``: kinds of
    questions that surely go worse than the rest (``analytics.cluster_weakness``); ``chains``: what successful sessions
    run one after the other, as last night found it, whatever the window.

    Raises MetricError for a grouping that no metric knows.
    """
    for grouping in by:
        if grouping not in GROUPINGS:
            raise MetricError(f"by: expected some of {', '.join(GROUPINGS)}; got {grouping!r:.80}")
    stop = datetime.now(UTC) if start is not None and end is None else end
    before = None if start is None or stop is None else (start - (stop - start), start)
    measured = [_measure(connection, declared, project, (start, stop), before, by) for declared in METRICS]
    decisions = [
        {"decision": name, "question": question, "metrics": [m for m in measured if m["decision"] == name]}
        for name, question in DECISIONS.items()
    ]
    document = {
        "project": project,
        "from": _iso(start),
        "to": _iso(stop),
        "previous": None if before is None else {"from": _iso(before[0]), "to": _iso(before[1])},
        "by": list(by),
        "look_first": _look_first(connection, project, (start, stop), measured),
        "decisions": decisions,
    }
    return document | _lists(connection, project, (start, stop)) if with_lists else document


Window = tuple[datetime | None, datetime | None]


def _lists(connection: duckdb.DuckDBPyConnection, project: str, window: Window) -> dict[str, list[dict[str, Any]]]:
    start, end = window
    clusters = clusters_by_weakness(connection, project, start, end)
    return {
        "confused": confusions(connection, project, start=start, end=end, limit=_FIRST),
        "weak_clusters": [row for row in clusters if row["weak_by"]][:_FIRST],
        "chains": [_chain(row) for row in chains.stored(connection, project, _FIRST)],
    }


def _chain(row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: _iso(row[name]) for name in ("time", "computed_at")}


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
    whole = _headline(declared, now)
    previous = _headline(declared, then) if then else None
    if any(previous is not None and previous[name] != whole[name] for name in declared.always_by):
        previous = None
    has_rows = declared.headline_k is not None or bool(declared.always_by)
    own_rows = now if has_rows and whole["n"] else None
    return measured | {
        "value": whole["value"],
        "n": whole["n"],
        "low": whole["low"],
        "high": whole["high"],
        "previous": previous,
        "change": _difference(whole["value"], previous["value"] if previous else None),
        "status": _status(declared, whole["value"], whole["n"]),
        "rows": ask(window, supported) if supported else own_rows,
    }


def _headline(declared: Metric, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row that stands for the metric: the only one, or that of the depth which is judged."""
    return next((row for row in rows if row.get("k") == declared.headline_k), rows[0])


def _difference(value: float | None, previous: float | None) -> float | None:
    return None if value is None or previous is None else value - previous


def _status(declared: Metric, value: float | None, n: int) -> str | None:
    if value is None or declared.warn is None or declared.bad is None:
        return None
    if n < MIN_N and declared.unit not in _COUNTED:
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
    found = [m for m in measured if m["status"] in _SEVERITIES]
    found.sort(key=lambda m: (_SEVERITIES.index(m["status"]), -_excess(BY_NAME[m["metric"]], m["value"])))
    findings = []
    for m in found[:_FIRST]:
        declared = BY_NAME[m["metric"]]
        finding = {
            "metric": declared.name,
            "decision": declared.decision,
            "severity": m["status"],
            "value": m["value"],
            "n": m["n"],
            "threshold": declared.bad if m["status"] == "bad" else declared.warn,
            "skill": _culprit(connection, declared, project, window),
        }
        findings.append(finding | {"sentence": sentence(finding)})
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
        (declared.against(row), row)
        for row in rows
        if row["skill"] is not None and row["value"] is not None and row.get("k") == declared.headline_k
    ]
    count, row = max(against, key=lambda pair: (pair[0], pair[1]["skill"]), default=(0, None))
    return None if row is None or count == 0 else {"skill": row["skill"], "count": count, "n": row["n"]}


def sentence(finding: dict[str, Any], quoted: Callable[[str], str] = str) -> str:
    """What a finding says, the name of its skill as ``quoted`` shows it."""
    declared = BY_NAME[finding["metric"]]
    direction = "below" if declared.good == "up" else "above"
    value, threshold = (show(finding[name], declared.unit) for name in ("value", "threshold"))
    said = f"{declared.name} is {value} (n = {finding['n']}), {direction} {threshold}."
    culprit = finding["skill"]
    if culprit is None:
        return said
    return f"{said} Most against it: {quoted(culprit['skill'])} ({culprit['count']} of {culprit['n']})."


def show(value: float | None, unit: str) -> str:
    """A value as people read it."""
    if value is None:
        return "–"
    if unit == "fraction":
        return f"{value * 100:.1f} %"
    return f"{value:,.0f}" if unit == "spells" else f"{value:,.1f}{f' {unit}' if unit in _TIMES else ''}"


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat().replace("+00:00", "Z")
