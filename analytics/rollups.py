"""Rollups: the sums of metrics by project, hour and skill, kept beside every segment.

Their columns are the sums of the metrics' own observations (``sums``), so no second definition of a metric exists. What
is asked for over whole hours is the sum of all segments, less that of the rows masked in them, and that of the rows
which no segment holds. So they equal the rows always.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Literal

import duckdb

from analytics.database import literal
from analytics.metrics.declarations import METRICS, Metric
from analytics.segments import SEGMENT_TABLES, Manifest, Segment, SegmentStore, copy_into, read_segments
from analytics.sums import ADDED, keyed, observations, summed

#: What they are by, beside project and hour.
_KEYS = ("skill", "domain", "error_kind", "stage")
#: Sums of them, of any kind of metric.
_SUMS = "sum(n)::bigint as n, sum(k)::double as k, sum(total) as total, bit_xor(content) as content"
_BLANK = (
    "(select null::integer as bucket, null::bigint as n, null::double as k, null::double as total,"
    " null::ubigint as content where false)"
)
_NO_JUDGEMENTS = (
    "select null::varchar as project, null::varchar as event_id, null::varchar[] as expected,"
    " null::boolean as from_judge where false"
)
#: Skips of a skill, for lists of skills; no metric of its own.
_SKIPS = "select *, coalesce(registry_skill_id, skill_id) as skill, skipped as hit from candidates where not closing"
_DAY = "to_timestamp(epoch_us(hour) // 86400000000 * 86400)"

_COLUMNS = {"quantiles": "bucket, n, k, total", "content": "n, content"}
_STEPS = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_lock = threading.Lock()


@dataclass(frozen=True)
class Measure:
    """Sums of one query's observations."""

    name: str
    kind: str
    query: str
    keys: tuple[str, ...]
    #: Labels are told long after what they judge: where there are some, its observations are looked at again.
    by_labels: bool = False
    step: Literal["hour", "day"] = "hour"
    #: Its observations are sessions, and may be cut by a window.
    of_sessions: bool = False
    looks_beyond: bool = False

    @property
    def tables(self) -> list[str]:
        """What of the tables of segments it is made of."""
        return [table for table in SEGMENT_TABLES if re.search(rf"\b{table}\b", self.query)]

    @property
    def step_length(self) -> timedelta:
        return _STEPS[self.step]

    @property
    def sums(self) -> str:
        keys = [f"{key if key in self.keys else 'null'}::varchar as {key}" for key in _KEYS]
        source = self.query.replace("project = $project", "true")
        for parameter, value in {"$judge": "false", "$start": "null::timestamptz", "$end": "null::timestamptz"}.items():
            source = source.replace(parameter, value)
        hour = "hour" if self.step == "hour" else _DAY
        bucket = "date_diff('hour', hour, hour_of(last_time))::int as bucket, " if self.of_sessions else ""
        keyed_by = f"project, {hour} as hour, {', '.join(keys)}, {bucket}"
        return f"select '{self.name}' as measure, * from ({summed(self.kind, source, keyed_by)})"


def measure_of(declared: Metric, groups: Sequence[str]) -> Measure | None:
    """What holds the sums of a metric by these groups; None where only rows do."""
    by_skill = "skill" in groups or "domain" in groups
    measure = _of_metric(declared, by_skill)
    steps = ("hour", "day") if measure and measure.step == "hour" else ("day",)
    return measure if measure and {*groups} <= {*measure.keys, *steps} else None


def rolled(connection: duckdb.DuckDBPyConnection, measure: Measure) -> str | None:
    """The table of a measure's sums, made when it is first asked for; None where there are no rollups."""
    table = f"rolled_{measure.name}"
    with _lock:
        found = connection.execute(
            "select table_name from duckdb_tables() where table_name = $1"
            " union all select view_name from duckdb_views() where view_name = 'rollups'",
            [table],
        ).fetchall()
        if (table,) not in found and found:
            for name in measure.tables:
                connection.execute(f"create table if not exists gone_{name} as from masked_{name}")
            is_judged = measure.by_labels and connection.execute("select exists (from labels)").fetchall()[0][0]
            connection.execute(f"create table {table} as {_all_of(measure, is_judged)}")
    return table if found else None


