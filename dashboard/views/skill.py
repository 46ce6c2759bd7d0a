"""Skills: the list, and one skill's portrait."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from dashboard import cards, charts, data, empty, firing, formats, links
from dashboard.cards import Cell, Column
from dashboard.confused_table import confused_pairs, confused_with
from dashboard.selections_table import selections_table
from dashboard.state import Scope, shown_list

_LISTED = 300
_RECENT = 15
_PAIRS = 100
_EVERY = "All"
_NEUTRAL = 0.5
#: Names of evidence that is shown in words elsewhere, or that says nothing by itself.
_EVIDENCE = {
    "calls": "calls looked at",
    "successes": "succeeded",
    "failures": "failed",
    "day_calls": "calls that day",
    "median": "usual calls a day",
    "volume": "surge from",
}


def page(scope: Scope) -> None:
    skill_id = st.query_params.get(links.SKILL_ID)
    if skill_id:
        _portrait(scope, skill_id)
    else:
        _all(scope)


def _all(scope: Scope) -> None:
    cards.heading("Skills", scope.described if scope.has_data else scope.project)
    skills = data.skills(scope.source, scope.project, scope.start).to_dicts()
    if not skills:
        empty.empty(
            "No skill yet",
            f"Project {scope.project} has no registry, and no agent was offered a tool. Import the skills that exist,"
            " or let the first traces teach them.",
            "pickwise import skills.json --format skills",
        )
        return
    if shown_list([_EVERY, links.CONFUSED], links.SKILLS_LIST) == links.CONFUSED:
        _all_confused(scope)
    else:
        _listed(scope, skills)


def _all_confused(scope: Scope) -> None:
    rows = data.confused(scope.source, scope.project, scope.start, _PAIRS)
    if not rows:
        empty.small("No skill that stood first in a ranking was passed over for another.")
        return
    empty.small(
        "Which skill was picked instead, when one stood first in a ranking and was not picked. With an overlap of 1 the"
        " two descriptions have the same words: tell them apart there first."
    )
    confused_pairs(scope, rows)


def _listed(scope: Scope, skills: list[dict[str, Any]]) -> None:
    wanted = st.text_input("Find a skill", placeholder="part of its name or domain", label_visibility="collapsed")
    found = [row for row in skills if _matches(row, wanted)]
    if not found:
        empty.small(f"No skill matches “{wanted}”.")
        return
    columns = [
        Column("skill"), Column("domain"), Column("status"), Column("offers", True), Column("picked", True),
        Column("skips", True), Column("calls", True), Column("failed", True), Column("mean", True), Column("p99", True),
    ]  # fmt: skip
    cards.table(columns, [_row(scope, row) for row in found[:_LISTED]])
    if len(found) > _LISTED:
        empty.small(f"The first {_LISTED} of {formats.count(len(found))}. Search to narrow them down.")


def _matches(row: dict[str, Any], wanted: str) -> bool:
    text = " ".join(str(row[name] or "") for name in ("skill_id", "name", "domain"))
    return all(word in text.lower() for word in wanted.lower().split())


def _row(scope: Scope, row: dict[str, Any]) -> list[Cell]:
    failed = row["failed"] / row["finished"] if row["finished"] else None
    return [
        cards.link(row["skill_id"], links.skill(scope, row["skill_id"])),
        row["domain"] or formats.DASH,
        firing.status_badge(row["status"], row["is_active"]),
        formats.count(row["impressions"]),
        formats.share(row["acceptance"], row["impressions"]),
        formats.count(row["skips"]),
        formats.count(row["calls"]),
        formats.share(failed, row["finished"]),
        formats.milliseconds(row["latency_mean_ms"]),
        formats.milliseconds(row["latency_p99_ms"]),
    ]


def _portrait(scope: Scope, skill_id: str) -> None:
    back = cards.link("All skills", links.page(scope, links.SKILLS))
    found = data.skill(scope.source, scope.project, skill_id, scope.start)
    if found is None:
        cards.heading(skill_id, back)
        empty.empty(
            "No such skill",
            f"Project {scope.project} has neither a registry entry of this name nor an offer or a call of it.",
        )
        return
    entry = found["entry"]
    status = found["status"]["status"] if found["status"] else None
    badge = firing.status_badge(status, entry["is_active"] if entry else None)
    named = [entry["domain"], entry["kind"], entry["version"]] if entry else []
    cards.heading(skill_id, cards.join([badge, " · ".join(part for part in named if part), back], "&ensp;"))
    _description(entry)
    with st.container(border=True):
        _numbers(found)
    _status(scope, skill_id)
    _days(found)
    left, middle, right = st.columns(3, gap="small")
    with left, st.container(border=True, height="stretch"):
        _failures(found)
    with middle, st.container(border=True, height="stretch"):
        _confused(scope, found)
    with right, st.container(border=True, height="stretch"):
        _weights(scope, skill_id)
    with st.container(border=True):
        cards.section("Recent selections", "The newest that offered or picked it.")
        rows = data.selections(scope.source, scope.project, scope.start, None, skill_id, _RECENT)
        selections_table(scope, rows.to_dicts())


def _description(entry: dict[str, Any] | None) -> None:
    if entry is None:
        cards.prose("The registry has no entry of this name; agents called it all the same.")
    elif entry["description"]:
        cards.prose(entry["description"])
    else:
        empty.small("Its registry entry has no description: an agent can only guess from the name.")


def _numbers(found: dict[str, Any]) -> None:
    finished, impressions = found["finished"], found["impressions"]
    cards.facts(
        [
            ("Offered", formats.count(impressions), f"mean rank {formats.number(found['mean_rank'], 1)}"),
            (
                "Picked",
                formats.share(found["acceptance"], impressions),
                _basis(found["picks"], impressions, found["acceptance_low"], found["acceptance_high"]),
            ),
            ("Skipped", formats.count(found["skips"]), "offered above the one that was picked"),
            ("Calls", formats.count(found["calls"]), f"{formats.count(finished)} finished"),
            (
                "Succeeded",
                formats.share(found["success"], finished),
                _basis(finished - found["failed"], finished, found["success_low"], found["success_high"]),
            ),
            ("Mean wait", formats.milliseconds(found["latency_mean_ms"]), f"n = {formats.count(found['latency_n'])}"),
            ("p99 wait", formats.milliseconds(found["latency_p99_ms"]), f"n = {formats.count(found['latency_n'])}"),
        ]
    )


def _basis(hits: int, n: int, low: float, high: float) -> str:
    return f"{formats.count(hits)} of {formats.count(n)}; {formats.bounds(low, high)}" if n else "n = 0"


def _status(scope: Scope, skill_id: str) -> None:
    changes = data.status_changes(scope.source, scope.project, skill_id).to_dicts()
    if not changes:
        return
    with st.container(border=True):
        cards.section("Status", "Each change, with what it rests on.")
        columns = [
            Column("since"),
            Column("status"),
            Column("why"),
            Column("rollout", True),
            Column("evidence", text=True),
        ]
        cards.table(
            columns,
            [
                [
                    cards.note(formats.clock(row["time"])),
                    firing.status_badge(row["status"], True),
                    row["reason"] or formats.DASH,
                    formats.share(row["rollout_fraction"]),
                    _evidence(row["evidence"]),
                ]
                for row in changes
            ],
        )


def _evidence(text: str | None) -> str:
    found = json.loads(text or "{}")
    said = [
        f"{label}: {found[name]:,g}" for name, label in _EVIDENCE.items() if isinstance(found.get(name), int | float)
    ]
    if "success_low" in found and "success_high" in found:
        said.append(f"success 95 % interval {formats.bounds(found['success_low'], found['success_high'])}")
    kinds = found.get("kinds") or {}
    said += [f"{formats.words(kind)}: {n}" for kind, n in kinds.items()]
    return "; ".join(said) or formats.DASH


def _days(found: dict[str, Any]) -> None:
    series = found["series"]
    if not series:
        return
    days = [charts.day_label(row["day"]) for row in series]
    left, right = st.columns(2, gap="small")
    with left, st.container(border=True):
        cards.section("Calls a day")
        failed = [row["failed"] for row in series]
        succeeded = [row["finished"] - row["failed"] for row in series]
        charts.show(charts.outcomes(days, succeeded, failed), "skill-calls", "Succeeded and failed calls by day")
    with right, st.container(border=True):
        cards.section("Offers, picks and skips a day")
        counts = [[row[name] for row in series] for name in ("impressions", "picks", "skips")]
        charts.show(charts.exposure(days, *counts), "skill-exposure", "Offers, picks and skips by day")


def _failures(found: dict[str, Any]) -> None:
    cards.section("How it fails")
    kinds = {formats.words(kind or "other"): n for kind, n in found["error_kinds"].items()}
    if not kinds:
        empty.small("No call failed in this window." if found["finished"] else "It was not called in this window.")
        return
    shown = [f"{formats.count(n)} ({formats.share(n / found['finished'], found['finished'])})" for n in kinds.values()]
    charts.show(charts.amounts(kinds, shown, frozenset(kinds)), "skill-kinds", "Failed calls by kind")


def _confused(scope: Scope, found: dict[str, Any]) -> None:
    cards.section("Confused with", "What was picked when this one stood first.")
    if not found["confused_with"]:
        empty.small("It was never passed over while it stood first.")
        return
    confused_with(scope, found["confused_with"][:6])


def _weights(scope: Scope, skill_id: str) -> None:
    cards.section("Its weights", "What the discovery layer is told about it.")
    history = data.weights_history(scope.source.data_dir, scope.project)
    if not history:
        empty.small("No weights yet: a running service computes them every few minutes.")
        return
    rows = data.explained(scope.source, scope.project, history[0]["version"])
    row = next((row for row in rows if row["skill_id"] == skill_id), None)
    if row is None:
        empty.small("The current weights do not know it: only skills of the registry have weights.")
        return
    made = datetime.fromtimestamp(history[0]["at"], UTC)
    cards.table(
        [Column("weight"), Column("value", True), Column("because", text=True)],
        [
            ["heat", formats.number(row["heat"]), heat_reason(row)],
            ["success", formats.share(row["success"]), success_reason(row)],
            ["rollout", formats.share(row["rollout_fraction"]), f"status {row['status']}; as of {formats.clock(made)}"],
        ],
    )


def heat_reason(row: dict[str, Any]) -> str:
    """Why a skill has its heat, in words."""
    if not row["impressions"]:
        return "never offered in a ranking: neutral"
    if row["heat"] == _NEUTRAL:
        return "neutral until it is known how far down agents look"
    return (
        f"{formats.number(row['picks'], 1)} recent picks in {formats.number(row['impressions'], 1)} offers,"
        " weighed by where they stood"
    )


def success_reason(row: dict[str, Any]) -> str:
    """Why a skill has its success weight, in words."""
    prior = f"{formats.share(row['prior'])} of its domain, counted as {formats.number(row['kappa'], 0)} calls"
    if not row["calls"]:
        return f"no call yet: {prior}"
    return f"{formats.count(row['ok'])} of {formats.count(row['calls'])} calls, pulled towards {prior}"
