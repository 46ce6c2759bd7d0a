"""Selections: the list, and one selection replayed from its query to what became of its calls."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import streamlit as st

from analytics.frames import Only
from collector.tables import STAGES
from dashboard import cards, charts, data, empty, formats, links
from dashboard.cards import Cell, Column
from dashboard.clusters_table import clusters_table
from dashboard.selections_table import selections_table
from dashboard.state import Scope, shown_list

_LISTED = 100
_FILTERS: dict[str, Only | None] = {
    "All": None,
    "Mismatches": "mismatch",
    "With a failed call": "failed",
    "Fallback": "fallback",
}
_SCORES = ("score", "bm25", "dense", "rerank", "propensity")
_TOTAL = "total"
_WHOLE = "call"


def page(scope: Scope) -> None:
    event_id = st.query_params.get(links.EVENT_ID)
    if event_id:
        _replay(scope, event_id)
    else:
        _all(scope)


def _all(scope: Scope) -> None:
    cards.heading("Selections", scope.described if scope.has_data else scope.project)
    if not scope.has_events_in_window:
        empty.nothing(scope)
        return
    chosen = shown_list([*_FILTERS, links.QUESTIONS], links.SELECTIONS_LIST)
    if chosen == links.QUESTIONS:
        _questions(scope)
        return
    only = _FILTERS[chosen]
    rows = data.selections(scope.source, scope.project, scope.start, only, None, _LISTED).to_dicts()
    selections_table(scope, rows)
    if len(rows) == _LISTED:
        empty.small(f"The newest {_LISTED}. Narrow the window in the sidebar to see others.")


def _questions(scope: Scope) -> None:
    rows = data.clusters(scope.source, scope.project, scope.start)
    if not rows:
        empty.small(
            "No kind of question is known in this window: the nightly job finds them, of queries that are kept."
        )
        return
    empty.small(
        "Queries that mean alike, the weakest kinds first. Red: surely worse than all other questions together, whose"
        " value stands behind it."
    )
    clusters_table(rows[:_LISTED])


def _replay(scope: Scope, event_id: str) -> None:
    back = cards.link("All selections", links.page(scope, links.SELECTIONS))
    found = data.selection(scope.source, scope.project, event_id)
    if found is None:
        cards.heading("Selection", back)
        empty.empty("No such selection", f"Project {scope.project} has no selection with the id {event_id}.")
        return
    cards.heading("Selection", cards.join([f"{formats.moment(found['time'])} UTC", *_badges(found), back], "&ensp;"))
    cards.quote(found["query"] or "(the query was not recorded)")
    with st.container(border=True):
        cards.facts(_facts(found))
    left, right = st.columns([1.75, 1], gap="small")
    with left, st.container(border=True, height="stretch"):
        _candidates(scope, found)
    with right, st.container(border=True, height="stretch"):
        _stages(found)
    with st.container(border=True):
        _calls(scope, found)
    with st.container(border=True):
        _feedback(scope, found)
    _ids(found)


def _badges(found: dict[str, Any]) -> list[Cell]:
    flags = {
        "fallback": found["fallback"],
        "no match": found["no_match"],
        "query cut": found["truncated"],
        "final answer": found["closing"],
    }
    badges: list[Cell] = [cards.badge(name, "warn") for name, is_set in flags.items() if is_set]
    if found["randomized"]:
        badges.append(cards.badge("order shuffled on purpose", "accent"))
    if not found["ranked"]:
        badges.append(cards.badge("fixed menu"))
    return badges


def _facts(found: dict[str, Any]) -> list[tuple[str, Cell, str]]:
    off_list = [pick for pick in found["picks"] if pick not in set(found["listed_picks"])]
    ranks = [row["rank"] for row in found["candidates"] if row["picked"]]
    failed = sum(1 for call in found["calls"] if call["ok"] is False)
    total = (found["stage_ms"] or {}).get(_TOTAL)
    return [
        ("Candidates", formats.count(found["n_candidates"]), _tokens(found["menu_tokens"])),
        (
            "Picks",
            formats.count(found["n_picks"]),
            f"at rank {', '.join(map(str, ranks))}" if ranks else "none from the list",
        ),
        (
            "Off the list",
            cards.text(formats.count(len(off_list)), "bad" if off_list else ""),
            ", ".join(off_list) or "none",
        ),
        (
            "Calls",
            formats.count(len(found["calls"])),
            f"{failed} failed" if failed else "none failed" if found["calls"] else "nothing was called",
        ),
        ("Time to select", formats.milliseconds(total), found["strategy"] or "strategy not told"),
        ("Model", found["model"] or formats.DASH, f"agent {found['agent']}" if found["agent"] else ""),
    ]


def _tokens(tokens: int | None) -> str:
    return f"{formats.count(tokens)} tokens of menu" if tokens is not None else ""


def _candidates(scope: Scope, found: dict[str, Any]) -> None:
    cards.section("Candidates", "In the order shown. Marked: what was picked.")
    rows = found["candidates"]
    if not rows:
        empty.small("The menu of this selection was not recorded.")
        return
    scores = [name for name in _SCORES if any(row[name] is not None for row in rows)]
    columns = [
        Column("rank", True),
        Column("skill"),
        Column(""),
        *(Column(name, True) for name in scores),
        Column("from"),
    ]
    cards.table(
        columns,
        [
            [
                str(row["rank"]),
                cards.link(row["skill_id"], links.skill(scope, row["registry_skill_id"] or row["skill_id"])),
                _mark(row),
                *(formats.number(row[name], 3) for name in scores),
                row["source"] or formats.DASH,
            ]
            for row in rows
        ],
        frozenset(index for index, row in enumerate(rows) if row["picked"]),
    )


def _mark(row: dict[str, Any]) -> Cell:
    if row["picked"]:
        return cards.badge("picked", "accent")
    return cards.badge("skipped", "warn") if row["skipped"] else ""


def _stages(found: dict[str, Any]) -> None:
    cards.section("Where the time went", "Stages of the selection.")
    times = {stage: (found["stage_ms"] or {}).get(stage) for stage in STAGES}
    known = {formats.words(stage): ms for stage, ms in times.items() if ms is not None}
    if not known:
        empty.small("No stage times were recorded.")
        return
    charts.show(charts.durations(known), "selection-stages", "Milliseconds by stage")
    if found["fallback_reason"]:
        empty.small(f"Fallback: {found['fallback_reason']}.")


def _calls(scope: Scope, found: dict[str, Any]) -> None:
    cards.section("Calls", "What was called, in order, with its phases.")
    calls = found["calls"]
    if not calls:
        empty.small("Nothing was called after this selection.")
        return
    columns = [
        Column("skill"), Column("outcome"), Column("wait", True), Column("attempts", True), Column("name"),
        Column("arguments", text=True), Column("error", text=True),
    ]  # fmt: skip
    cards.table(
        columns,
        [
            [
                cards.link(call["skill_id"], links.skill(scope, call["registry_skill_id"] or call["skill_id"])),
                _outcome(call),
                formats.milliseconds(call["latency_ms"]),
                formats.count(call["attempts"]),
                _name_class(call),
                ", ".join(call["args_keys"] or []) or formats.DASH,
                call["error_message"] or formats.DASH,
            ]
            for call in calls
        ],
    )
    spans = timeline_spans(calls)
    if spans:
        charts.show(charts.timeline(spans), "selection-timeline", "Phases of the calls over time")


def _outcome(call: dict[str, Any]) -> Cell:
    if call["ok"] is None:
        return cards.badge("not finished", "warn")
    if call["ok"]:
        return cards.badge("succeeded", "good")
    return cards.badge(formats.words(call["error_kind"] or "other"), "bad")


def _name_class(call: dict[str, Any]) -> Cell:
    parts: list[Cell] = []
    if call["name_class"] not in (None, "known"):
        parts.append(cards.badge(call["name_class"].replace("_", " "), "bad"))
    if call["off_list"]:
        parts.append(cards.badge("off the list", "warn"))
    return cards.join(parts) if parts else cards.text(call["name_class"] or formats.DASH, "quiet")


def timeline_spans(calls: list[dict[str, Any]]) -> list[charts.Span]:
    """Every phase with a duration, from the start of the first call on."""
    starts = [phase["time"] for call in calls for phase in call["phases"] or [] if phase["time"] is not None]
    if not starts:
        return []
    beginning: datetime = min(starts)
    return [
        charts.Span(
            row=f"{number}. {call['skill_id']}",
            label=phase["phase"] or _WHOLE,
            start_ms=(phase["time"] - beginning).total_seconds() * 1000,
            length_ms=phase["latency_ms"],
            failed=phase["ok"] is False,
        )
        for number, call in enumerate(calls, 1)
        for phase in call["phases"] or []
        if phase["time"] is not None and phase["latency_ms"] is not None and phase["latency_ms"] >= 0
    ]


def _feedback(scope: Scope, found: dict[str, Any]) -> None:
    cards.section("Feedback")
    if not found["feedback"]:
        empty.small("No one said anything about this selection.")
        return
    cards.table(
        [Column("time"), Column("verdict"), Column("value"), Column("expected", text=True), Column("from")],
        [
            [
                cards.note(formats.clock(row["time"])),
                formats.words(row["kind"]),
                row["value_text"] or (formats.number(row["value"]) if row["value"] is not None else formats.DASH),
                cards.join([cards.link(name, links.skill(scope, name)) for name in row["expected"] or []], ", "),
                row["source"] or formats.DASH,
            ]
            for row in found["feedback"]
        ],
    )


def _ids(found: dict[str, Any]) -> None:
    named = {
        "selection": found["event_id"],
        "trace": found["trace_id"],
        "session": found["session_id"],
        "weights": found["weights_version"],
        "ranking model": found["model_version"],
        "embedding": found["embedding_version"],
    }
    cards.show(cards.note(" · ".join(f"{name} {value}" for name, value in named.items() if value)))
