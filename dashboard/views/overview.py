"""Overview: the four decisions, what is wrong now, and where to look first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import streamlit as st

from analytics.metrics.declarations import (
    BY_NAME,
    CALL_RELIABILITY,
    DISCOVERY_HEALTH,
    NAMES_AND_REGISTRY,
    SELECTION_QUALITY,
)
from analytics.wilson import wilson
from dashboard import cards, charts, data, empty, firing, formats, links
from dashboard.cards import Cell, Column, Part, Tone
from dashboard.state import Scope

#: The number that each decision is judged by first.
LEADING = {
    SELECTION_QUALITY: "acceptance_rate",
    CALL_RELIABILITY: "failed_tool_rate",
    NAMES_AND_REGISTRY: "hallucinated_tool_rate",
    DISCOVERY_HEALTH: "fallback_rate",
}
TITLES = {
    SELECTION_QUALITY: "Selection quality",
    CALL_RELIABILITY: "Call reliability",
    NAMES_AND_REGISTRY: "Names and registry",
    DISCOVERY_HEALTH: "Discovery health",
}
_LATENCY = "stage_latency_ms"
#: Stages whose wait is shown, and how.
_STAGES = {"total": "Selection, p99", "embed": "Embedding, p99", "rerank": "Rerank, p99", "call": "Calls, p99"}
#: Shown indented: they add up to the metric above them.
_PARTS_OF = frozenset({"skip_rate", "off_list_rate", "corrected_rate"})
_INDENT = "\u2003"
_TONES: dict[str | None, Tone] = {"bad": "bad", "warn": "warn"}
_TOP_KINDS = 4
_TOP_NAMES = 3
_WORST = 8
_FEW_CALLS = 5


def page(scope: Scope) -> None:
    if not scope.has_events_in_window:
        cards.heading("Overview", scope.project)
        empty.nothing(scope)
        return
    cards.heading("Overview", scope.described)
    firing.banner(scope)
    report = data.report(scope.source, scope.project, scope.start)
    _look_first(scope, report["look_first"])
    decisions = report["decisions"]
    for pair in (decisions[:2], decisions[2:]):
        for column, decision in zip(st.columns(2, gap="small"), pair, strict=True):
            with column, st.container(border=True, height="stretch"):
                _panel(scope, decision)
    _worst(scope)
    _troubles(scope)


def _panel(scope: Scope, decision: dict[str, Any]) -> None:
    name = decision["decision"]
    cards.section(TITLES[name], decision["question"])
    metrics = {found["metric"]: found for found in decision["metrics"]}
    leading = metrics.pop(LEADING[name])
    left, right = st.columns([1, 1.15], gap="medium")
    with left:
        cards.lead(
            formats.words(leading["metric"]),
            formats.with_unit(leading["value"], leading["unit"], leading["n"]),
            _change(leading),
            _basis(leading),
            _TONES.get(leading["status"], ""),
            leading["meaning"],
        )
        _series(scope, leading)
    with right:
        cards.parts([*map(_part, _worth_showing(metrics)), *_details(scope, name, metrics)])


def _series(scope: Scope, leading: dict[str, Any]) -> None:
    begin, end = scope.shown
    if begin is None or end is None:
        return
    points = data.series(scope.source, scope.project, leading["metric"], scope.start, (begin, end))
    charts.show(
        charts.metric_line(points, leading["unit"]),
        f"series-{leading['metric']}",
        f"{formats.words(leading['metric'])} over time",
    )


def _worth_showing(metrics: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [found for found in metrics.values() if found["metric"] != _LATENCY and found["n"] > 0]


def _part(found: dict[str, Any]) -> Part:
    indent = _INDENT if found["metric"] in _PARTS_OF else ""
    return Part(
        indent + formats.words(found["metric"]),
        formats.with_unit(found["value"], found["unit"], found["n"]),
        formats.count(found["n"]),
        _change(found),
        _TONES.get(found["status"], ""),
        found["meaning"],
    )


def _details(scope: Scope, decision: str, metrics: dict[str, dict[str, Any]]) -> list[Part]:
    """What a decision shows besides its own metrics: kinds of failure, invented names, waits."""
    if decision == CALL_RELIABILITY:
        return [
            Part(
                formats.words(row["error_kind"] or "other"),
                formats.share(row["value"], row["n"]),
                formats.count(row["n"]),
                "",
            )
            for row in _largest(scope, "failed_tool_rate", "error_kind", _TOP_KINDS)
        ]
    if decision == NAMES_AND_REGISTRY:
        rows = [row for row in _largest(scope, "hallucinated_tool_rate", "skill", _TOP_NAMES) if row["value"]]
        return [Part(f"“{row['skill']}”", formats.calls(round(row["value"] * row["n"])), "", "") for row in rows]
    if decision == DISCOVERY_HEALTH:
        waits = {row["stage"]: row for row in metrics[_LATENCY]["rows"] or []}
        return [
            Part(
                label,
                formats.milliseconds(waits[stage]["p99"]),
                formats.count(waits[stage]["n"]),
                _wait_change(waits[stage]),
            )
            for stage, label in _STAGES.items()
            if stage in waits and waits[stage]["n"]
        ]
    return []


def _largest(scope: Scope, name: str, by: str, limit: int) -> list[dict[str, Any]]:
    """Groups with the most hits, largest first."""
    rows = data.grouped(scope.source, scope.project, name, by, scope.start)
    return sorted(rows, key=lambda row: -(row["value"] or 0) * row["n"])[:limit]


def _basis(found: dict[str, Any]) -> str:
    """What a leading number rests on: its interval and n."""
    interval = f"{formats.bounds(found['low'], found['high'])} (95 %), " if found["low"] is not None else ""
    return interval + _n(found["n"])


def _n(n: int) -> str:
    return f"n = {formats.count(n)}"


def _change(found: dict[str, Any]) -> Cell:
    """The change since the window before; coloured only where chance is an unlikely reason."""
    previous = found["previous"]
    if found["change"] is None or previous is None:
        return ""
    said = formats.change(found["value"], previous["value"], found["unit"])
    inside = found["low"] is None or found["low"] <= previous["value"] <= found["high"]
    better = (found["change"] > 0) == (found["good"] == "up")
    return cards.text(said, "quiet" if inside else "good" if better else "bad")


def _wait_change(row: dict[str, Any]) -> Cell:
    said = formats.change(row["p99"], row.get("previous_p99"), "ms")
    return cards.text(said, "quiet") if said else ""


def _look_first(scope: Scope, findings: Sequence[dict[str, Any]]) -> None:
    with st.container(border=True):
        cards.section("Look at first")
        if not findings:
            empty.small("Nothing is beyond its threshold in this window.")
            return
        cards.strip([_finding(scope, found) for found in findings])


def _finding(scope: Scope, found: dict[str, Any]) -> Cell:
    unit = BY_NAME[found["metric"]].unit
    direction = "above" if found["value"] > found["threshold"] else "below"
    said = cards.join(
        [
            cards.badge(formats.with_unit(found["value"], unit, found["n"]), _TONES[found["severity"]]),
            formats.words(found["metric"]),
        ]
    )
    limit = f"{direction} {formats.with_unit(found['threshold'], unit)}, {_n(found['n'])}"
    culprit = found["skill"]
    if culprit is None:
        return cards.join([said, cards.note(limit)])
    against = cards.join([f"{limit}; most of it:", cards.link(culprit["skill"], links.skill(scope, culprit["skill"]))])
    counted = f"({formats.count(culprit['count'])} of {formats.count(culprit['n'])})"
    return cards.join([said, cards.Html(f'<span class="pw-note">{against.markup} {counted}</span>')])


def _troubles(scope: Scope) -> None:
    """Skills that are held back, and spells in which the discovery layer was."""
    changes = data.status_changes(scope.source, scope.project)
    newest = changes.unique("skill_id", keep="first", maintain_order=True)
    flagged = newest.filter(pl.col("status") != "active").to_dicts()
    spells = data.degraded_spells(scope.source, scope.project, scope.start).to_dicts()
    left, right = st.columns(2, gap="small")
    with left, st.container(border=True, height="stretch"):
        cards.section("Flagged skills", "Shown less often until they recover.")
        if flagged:
            cards.bullets([_flag(scope, row) for row in flagged[:_WORST]])
        else:
            empty.small("No skill is held back. The nightly job judges them.")
    with right, st.container(border=True, height="stretch"):
        cards.section("Degraded discovery", "Spells in which a router left its main path.")
        if spells:
            cards.bullets([_spell(row) for row in spells[:_WORST]])
        else:
            empty.small("No router reported trouble in this window.")


def _flag(scope: Scope, row: dict[str, Any]) -> Cell:
    return cards.join(
        [
            cards.link(row["skill_id"], links.skill(scope, row["skill_id"])),
            cards.badge(row["status"], "bad" if row["status"] == "degraded" else "warn"),
            cards.note(f"{row['reason']}, since {formats.clock(row['time'])}"),
        ]
    )


def _spell(row: dict[str, Any]) -> Cell:
    length = formats.duration((row["ended_at"] - row["time"]).total_seconds())
    reason = row["reason"] or "no reason given"
    return cards.join(
        [
            f"{formats.clock(row['time'])}, for {length}",
            cards.note(f"{row['instance']}: {reason}; {formats.count(row['selections'])} selections fell back"),
        ]
    )


def _worst(scope: Scope) -> None:
    skills = data.skills(scope.source, scope.project, scope.start)
    failing, skipped = st.columns(2, gap="small")
    with failing, st.container(border=True, height="stretch"):
        cards.section("Skills that fail most", "By the lower end of the 95 % interval of their failed calls.")
        _failing(scope, skills)
        _more(
            scope,
            "Kinds of questions that go worse than the rest",
            links.SELECTIONS,
            {links.SELECTIONS_LIST: links.QUESTIONS},
        )
    with skipped, st.container(border=True, height="stretch"):
        cards.section("Skills that are passed over most", "Offered above the one that was picked.")
        _skipped(scope, skills)
        _more(scope, "What is picked instead", links.SKILLS, {links.SKILLS_LIST: links.CONFUSED})


def _more(scope: Scope, label: str, page: str, shown: dict[str, str]) -> None:
    cards.bullets([cards.link(label, links.page(scope, page, shown))])


def _failing(scope: Scope, skills: pl.DataFrame) -> None:
    rows = [row for row in skills.to_dicts() if row["failed"] > 0 and row["finished"] >= _FEW_CALLS]
    rows.sort(key=lambda row: -wilson(row["failed"], row["finished"])[0])
    if not rows:
        empty.small(f"No skill with at least {_FEW_CALLS} finished calls has failed.")
        return
    columns = [Column("skill"), Column("failed", True), Column("calls", True), Column("p99", True), Column("status")]
    cards.table(
        columns,
        [
            [
                cards.link(row["skill_id"], links.skill(scope, row["skill_id"])),
                formats.share(row["failed"] / row["finished"], row["finished"]),
                formats.count(row["calls"]),
                formats.milliseconds(row["latency_p99_ms"]),
                firing.status_badge(row["status"], row["is_active"]),
            ]
            for row in rows[:_WORST]
        ],
    )


def _skipped(scope: Scope, skills: pl.DataFrame) -> None:
    rows = [row for row in skills.to_dicts() if row["skips"] > 0]
    rows.sort(key=lambda row: (-wilson(row["skips"], row["impressions"])[0], row["skill_id"]))
    if not rows:
        empty.small("No offered skill was passed over for a lower one.")
        return
    columns = [
        Column("skill"),
        Column("skipped", True),
        Column("skips", True),
        Column("picks", True),
        Column("offers", True),
    ]
    cards.table(
        columns,
        [
            [
                cards.link(row["skill_id"], links.skill(scope, row["skill_id"])),
                formats.share(row["skips"] / row["impressions"], row["impressions"]),
                formats.count(row["skips"]),
                formats.count(row["picks"]),
                formats.count(row["impressions"]),
            ]
            for row in rows[:_WORST]
        ],
    )
