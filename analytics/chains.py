"""Chains: skills that successful sessions run one right after the other, candidates for templates (docs/chains.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import duckdb
import polars as pl

from analytics import chains_checks
from analytics.fetch import fetch
from analytics.tables import rows
from analytics.wilson import wilson
from collector.lake import Lake
from collector.tables import TABLES
from pickwise.events import DEFAULT_PROJECT

#: A chain has so many steps at most: plans are executed to this depth.
MAX_STEPS = 5
#: Least share of the successful sessions that contain a chain, unless asked otherwise.
MIN_SUPPORT = 0.05
#: Fewer successful sessions than this make no chain, whatever their share: chance, and nobody's single session.
MIN_SESSIONS = 3
#: The newest sessions are looked at, with so many calls together.
MAX_CALLS = 1_000_000
#: A session with more calls is no single task, but an id that tasks share.
MAX_SESSION_CALLS = 1_000
#: Chains that are told, those of most sessions first.
MAX_CHAINS = 100

# Every judged session with its calls that did not fail, in order (one row without a skill where all failed).
_STEPS = """
WITH told AS (
    SELECT coalesce(session_id, trace_id) AS session, trace_id, coalesce(registry_skill_id, skill_id) AS skill_id,
        skill_id AS called, ok, time, ordinal, call_key, selection_id
    FROM calls
    WHERE project = $project AND parent_call_id IS NULL AND coalesce(session_id, trace_id) IS NOT NULL
        AND ($start IS NULL OR time >= $start) AND ($end IS NULL OR time < $end)
        AND (environment IS NULL OR NOT list_contains($excluded, environment))
),
newest AS (
    SELECT session, max(time) AS last_at, bool_and(ok) AS is_clean FROM told
    GROUP BY session HAVING count(*) <= $session_calls
    QUALIFY sum(count(*)) OVER (ORDER BY max(time) DESC, session) <= $calls
),
called AS (
    FROM told SEMI JOIN newest USING (session)
),
verdicts AS (
    SELECT event_id, session_id, trace_id, time, source,
        CASE kind
            WHEN 'accepted' THEN true
            WHEN 'rejected' THEN false
            -- Of at least half the scale: of 1, or of the highest that this source gave.
            ELSE value >= 0.5 * greatest(1, max(value) FILTER (kind = 'rating') OVER (PARTITION BY source))
        END AS is_good
    FROM feedback
    WHERE project = $project AND kind IN ('accepted', 'rejected', 'rating')
        -- One on a part of the session says nothing of the whole.
        AND selection_id IS NULL AND call_id IS NULL
),
heard AS (
    SELECT session_id AS session, * EXCLUDE (session_id, trace_id) FROM verdicts WHERE session_id IS NOT NULL
    UNION ALL BY NAME
    SELECT t.session, v.* EXCLUDE (session_id, trace_id)
    FROM verdicts v JOIN (SELECT DISTINCT session, trace_id FROM called) t USING (trace_id)
),
-- A person's word beats a judge's, then the newest holds.
verdict AS (
    SELECT session, arg_max(is_good, (
        coalesce(source = 'human', false), coalesce(source <> 'judge', true), time, event_id
    )) AS is_good
    FROM heard WHERE is_good IS NOT NULL GROUP BY session
),
judged AS (
    SELECT n.session, row_number() OVER () AS number, n.last_at, coalesce(v.is_good, n.is_clean) AS is_good
    FROM newest n LEFT JOIN verdict v USING (session)
    WHERE coalesce(v.is_good, n.is_clean) IS NOT NULL
)
SELECT j.number AS session, j.last_at AS time, j.is_good, c.skill_id
FROM judged j
LEFT JOIN (FROM called WHERE ok IS DISTINCT FROM false) c USING (session)
LEFT JOIN selections s ON s.project = $project AND s.event_id = c.selection_id
-- Calls of one turn stand in the order in which the turn names their skills.
ORDER BY j.number, c.time, s.turn, c.ordinal, list_position(s.picks, c.called), c.call_key
"""
_STORED = """
SELECT skills, sessions, support, confidence, lift, success, n, low, high, feasible, checks, time, computed_at
FROM chains WHERE project = $project ORDER BY sessions DESC, len(skills) DESC, skills LIMIT $limit
"""

_AS_TEXT = pl.col("skills").list.join("\x1f")


def chains(
    connection: duckdb.DuckDBPyConnection,
    project: str = DEFAULT_PROJECT,
    start: datetime | None = None,
    end: datetime | None = None,
    *,
    min_support: float = MIN_SUPPORT,
    excluded: Sequence[str] = (),
    now: datetime | None = None,
    status: pl.DataFrame | None = None,
) -> dict[str, Any]:
    """The chains of sessions by their calls with ``start`` <= time < ``end``, without those of excluded environments.

    ``judged``: sessions that are known to have succeeded or not; ``successful``: how many did. ``chains``: each with
    its ``skills`` in order, ``sessions`` (successful ones that contain it), ``support``, ``confidence``, ``lift``,
    ``success`` with its 95 % interval over ``n`` (all judged sessions that contain it), ``time`` (the last call of the
    newest of ``sessions``), and whether it is ``feasible`` as of ``now``, by its ``checks``. ``status``: rows of
    ``skill_status``, where they are newer than those of the connection.
    """
    calls = fetch(
        connection,
        _STEPS,
        project=project,
        start=start,
        end=end,
        excluded=list(excluded),
        calls=MAX_CALLS,
        session_calls=MAX_SESSION_CALLS,
    )
    sessions = calls.unique("session")
    successful = int(sessions["is_good"].sum())
    checker = chains_checks.load_checker(connection, project, now or datetime.now(UTC), status)
    return {
        "project": project,
        "min_support": min_support,
        "judged": sessions.height,
        "successful": successful,
        "chains": [chain | checker.check(chain["skills"]) for chain in mined(calls, successful, min_support)],
    }


def mined(calls: pl.DataFrame, successful: int, min_support: float) -> list[dict[str, Any]]:
    """The chains of sessions, those of most sessions first, at most ``MAX_CHAINS``.

    ``calls``: session, time, is_good, skill_id, each session's in order. ``successful``: how many sessions are good.
    """
    # As people write it: a tenth of 30 is 3, which the nearest binary number misses.
    fewest = math.ceil(Fraction(str(min_support)) * successful)
    levels = _counted(_steps(calls), max(fewest, MIN_SESSIONS))
    found = [_with_parts(levels, length) for length in range(2, len(levels) + 1)]
    if not found:
        return []
    length = pl.col("skills").list.len()
    first = pl.concat(found).sort("sessions", length, _AS_TEXT, descending=[True, True, False]).head(MAX_CHAINS)
    return [_measured(row, successful) for row in first.iter_rows(named=True)]


def _steps(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls that begin a step, numbered (``at``): one skill several times in a row is one step."""
    known = calls.drop_nulls("skill_id")
    skills = pl.Enum(known["skill_id"].unique().sort())
    begins = pl.struct("session", "skill_id").ne_missing(pl.struct("session", "skill_id").shift())
    return known.filter(begins).with_columns(pl.col("skill_id").cast(skills)).with_row_index("at")


