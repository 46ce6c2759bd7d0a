"""Alerts: what fires now, and every change of state."""

from __future__ import annotations

from dashboard import cards, data, empty, firing, formats
from dashboard.cards import Column, Tone
from dashboard.state import Scope

_LISTED = 200
_TONES: dict[str, Tone] = {"firing": "bad", "pending": "warn", "resolved": "good"}


def page(scope: Scope) -> None:
    cards.heading("Alerts", scope.project)
    changes = data.alerts(scope.source, scope.project).to_dicts()
    if not changes:
        empty.empty(
            "No alert has fired",
            "The rules are evaluated every few seconds while the service runs. Nothing has gone beyond its threshold"
            " for long enough.",
            "pickwise serve",
        )
        return
    if firing.alerts(scope):
        firing.banner(scope)
    else:
        empty.small("Nothing fires at the moment.")
    columns = [
        Column("time"), Column("rule"), Column("group"), Column("state"), Column("severity"), Column("n", True),
        Column("what", text=True),
    ]  # fmt: skip
    cards.table(
        columns,
        [
            [
                cards.note(formats.clock(row["time"])),
                formats.words(row["rule"]),
                row["grp"] or formats.DASH,
                cards.badge(row["state"], _TONES.get(row["state"], "")),
                row["severity"] or formats.DASH,
                formats.count(row["n"]),
                row["message"] or formats.DASH,
            ]
            for row in changes[:_LISTED]
        ],
    )
