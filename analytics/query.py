"""One metric, asked for by name: the document that the HTTP API and the command line print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb

from analytics.bootstrap import bootstrap_mean
from analytics.metrics.declarations import BY_NAME, INHERENT, Metric
from analytics.rollups import Measure, Span, measure_of, rolled, sums
from analytics.rollups_sessions import session_sums
from analytics.sums import ADDED, added, direct, keyed, observations, summed, valued
from analytics.tables import used
from pickwise.events import DEFAULT_PROJECT

#: More durations than so many are told by the buckets of their sums, which are right within 2 %.
_MANY = 50_000
#: The cluster of each selection whose query has one; clusters that were asked only now and then are none. The same is
#: asked often, so it is looked up once a query.
_CLUSTERED = """
    with asked as (
        select query, count(*) as times from selections where project = $project group by query
    ),
    placed as (
        select a.query, q.cluster_id as cluster
        from asked a
        join query_clusters q on q.project = $project and q.query_key = md5(a.query)
        where q.cluster_id is not null
        qualify sum(a.times) over (partition by q.cluster_id) >= 3
    )
    select s.event_id, p.cluster from selections s join placed p using (query) where s.project = $project
"""
#: What observations of selections lack.
_NO_CALL = "select null::varchar as call_key, null::varchar as selection_id where false"
_CLUSTER_NAMES = "select distinct cluster_id, cluster_name from query_clusters where project = $project"


class MetricError(ValueError):
    """A metric or a grouping that does not exist; the message lists those that do."""


def metric(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    *,
    project: str = DEFAULT_PROJECT,
    start: datetime | None = None,
    end: datetime | None = None,
    by: Sequence[str] = (),
    judge: bool = False,
    from_rows: bool = False,
) -> dict[str, Any]:
    """The metric over events with ``start`` <= time < ``end`` (None: open), one row a group.

    Rows have the groups asked for, ``value``, ``n`` (its denominator), and the 95 % interval ``low``, ``high``: of a
    rate Wilson's, against labels the bootstrap's over queries. ``stage_latency_ms`` has ``stage``, the groups, ``p50``,
    ``p95``, ``p99``, ``n`` and ``left_out``; ``recall_at_k`` has ``k``. With n = 0 the value is None. ``judge`` counts
    the feedback of judges too. ``from_rows``: no rollup is asked, which changes nothing but the time it takes.

    Raises MetricError for an unknown metric or a grouping that it does not support.
    """
    declared = BY_NAME.get(name)
    if declared is None:
        raise MetricError(f"metric: expected one of {', '.join(BY_NAME)}; got {name!r:.80}")
    groups = _groups(declared, by)
    parameters = {"project": project, "start": _utc(start), "end": _utc(end), "judge": judge}
    if declared.kind == "bootstrap" and not _has_labels(connection, project):
        found: list[dict[str, Any]] = []
    else:
        query = _query(connection, declared, groups, parameters, from_rows)
        # By columns up to here: the rows of all skills and hours are made twice as quickly.
        found = connection.sql(query, params=used(query, parameters)).to_arrow_table().to_pylist()
    if declared.kind == "bootstrap":
        found = [_with_interval(row) for row in found]
    if "cluster" in groups:
        found = _with_names(connection, project, found)
    if not found and not by:
        found = [_nothing(declared)]
    return {
        "metric": name,
        "unit": declared.unit,
        "from": _iso(start),
        "to": _iso(end),
        "by": list(by),
        "rows": found,
    }


def _has_labels(connection: duckdb.DuckDBPyConnection, project: str) -> bool:
    """Without any, no list need be looked at."""
    query = "select exists (from labels where project = $project)"
    return bool(connection.execute(query, {"project": project}).fetchall()[0][0])


def _nothing(declared: Metric) -> dict[str, Any]:
    """The one row of a metric with rows of its own when there is none of them."""
    if declared.kind == "bootstrap":
        return {"k": None, "value": None, "n": 0, "low": None, "high": None}
    if declared.kind == "overlap":
        return dict.fromkeys((*declared.always_by, "value", "rbo", "low", "high")) | {"n": 0}
    quantiles = {f"p{round(q * 100)}": None for q in declared.quantiles}
    return {"stage": None, **quantiles, "n": 0, "left_out": 0}


def _with_interval(row: dict[str, Any]) -> dict[str, Any]:
    low, high = bootstrap_mean(row.pop("totals") or [], row.pop("counts") or [])
    return row | {"low": low, "high": high}


def _with_names(
    connection: duckdb.DuckDBPyConnection, project: str, found: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The rows with ``cluster_name`` beside ``cluster``: an id stays, a name may change."""
    names = dict(connection.execute(_CLUSTER_NAMES, {"project": project}).fetchall())
    return [{"cluster": row["cluster"], "cluster_name": names.get(row["cluster"])} | row for row in found]