def _counted(steps: pl.DataFrame, fewest: int) -> list[pl.DataFrame]:
    """What ``fewest`` good sessions contain, by length from 1: its skills ``s0``, ``s1`` …, and how many sessions do.

    ``sessions``: good ones; ``n``: all; ``time``: of the newest good one.

    A stretch of steps can only be frequent where that without its last step is, so each length looks at those alone.
    """
    levels: list[pl.DataFrame] = []
    stretches = steps.rename({"skill_id": "s0"})
    for length in range(1, MAX_STEPS + 1):
        skills = [f"s{i}" for i in range(length)]
        counts = (
            stretches.unique(["session", *skills])
            .group_by(skills)
            .agg(pl.col("is_good").sum().alias("sessions"), pl.len().alias("n"), pl.col("time").filter("is_good").max())
            .filter(pl.col("sessions") >= fewest)
        )
        if not counts.height:
            break
        levels.append(counts)
        following = steps.select("session", pl.col("at") - length, pl.col("skill_id").alias(f"s{length}"))
        stretches = (
            stretches.join(counts, on=skills, how="semi")
            .join(following, on=["session", "at"])
            .filter(pl.all_horizontal(pl.col(skill) != pl.col(f"s{length}") for skill in skills))
        )
    return levels


def _with_parts(levels: Sequence[pl.DataFrame], length: int) -> pl.DataFrame:
    """What is frequent of one length, and how many good sessions contain it without its last step, and that alone."""
    skills = [f"s{i}" for i in range(length)]
    prefix = levels[length - 2].select(*skills[:-1], pl.col("sessions").alias("with_prefix"))
    last = levels[0].select(pl.col("s0").alias(skills[-1]), pl.col("sessions").alias("with_last"))
    whole = levels[length - 1].join(prefix, on=skills[:-1]).join(last, on=skills[-1])
    as_list = pl.concat_list(pl.col(skills).cast(pl.String)).alias("skills")
    return whole.select(as_list, "sessions", "n", "time", "with_prefix", "with_last")


def _measured(row: dict[str, Any], successful: int) -> dict[str, Any]:
    low, high = wilson(row["sessions"], row["n"])
    return {
        "skills": row["skills"],
        "sessions": row["sessions"],
        "support": row["sessions"] / successful,
        "confidence": row["sessions"] / row["with_prefix"],
        "lift": row["sessions"] * successful / (row["with_prefix"] * row["with_last"]),
        "success": row["sessions"] / row["n"],
        "n": row["n"],
        "low": low,
        "high": high,
        "time": row["time"],
    }


def renew(
    connection: duckdb.DuckDBPyConnection, lake: Lake, project: str, now: datetime, excluded: Sequence[str]
) -> int:
    """Make the table ``chains`` hold what is found as of ``now``; how many chains. What is the same is not written."""
    status = lake.select("skill_status", pl.col("project") == project).unique()
    found = chains(connection, project, end=now, excluded=excluded, now=now, status=status)["chains"]
    schema = TABLES["chains"]
    stamps = {"project": project, "computed_at": now}
    records = [
        stamps | chain | {"date": chain["time"].date(), "checks": json.dumps(chain["checks"])} for chain in found
    ]
    frame = pl.DataFrame(records, schema=schema)
    of_project = pl.col("project") == project
    content = [name for name in schema if name != "computed_at"]
    before = lake.select("chains", of_project, content)
    # The order is that of their skills: a table has none.
    if not before.sort(_AS_TEXT).equals(frame.select(content).sort(_AS_TEXT)):
        lake.replace("chains", of_project, frame)
    return frame.height


def stored(
    connection: duckdb.DuckDBPyConnection, project: str = DEFAULT_PROJECT, limit: int = MAX_CHAINS
) -> list[dict[str, Any]]:
    """Chains as the nightly job found them last, those of most sessions first; ``checks`` as objects."""
    found = rows(connection.execute(_STORED, {"project": project, "limit": limit}))
    return [row | {"checks": json.loads(row["checks"])} for row in found]
