"""What is picked instead of a skill when it stands first, and how alike the two describe themselves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

import duckdb

from analytics.tables import rows
from collector.confusable import MIN_TERMS
from pickwise.events import DEFAULT_PROJECT
from pickwise.text import terms

_PAIRS = """
    with led as (
        select top_skill_id as skill_id, list_transform(picked, lambda p: p.skill_id) as picks
        from mismatches
        where project = $project and (time >= $start or $start is null) and (time < $end or $end is null)
            and top_skill_id is not null and (top_skill_id = $skill_id or $skill_id is null)
    ),
    counted as (
        select skill_id, count(*) as first from led group by skill_id
    ),
    passed_over as (
        select skill_id, unnest(picks) as instead from led where not list_contains(picks, skill_id)
    )
    select skill_id, instead, count(*) as n, any_value(first) as first
    from passed_over join counted using (skill_id)
    group by skill_id, instead
    order by n desc, skill_id, instead
    limit $limit
"""
_DESCRIPTIONS = """
    select skill_id, coalesce(arg_max(description, valid_from), ''), bool_or(valid_to is null and is_active)
    from skills where project = $project and authoritative group by skill_id
"""


def confusions(
    connection: duckdb.DuckDBPyConnection,
    project: str = DEFAULT_PROJECT,
    *,
    skill_id: str | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    limit: int = 20,
) -> list[dict[str, Any]]:
    """Pairs of skills, those confused most first, over ranked selections with a pick in ``start`` <= time < ``end``.

    ``skill_id`` stood first ``first`` times; ``n`` times it was not picked, and ``instead`` was. ``overlap`` of their
    newest descriptions: 0 nothing in common, 1 the same words, None where one has too few to tell. Given ``skill_id``,
    only the pairs in which that one stood first.
    """
    parameters = {"project": project, "skill_id": skill_id, "start": start, "end": end, "limit": limit}
    found = rows(connection.execute(_PAIRS, parameters))
    overlap = _overlap(connection, project) if found else None
    return [row | {"overlap": overlap and overlap(row["skill_id"], row["instead"])} for row in found]


def _overlap(connection: duckdb.DuckDBPyConnection, project: str) -> Callable[[str, str], float | None]:
    """How alike two skills of a project describe themselves, as the review of its registry measures it.

    Not asked of the review: that compares every pair of the registry.
    """
    described = connection.execute(_DESCRIPTIONS, {"project": project}).fetchall()
    bags = {skill: bag for skill, text, _ in described if len(bag := set(terms(text))) >= MIN_TERMS}
    active = [bags[skill] for skill, _, is_active in described if is_active and skill in bags]
    frequency = Counter(term for bag in active for term in bag)

    def weight(shared: set[str]) -> float:
        return sum(math.log((1 + len(active)) / (1 + frequency[term])) + 1 for term in shared)

    def overlap(skill: str, other: str) -> float | None:
        one, two = bags.get(skill), bags.get(other)
        return weight(one & two) / weight(one | two) if one and two else None

    return overlap
