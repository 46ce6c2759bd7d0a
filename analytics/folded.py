"""One state of the lake as tables: what segments hold, and what has come since, folded here."""

from __future__ import annotations

import duckdb

from analytics import rollups
from analytics.fold import (
    REGISTRY_STEPS,
    ROW_STEPS,
    define_macros,
    drop_tables,
    load,
    run_steps,
    tables,
)
from analytics.gather import Gathering
from analytics.segments import SEGMENT_FACTS, SEGMENT_TABLES, SegmentStore
from collector.lake import Lake
from collector.tables import TABLES


def fold(database: duckdb.DuckDBPyConnection, lake: Lake, store: SegmentStore) -> None:
    """Make the tables of docs/tables.md that hold events, and ``fact_TABLE`` of all that is not in segments."""
    define_macros(database)
    gathering = Gathering(database, lake, store)
    gathering.gather()
    load(database, lake, [table for table in TABLES if table not in SEGMENT_FACTS])
    gathered = tables(database)
    gathering.count_offers()
    run_steps(database, REGISTRY_STEPS)
    while gathering.gather_renamed():
        drop_tables(database, kept=gathered)
        gathering.count_offers()
        run_steps(database, REGISTRY_STEPS)
    run_steps(database, ROW_STEPS)
    database.execute("drop view told_selections")
    if gathering.manifest.segments:
        database.execute("insert into masks from touched")
        for table in SEGMENT_TABLES:
            database.execute(f"alter table {table} rename to folded_{table}")
            rows = gathering.segment_rows(table)
            database.execute(
                f"create view {table} as from folded_{table} union all by name select * exclude (unit) from ({rows})"
            )
        touched = {number for (number,) in database.execute("select distinct segment from touched").fetchall()}
        rollups.create_views(database, store, gathering.manifest, touched)
        for view in ("links", *(f"settled_{table}" for table in SEGMENT_TABLES)):
            database.execute(f"drop view {view}")
