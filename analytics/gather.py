"""What a reading folds: facts that no segment holds yet, and all that can only be folded together with them.

They are in ``fact_selections``, ``fact_calls`` and ``fact_feedback`` then. ``touched`` names the units whose rows in
the segments (``settled_TABLE``) no longer hold: they are folded here, or gone.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import msgspec

from analytics.database import literal
from analytics.fold import READ, create_facts
from analytics.segments import (
    SEGMENT_FACTS,
    SEGMENT_TABLES,
    FileMark,
    Manifest,
    SegmentStore,
    Watermark,
    read_segments,
    unmasked,
)
from collector.lake import Lake

#: A project and a day, as the lake's folders name them.
Partition = tuple[str, str]

#: Whether a fact was there when its day was settled: by the order of the log, where it was in it.
_IS_OLD = """coalesce(
    if(seq_of(f.source_request) <> '' and w.seq <> '', seq_of(f.source_request) <= w.seq,
        epoch_us(f.received_at) <= w.received_us),
    false
)"""
_WITH_WATERMARK = f"{READ} f left join watermarks w on w.tab = 'TABLE' and w.project = f.project and w.date = f.date"
_UNDISTURBED = "not exists (from disturbed d where d.project = f.project and d.date = f.date)"
_ARRIVED = f"""
    insert into arrived
    select 'TABLE', filename, project, date, count(*), bit_xor(content), count(*) filter (is_old),
        bit_xor(content) filter (is_old), max(seq), max(received_us)
    from (
        select f.filename, f.project, f.date, hash(f.event_id, f.fact) as content, seq_of(f.source_request) as seq,
            epoch_us(f.received_at) as received_us, {_IS_OLD} as is_old
        from {_WITH_WATERMARK}
    )
    group by filename, project, date
"""
_NEW = f"""
    insert into fact_TABLE by name
    select f.* exclude (filename) from {_WITH_WATERMARK}
    where not ({_IS_OLD} and {_UNDISTURBED})
"""
#: Facts of the segments that fold with what was gathered: those of the units that were touched last.
_OLD = f"""
    insert into fact_TABLE by name
    with scopes as (select distinct scope from links semi join touching using (unit))
    select f.* exclude (filename) from {_WITH_WATERMARK}
    where (f.filename in (select name from covered where tab = 'TABLE') or ({_IS_OLD} and {_UNDISTURBED}))
        and scope_of('event', f.project, f.event_id) in (from scopes)
