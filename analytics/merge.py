"""Segments merged: many small ones into one, and without what is masked in them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import duckdb

from analytics import rollups
from analytics.database import literal, open_database
from analytics.fold import define_macros
from analytics.segments import SEGMENT_TABLES, Manifest, Segment, SegmentStore, copy_into, unmasked

#: So many segments of a size are kept; sizes in facts. Larger ones stay: each row is written a few times at most.
_MOST_SEGMENTS = 12
_SIZES = (20_000, 200_000)
#: A segment of which more than this share is masked is written anew.
_MOST_MASKED = 0.3


def merge(store: SegmentStore, *, purge: bool = False) -> None:
    """Merge until there are few segments of each size, and most of each holds; ``purge``: all of each.

    For the process that settles alone.
    """
    while group := _group(store.manifest().segments, 0.0 if purge else _MOST_MASKED):
        manifest = store.manifest()
        with closing(open_database()) as database:
            define_macros(database)
            database.execute("create table masks (segment uinteger, unit ubigint)")
            if manifest.masks:
                database.execute(f"insert into masks from {literal(store.path(manifest.masks))}")
            merged = _merged(database, store, manifest, group)
            numbers = {segment.number for segment in group}
            manifest.segments = [segment for segment in manifest.segments if segment.number not in numbers]
            if merged.units:
                manifest.segments.append(merged)
            database.execute(f"delete from masks where segment in ({', '.join(map(str, numbers))})")
            put_masks(database, store, manifest)
        manifest.generation += 1
        store.put(manifest)


def first_offers(selections: str, number: int) -> str:
    """A query of when each name was first offered and received in a segment, and by which units."""
    return f"""
        select project, skill_id, min(time) as time, min(received_at) as received_at,
            arg_min(unit, time) as time_unit, arg_min(unit, received_at) as received_unit, {number}::uinteger as segment
        from (
            select project, time, received_at, unit,
                unnest(list_transform(candidates, lambda c: c.skill_id)) as skill_id
            from {selections}
        )
        group by project, skill_id
    """


def put_masks(database: duckdb.DuckDBPyConnection, store: SegmentStore, manifest: Manifest) -> None:
    """Write the table ``masks`` for the next manifest, which tells how much of each segment is masked."""
    counts = dict(database.execute("select segment, count(distinct unit) from masks group by segment").fetchall())
    for segment in manifest.segments:
        segment.masked = counts.get(segment.number, 0)
    live = ", ".join(str(segment.number) for segment in manifest.segments if segment.masked < segment.units)
    rows = f"select distinct segment, unit from masks where segment in ({live})"
    manifest.masks = copy_into(database, store, f"masks-{manifest.generation + 1}", rows) if counts and live else ""


def _group(segments: Sequence[Segment], most_masked: float) -> list[Segment]:
    """The next segments to make one of: small ones when there are many, else one of which much is masked."""
    for size in _SIZES:
        small = [segment for segment in segments if segment.facts <= size]
        if len(small) > _MOST_SEGMENTS:
            return small
    return [segment for segment in segments if segment.masked > most_masked * segment.units][:1]


def _merged(
    database: duckdb.DuckDBPyConnection, store: SegmentStore, manifest: Manifest, group: Sequence[Segment]
) -> Segment:
    number = manifest.next_segment
    manifest.next_segment += 1
    files = {}
    for table in (*SEGMENT_TABLES, "links"):
        rows = unmasked(store, table, group)
        columns = f"* replace ({number}::uinteger as segment)" if table == "links" else "*"
        files[table] = copy_into(database, store, f"{table}-{number}", f"select {columns} from ({rows})")
    offers = first_offers(literal(store.path(files["selections"])), number)
    files["offers"] = copy_into(database, store, f"offers-{number}", offers)
    files["rollups"] = copy_into(database, store, f"rollups-{number}", rollups.of_merged(store, group))
    (units,) = database.execute(f"select count(distinct unit) from {literal(store.path(files['links']))}").fetchall()[0]
    share = units / max(1, sum(segment.units for segment in group))
    return Segment(number, round(share * sum(segment.facts for segment in group)), units, files)
