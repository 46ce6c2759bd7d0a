"""Frames for a dashboard: small answers as Polars DataFrames."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal

import duckdb
import polars as pl

from analytics.metrics.declarations import BY_NAME
from analytics.query import metric, quantiles
from analytics.rollups import SKIPS, Span, measure_of, rolled, rows_of, sums
from pickwise.events import DEFAULT_PROJECT

_WINDOW = "project = $project and (time >= $start or $start is null) and (time < $end or $end is null)"
_RATE_ROW = {"value": pl.Float64, "n": pl.Int64, "low": pl.Float64, "high": pl.Float64}


def metric_series(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    *,
    project: str = DEFAULT_PROJECT,
    start: datetime | None = None,
    end: datetime | None = None,
    every: Literal["hour", "day"] = "hour",
) -> pl.DataFrame:
    """One metric over time: ``time`` (start of the hour or day, UTC), ``value``, ``n``, ``low``, ``high``.

    ``stage_latency_ms`` has ``time``, ``stage``, ``p50``, ``p95``, ``p99``, ``n``, ``left_out``.
    """
    rows = metric(connection, name, project=project, start=start, end=end, by=[every])["rows"]
    if not rows:
        return pl.DataFrame(schema={"time": pl.Datetime("us", "UTC"), **_RATE_ROW})
    pattern = "%Y-%m-%dT%H:%M:%SZ" if every == "hour" else "%Y-%m-%d"
    times = pl.col(every).str.to_datetime(pattern, time_unit="us", time_zone="UTC").alias("time")
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return frame.select(times, pl.exclude(every)).sort("time")


def skills(
    connection: duckdb.DuckDBPyConnection,
    *,
    project: str = DEFAULT_PROJECT,
    start: datetime | None = None,
    end: datetime | None = None,
) -> pl.DataFrame:
    """One row a skill that is registered, was offered or was called, most called first.

    ``skill_id``, ``name``, ``domain``, ``is_active`` (null: not in the registry), ``source``, ``status``,
    ``impressions``, ``picks``, ``skips``, ``acceptance``, ``calls``, ``finished``, ``failed``, ``success``,
    ``latency_mean_ms``, ``latency_p99_ms``. The status is today's, the counts are the window's.
    """
    span = Span(start, end)
    by_skill = ("skill",)
    waits = replace(BY_NAME["stage_latency_ms"], quantiles=(0.99,))

    def counted(name: str) -> str:
        measure = measure_of(BY_NAME[name], by_skill)
        assert measure is not None
        return sums(connection, measure, by_skill, span)

    query = f"""
        with registry as (
            select * from skills where project = $project and authoritative and valid_to is null
        ),
        shown as (
            select skill_ as skill_id, sum(n)::bigint as impressions, sum(k)::bigint as picks
            from ({counted("acceptance_rate")}) group by skill_
        ),
        passed_over as (
            select skill_ as skill_id, sum(k)::bigint as skips
            from ({sums(connection, SKIPS, by_skill, span)}) group by skill_
        ),
        finished as (
            select skill_ as skill_id, sum(n)::bigint as finished, sum(k)::bigint as failed
            from ({counted("failed_tool_rate")}) group by skill_
        ),
        timed as materialized (
            select 'call' as stage_, skill_, bucket, sum(n) as n, sum(k) as k, sum(total) as total
            from ({counted("stage_latency_ms")}) group by all
        ),
        called as (
            select skill_ as skill_id, sum(n)::bigint as calls,
                sum(total) / sum(n) filter (bucket is not null) as latency_mean_ms
            from timed group by skill_
        ),
        waits as (
            select skill as skill_id, p99 as latency_p99_ms
            from ({quantiles(connection, waits, ("stage", *by_skill), project, span, lambda: "from timed")})
        ),
        standing as (
            select skill_id, arg_max(status, time) as status from skill_status where project = $project group by 1
        )
        select skill_id, r.name, r.domain, r.is_active, r.source, t.status,
            coalesce(s.impressions, 0) as impressions, coalesce(s.picks, 0) as picks, coalesce(p.skips, 0) as skips,
            s.picks / s.impressions as acceptance,
            coalesce(c.calls, 0) as calls, coalesce(f.finished, 0) as finished, coalesce(f.failed, 0) as failed,
            if(f.finished > 0, 1 - f.failed / f.finished, null) as success,
            c.latency_mean_ms, w.latency_p99_ms
        from registry r
        full join shown s using (skill_id)
        full join called c using (skill_id)
        left join passed_over p using (skill_id)
        left join finished f using (skill_id)
        left join waits w using (skill_id)
        left join standing t using (skill_id)
        order by calls desc, impressions desc, skill_id
        """
    return _frame(connection, query, project=project)


def alerts(connection: duckdb.DuckDBPyConnection, *, project: str = DEFAULT_PROJECT, limit: int = 100) -> pl.DataFrame:
    """The newest changes of alerts: the columns of the table `alerts`, newest first."""
    return _frame(
        connection,
        """
        select * exclude (project, date) from alerts
        where project = $project order by time desc, alert_id limit $limit
        """,
        project=project,
        limit=limit,
    )


def _frame(connection: duckdb.DuckDBPyConnection, query: str, **parameters: Any) -> pl.DataFrame:
    frame = pl.from_arrow(connection.sql(query, params=parameters).to_arrow_table())
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(pl.col(pl.Datetime).dt.convert_time_zone("UTC"))


Only = Literal["mismatch", "failed", "fallback"]
_ONLY: dict[Only, str] = {
    "mismatch": "(project, event_id) in (select (m.project, m.event_id) from mismatches m"
    " left join (from judgements where not from_judge) j using (project, event_id)"
    " where m.top_skipped or m.off_list or m.corrected or label_disagrees(m.picked, j.expected))",
    "failed": "(project, event_id) in (select (project, selection_id) from calls where not ok)",
    "fallback": "fallback",
}


def matching_selections(
    connection: duckdb.DuckDBPyConnection,
    *,
    project: str = DEFAULT_PROJECT,
    start: datetime | None = None,
    end: datetime | None = None,
    only: Only | None = None,
    skill_id: str | None = None,
    limit: int = 100,
) -> pl.DataFrame:
    """The newest selections, those of one kind, or those that offered or picked one skill.

    ``event_id``, ``time``, ``query``, ``model``, ``strategy``, ``n_candidates``, ``picks``, ``fallback``, ``best_rank``
    (of a picked candidate), ``calls``, ``failed``.
    """
    wanted = [_WINDOW, "not closing", *([_ONLY[only]] if only else [])]
    parameters: dict[str, Any] = {"project": project, "start": start, "end": end, "limit": limit}
    if skill_id is not None:
        wanted.append(
            "(list_contains(picks, $skill_id) or (project, event_id) in (select (project, event_id) from candidates"
            " where project = $project and coalesce(registry_skill_id, skill_id) = $skill_id))"
        )
        parameters["skill_id"] = skill_id
    return _frame(
        connection,
        f"""
        with newest as (
            from selections where {" and ".join(wanted)} order by time desc, event_id limit $limit
        ),
        outcomes as (
            select selection_id as event_id, count(*) as calls, count(*) filter (not ok) as failed
            from calls where project = $project group by 1
        ),
        ranks as (
            select event_id, min(rank) filter (picked) as best_rank from candidates where project = $project group by 1
        )
        select n.event_id, n.time, n.query, n.model, n.strategy, n.n_candidates, n.picks, n.fallback, r.best_rank,
            coalesce(o.calls, 0) as calls, coalesce(o.failed, 0) as failed
        from newest n left join outcomes o using (event_id) left join ranks r using (event_id)
        order by n.time desc, n.event_id
        """,
        **parameters,
    )


def kept(connection: duckdb.DuckDBPyConnection, *, project: str = DEFAULT_PROJECT) -> dict[str, Any]:
    """What is kept of a project: ``first`` and ``last`` event time (None: nothing), ``selections``, ``calls``."""
    told = {table: _kept(connection, table, project) for table in ("selections", "calls")}
    times = [row[name] for row in told.values() for name in ("first", "last") if row[name] is not None]
    return {
        "first": min(times, default=None),
        "last": max(times, default=None),
        **{table: row["rows"] for table, row in told.items()},
    }


def _kept(connection: duckdb.DuckDBPyConnection, table: str, project: str) -> dict[str, Any]:
    """``first`` and ``last`` time and number of ``rows``; where rollups tell the hours, only theirs are read."""
    rolled_up = rolled(connection, rows_of(table))
    if rolled_up is None:
        query = f"select min(time) as first, max(time) as last, count(*) as rows from {table} where project = $project"
        return _frame(connection, query, project=project).to_dicts()[0]
    query = f"select min(hour) as first, max(hour) as last, coalesce(sum(n), 0)::bigint as rows from {rolled_up}"
    (found,) = _frame(connection, f"{query} where project = $project", project=project).to_dicts()
    if not found["rows"]:
        return found
    # Both at once: what takes time is to look into every file.
    hours = [
        f"(time >= {Span.literal(hour)} and time < {Span.literal(hour + timedelta(hours=1))})"
        for hour in (found["first"], found["last"])
    ]
    query = (
        f"select min(time) as first, max(time) as last from {table} where project = $project and ({' or '.join(hours)})"
    )
    return found | _frame(connection, query, project=project).to_dicts()[0]


def degraded_spells(
    connection: duckdb.DuckDBPyConnection,
    *,
    project: str = DEFAULT_PROJECT,
    start: datetime | None = None,
    end: datetime | None = None,
) -> pl.DataFrame:
    """Spells in which a discovery router was degraded within the window, newest first: ``instance``, ``time`` (its
    start), ``ended_at``, ``reason``, and ``selections`` that fell back meanwhile (of all instances).
    """
    return _frame(
        connection,
        """
        select d.instance, d.time, d.ended_at, d.reason, count(s.event_id) as selections
        from degraded_spells d
        left join selections s
            on s.project = d.project and s.fallback and s.time >= d.time and s.time < d.ended_at
        where d.project = $project and (d.ended_at >= $start or $start is null) and (d.time < $end or $end is null)
        group by all order by d.time desc, d.instance
        """,
        project=project,
        start=start,
        end=end,
    )


def status_changes(
    connection: duckdb.DuckDBPyConnection,
    *,
    project: str = DEFAULT_PROJECT,
    skill_id: str | None = None,
    limit: int = 50,
) -> pl.DataFrame:
    """The newest changes of the status of skills: the columns of the table `skill_status`, newest first."""
    return _frame(
        connection,
        "select * exclude (project, date) from skill_status where project = $project"
        " and (skill_id = $skill_id or $skill_id is null) order by time desc, skill_id limit $limit",
        project=project,
        skill_id=skill_id,
        limit=limit,
    )


def training_runs(
    connection: duckdb.DuckDBPyConnection, *, project: str = DEFAULT_PROJECT, limit: int = 50
) -> pl.DataFrame:
    """The newest training runs: the columns of the table `models`, newest first."""
    return _frame(
        connection,
        "select * exclude (project, date) from models where project = $project order by time desc limit $limit",
        project=project,
        limit=limit,
    )


def active_entries(connection: duckdb.DuckDBPyConnection, *, project: str = DEFAULT_PROJECT) -> list[dict[str, Any]]:
    """The registry's entries that hold now, whole, by skill id: declared, or observed where none are declared."""
    found = _frame(
        connection,
        "select entry from skills where project = $project and authoritative and valid_to is null and is_active"
        " order by skill_id",
        project=project,
    )
    return [json.loads(entry) for entry in found["entry"]]
