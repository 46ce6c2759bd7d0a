"""One metric, asked for by name: the document that the HTTP API and the command line print."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import duckdb

from analytics.bootstrap import bootstrap_mean
from analytics.metrics.declarations import BY_NAME, INHERENT, Metric
from analytics.tables import rows
from pickwise.events import DEFAULT_PROJECT

_BY_SKILL = "-- by skill\n"
#: How a grouping is read from an observation, where it is not a column of that name.
_EXPRESSIONS = {
    "hour": "strftime(time, '%Y-%m-%dT%H:00:00Z')",
    "day": "strftime(time, '%Y-%m-%d')",
}
#: The cluster of each selection whose query has one; clusters that were asked only now and then are none.
_CLUSTERED = """
    select s.event_id, q.cluster_id as cluster
    from selections s
    join query_clusters q on q.project = s.project and q.query_key = md5(s.query)
    where s.project = $project and q.cluster_id is not null
    qualify count(*) over (partition by q.cluster_id) >= 3
"""
#: What observations of selections lack.
_NO_CALL = "select null::varchar as call_key, null::varchar as selection_id where false"
_CLUSTER_NAMES = "select distinct cluster_id, cluster_name from query_clusters where project = $project"
_WINDOW = "project = $project and (time >= $start or $start is null) and (time < $end or $end is null)"


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
) -> dict[str, Any]:
    """The metric over events with ``start`` <= time < ``end`` (None: open), one row a group.

    Rows have the groups asked for, ``value``, ``n`` (its denominator), and the 95 % interval ``low``, ``high``: of a
    rate Wilson's, against labels the bootstrap's over queries. ``stage_latency_ms`` has ``stage``, the groups, ``p50``,
    ``p95``, ``p99``, ``n`` and ``left_out``; ``recall_at_k`` has ``k``. With n = 0 the value is None. ``judge`` counts
    the feedback of judges too.

    Raises MetricError for an unknown metric or a grouping that it does not support.
    """
    declared = BY_NAME.get(name)
    if declared is None:
        raise MetricError(f"metric: expected one of {', '.join(BY_NAME)}; got {name!r:.80}")
    groups = _groups(declared, by)
    parameters = {"project": project, "start": _utc(start), "end": _utc(end), "judge": judge}
    found = rows(connection.execute(_query(declared, groups), parameters))
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


@cache
def _observations(name: str, by_skill: bool) -> str:
    text = (files("analytics") / "metrics" / f"{name}.sql").read_text()
    main, _, other = text.partition(_BY_SKILL)
    return (other or main) if by_skill else main


def _query(declared: Metric, groups: tuple[str, ...]) -> str:
    observations = _observations(declared.name, "skill" in groups or "domain" in groups)
    if "cluster" in groups:
        observations = _clustered(observations)
    named = [f"{_EXPRESSIONS.get(group, group)} as {group}_" for group in groups]
    # The window stands around the observations; parameters must occur once at least.
    windowed = f"select *, {', '.join([*named, '$judge as judge_'])} from ({observations}) where {_WINDOW}"
    return _AGGREGATES[declared.kind](declared, windowed, [f"{group}_" for group in groups])


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


def _rate(_: Metric, observations: str, keys: list[str]) -> str:
    # A kind of error is a part of the numerator: its denominator is that of the other groups.
    shared = [key for key in keys if key != "error_kind_"]
    over = f"over ({'partition by ' + ', '.join(shared) if shared else ''})"
    kinds = "error_kind_" in keys
    n = f"(sum(count(*)) {over})::bigint" if kinds else "count(*)"
    counted = f"""
        select {_list(keys)} count(*) filter (hit) as k, {n} as n
        from ({observations}) {_group_by(keys)}
        {"qualify error_kind_ is not null" if kinds else ""}
    """
    return f"""
        select {_named(keys)} if(n > 0, k / n, null) as value, n, wilson_low(k, n) as low, wilson_high(k, n) as high
        from ({counted}) order by {_order(keys)} n desc
    """


def _mean(_: Metric, observations: str, keys: list[str]) -> str:
    return _plain("avg(value)", observations, keys)


def _sum(_: Metric, observations: str, keys: list[str]) -> str:
    return _plain("sum(value)::double", observations, keys)


def _plain(value: str, observations: str, keys: list[str]) -> str:
    return f"""
        select {_named(keys)} {value} as value, count(value) as n, null as low, null as high
        from ({observations}) {_group_by(keys)} order by {_order(keys)} n desc
    """


def _bootstrap(_: Metric, observations: str, keys: list[str]) -> str:
    """The mean over observations, with what its interval is made of: sums and counts of the units drawn again."""
    units = f"""
        select {_list(keys)} unit, sum(value) as total, count(*) as n
        from ({observations}) group by {_list(keys)} unit
    """
    return f"""
        select {_named(keys)} sum(total) / sum(n) as value, coalesce(sum(n), 0)::bigint as n,
            list(total) as totals, list(n) as counts
        from ({units}) {_group_by(keys)} order by {_order(keys)} n desc
    """


def _overlap(_: Metric, observations: str, keys: list[str]) -> str:
    """Both means, the version pair with most selections first."""
    return f"""
        select {_named(keys)} avg(value) as value, avg(rbo) as rbo, count(*) as n, null as low, null as high
        from ({observations}) {_group_by(keys)} order by n desc, {_order(keys)} value
    """


def _quantiles(declared: Metric, observations: str, keys: list[str]) -> str:
    usable = "filter (value >= 0)"
    columns = [f"quantile_cont(value, {q}) {usable} as p{round(q * 100)}" for q in declared.quantiles]
    if "stage_" not in keys:
        columns = [f"quantile_cont(value, 0.5) {usable} as value", *columns, "null as low", "null as high"]
    # Stages that nothing ever timed are no rows; calls are, to say how many of them told no time.
    timed = "having count(value) > 0 or stage_ = 'call'" if "stage_" in keys else ""
    return f"""
        select {_named(keys)} {", ".join(columns)}, count(*) {usable} as n,
            count(*) filter (value is null or value < 0) as left_out
        from ({observations}) {_group_by(keys)} {timed}
        order by {_order(keys)} n desc
    """


_AGGREGATES = {
    "rate": _rate,
    "mean": _mean,
    "sum": _sum,
    "quantiles": _quantiles,
    "bootstrap": _bootstrap,
    "overlap": _overlap,
}


def _list(keys: list[str]) -> str:
    return "".join(f"{key}, " for key in keys)


def _named(keys: list[str]) -> str:
    return "".join(f"{key} as {key[:-1]}, " for key in keys)


def _group_by(keys: list[str]) -> str:
    return f"group by {', '.join(keys)}" if keys else ""


def _order(keys: list[str]) -> str:
    return "".join(f"{key} nulls last, " for key in keys)


def _utc(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def _iso(time: datetime | None) -> str | None:
    found = _utc(time)
    return None if found is None else found.astimezone(UTC).isoformat().replace("+00:00", "Z")