@dataclass(frozen=True)
class Span:
    """``start`` <= time < ``end`` (UTC; None: open)."""

    start: datetime | None
    end: datetime | None

    def holds(self, column: str) -> str:
        """The condition on a project's rows in it. Times stand as literals, by which files are passed over."""
        conditions = [f"{column} >= {self.literal(self.start)}"] if self.start else []
        conditions += [f"{column} < {self.literal(self.end)}"] if self.end else []
        return " and ".join(["project = $project", *conditions])

    @staticmethod
    def literal(time: datetime) -> str:
        return f"timestamptz '{time.astimezone(UTC).isoformat()}'"

    def split(self, step: timedelta) -> tuple[Span | None, list[Span]]:
        """The whole steps in it, and what is before and after these."""
        first = self.start and _EPOCH - (_EPOCH - self.start) // step * step
        last = self.end and _EPOCH + (self.end - _EPOCH) // step * step
        if first and last and first >= last:
            return None, [self]
        before = [Span(self.start, first)] if first != self.start else []
        return Span(first, last), before + ([Span(last, self.end)] if last != self.end else [])


def observed(query: str, span: Span, looks_beyond: bool = False) -> str:
    """The observations in a window, of the rows in it alone."""
    query = query.replace("$judge", "false")
    if looks_beyond or (span.start is None and span.end is None):
        return f"from ({query}) where {span.holds('time')}"
    tables = ("selections", "candidates", "calls", "mismatches")
    named = ", ".join(f"{table} as (from main.{table} where {span.holds('time')})" for table in tables)
    return f"with {named} from ({query}) where {span.holds('time')}"


def sums(connection: duckdb.DuckDBPyConnection, measure: Measure, groups: Sequence[str], span: Span) -> str:
    """A query of a measure's sums by groups of its own: of rollups, and of rows where there are none for an hour."""
    whole, edges = span.split(measure.step_length)
    table = rolled(connection, measure) if whole else None
    keys = keyed(groups)
    parts = []
    if whole and table:
        columns = _COLUMNS.get(measure.kind, "n, k")
        parts.append(f"select {keys} {columns} from {table} where {whole.holds('hour')}")
    others = edges if table else [span]
    parts += [summed(measure.kind, observed(measure.query, other, measure.looks_beyond), keys) for other in others]
    return " union all by name ".join(f"({part})" for part in parts)


def create_views(
    database: duckdb.DuckDBPyConnection, store: SegmentStore, manifest: Manifest, touched: Collection[int]
) -> None:
    """Views ``rollups`` of those of all segments, and ``masked_TABLE`` of their rows in ``masks``.

    ``touched``: numbers of segments that this table has units of beside those that the manifest knows.
    """
    if not manifest.segments or manifest.rollups != version():
        return
    for table in SEGMENT_TABLES:
        database.execute(f"create view masked_{table} as {_masked_rows(store, table, manifest.segments, touched)}")
    database.execute(f"create view rollups as from {read_segments(store, 'rollups', manifest.segments)}")


def of_tables() -> str:
    """A query of the rollup of the tables ``selections``, ``calls`` …, which hold whole units."""
    return f"{_rolled({}, all_measures())} order by measure, project, hour"


def of_segment(store: SegmentStore, segment: Segment) -> str:
    """The same of the rows of a segment."""
    rows = {table: f"select * exclude (unit) from {read_segments(store, table, [segment])}" for table in SEGMENT_TABLES}
    return f"{_rolled(rows, all_measures())} order by measure, project, hour"


def of_merged(store: SegmentStore, segments: Sequence[Segment]) -> str:
    """The rollup of segments together, without what is in ``masks``."""
    rows = {table: _masked_rows(store, table, segments, ()) for table in SEGMENT_TABLES}
    masked = _negative(_rolled(rows, all_measures()))
    kept = f"from {read_segments(store, 'rollups', segments)}"
    parts = [kept, masked] if any(segment.masked for segment in segments) else [kept]
    return f"{_added(parts)} order by measure, project, hour"


def roll_anew(database: duckdb.DuckDBPyConnection, store: SegmentStore) -> None:
    """Make the rollups of all segments, where they are those of another version. For the process that settles."""
    manifest = store.manifest()
    if not manifest.segments or manifest.rollups == version():
        return
    for segment in manifest.segments:
        name = f"rollups-{segment.number}-{version()}"
        segment.files["rollups"] = copy_into(database, store, name, of_segment(store, segment))
    manifest.rollups = version()
    manifest.generation += 1
    store.put(manifest)


