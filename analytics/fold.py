"""Facts fold into rows, by the SQL of ``sql/views`` (docs/architecture.md). Each step is a table of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from importlib.resources import files

import duckdb

from analytics.segments import SEGMENT_TABLES
from collector.lake import Lake
from collector.tables import TABLES

#: What is built, in order: each file of ``sql/views`` uses only what stands before it. First what is needed for the
#: registry, which the rest is judged by.
SELECTION_STEPS = (
    "inner_turns",
    "steps",
    "searches",
    "told_selections",
    "selection_base",
    "run_menus",
    "runs",
    "retrievals",
    "rankings",
    "asides",
)
REGISTRY_STEPS = (*SELECTION_STEPS, "skills", "registry_names")
ROW_STEPS = (
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
)
#: Of tables that are made whole at every reading, from those before and from segments.
LAST_STEPS = ("labels", "routes", "degraded_spells", "jobs", "query_clusters", "pick_similarities")
#: Those that are for selection facts with a role: without any, planning them would take as long as a small fold.
FOR_ROLES = frozenset(
    {"inner_turns", "run_menus", "runs", "retrievals", "rankings", "asides", "call_asides", "call_retold"}
)

#: Files of the lake; the column ``filename`` tells which one a row is from.
READ = (
    "read_parquet($files, hive_partitioning = true, hive_types = {'project': VARCHAR, 'date': DATE},"
    " union_by_name = true, filename = true)"
)
_HAS_ROLES = "select exists (from fact_selections where role is not null)"

#: Brings the rows of a view ``made_TABLE`` to where the table is read.
Keep = Callable[[duckdb.DuckDBPyConnection, str], None]


def has_roles(database: duckdb.DuckDBPyConnection) -> bool:
    """Whether some selection fact tells of something else than a turn."""
    return bool(database.execute(_HAS_ROLES).fetchall()[0][0])


def in_memory(database: duckdb.DuckDBPyConnection, table: str) -> None:
    """Keep the rows of a step's view ``made_TABLE`` as the table."""
    database.execute(f"create table {table} as select columns(lambda c: c <> 'unit') from made_{table}")
    database.execute(f"drop view made_{table}")


def run_steps(
    database: duckdb.DuckDBPyConnection,
    steps: Sequence[str],
    keep: Keep = in_memory,
) -> None:
    """Make the tables of these steps out of ``fact_TABLE`` and of the steps before.

    ``keep`` brings those of SEGMENT_TABLES, which are views ``made_TABLE`` first, to where the next steps read them.
    """
    sql = files("analytics") / "sql"
    with_roles = has_roles(database)
    for step in steps:
        if with_roles or step not in FOR_ROLES:
            database.execute((sql / "views" / f"{step}.sql").read_text())
        if step in SEGMENT_TABLES:
            keep(database, step)


def define_macros(database: duckdb.DuckDBPyConnection) -> None:
    database.execute((files("analytics") / "sql" / "macros.sql").read_text())


def tables(database: duckdb.DuckDBPyConnection) -> set[str]:
    return {name for (name,) in database.execute("select table_name from duckdb_tables()").fetchall()}


def drop_tables(database: duckdb.DuckDBPyConnection, kept: Collection[str]) -> None:
    """Drop all tables but these."""
    for name in tables(database).difference(kept):
        database.execute(f"drop table {name}")


def load(database: duckdb.DuckDBPyConnection, lake: Lake, names: Iterable[str]) -> None:
    """Tables of the lake as ``fact_TABLE``, whole, with all columns of their schema also where old files lack some."""
    for table in names:
        paths = lake.files(table)
        create_facts(database, table, f"select * exclude (filename) from {READ}" if paths else "", paths)


def create_facts(database: duckdb.DuckDBPyConnection, table: str, stored: str = "", paths: Sequence[str] = ()) -> None:
    """``fact_TABLE`` with the columns of its schema, and the rows of a query over files of the lake."""
    database.register("empty", TABLES[table].to_frame().to_arrow())
    try:
        union = f" union all by name {stored}" if stored else ""
        database.execute(f"create table fact_{table} as from empty{union}", {"files": paths} if stored else {})
    finally:
        database.unregister("empty")
