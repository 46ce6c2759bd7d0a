"""A list of selections, each linked to its replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dashboard import cards, empty, formats, links
from dashboard.cards import Cell, Column
from dashboard.state import Scope

_QUERY_CHARS = 110
_COLUMNS = (
    Column("time"),
    Column("query", text=True),
    Column("picks", text=True),
    Column("rank", True),
    Column("calls", True),
    Column("model"),
    Column("path"),
)


def selections_table(scope: Scope, rows: Sequence[dict[str, Any]]) -> None:
    """``rows`` as from ``frames.matching_selections``."""
    if not rows:
        empty.small("None in this window.")
        return
    cards.table(_COLUMNS, [_row(scope, row) for row in rows])


def _row(scope: Scope, row: dict[str, Any]) -> list[Cell]:
    return [
        cards.note(formats.clock(row["time"])),
        cards.link(short(row["query"]), links.selection(scope, row["event_id"])),
        ", ".join(row["picks"]) or cards.text("none", "quiet"),
        formats.count(row["best_rank"]) if row["picks"] else "",
        _calls(row["calls"], row["failed"]),
        row["model"] or formats.DASH,
        cards.badge("fallback", "warn") if row["fallback"] else row["strategy"] or formats.DASH,
    ]


def short(query: str | None) -> str:
    if not query:
        return "(no query)"
    return query if len(query) <= _QUERY_CHARS else query[: _QUERY_CHARS - 1] + "…"


def _calls(calls: int, failed: int) -> Cell:
    if not calls:
        return cards.text("0", "quiet")
    return cards.text(f"{failed} of {calls} failed", "bad") if failed else formats.count(calls)
