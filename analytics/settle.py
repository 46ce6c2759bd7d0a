"""Settling: what was folded goes into segments, so that a reading folds only what has come since.

A run takes the days with unsettled facts, a few at a time. It folds them, with all that folds together with them, in
chunks of whole units; the rows of a chunk become a segment, and its units are masked in the segments of before. At last
small segments are merged. The manifest is replaced at the end of each step, so a run may die anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
from filelock import FileLock, Timeout

from analytics import rollups
from analytics.database import open_database
from analytics.fold import (
    REGISTRY_STEPS,
    ROW_STEPS,
    SELECTION_STEPS,
    define_macros,
    drop_tables,
    load,
    run_steps,
    tables,
)
from analytics.gather import Gathering, Partition, gather_sql, live_files, partition_of
from analytics.merge import first_offers, merge, put_masks
from analytics.segments import GRACE_S, SEGMENT_FACTS, SEGMENT_TABLES, Manifest, Segment, SegmentStore, copy_into
from analytics.units import label
from collector.lake import Lake

#: A step takes days until their files are so large, bytes.
_STEP_BYTES = 48 * 2**20
#: From so many unsettled bytes on, settling is worth its while: some 20,000 facts.
_DUE_BYTES = 2**20
#: Facts that are folded at once.
_CHUNK_FACTS = 150_000
#: Longest that another process settles.
_LONGEST_S = 3600.0
_OFFERED = """
    insert into settled_offers
    select project, skill_id, min(time), min(received_at)
    from (select project, time, received_at, unnest(candidates).skill_id as skill_id from selection_base)
    where skill_id is not null
    group by project, skill_id
"""
_REGISTRY = {
    "registry": "from registry_names",
    "begun": "select project, min(valid_from) as since, bool_or(source = 'declared') as is_declared"
    " from skills where authoritative group by project",
}

Progress = Callable[[str], None]


class Settling(RuntimeError):  # noqa: N818 - a state, not a fault
    """Another process settles this folder."""


def settle(data_dir: Path, progress: Progress | None = None, *, wait_s: float = 0.0) -> int:
    """Settle all facts of the lake; how many segments were written.

    Rows of facts that are gone from the lake are gone from the disk when it returns. Raises Settling when another
    process is still at it after ``wait_s``.
    """
    store = SegmentStore(data_dir)
    store.prepare()
    lock = FileLock(store.path(".lock"))
    try:
        lock.acquire(timeout=wait_s)
    except Timeout as error:
        raise Settling(f"{data_dir} is being settled by another process") from error
    try:
        lake = Lake(data_dir)
        with closing(open_database()) as database:
            define_macros(database)
            rollups.roll_anew(database, store)
        steps = list(_steps(lake, store))
        written, removed = 0, False
        for number, partitions in enumerate(steps, 1):
            if progress is not None:
                progress(f"settling {partitions[0][1]} to {partitions[-1][1]} ({number} of {len(steps)})")
            with closing(open_database()) as database:
                step = _Step(database, lake, store, partitions)
                written += step.run()
                removed |= step.removed
            merge(store, purge=removed)
        store.tidy(grace_s=0 if removed else GRACE_S)
        return written
    finally:
        lock.release()


def remove_gone(data_dir: Path) -> None:
    """Facts were removed from the lake: their rows go from the segments too, and from the disk."""
    if SegmentStore(data_dir).root.exists():
        settle(data_dir, wait_s=_LONGEST_S)


def is_due(data_dir: Path) -> bool:
    """Whether many facts are not settled, or settled ones are no longer in the lake's files."""
    lake, store = Lake(data_dir), SegmentStore(data_dir)
    covered = store.manifest().covered
    gone = any(covered.get(table, {}).keys() - live_files(lake, table).keys() for table in SEGMENT_FACTS)
    gone |= bool(store.manifest().segments) and store.manifest().rollups != rollups.version()
    return gone or unsettled_bytes(lake, store) >= _DUE_BYTES


def unsettled_bytes(lake: Lake, store: SegmentStore) -> int:
    """The size of the lake's files of facts that no segment holds."""
    covered = store.manifest().covered
    return sum(
        _size(path)
        for table in SEGMENT_FACTS
        for name, path in live_files(lake, table).items()
        if name not in covered.get(table, {})
    )


def _size(path: str) -> int:
    """In bytes; 0 for a file that has just gone, as when a session is forgotten."""
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return 0


def _steps(lake: Lake, store: SegmentStore) -> Iterator[list[Partition]]:
    """Partitions with files that are not settled, or whose settled files are gone; by day, a few at a time."""
    manifest = store.manifest()
    sizes: dict[Partition, int] = {}
    for table in SEGMENT_FACTS:
        live = live_files(lake, table)
        for name in live.keys() ^ manifest.covered.get(table, {}).keys():
            partition = partition_of(name)
            sizes[partition] = sizes.get(partition, 0) + (_size(live[name]) if name in live else 0)
    taken: list[Partition] = []
    total = 0
    for partition in sorted(sizes, key=lambda partition: (partition[1], partition[0])):
        if taken and total + sizes[partition] > _STEP_BYTES:
            yield taken
            taken, total = [], 0
        taken.append(partition)
        total += sizes[partition]
    if taken:
        yield taken


