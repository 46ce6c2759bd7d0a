"""The SQL of metrics: observations, the sums of their groups, and the values that follow from these.

Sums of disjoint observations add up, so the same ones come from rows and from rollups (see ``rollups``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from analytics.metrics.declarations import Metric

_BY_SKILL = "-- by skill\n"
#: How a grouping is read from an observation, where it is not a column of that name. Numbers and times group faster
#: than their texts, which are made of the groups (see ``_TOLD``).
_READ = {"day": "epoch_us(hour) // 86400000000"}
#: How a grouping is told in a row, of its key.
_TOLD = {
    "hour": "strftime(hour_, '%Y-%m-%dT%H:00:00Z')",
    "day": "strftime(to_timestamp(day_ * 86400), '%Y-%m-%d')",
}
#: A bucket of durations is so much wider than the one below.
WIDTH = 1.02
#: The bucket of 0, far below all others: 1.02 to that power is 0.
_ZERO = -100_000
_BUCKET = f"case when value > 0 then floor(ln(value) / ln({WIDTH}))::int when value = 0 then {_ZERO} end"
#: What is added up, by kind of metric: the denominator ``n``, and what the value is made of. Of durations in each
#: bucket, and those without one, negative or absent: how many there are, and how many of them are told.
_SUMS = {
    "rate": "count(*) as n, count(*) filter (hit) as k",
    "mean": "count(value) as n, sum(value) as k",
    "quantiles": "count(*) as n, count(value) as k, sum(value) filter (value >= 0) as total",
    "content": "count(*) as n, bit_xor(row_hash) as content",
}


#: Kinds of metric whose value follows from such sums.
ADDED = ("rate", "mean", "quantiles")


@cache
def observations(name: str, by_skill: bool) -> str:
    """The rows that a metric is made of; ``by_skill``: those that have a skill, where these are others."""
    text = (files("analytics") / "metrics" / f"{name}.sql").read_text()
    main, _, other = text.partition(_BY_SKILL)
    return (other or main) if by_skill else main


def keyed(groups: Sequence[str]) -> str:
    """The columns of observations or rollups that hold the keys of groups, each with a comma."""
    return "".join(f"{_READ.get(group, group)} as {group}_, " for group in groups)


def summed(kind: str, source: str, keys: str = "") -> str:
    """The sums of the observations of a query by key columns (as ``keyed`` has them)."""
    bucket = f"{_BUCKET} as bucket, " if kind == "quantiles" else ""
    return f"select {keys}{bucket}{_SUMS[kind]} from ({source}) group by all"


def added(source: str, groups: Sequence[str]) -> str:
    """One sum for each group, of sums that are in parts."""
    keys = [f"{group}_" for group in groups]
    return f"select {_list(keys)} coalesce(sum(n), 0)::bigint as n, sum(k) as k from ({source}) {_group_by(keys)}"


def valued(declared: Metric, source: str, groups: Sequence[str]) -> str:
    """The rows of a metric, of one sum for each group by the keys of these; of quantiles they may be in parts."""
    keys = [f"{group}_" for group in groups]
    if declared.kind == "quantiles":
        return _of_buckets(declared, source, keys)
    if declared.kind == "mean":
        return f"""
            select {_named(keys)} k / n as value, n, null as low, null as high
            from ({source}) {_where_any(keys)} order by {_order(keys)} n desc
        """
    return _rates(source, keys)


def direct(declared: Metric, source: str, groups: Sequence[str]) -> str:
    """The rows of a metric whose value needs all of its observations."""
    return _DIRECT[declared.kind](declared, source, [f"{group}_" for group in groups])


def _rates(sums: str, keys: list[str]) -> str:
    # A kind of error is a part of the numerator: its denominator is that of the other groups.
    shared = [key for key in keys if key != "error_kind_"]
    if "error_kind_" in keys:
        over = f"over ({'partition by ' + ', '.join(shared) if shared else ''})"
        sums = f"select * replace ((sum(n) {over})::bigint as n), n as own from ({sums})"
        sums = f"from ({sums}) where error_kind_ is not null and own > 0"
    return f"""
        select {_named(keys)} if(n > 0, k / n, null) as value, n, wilson_low(k, n) as low, wilson_high(k, n) as high
        from (select * replace (coalesce(k, 0)::bigint as k) from ({sums}) {_where_any(keys)})
        order by {_order(keys)} n desc
    """


def _of_buckets(declared: Metric, source: str, keys: list[str]) -> str:
    """Quantiles of sums by bucket. Within one, values are taken to lie evenly, so they are right within its width."""
    by = f"partition by {', '.join(keys)}" if keys else ""
    columns = [f"{_quantile(q)} as p{round(q * 100)}" for q in declared.quantiles]
    if "stage_" not in keys:
        columns = [f"{_quantile(0.5)} as value", *columns, "null as low", "null as high"]
    usable = "filter (bucket is not null)"
    places = (f"{q} * (of_all - 1)" for q in declared.quantiles)
    near = " or ".join(f"(before <= {place} + 1 and before + n >= {place})" for place in places)
    return f"""
        with added as (
            select {_list(keys)} bucket, sum(n)::bigint as n, sum(k) as k from ({source}) group by all having sum(n) > 0
        ),
        placed as (
            select *, sum(n) over ({by} order by bucket nulls last rows unbounded preceding) - n as before,
                sum(n) {usable} over ({by}) as of_all, sum(k) over ({by}) as told
            from added
        ),
        -- Few buckets hold a quantile: only in these is its place looked for.
        near as (
            from placed where bucket is null or {near}
        )
        select {_named(keys)} {", ".join(columns)}, coalesce(max(of_all), 0)::bigint as n,
            coalesce(sum(n) filter (bucket is null), 0)::bigint as left_out
        from near {_group_by(keys)} {_having_timed("max(told)", keys)} order by {_order(keys)} n desc
    """


def _quantile(q: float) -> str:
    """Between the two values around its place, as ``quantile_cont`` has it."""
    place = f"({q} * (of_all - 1))"

    def value(at: str) -> str:
        inside = f"pow({WIDTH}, bucket + ({at} - before + 0.5) / n)"
        return f"max({inside}) filter (bucket is not null and {at} >= before and {at} < before + n)"

    low, high = value(f"floor{place}"), value(f"ceil{place}")
    return f"{low} + ({high} - {low}) * any_value({place} - floor{place})"


def _exact_quantiles(declared: Metric, source: str, keys: list[str]) -> str:
    usable = "filter (value >= 0)"
    asked = [0.5, *declared.quantiles]
    columns = [f"at_[{place}] as p{round(q * 100)}" for place, q in enumerate(declared.quantiles, 2)]
    if "stage_" not in keys:
        columns = ["at_[1] as value", *columns, "null as low", "null as high"]
    # All of a group at once: each by itself would order the values again.
    return f"""
        select {_named(keys)} {", ".join(columns)}, n, left_out
        from (
            select {_list(keys)} quantile_cont(value, {asked}) {usable} as at_, count(*) {usable} as n,
                count(*) filter (value is null or value < 0) as left_out
            from ({source}) {_group_by(keys)} {_having_timed("count(value)", keys)}
        )
        order by {_order(keys)} n desc
    """


def _sum(_: Metric, source: str, keys: list[str]) -> str:
    return f"""
        select {_named(keys)} sum(value)::double as value, count(value) as n, null as low, null as high
        from ({source}) {_group_by(keys)} order by {_order(keys)} n desc
    """


def _bootstrap(_: Metric, source: str, keys: list[str]) -> str:
    """The mean over observations, with what its interval is made of: sums and counts of the units drawn again."""
    units = f"select {_list(keys)} unit, sum(value) as total, count(*) as n from ({source}) group by {_list(keys)} unit"
    return f"""
        select {_named(keys)} sum(total) / sum(n) as value, coalesce(sum(n), 0)::bigint as n,
            list(total) as totals, list(n) as counts
        from ({units}) {_group_by(keys)} order by {_order(keys)} n desc
    """


def _overlap(_: Metric, source: str, keys: list[str]) -> str:
    """Both means, the version pair with most selections first."""
    return f"""
        select {_named(keys)} avg(value) as value, avg(rbo) as rbo, count(*) as n, null as low, null as high
        from ({source}) {_group_by(keys)} order by n desc, {_order(keys)} value
    """


_DIRECT = {"sum": _sum, "quantiles": _exact_quantiles, "bootstrap": _bootstrap, "overlap": _overlap}


def _having_timed(told: str, keys: list[str]) -> str:
    """Stages that nothing ever timed are no rows; calls are, to say how many of them told no time."""
    return f"having {told} > 0 or stage_ = 'call'" if "stage_" in keys else ""


def _where_any(keys: list[str]) -> str:
    """Groups of which nothing is left are none; without groups there is one row in any case."""
    return "where n > 0" if keys else ""


def _list(keys: list[str]) -> str:
    return "".join(f"{key}, " for key in keys)


def _named(keys: list[str]) -> str:
    return "".join(f"{_TOLD.get(key[:-1], key)} as {key[:-1]}, " for key in keys)


def _group_by(keys: list[str]) -> str:
    return f"group by {', '.join(keys)}" if keys else ""


def _order(keys: list[str]) -> str:
    return "".join(f"{key} nulls last, " for key in keys)
