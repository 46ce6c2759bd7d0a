"""What is picked instead of a skill that stands first, each pair with how alike the two describe themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collector.confusable import MIN_OVERLAP
from dashboard import cards, formats, links
from dashboard.cards import Cell, Column
from dashboard.state import Scope

_INSTEAD = (
    Column("picked instead"), Column("times", True), Column("of", True), Column("share", True), Column("overlap", True),
)  # fmt: skip


def confused_pairs(scope: Scope, rows: Sequence[dict[str, Any]]) -> None:
    """``rows`` as from ``analytics.confusion``."""
    cards.table(
        [Column("stood first"), *_INSTEAD],
        [[_skill(scope, row["skill_id"]), *_instead(scope, row, row["instead"])] for row in rows],
    )


def confused_with(scope: Scope, rows: Sequence[dict[str, Any]]) -> None:
    """Those of one skill, as from ``analytics.portrait``."""
    cards.table(_INSTEAD, [_instead(scope, row, row["skill_id"]) for row in rows])


def _skill(scope: Scope, skill_id: str) -> Cell:
    return cards.link(skill_id, links.skill(scope, skill_id))


def _instead(scope: Scope, row: dict[str, Any], instead: str) -> list[Cell]:
    is_alike = row["overlap"] is not None and row["overlap"] >= MIN_OVERLAP
    return [
        _skill(scope, instead),
        formats.count(row["n"]),
        formats.count(row["first"]),
        formats.share(row["n"] / row["first"], row["first"]),
        cards.text(formats.number(row["overlap"]), "warn" if is_alike else ""),
    ]