def rows_of(table: str) -> Measure:
    """How many rows a table has, and what they hold: any that comes, goes or changes changes it."""
    return Measure(f"rows_of_{table}", "content", f"select *, hash({table}) as row_hash from {table}", ())


@cache
def all_measures() -> tuple[Measure, ...]:
    of_metrics = [_of_metric(declared, by_skill) for declared in METRICS for by_skill in (False, True)]
    return (*(measure for measure in of_metrics if measure is not None), SKIPS, *map(rows_of, ("selections", "calls")))


@cache
def version() -> str:
    """Of all that decides what a rollup holds."""
    return hashlib.blake2b(of_tables().encode(), digest_size=8).hexdigest()


@cache
def _of_metric(declared: Metric, by_skill: bool) -> Measure | None:
    if declared.kind not in ADDED or not declared.adds_up or (by_skill and "skill" not in declared.groupings):
        return None
    own = ("error_kind", "stage")
    keys = tuple(key for key in _KEYS if key in declared.groupings and (by_skill or key in own))
    query = observations(declared.name, by_skill)
    # Durations of a skill in an hour are hardly fewer than their buckets.
    return Measure(
        name=f"{declared.name}_by_skill" if by_skill else declared.name,
        kind=declared.kind,
        query=query,
        keys=keys,
        by_labels="judgements" in query,
        step="day" if by_skill and declared.kind == "quantiles" else "hour",
        of_sessions=declared.adds_up == "sessions",
        looks_beyond=declared.looks_beyond,
    )


SKIPS = Measure("skips_by_skill", "rate", _SKIPS, ("skill", "domain"))


def _all_of(measure: Measure, is_judged: bool) -> str:
    """A measure's sums over all that the tables of a reading hold; ``is_judged``: by labels too."""
    parts = [
        f"from rollups where measure = '{measure.name}'",
        _rolled({table: f"from main.folded_{table}" for table in measure.tables}, [measure]),
        _negative(_rolled({table: f"from main.gone_{table}" for table in measure.tables}, [measure])),
    ]
    if is_judged:
        told = "(from main.judgements where not from_judge)"
        judged = {"mismatches": f"from main.mismatches semi join {told} using (project, event_id)"}
        parts += [_rolled(judged | {"judgements": f"from {told}"}, [measure]), _negative(_rolled(judged, [measure]))]
    return _added(parts)


def _rolled(rows: Mapping[str, str], measures: Sequence[Measure]) -> str:
    """The sums of measures over queries that stand for tables; without labels, where there is none for them."""
    named = ", ".join(f"{name} as ({query})" for name, query in {"judgements": _NO_JUDGEMENTS, **rows}.items())
    return f"with {named} {' union all by name '.join(('from ' + _BLANK, *(measure.sums for measure in measures)))}"


def _negative(sums: str) -> str:
    return f"select * replace (-n as n, -k as k, -total as total) from ({sums})"


def _added(parts: Sequence[str]) -> str:
    union = " union all by name ".join(f"({part})" for part in parts)
    columns = ", ".join(("measure", "project", "hour", *_KEYS, "bucket"))
    return f"select {columns}, {_SUMS} from ({union}) group by all having sum(n) <> 0"


def _masked_rows(store: SegmentStore, table: str, segments: Sequence[Segment], touched: Collection[int]) -> str:
    """A query of the rows of segments whose units are in ``masks``."""
    dirty = [segment for segment in segments if segment.masked or segment.number in touched]
    parts = [_masked_of(store, table, segment) for segment in dirty]
    none = f"select * exclude (unit) from {read_segments(store, table, segments[:1])} where false"
    return " union all by name ".join(parts or [none])


def _masked_of(store: SegmentStore, table: str, segment: Segment) -> str:
    """Those of one segment. They are few and lie close together, so all of their columns are only read there."""
    rows = f"read_parquet({literal(store.path(segment.files[table]))}, file_row_number = true)"
    masked = f"select unit from masks where segment = {segment.number}"
    places = f"select file_row_number from {rows} where unit in ({masked})"
    return f"select * exclude (unit, file_row_number) from {rows} where file_row_number in ({places})"
