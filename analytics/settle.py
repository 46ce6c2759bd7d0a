"""Settling: what was folded goes into segments, so that a reading folds only what has come since.

A run takes the days with unsettled facts, a few at a time. It folds them, with all that folds together with them, in
chunks of whole units; the rows of a chunk become a segment, and its units are masked in the segments of before. At last
small segments are merged. The manifest is replaced at the end of each step, so a run may die anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
from filelock import FileLock, Timeout

from analytics import rollups
from analytics.database import literal, open_database
from analytics.fold import (
    REGISTRY_STEPS,
    ROW_STEPS,
    SELECTION_STEPS,
    define_macros,
    drop_tables,
    has_roles,
    load,
    run_steps,
    tables,
)
from analytics.gather import Gathering, Partition, gather_sql, live_files, partition_of
from analytics.merge import first_offers, merge, put_masks
from analytics.segments import GRACE_S, SEGMENT_FACTS, Manifest, Segment, SegmentStore, copy_into
from analytics.segments_damage import set_aside_damaged
from analytics.units import label
from collector.lake import Lake

#: A step takes days until their files are so large, bytes.
_STEP_BYTES = 48 * 2**20
#: From so many unsettled bytes on, settling is worth its while: some 20,000 facts.
_DUE_BYTES = 2**20
#: Facts that are folded at once.
_CHUNK_FACTS = 400_000
#: Of one database; the process needs some 500 MB beside it.
_MEMORY_LIMIT = "1500MB"
#: Longest that another process settles.
_LONGEST_S = 3600.0
_OFFERED = """
    insert into settled_offers
    select project, skill_id, min(time), min(received_at)
    from (
        select project, time, received_at, unnest(list_transform(candidates, lambda c: c.skill_id)) as skill_id
        from {source}
    )
    where skill_id is not null
    group by project, skill_id
"""
#: Their rows take it from their selection: to join it to so many again took longer than all else.
_HAVE_UNITS = ("selections", "candidates")
_UNITS_OF_SELECTIONS = """
    update selection_base b set unit = u.unit from event_units u
    where u.project = b.project and u.event_id = b.event_id and u.chunk = $chunk
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
        try:
            return _settle(data_dir, store, progress)
        except duckdb.Error:
            if not set_aside_damaged(store):
                raise
            return _settle(data_dir, store, progress)
    finally:
        lock.release()


def _settle(data_dir: Path, store: SegmentStore, progress: Progress | None) -> int:
    lake = Lake(data_dir)
    with closing(open_database()) as database:
        define_macros(database)
        rollups.roll_anew(database, store)
    steps = list(_steps(lake, store))
    written, removed = 0, False
    for number, partitions in enumerate(steps, 1):
        if progress is not None:
            progress(f"settling {partitions[0][1]} to {partitions[-1][1]} ({number} of {len(steps)})")
        with closing(open_database(_MEMORY_LIMIT)) as database:
            step = _Step(database, lake, store, partitions)
            written += step.run()
            removed |= step.removed
        merge(store, purge=removed)
    store.tidy(grace_s=0 if removed else GRACE_S)
    return written


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


