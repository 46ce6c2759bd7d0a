"""The observed registry when requests are mapped anew: what they offered is written as if they had come just now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

from collector.facts import Facts
from collector.lake import Lake
from collector.observed import ObservedSkills, Offers
from collector.redact import Redactor
from collector.skill_rows import observed_rows
from collector.tables import TABLES

_SKILL = ("project", "skill_id")


class Told(NamedTuple):
    """The facts of one request and project."""

    seq: int
    name: str
    received_at: int
    project: str
    facts: Facts


def observed_again(
    old: pl.DataFrame, others: pl.DataFrame, told: Iterable[Told], lake: Lake, redactor: Redactor
) -> pl.DataFrame:
    """The observed rows that some requests are to have. ``old``: those they have; ``others``: those of all others.

    An entry that they no longer offer stays where a selection of another request lists the skill: that request wrote
    no row of its own, because this one was there.
    """
    observed = ObservedSkills.of_rows(others, redactor)
    parts = [TABLES["skills"].to_frame()]
    for seq, name, received_at, project, facts in told:
        changes = observed.learn(project, Offers.of(facts.offered, facts.selections, received_at))
        if changes:
            rows = observed_rows(changes, project=project, seq=seq, received_at=received_at, source=name)
            parts.append(rows)
    fresh = pl.concat(parts)
    gone = old.join(fresh, on=_SKILL, how="anti").join(others, on=_SKILL, how="anti")
    return pl.concat([fresh, _listed_elsewhere(gone, old["source_request"].unique(), lake)])


def _listed_elsewhere(rows: pl.DataFrame, names: pl.Series, lake: Lake) -> pl.DataFrame:
    """Those of the rows whose skill a selection of another request lists."""
    if not rows.height:
        return rows
    elsewhere = ~pl.col("source_request").is_in(names.implode())
    lists = lake.select("selections", elsewhere, ("project", "candidates")).explode("candidates")
    listed = lists.select("project", pl.col("candidates").struct.field("skill_id")).unique()
    return rows.join(listed, on=_SKILL, how="semi")
