"""Weights and models: what is served, why, what was served before, and the evidence of each training."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from dashboard import cards, charts, data, empty, firing, formats, links
from dashboard.cards import Cell, Column, Tone
from dashboard.state import Scope

_HISTORY = 12
_RUNS = 12
_FEATURES = 12
_SKILLS = 60
_DECISIONS: dict[str, Tone] = {"promoted": "good", "kept": "", "refused": "warn"}
_GUARDS: dict[str, Tone] = {"passed": "good", "tripped": "bad", "not_evaluated": "quiet"}


def page(scope: Scope) -> None:
    history = data.weights_history(scope.source.data_dir, scope.project)
    runs = data.training_runs(scope.source, scope.project).to_dicts()
    if not history and not runs:
        cards.heading("Weights and models", scope.project)
        empty.empty(
            "No weights yet",
            "A running service computes them every few minutes from what was picked and what succeeded, and trains a"
            " model each night. To do both now:",
            "pickwise train",
        )
        return
    cards.heading("Weights and models", scope.project)
    if history:
        document = data.weights(scope.source.data_dir, scope.project, history[0]["version"])
        with st.container(border=True):
            cards.facts(_facts(document))
    _evidence(runs)
    if history:
        _skills(scope, history[0]["version"])
    _past(history, runs)


def _facts(document: dict[str, Any]) -> list[tuple[str, Cell, str]]:
    model, fusion, explore = document["model"], document["fusion"], document["explore"]
    made = datetime.fromisoformat(document["created_at"])
    return [
        ("Weights served", _hash(document["version"]), f"made {formats.clock(made)} UTC"),
        (
            "Model served",
            _hash(model["version"]) if model else "none",
            f"{len(model['features'])} features" if model else "ordered by score, heat and success",
        ),
        (
            "Fusion",
            f"{fusion['semantic']:g} : {fusion['heat']:g} : {fusion['success']:g}",
            "semantic : heat : success",
        ),
        ("No match below", formats.number(document["no_match_threshold"], 3), "cosine; a dash until calibrated"),
        (
            "Shuffled on purpose",
            formats.share(explore["shuffle_fraction"]),
            "of ranked traffic, to learn position bias",
        ),
        ("Skills", formats.count(len(document["skills"])), _demoted(document["skills"])),
    ]


def _hash(version: str) -> str:
    return version[:10]


def _demoted(skills: dict[str, dict[str, Any]]) -> str:
    held = sum(1 for entry in skills.values() if entry["rollout_fraction"] < 1)
    return f"{held} shown less than fully" if held else "all shown fully"


def _evidence(runs: list[dict[str, Any]]) -> None:
    """The evidence of the run that promoted the newest model; without one, of the newest run."""
    run = next((run for run in runs if run["decision"] == "promoted"), runs[0] if runs else None)
    if run is None:
        return
    found = json.loads(run["evidence"] or "{}")
    with st.container(border=True):
        title = "Why this model" if run["decision"] == "promoted" else "The newest training"
        cards.section(title, f"{formats.moment(run['time'])} UTC")
        cards.show(cards.join([cards.badge(run["decision"], _DECISIONS[run["decision"]]), cards.text(run["reason"])]))
        left, middle, right = st.columns(3, gap="medium")
        with left:
            _difference(found)
        with middle:
            _importance(found.get("importance") or {})
        with right:
            _theta(found.get("theta") or {})
        _guards(found.get("guards") or [])


def _difference(found: dict[str, Any]) -> None:
    difference = found.get("difference")
    cards.section("New against old", "Gain of succeeded picks, weighted against position bias; 95 % interval.")
    if not difference or difference["low"] is None:
        empty.small("Not compared.")
    else:
        charts.show(
            charts.interval(difference["low"], difference["delta"], difference["high"]),
            "model-difference",
            "Paired difference with its interval",
        )
        empty.small(
            f"{formats.count(difference['picks'])} picks in {formats.count(difference['sessions'])} sessions, worth"
            f" {formats.count(difference['effective_sample'])} equal ones; compared with {found['compared_with']}"
        )


def _guards(guards: list[dict[str, Any]]) -> None:
    if not guards:
        return
    cards.section("Guards", "Each can hold a model back; one without data says so and doesn't.")
    cards.table(
        [Column("guard"), Column("outcome"), Column("detail", text=True)],
        [
            [
                formats.words(guard["name"]),
                cards.badge(guard["outcome"].replace("_", " "), _GUARDS.get(guard["outcome"], "")),
                guard["detail"],
            ]
            for guard in guards
        ],
    )


def _importance(gains: dict[str, float]) -> None:
    cards.section("What it looks at", "Share of the gain by feature.")
    total = sum(gains.values())
    if not total:
        empty.small("No model was fitted.")
        return
    shares = {name.replace("_", " "): gain / total for name, gain in gains.items() if gain > 0}
    largest = dict(sorted(shares.items(), key=lambda item: -item[1])[:_FEATURES])
    shown = [formats.share(value) for value in largest.values()]
    charts.show(charts.amounts(largest, shown), "model-importance", "Importance of features")


def _theta(theta: dict[str, Any]) -> None:
    cards.section("How far down they look", "Chance that a calling model examines a rank, against rank 1.")
    curves = {**(theta.get("position_factors") or {}), **(theta.get("known") or {})}
    if not curves:
        empty.small("Not known yet: it takes lists that were shuffled on purpose, or a trained model.")
        return
    charts.show(charts.curves(curves), "model-theta", "Examination by rank and calling model")


def _skills(scope: Scope, version: str) -> None:
    rows = data.explained(scope.source, scope.project, version)
    with st.container(border=True):
        cards.section(
            "The weights of each skill, and why",
            "Success: what was observed, pulled towards the domain's rate as if so many more calls had that rate."
            " Heat: picks against offers, weighed by where they stood; recent ones count more. 0.5 is neutral.",
        )
        columns = [
            Column("skill"), Column("status"), Column("rollout", True), Column("success", True),
            Column("observed", True), Column("domain's rate", True), Column("counted as", True), Column("heat", True),
            Column("recent picks", True), Column("recent offers", True),
        ]  # fmt: skip
        cards.table(columns, [_weighed(scope, row) for row in rows[:_SKILLS]])
        if len(rows) > _SKILLS:
            empty.small(f"The first {_SKILLS} of {formats.count(len(rows))}; each skill's page has its own.")


def _weighed(scope: Scope, row: dict[str, Any]) -> list[Cell]:
    return [
        cards.link(row["skill_id"], links.skill(scope, row["skill_id"])),
        firing.status_badge(row["status"], True),
        formats.share(row["rollout_fraction"]),
        cards.strong(formats.share(row["success"])),
        f"{formats.count(row['ok'])} of {formats.count(row['calls'])}",
        formats.share(row["prior"]),
        f"{formats.count(row['kappa'])} calls",
        cards.strong(formats.number(row["heat"])),
        formats.number(row["picks"], 1),
        formats.number(row["impressions"], 1),
    ]


def _past(history: list[dict[str, Any]], runs: list[dict[str, Any]]) -> None:
    left, right = st.columns(2, gap="small")
    with left, st.container(border=True, height="stretch"):
        cards.section("Served before", "Newest first. “pickwise weights rollback VERSION” serves an earlier one again.")
        if not history:
            empty.small("No version was served yet.")
        else:
            cards.table(
                [Column("since"), Column("version"), Column("by"), Column("model")],
                [
                    [
                        cards.note(formats.clock(datetime.fromtimestamp(row["at"], UTC))),
                        row["version"],
                        row["action"],
                        _hash(row["model_version"]) if row["model_version"] else formats.DASH,
                    ]
                    for row in history[:_HISTORY]
                ],
            )
    with right, st.container(border=True, height="stretch"):
        cards.section("Trainings", "Newest first.")
        if not runs:
            empty.small("No training has run yet. To start one: pickwise train")
        else:
            cards.table(
                [Column("time"), Column("decision"), Column("reason", text=True)],
                [
                    [
                        cards.note(formats.clock(row["time"])),
                        cards.badge(row["decision"], _DECISIONS.get(row["decision"], "")),
                        row["reason"],
                    ]
                    for row in runs[:_RUNS]
                ],
            )
