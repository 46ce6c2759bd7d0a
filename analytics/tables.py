"""The tables that users see, folded in DuckDB from the facts of the lake (docs/tables.md, docs/architecture.md).

DuckDB holds no file of ours: what no segment holds of a state of the lake is folded once into a database in memory
that all connections of the process share. When the lake has moved on, the next ``connect`` builds a new one, and the
old one goes with its last connection.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import duckdb

from analytics import labels_imported
from analytics.database import literal, open_database
from analytics.fold import LAST_STEPS, drop_tables, run_steps
from analytics.folded import fold
from analytics.rollups import rolled, rows_of
from analytics.segments import SEGMENT_TABLES, SegmentStore
from analytics.segments_damage import mend_segments
from analytics.settle import Settling, settle, unsettled_bytes
from collector.lake import Lake
from collector.lake_log import damaged_entries
from collector.tables import TABLES

#: The tables of docs/tables.md; all others are steps and are dropped.
PUBLIC = (
    "selections",
    "candidates",
    "calls",
    "feedback",
    "mismatches",
    "labels",
    "judgements",
    "skills",
    "routes",
    "portraits",
    "query_clusters",
    "pick_similarities",
    "chains",
    "skill_status",
    "alerts",
    "weights",
    "models",
)
#: What stays besides, for views that are worked out when they are asked for.
_KEPT = frozenset({*PUBLIC, "fact_labels", "registry_names", "masks", *(f"folded_{table}" for table in SEGMENT_TABLES)})
#: Folded data folders kept in memory: a service has one, tests have many.
_KEPT_FOLDERS = 2
#: So many bytes of unsettled facts, some 300,000, are settled before they are read.
_MUCH_BYTES = 32 * 2**20

log = logging.getLogger(__name__)


class SqlError(ValueError):
    """A query that cannot be answered; the message says why."""


class TablesUnreadable(OSError):  # noqa: N818 - said in full below
    """The files of a data folder can't be folded into tables."""

    def __init__(self, data_dir: Path, error: duckdb.Error) -> None:
        super().__init__(
            f"the tables in {data_dir} can't be read ({str(error).splitlines()[0]}):"
            " `pickwise doctor` says which file, and the mend"
        )


class _Folded:
    """The in-memory database of one state of the lake, its segments and the imported labels."""

    def __init__(self, data_dir: Path, lake: Lake, versions: dict[str, Any]) -> None:
        self.versions = versions
        self.database = open_database()
        store = SegmentStore(data_dir)
        self.database.register("labels", labels_imported.imported(data_dir).to_arrow())
        self.database.execute("create table fact_labels as from labels")
        self.database.unregister("labels")
        fold(self.database, lake, store)
        run_steps(self.database, LAST_STEPS)
        drop_tables(self.database, kept=_KEPT)
        # From here on a query sees these tables, the segments behind them, and nothing else of the machine.
        self.database.execute(f"set allowed_directories = [{literal(store.root)}]")
        self.database.execute("set enable_external_access = false; set lock_configuration = true")


class _Folder:
    """One data folder: its lake, and the newest fold of it."""

    def __init__(self, data_dir: Path) -> None:
        self._lock = threading.Lock()
        self._data_dir = data_dir
        self._lake = Lake(data_dir)
        self._store = SegmentStore(data_dir)
        self._folded: _Folded | None = None
        self._told: set[str] = set()

    def current(self) -> _Folded:
        with self._lock:
            versions = self._versions()
            if self._folded is None or self._folded.versions != versions:
                self._warn_of_damage()
                try:
                    self._folded = self._fold()
                except duckdb.Error as error:
                    self._folded = self._fold_again(error)
            return self._folded

    def _fold(self) -> _Folded:
        self._settle_much()
        return _Folded(self._data_dir, self._lake, self._versions())

    def _fold_again(self, error: duckdb.Error) -> _Folded:
        """After an error: without the segments, where these are damaged. Raises TablesUnreadable."""
        # Else files may have gone while they were read: a session was forgotten.
        if not mend_segments(self._data_dir) and not isinstance(error, duckdb.IOException):
            raise TablesUnreadable(self._data_dir, error) from error
        try:
            return self._fold()
        except duckdb.Error as again:
            raise TablesUnreadable(self._data_dir, again) from again

    def _warn_of_damage(self) -> None:
        """Say once of each entry of the tables' logs that the library passes over it."""
        for table in TABLES:
            for sentence in damaged_entries(self._lake.root / table / "_delta_log"):
                if sentence not in self._told:
                    self._told.add(sentence)
                    log.warning("warning: %s; rows of %s may be missing: restore it from a backup", sentence, table)

    def _settle_much(self) -> None:
        """More facts than memory is for are settled first, unless another process is at it."""
        if unsettled_bytes(self._lake, self._store) >= _MUCH_BYTES:
            with suppress(Settling):
                settle(self._data_dir, log.info)

    def _versions(self) -> dict[str, Any]:
        of_labels, of_segments = labels_imported.revision(self._data_dir), self._store.generation()
        return self._lake.versions() | {"labels": of_labels, "segments": of_segments}


_folders: OrderedDict[Path, _Folder] = OrderedDict()
_folders_lock = threading.Lock()


def _folder(data_dir: Path) -> _Folder:
    with _folders_lock:
        folder = _folders.pop(data_dir, None) or _Folder(data_dir)
        _folders[data_dir] = folder
        while len(_folders) > _KEPT_FOLDERS:
            _folders.popitem(last=False)
    return folder


class Tables:
    """The tables of one data folder. Cheap to make, safe to share between threads."""

    def __init__(self, data_dir: Path | str) -> None:
        self.data_dir = Path(data_dir).resolve()

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A connection to the tables as of the lake's newest commit.

        Its tables never change; connect again to see more. It reads no files: bring frames with ``register``.
        """
        return _folder(self.data_dir).current().database.cursor()

    def projects(self) -> list[str]:
        """Every project that has events or a registry, by name."""
        with self.connect() as connection:
            many = (rolled(connection, rows_of(table)) or table for table in ("selections", "calls"))
            tables = (*many, "feedback", "routes", "skills")
            union = " union ".join(f"select distinct project from {table}" for table in tables)
            return [project for (project,) in connection.execute(f"{union} order by project").fetchall()]

    def sql(self, query: str) -> list[dict[str, Any]]:
        """The rows of one read-only statement, each an object by column name.

        Raises SqlError for anything but a single SELECT (or EXPLAIN, DESCRIBE, SHOW, SUMMARIZE), and for bad SQL.
        """
        with self.connect() as connection:
            try:
                statements = connection.extract_statements(query)
            except duckdb.Error as error:
                raise SqlError(str(error)) from error
            if len(statements) != 1:
                raise SqlError(f"expected one statement, got {len(statements)}")
            if statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
                raise SqlError(
                    f"only reading is possible here: expected SELECT, got {statements[0].type.name};"
                    " tables and columns are in docs/tables.md"
                )
            try:
                return rows(connection.execute(query))
            except duckdb.Error as error:
                raise SqlError(str(error)) from error


def rows(result: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """All rows of an executed query, each an object by column name; one that is there already gets a number."""
    names: list[str] = []
    for name, *_ in result.description or []:
        others = (f"{name}_{number}" for number in count(1))
        names.append(name if name not in names else next(other for other in others if other not in names))
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def used(query: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Those of the named parameters that a query has: DuckDB takes no others."""
    return {name: value for name, value in parameters.items() if f"${name}" in query}