"""
_BY_SCOPE = "select unit from links where scope in (select b from edges)"
_GONE = "select unit from links l join disturbed d on d.project = l.project and d.date between l.since and l.until"


class Gathering:
    """Gathers the facts of one state of the lake, beside one state of the segments, into a database.

    ``partitions``: what is new of these alone.
    """

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        lake: Lake,
        store: SegmentStore,
        partitions: Collection[Partition] | None = None,
    ) -> None:
        self._database = database
        self._store = store
        self.manifest: Manifest = store.manifest()
        live = {table: live_files(lake, table) for table in SEGMENT_FACTS}
        self._live = {table: list(paths.values()) for table, paths in live.items()}
        self._names = {path: name for paths in live.values() for name, path in paths.items()}
        self._partitions = partitions

    def gather(self, *, account: bool = False) -> None:
        """Load what is new, and what folds together with it. ``account``: ``settled_state`` will be asked for."""
        self._run("macros")
        self._run("known")
        self._remember()
        for table in SEGMENT_FACTS:
            if account or self.manifest.segments:
                self._execute(_ARRIVED.replace("TABLE", table), self._uncovered(table))
        if self.manifest.segments:
            self._run("disturbed")
        for table in SEGMENT_FACTS:
            create_facts(self._database, table)
            self._execute(_NEW.replace("TABLE", table), self._uncovered(table))
        if self.manifest.segments:
            self._touch_and_load(_GONE)
            self._close()

    def count_offers(self) -> None:
        """Make ``settled_offers`` of what the segments still tell: before every look at the registry."""
        if self.manifest.segments:
            self._run("offers")

    def gather_renamed(self) -> bool:
        """Gather what the registry of ``skills`` and ``registry_names`` judges anew; whether there was any."""
        if not self.manifest.segments or not self._touch_and_load(gather_sql("renamed")):
            return False
        self._close()
        return True

    def settled_state(self) -> tuple[dict[str, dict[str, FileMark]], list[Watermark]]:
        """For a manifest that has all of this: the files of the lake, and up to where each day goes."""
        live = set(self._names.values())
        covered = {
            table: {
                name: mark
                for name, mark in self.manifest.covered.get(table, {}).items()
                if name in live or not self._is_asked_for(name)
            }
            for table in SEGMENT_FACTS
        }
        for table, path, rows, content in self._rows("select tab, name, rows, content from arrived"):
            covered[table][self._names[path]] = FileMark(rows, content)
        return covered, [Watermark(*row) for row in self._rows(gather_sql("watermarks"))]

    def segment_rows(self, table: str) -> str:
        """A query of the rows of all segments whose units still hold, once ``masks`` has those that were touched."""
        touched = {number for (number,) in self._rows("select distinct segment from touched")}
        return unmasked(self._store, table, self.manifest.segments, touched)

    def _uncovered(self, table: str) -> list[str]:
        """Paths of the live files that the segments don't have yet."""
        known = self.manifest.covered.get(table, {})
        return [
            path
            for path in self._live[table]
            if self._names[path] not in known and self._is_asked_for(self._names[path])
        ]

    def _is_asked_for(self, name: str) -> bool:
        return self._partitions is None or partition_of(name) in self._partitions

    # -- what is known --------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        manifest = self.manifest
        marks = [(table, name, mark) for table, of_table in manifest.covered.items() for name, mark in of_table.items()]
        path_of = {name: path for path, name in self._names.items()}
        self._insert("watermarks", [msgspec.structs.astuple(watermark) for watermark in manifest.watermarks])
        self._insert("covered", [(table, path_of[name]) for table, name, _ in marks if name in path_of])
        self._insert(
            "vanished",
            [
                (table, *partition_of(name), mark.rows, mark.content)
                for table, name, mark in marks
                if name not in path_of and self._is_asked_for(name)
            ],
        )
        if manifest.masks:
            self._database.execute(f"insert into masks from {literal(self._store.path(manifest.masks))}")
        if not manifest.segments:
            return
        for table in (*SEGMENT_TABLES, "links"):
            name = table if table == "links" else f"settled_{table}"
            self._database.execute(f"create view {name} as {self.segment_rows(table)}")
        for table, file in manifest.registry.items():
            self._database.execute(f"create table settled_{table} as from {literal(self._store.path(file))}")
        self._database.execute(
            f"insert into segment_offers by name from {read_segments(self._store, 'offers', manifest.segments)}"
        )

    # -- what folds with what is new --------------------------------------------------------------------------------

    def _close(self) -> None:
        """Gather the facts of all units of the segments that the gathered ones lead to."""
        self._run("edges")
        while self._touch_and_load(_BY_SCOPE) or self._touch_and_load(gather_sql("ties")):
            self._run("edges")

    def _touch_and_load(self, units: str) -> bool:
        """Find units that no longer hold in the segments, and load their facts; whether any is new."""
        self._database.execute(
            f"create or replace table touching as select distinct unit from ({units.rstrip().rstrip(';')})"
            " where unit not in (select unit from touched)"
        )
        since, until, projects = self._rows(
            "select min(since), max(until), list(distinct project) from links semi join touching using (unit)"
        )[0]
        if since is None:
            return False
        for table in SEGMENT_FACTS:
            paths = [path for path in self._live[table] if self._is_within(path, projects, str(since), str(until))]
            self._execute(_OLD.replace("TABLE", table), paths)
        self._database.execute(
            "insert into touched select distinct segment, unit from links semi join touching using (unit)"
        )
        return True

    def _is_within(self, path: str, projects: Collection[str], since: str, until: str) -> bool:
        project, date = partition_of(self._names[path])
        return project in projects and since <= date <= until

    # -- the database -----------------------------------------------------------------------------------------------

    def _execute(self, statement: str, paths: list[str]) -> None:
        if paths:
            self._database.execute(statement, {"files": paths})

    def _run(self, name: str) -> None:
        self._database.execute(gather_sql(name))

    def _rows(self, query: str) -> list[Any]:
        return self._database.execute(query).fetchall()

    def _insert(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            self._database.executemany(f"insert into {table} values ({marks})", rows)


def partition_of(name: str) -> Partition:
    """Of a file's name below its table's folder."""
    project, date, _ = name.split("/", 2)
    return unquote(project.removeprefix("project=")), unquote(date.removeprefix("date="))


def live_files(lake: Lake, table: str) -> dict[str, str]:
    """Paths of the live files by their names below the table's folder."""
    return {str(Path(path).relative_to(lake.root / table)): path for path in lake.files(table)}


def gather_sql(name: str) -> str:
    """A statement of ``sql/gather``."""
    return (files("analytics") / "sql" / "gather" / f"{name}.sql").read_text()