class _Step:
    """The facts of a few partitions into segments."""

    def __init__(
        self, database: duckdb.DuckDBPyConnection, lake: Lake, store: SegmentStore, partitions: list[Partition]
    ) -> None:
        self._database = database
        self._lake = lake
        self._store = store
        self._gathering = Gathering(database, lake, store, partitions)
        self._own: set[str] = set()
        #: Whether facts that were settled are gone, or others than they were.
        self.removed = False

    def run(self) -> int:
        """Write them; how many segments that made."""
        manifest = self._gathering.manifest
        define_macros(self._database)
        self._gathering.gather(account=True)
        self.removed = bool(self._rows("select exists (from disturbed)")[0][0])
        load(self._database, self._lake, ["skills"])
        aside = {f"gathered_{table}" for table in SEGMENT_FACTS}
        self._own = tables(self._database) | aside | {"edges", "scope_units", "event_units", "linked"}
        self._judge()
        while self._gathering.gather_renamed():
            self._judge()
        self._set_aside()
        segments = [self._write(manifest, chunk) for chunk in self._chunks()]
        self._take(None, REGISTRY_STEPS)
        manifest.covered, manifest.watermarks = self._gathering.settled_state()
        self._mask(manifest)
        manifest.segments += segments
        manifest.rollups = rollups.version()
        stamp = f"{manifest.generation + 1}"
        manifest.registry = {
            name: copy_into(self._database, self._store, f"{name}-{stamp}", query) for name, query in _REGISTRY.items()
        }
        manifest.generation += 1
        self._store.put(manifest)
        return len(segments)

    def _judge(self) -> None:
        """The registry, with what all of the gathered selections offer."""
        self._set_aside()
        self._gathering.count_offers()
        for chunk in self._chunks():
            self._take(chunk, SELECTION_STEPS)
            self._database.execute(_OFFERED)
        self._take(None, REGISTRY_STEPS)
        for table in SEGMENT_FACTS:
            self._database.execute(f"drop table fact_{table}")
            self._database.execute(f"alter table gathered_{table} drop column chunk")
            self._database.execute(f"alter table gathered_{table} rename to fact_{table}")

    def _set_aside(self) -> None:
        """The gathered facts out of the way of their chunks, with the unit and the chunk of each."""
        self._database.execute(gather_sql("edges"))
        label(self._database)
        self._database.execute(gather_sql("event_units"), {"chunk_facts": _CHUNK_FACTS})
        self._database.execute(gather_sql("links"))
        for table in SEGMENT_FACTS:
            self._database.execute(
                f"create table gathered_{table} as"
                f" select f.*, u.chunk from fact_{table} f join event_units u using (project, event_id)"
            )
            self._database.execute(f"drop table fact_{table}")

    def _chunks(self) -> list[int]:
        return [chunk for (chunk,) in self._rows("select distinct chunk from event_units order by chunk")]

    def _take(self, chunk: int | None, steps: Sequence[str]) -> None:
        """Run steps of the fold over the facts of a chunk (None: over none)."""
        for table in SEGMENT_FACTS:
            self._database.execute(
                f"create or replace table fact_{table} as"
                f" select * exclude (chunk) from gathered_{table} where chunk = $chunk",
                {"chunk": chunk},
            )
        drop_tables(self._database, kept=self._own)
        run_steps(self._database, steps)

    def _write(self, manifest: Manifest, chunk: int) -> Segment:
        self._take(chunk, (*REGISTRY_STEPS, *ROW_STEPS))
        number = manifest.next_segment
        manifest.next_segment += 1
        of_chunk = f"(from event_units where chunk = {chunk})"
        rows = {
            table: f"select r.*, u.unit from {table} r join {of_chunk} u using (project, event_id) order by r.time"
            for table in SEGMENT_TABLES
        }
        rows["links"] = f"select *, {number}::uinteger as segment from linked semi join {of_chunk} using (unit)"
        rows["offers"] = first_offers(f"candidates join {of_chunk} using (project, event_id)", "selections", number)
        rows["rollups"] = rollups.of_tables()
        ((facts, units),) = self._rows(f"select sum(facts)::bigint, count(distinct unit) from {of_chunk}")
        files = {
            table: copy_into(self._database, self._store, f"{table}-{number}", query) for table, query in rows.items()
        }
        return Segment(number, facts, units, files)

    def _mask(self, manifest: Manifest) -> None:
        """Note what no longer holds in the segments of before; those of which nothing holds go."""
        self._database.execute("insert into masks from touched")
        put_masks(self._database, self._store, manifest)
        manifest.segments = [segment for segment in manifest.segments if segment.masked < segment.units]

    def _rows(self, query: str) -> list[Any]:
        return self._database.execute(query).fetchall()
