"""The tables that users see, folded in DuckDB from the facts of the lake (docs/tables.md, docs/architecture.md).

DuckDB holds no file of ours: each state of the lake is folded once into an in-memory database that all connections of
the process share; when the lake has moved on, the next ``connect`` builds a new one, and the old one goes with its
last connection.
"""

from __future__ import annotations

import tempfile
import threading
from collections import OrderedDict
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb

from collector.lake import Lake
from collector.tables import TABLES

#: What is built, in order: each file of ``sql/views`` uses only what stands before it.
VIEWS = (
    "inner_turns",
    "steps",
    "searches",
    "selection_base",
    "runs",
    "retrievals",
    "rankings",
    "asides",
    "skills",
    "registry_names",
    "offers",
    "call_facts",
    "call_asides",
    "call_selections",
    "proxied_calls",
    "call_spans",
    "call_keys",
    "call_retold",
    "call_groups",
    "call_rows",
    "calls",
    "picks",
    "selections",
    "candidates",
    "feedback",
    "mismatches",
    "routes",
    "degraded_spells",
    "jobs",
)
#: Those that are for selection facts with a role: without any, planning them would take as long as a small fold.
FOR_ROLES = frozenset({"inner_turns", "runs", "retrievals", "rankings", "asides", "call_asides", "call_retold"})
#: The tables of docs/tables.md; all others are steps and are dropped.
PUBLIC = (
    "selections",
    "candidates",
    "calls",
    "feedback",
    "mismatches",
    "skills",
    "routes",
    "portraits",
    "skill_status",
    "alerts",
    "weights",
    "models",
)
#: Folded data folders kept in memory: a service has one, tests have many.
_KEPT_FOLDERS = 2
_MEMORY_LIMIT = "2GB"
_THREADS = 2

_HAS_ROLES = "select exists (from fact_selections where role is not null)"
_READ = (
    "read_parquet($files, hive_partitioning = true, hive_types = {'project': VARCHAR, 'date': DATE},"
    " union_by_name = true)"
)


class SqlError(ValueError):
    """A query that cannot be answered; the message says why."""


class _Folded:
    """The in-memory database of one state of the lake."""

    def __init__(self, lake: Lake, versions: dict[str, int]) -> None:
        self.versions = versions
        self.database = duckdb.connect(
            ":memory:",
            config={
                "threads": _THREADS,
                "memory_limit": _MEMORY_LIMIT,
                "temp_directory": str(Path(tempfile.gettempdir()) / "pickwise-duckdb"),
            },
        )
        self.database.execute("set TimeZone = 'UTC'; set enable_progress_bar = false")
        for table in TABLES:
            _load(self.database, table, lake.files(table))
        fold(self.database)
        # From here on a query sees these tables and nothing else of the machine.
        self.database.execute("set enable_external_access = false; set lock_configuration = true")


class _Folder:
    """One data folder: its lake, and the newest fold of it."""

    def __init__(self, data_dir: Path) -> None:
        self._lock = threading.Lock()
        self._lake = Lake(data_dir)
        self._folded: _Folded | None = None

    def current(self) -> _Folded:
        with self._lock:
            versions = self._lake.versions()
            if self._folded is None or self._folded.versions != versions:
                try:
                    self._folded = _Folded(self._lake, versions)
                except duckdb.IOException:  # files went while they were read: a session was forgotten
                    self._folded = _Folded(self._lake, self._lake.versions())
            return self._folded


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
        tables = ("selections", "calls", "feedback", "routes", "skills")
        union = " union ".join(f"select distinct project from {table}" for table in tables)
        return [project for (project,) in self.connect().execute(f"{union} order by project").fetchall()]

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
    """All rows of an executed query, each an object by column name."""
    names = [column[0] for column in result.description or []]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _load(database: duckdb.DuckDBPyConnection, table: str, paths: list[str]) -> None:
    """The lake's table as ``fact_TABLE``, with all columns of its schema also where old files lack some."""
    database.register("empty", TABLES[table].to_frame().to_arrow())
    try:
        stored = f" union all by name from {_READ}" if paths else ""
        database.execute(f"create table fact_{table} as from empty{stored}", {"files": paths} if paths else {})
    finally:
        database.unregister("empty")


def fold(database: duckdb.DuckDBPyConnection) -> None:
    """Turn the tables ``fact_TABLE`` into the tables of docs/tables.md, and drop all others."""
    sql = files("analytics") / "sql"
    database.execute((sql / "macros.sql").read_text())
    (has_roles,) = database.execute(_HAS_ROLES).fetchall()[0]
    for view in VIEWS:
        if view in FOR_ROLES and not has_roles:
            continue
        database.execute((sql / "views" / f"{view}.sql").read_text())
    for (table,) in database.execute("select table_name from duckdb_tables()").fetchall():
        if table not in PUBLIC:
            database.execute(f"drop table {table}")