def _groups(declared: Metric, by: Sequence[str]) -> tuple[str, ...]:
    for grouping in by:
        if grouping not in declared.groupings:
            raise MetricError(
                f"by: {declared.name} can be grouped by {', '.join(declared.groupings)}; got {grouping!r:.80}"
            )
    # Latencies of different stages have no common quantile, recall at different depths and overlaps of different index
    # versions no common mean.
    inherent = tuple(grouping for grouping in INHERENT if grouping in declared.groupings)
    return tuple(dict.fromkeys((*inherent, *declared.always_by, *by)))


def _query(
    connection: duckdb.DuckDBPyConnection,
    declared: Metric,
    groups: tuple[str, ...],
    asked: Mapping[str, Any],
    from_rows: bool,
) -> str:
    """The rows of the metric: of the sums of its groups where its value follows from these, else of observations."""
    window, project = Span(asked["start"], asked["end"]), asked["project"]
    measure = None if from_rows or asked["judge"] else measure_of(declared, groups)

    def add() -> str:
        return _sums(connection, declared, groups, project, window, measure)

    if declared.kind == "quantiles":
        return quantiles(connection, declared, groups, project, window, add)
    if declared.kind not in ADDED:
        return direct(declared, _observed(declared, groups, window, keyed(groups)), groups)
    return valued(declared, add(), groups)


def quantiles(
    connection: duckdb.DuckDBPyConnection,
    declared: Metric,
    groups: Sequence[str],
    project: str,
    window: Span,
    add: Callable[[], str],
) -> str:
    """A query of the rows of a metric of that kind: exact, or where there are many values, of their buckets.

    ``add`` makes the query of the sums of these.
    """
    # Of a skill in an hour there are few, and nearly each in a bucket of its own.
    if {"skill", "hour"} <= {*groups} or not _are_many(connection, declared, project, window):
        return direct(declared, _observed(declared, groups, window, keyed(groups)), groups)
    return valued(declared, add(), groups)


def _sums(
    connection: duckdb.DuckDBPyConnection,
    declared: Metric,
    groups: Sequence[str],
    project: str,
    window: Span,
    measure: Measure | None,
) -> str:
    """Of a rollup where that has them, else of observations."""
    found: str | None = None
    if measure is not None and measure.of_sessions:
        found = session_sums(connection, measure, groups, window, project)
    elif measure is not None:
        found = sums(connection, measure, groups, window)
    if found is None:
        return summed(declared.kind, _observed(declared, groups, window), keyed(groups))
    return found if declared.kind == "quantiles" else added(found, groups)


def _observed(declared: Metric, groups: Sequence[str], window: Span, keys: str = "") -> str:
    """The observations in the window, with what they are grouped by."""
    found = observations(declared.name, "skill" in groups or "domain" in groups)
    return f"select {keys} * from ({_clustered(found) if 'cluster' in groups else found}) where {window.holds('time')}"


def _are_many(connection: duckdb.DuckDBPyConnection, declared: Metric, project: str, window: Span) -> bool:
    """As far as rollups tell."""
    measure = measure_of(declared, [group for group in INHERENT if group in declared.groupings])
    table = measure and rolled(connection, measure)
    if not table:
        return False
    query = f"select coalesce(sum(n), 0) from {table} where {window.holds('hour')}"
    return bool(connection.execute(query, {"project": project}).fetchall()[0][0] > _MANY)


def _clustered(observations: str) -> str:
    """Observations with the ``cluster`` of their selection: calls name it or have none, all others are it."""
    return f"""
        select o.* exclude (of_selection), c.cluster
        from (
            select *, if(call_key is null, event_id, selection_id) as of_selection
            from ({_NO_CALL} union all by name ({observations}))
        ) o
        left join ({_CLUSTERED}) c on c.event_id = o.of_selection
    """


def _utc(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def _iso(time: datetime | None) -> str | None:
    found = _utc(time)
    return None if found is None else found.astimezone(UTC).isoformat().replace("+00:00", "Z")
