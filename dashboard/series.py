"""A metric over time, in steps that suit the stretch of time that is shown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal

import duckdb
import polars as pl
from polars.datatypes import DataType, DataTypeClass

from analytics import frames
from analytics.query import metric

#: Beyond this, days; below, hours …
_DAYS_FROM = timedelta(days=4)
#: … unless there would be so few of them that they tell nothing.
_HOURS_FROM = timedelta(hours=6)
_STEPS = tuple(timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 15))
_MOST_STEPS = 24
_COLUMNS: dict[str, DataType | DataTypeClass] = {
    "time": pl.Datetime("us", "UTC"),
    "value": pl.Float64,
    "n": pl.Int64,
    "low": pl.Float64,
    "high": pl.Float64,
}


def over_time(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    project: str,
    start: datetime | None,
    first: datetime,
    last: datetime,
) -> pl.DataFrame:
    """``time``, ``value``, ``n``, ``low``, ``high`` of one rate, for events from ``start`` on.

    ``first`` and ``last`` are the ends of what is shown; they choose the step.
    """
    step = step_for(last - first)
    if not isinstance(step, timedelta):
        return frames.metric_series(connection, name, project=project, start=start, every=step).select(list(_COLUMNS))

    def ask(begin: datetime) -> dict[str, Any]:
        (row,) = metric(connection, name, project=project, start=begin, end=begin + step)["rows"]
        return {"time": begin, **row}

    return _stepped(ask, first, last, step)


def step_for(length: timedelta) -> timedelta | Literal["hour", "day"]:
    """The step of a series over so long a time."""
    if length > _DAYS_FROM:
        return "day"
    if length > _HOURS_FROM:
        return "hour"
    return next((step for step in _STEPS if length <= step * _MOST_STEPS), _STEPS[-1])


def _stepped(
    ask: Callable[[datetime], dict[str, Any]], first: datetime, last: datetime, step: timedelta
) -> pl.DataFrame:
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    begin = midnight + step * ((first - midnight) // step)
    rows = []
    while begin <= last:
        rows.append(ask(begin))
        begin += step
    return pl.DataFrame(rows, schema=_COLUMNS)