@contextmanager
def _wide_side_last(database: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Joins hash what stands on their right, not the side that seems smaller: its rows may be long."""
    database.execute("set disabled_optimizers = 'build_side_probe_side'")
    yield
    database.execute("reset disabled_optimizers")


class _Step:
    """The facts of a few partitions into segments."""

    def __init__(
        self, database: duckdb.DuckDBPyConnection, lake: Lake, store: SegmentStore, partitions: list[Partition]
    ) -> None:
        self._database = database
        self._lake = lake
        self._store = store
        self._gathering = Gathering(database, lake, store, partitions)
        self._kept: set[str] = set()
        self._is_placed = False
        #: Whether facts that were settled are gone, or others than they were.
        self.removed = False

    def run(self) -> int:
        """Write them; how many segments that made."""
        manifest = self._gathering.manifest
        define_macros(self._database)
        self._gathering.gather(account=True)
        self.removed = bool(self._rows("select exists (from disturbed)")[0][0])
        load(self._database, self._lake, ["skills"])
        gathered = {f"gathered_{table}" for table in SEGMENT_FACTS}
        self._kept = tables(self._database) | gathered | {"edges", "scope_units", "event_units", "linked"}
        self._judge()
        while self._gathering.gather_renamed():
            self._judge()
        self._place()
        self._set_aside()
        self._take(None, REGISTRY_STEPS)
        self._kept |= {"skills", "registry_names"}
        stamp = f"{manifest.generation + 1}"
        manifest.registry = {
            name: copy_into(self._database, self._store, f"{name}-{stamp}", query) for name, query in _REGISTRY.items()
        }
        segments = [self._write(manifest, chunk) for chunk in self._chunks()]
        manifest.covered, manifest.watermarks = self._gathering.settled_state()
        self._mask(manifest)
        manifest.segments += segments
        manifest.rollups = rollups.version()
        manifest.generation += 1
        self._store.put(manifest)
        return len(segments)

    def _judge(self) -> None:
        """The registry, with what all of the gathered selections offer."""
        self._is_placed = False
        self._gathering.count_offers()
        if has_roles(self._database):
            self._place()
            self._set_aside()
            for chunk in self._chunks():
                self._take(chunk, SELECTION_STEPS)
                self._database.execute(_OFFERED.format(source="selection_base"))
        else:
            # What a selection offers is what its facts say: no chunk need be folded for it.
            run_steps(self._database, ["told_selections"])
            self._database.execute(_OFFERED.format(source="told_selections"))
            self._set_aside()
        self._take(None, REGISTRY_STEPS)
        self._bring_back()

    def _place(self) -> None:
        """The unit and the chunk of each gathered fact."""
        if self._is_placed:
            return
        self._database.execute(gather_sql("edges"))
        label(self._database)
        self._database.execute(gather_sql("event_units"), {"chunk_facts": _CHUNK_FACTS})
        self._database.execute(gather_sql("links"))
        self._is_placed = True

    def _set_aside(self) -> None:
        """The gathered facts out of the way of their chunks; each with its own, where that is known."""
        for table in SEGMENT_FACTS:
            gathered = f"gathered_{table}"
            self._database.execute(
                f"alter table fact_{table} rename to {gathered}; alter table {gathered} add column chunk bigint"
            )
            if self._is_placed:
                self._database.execute(
                    f"update {gathered} g set chunk = u.chunk from event_units u"
                    " where u.project = g.project and u.event_id = g.event_id"
                )

    def _bring_back(self) -> None:
        for table in SEGMENT_FACTS:
            gathered = f"gathered_{table}"
            self._database.execute(
                f"drop table fact_{table}; alter table {gathered} drop column chunk;"
                f" alter table {gathered} rename to fact_{table}"
            )

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
        drop_tables(self._database, kept=self._kept)
        run_steps(self._database, steps)

    def _write(self, manifest: Manifest, chunk: int) -> Segment:
        number = manifest.next_segment
        manifest.next_segment += 1
        of_chunk = f"(from event_units where chunk = {chunk})"
        files: dict[str, str] = {}

        def copy(table: str, query: str) -> None:
            files[table] = copy_into(self._database, self._store, f"{table}-{number}", query)

        def keep(database: duckdb.DuckDBPyConnection, table: str) -> None:
            """Rows go to the disk as they are made: what is asked of them later is a few columns."""
            with_unit = f"select r.*, u.unit from made_{table} r join {of_chunk} u using (project, event_id)"
            with _wide_side_last(database):
                copy(table, f"from made_{table}" if table in _HAVE_UNITS else with_unit)
            written = literal(self._store.path(files[table]))
            database.execute(f"create or replace view {table} as select * exclude (unit) from {written}")

        self._take(chunk, SELECTION_STEPS)
        self._database.execute(_UNITS_OF_SELECTIONS, {"chunk": chunk})
        run_steps(self._database, ROW_STEPS, keep)
        copy("links", f"select *, {number}::uinteger as segment from linked semi join {of_chunk} using (unit)")
        copy("offers", first_offers(literal(self._store.path(files["selections"])), number))
        copy("rollups", rollups.of_tables())
        ((facts, units),) = self._rows(f"select sum(facts)::bigint, count(distinct unit) from {of_chunk}")
        return Segment(number, facts, units, files)

    def _mask(self, manifest: Manifest) -> None:
        """Note what no longer holds in the segments of before; those of which nothing holds go."""
        self._database.execute("insert into masks from touched")
        put_masks(self._database, self._store, manifest)
        manifest.segments = [segment for segment in manifest.segments if segment.masked < segment.units]

    def _rows(self, query: str) -> list[Any]:
        return self._database.execute(query).fetchall()
