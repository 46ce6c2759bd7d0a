"""Sums of sessions in a window: of rollups those that lie in it as a whole, of rows those that its ends cut."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import duckdb

from analytics.rollups import Measure, Span, rolled
from analytics.sums import keyed, summed

_ENDS = "hour + to_hours(bucket)"


def session_sums(
    connection: duckdb.DuckDBPyConnection, measure: Measure, groups: Sequence[str], span: Span, project: str
) -> str | None:
    """A query of the sums of sessions by groups; None where only rows tell them.

    In rollups, ``hour`` is that of a session's first call, and ``bucket`` the hours from there to that of its last one.
    """
    table = rolled(connection, measure) if not span.split(measure.step_length)[1] else None
    if table is None:
        return None
    inside = [f"hour >= {span.literal(span.start)}"] if span.start else []
    inside += [f"{_ENDS} < {span.literal(span.end)}"] if span.end else []
    whole = f"select {keyed(groups)} n, k from {table} where {' and '.join(['project = $project', *inside])}"
    cut = [found for edge in (span.start, span.end) if edge and (found := _cut(connection, table, span, edge, project))]
    if not cut:
        return whole
    sessions = " union ".join(f"select session_id from main.calls where {held} {having}" for held, having in cut)
    held = " or ".join(f"({held})" for held, _ in cut)
    calls = f"with calls as (from main.calls where ({held}) and session_id in ({sessions})) from ({measure.query})"
    return f"({whole}) union all by name ({summed(measure.kind, calls, keyed(groups))})"


def _cut(
    connection: duckdb.DuckDBPyConnection, table: str, span: Span, edge: datetime, project: str
) -> tuple[str, str] | None:
    """Where the calls of sessions lie that go on over an edge, and what sets these apart from others there."""
    at = span.literal(edge)
    query = f"select min(hour), max({_ENDS} + interval 1 hour) from {table} where project = $project"
    first, last = connection.execute(f"{query} and hour < {at} and {_ENDS} >= {at}", {"project": project}).fetchall()[0]
    if first is None:
        return None
    return Span(first, last).holds("time"), f"group by session_id having min(time) < {at} and max(time) >= {at}"
