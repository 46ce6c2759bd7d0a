"""In-memory databases of DuckDB, as all of analytics opens them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb

_MEMORY_LIMIT = "2GB"
_THREADS = 2


def open_database(memory_limit: str = _MEMORY_LIMIT) -> duckdb.DuckDBPyConnection:
    """An empty one that spills to the disk beyond its memory. Times are UTC."""
    database = duckdb.connect(
        ":memory:",
        config={
            "threads": _THREADS,
            "memory_limit": memory_limit,
            "temp_directory": str(Path(tempfile.gettempdir()) / "pickwise-duckdb"),
        },
    )
    database.execute("set TimeZone = 'UTC'; set enable_progress_bar = false")
    return database


def literal(path: Path) -> str:
    """A path as a string of SQL, where no parameter can stand."""
    return "'" + str(path).replace("'", "''") + "'"
