"""Every table as a file, for any other tool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import duckdb
import polars as pl

from analytics.tables import PUBLIC

Format = Literal["parquet", "csv"]


def export(
    connection: duckdb.DuckDBPyConnection, target: Path, format: Format, project: str | None = None
) -> Iterator[tuple[Path, int]]:
    """Write one file a table into ``target`` and yield its path and rows; ``project`` None: all projects.

    CSV has no nested values: there, lists and objects are JSON text.
    """
    target.mkdir(parents=True, exist_ok=True)
    for table in PUBLIC:
        where = "" if project is None else "where project = $project"
        query = f"select {_columns(connection, table, format)} from {table} {where}"
        found = connection.sql(query, params={} if project is None else {"project": project})
        frame = pl.from_arrow(found.to_arrow_table())
        assert isinstance(frame, pl.DataFrame)
        path = target / f"{table}.{format}"
        if format == "csv":
            frame.write_csv(path)
        else:
            frame.write_parquet(path)
        yield path, frame.height


def _columns(connection: duckdb.DuckDBPyConnection, table: str, format: Format) -> str:
    described = connection.execute(f"describe {table}").fetchall()
    nested = [name for name, kind, *_ in described if kind.endswith("[]") or kind.startswith("STRUCT")]
    if format == "parquet" or not nested:
        return "*"
    return f"* replace ({', '.join(f'to_json({name})::varchar as {name}' for name in nested)})"
