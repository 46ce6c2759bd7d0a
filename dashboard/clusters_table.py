"""Kinds of questions, each with the metrics by which it is judged and those by which it is weak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analytics.cluster_weakness import JUDGED_BY
from analytics.metrics.declarations import BY_NAME
from dashboard import cards, formats
from dashboard.cards import Cell, Column

_COLUMNS = (Column("queries about", text=True), *(Column(formats.words(name), True) for name in JUDGED_BY))


def clusters_table(rows: Sequence[dict[str, Any]]) -> None:
    """``rows`` as from ``analytics.cluster_weakness``."""
    cards.table(_COLUMNS, [[_name(row), *(_metric(row, name) for name in JUDGED_BY)] for row in rows])


def _name(row: dict[str, Any]) -> Cell:
    if row["cluster_name"]:
        return str(row["cluster_name"])
    return cards.join([row["cluster"], cards.note("no name until three sessions share a word")])


def _metric(row: dict[str, Any], name: str) -> Cell:
    found, unit = row["metrics"][name], BY_NAME[name].unit
    if not found["n"]:
        return formats.DASH
    is_weak = name in row["weak_by"]
    value = cards.text(formats.with_unit(found["value"], unit, found["n"]), "bad" if is_weak else "")
    rest = f", else {formats.with_unit(found['rest'], unit)}" if is_weak else ""
    return cards.join([value, cards.note(f"n = {formats.count(found['n'])}{rest}")])
