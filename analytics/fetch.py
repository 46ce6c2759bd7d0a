"""A query's rows as a Polars frame."""

from __future__ import annotations

from typing import Any

import duckdb
import polars as pl


def fetch(connection: duckdb.DuckDBPyConnection, query: str, **parameters: Any) -> pl.DataFrame:
    """The rows of a SELECT with named parameters; times are UTC, in microseconds."""
    frame = pl.from_arrow(connection.sql(query, params=parameters).to_arrow_table())
    assert isinstance(frame, pl.DataFrame)
    # DuckDB names the zone as the system does (`Etc/UTC`), which Polars would take for another one.
    return frame.with_columns(pl.col(pl.Datetime("us", "*")).dt.convert_time_zone("UTC"))
