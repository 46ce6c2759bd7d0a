"""The nightly portrait of every skill: what a day brought it, and whom it was confused with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import duckdb
import polars as pl

from analytics.fetch import fetch
from collector.tables import TABLES

#: Skills that one is confused with most; the rest is noise.
MOST_CONFUSED = 10

_DAY = "$day::DATE"
_WITHIN = "project = $project AND time >= $start AND time < $until"
#: A bare name that only one entry bears is that entry.
_MEANT = "coalesce(registry_skill_id, skill_id)"

# Means are rounded to microseconds: the order of a parallel sum must not make a portrait look changed.
# ``skipped`` is null for fixed menus, whose order says nothing.
_IMPRESSIONS = f"""
SELECT {_DAY} AS date, {_MEANT} AS skill_id, count(*) AS impressions,
       count(*) FILTER (WHERE picked) AS picks, count(*) FILTER (WHERE skipped) AS skips
FROM candidates
WHERE {_WITHIN} AND NOT closing
GROUP BY ALL
"""
_CALLS = f"""
SELECT {_DAY} AS date, {_MEANT} AS skill_id, count(*) AS calls,
       count(ok) AS finished, count(*) FILTER (WHERE NOT ok) AS failed,
       round(avg(latency_ms) FILTER (WHERE latency_ms >= 0), 3) AS latency_mean_ms,
       round(quantile_cont(latency_ms, 0.99) FILTER (WHERE latency_ms >= 0), 3) AS latency_p99_ms
FROM calls
WHERE {_WITHIN}
GROUP BY ALL
"""
_KINDS = f"""
WITH counted AS (
    SELECT {_DAY} AS date, {_MEANT} AS skill_id, error_kind, count(*) AS n
    FROM calls
    WHERE {_WITHIN} AND NOT ok
    GROUP BY ALL
)
SELECT date, skill_id, to_json(map(list(error_kind ORDER BY error_kind), list(n ORDER BY error_kind)))::VARCHAR
       AS error_kinds
FROM counted GROUP BY ALL
"""
# Two skills are confused when one was skipped for the other: ``lost`` counts what the other took, ``won`` the reverse.
_CONFUSED = f"""
WITH shown AS (
    SELECT {_DAY} AS date, event_id, {_MEANT} AS skill_id, picked, skipped, rank FROM candidates
    WHERE {_WITHIN} AND ranked
),
duels AS (
    SELECT s.date, s.skill_id AS loser, p.skill_id AS winner
    FROM shown s JOIN shown p ON s.event_id = p.event_id AND s.skipped AND p.picked AND s.rank < p.rank
),
sides AS (
    SELECT date, loser AS skill_id, winner AS other, 1 AS lost, 0 AS won FROM duels
    UNION ALL
    SELECT date, winner, loser, 0, 1 FROM duels
),
counted AS (SELECT date, skill_id, other, sum(lost)::BIGINT AS lost, sum(won)::BIGINT AS won FROM sides GROUP BY ALL),
top AS (
    SELECT * FROM counted
    QUALIFY row_number() OVER (PARTITION BY date, skill_id ORDER BY lost + won DESC, other) <= {MOST_CONFUSED}
)
SELECT date, skill_id,
       to_json(list({{'skill_id': other, 'lost': lost, 'won': won}} ORDER BY lost + won DESC, other))::VARCHAR
       AS confused_with
FROM top GROUP BY ALL
"""
_STORED = "SELECT * EXCLUDE (time, computed_at) FROM portraits WHERE project = $project AND list_contains($days, date)"

_KEY = ["date", "skill_id"]
_COUNTS = ("impressions", "picks", "skips", "calls", "finished", "failed")
_FACES = ("error_kinds", "latency_mean_ms", "latency_p99_ms", "confused_with")


def compute(connection: duckdb.DuckDBPyConnection, project: str, days: Sequence[date], until: datetime) -> pl.DataFrame:
    """One row a skill and day that saw it, from events of those days before ``until``.

    Columns: date, skill_id and the measures of the table ``portraits``; JSON where there is nothing to tell is
    ``{}`` or ``[]``. Latencies are milliseconds, of calls that tell one.
    """
    schema = TABLES["portraits"]
    blank = pl.DataFrame(schema={name: schema[name] for name in (*_KEY, *_COUNTS, *_FACES)})
    return pl.concat([blank, *(_of_day(connection, project, day, until) for day in days)]).sort(_KEY)


def _of_day(connection: duckdb.DuckDBPyConnection, project: str, day: date, until: datetime) -> pl.DataFrame:
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    window = {"start": start, "until": min(start + timedelta(days=1), until)}
    parts = [
        fetch(connection, query, project=project, day=day, **window)
        for query in (_IMPRESSIONS, _CALLS, _KINDS, _CONFUSED)
    ]
    frame = parts[0]
    for part in parts[1:]:
        frame = frame.join(part, on=_KEY, how="full", coalesce=True)
    schema = TABLES["portraits"]
    return frame.with_columns(
        *(pl.col(name).fill_null(0) for name in _COUNTS),
        pl.col("error_kinds").fill_null("{}"),
        pl.col("confused_with").fill_null("[]"),
    ).select(pl.col(name).cast(schema[name]) for name in (*_KEY, *_COUNTS, *_FACES))


def changed(
    connection: duckdb.DuckDBPyConnection, project: str, days: Sequence[date], until: datetime, now: datetime
) -> pl.DataFrame:
    """Portraits of these days that differ from the stored ones, as rows of ``portraits`` computed at ``now``.

    A skill that a replay took out of a day gets a row of zeros: stored rows are never taken back.
    """
    computed = compute(connection, project, days, until)
    stored = fetch(connection, _STORED, project=project, days=list(days)).select(computed.columns)
    stored = stored.cast(computed.schema)
    gone = stored.join(computed, on=_KEY, how="anti").select(
        *_KEY,
        *(pl.lit(0, pl.Int64).alias(name) for name in _COUNTS),
        pl.lit("{}").alias("error_kinds"),
        *(pl.lit(None, pl.Float64).alias(name) for name in ("latency_mean_ms", "latency_p99_ms")),
        pl.lit("[]").alias("confused_with"),
    )
    fresh = pl.concat([computed, gone.select(computed.columns)]).join(
        stored, on=computed.columns, how="anti", nulls_equal=True
    )
    return fresh.with_columns(
        pl.lit(project).alias("project"),
        pl.col("date").cast(pl.Datetime("us")).dt.replace_time_zone("UTC").alias("time"),
        pl.lit(now, pl.Datetime("us", "UTC")).alias("computed_at"),
    )
