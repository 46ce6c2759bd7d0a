"""What jobs keep of the queries of a session, removed with it: hashes, clusters and similarities."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5

import polars as pl

from collector.lake import Lake
from collector.session_rows import SessionRows

#: Tables in which something of a query stands.
QUERY_TABLES = ("query_clusters", "clusters", "pick_similarities")
#: A cluster of fewer queries tells too much of each.
_FEW_QUERIES = 3


def forget_queries(lake: Lake, rows: SessionRows, project: str, selections: Sequence[str]) -> list[str]:
    """To be called while the session's rows are there: they tell which queries are its own.

    Gives those that nobody else asked.

    A cluster that is left with few queries goes, and the next night finds another for them; one that stays has no name
    until then, since its words come from what is left.
    """
    of_project = pl.col("project") == project
    lake.replace("pick_similarities", of_project & pl.col("event_id").is_in(selections))
    asked, alone = _queries(lake, rows, of_project)
    told = lake.select("query_clusters", of_project & _is_of(asked), ["cluster_id"])
    touched = of_project & pl.col("cluster_id").is_in(told["cluster_id"].drop_nulls().unique().implode())
    lake.replace("query_clusters", of_project & _is_of(alone))
    left = lake.select("query_clusters", touched, ["cluster_id", "query_key"]).unique()
    large = left.group_by("cluster_id").len().filter(pl.col("len") >= _FEW_QUERIES)["cluster_id"]
    lake.replace("query_clusters", touched & ~pl.col("cluster_id").is_in(large.implode()))
    staying = lake.select("clusters", touched & pl.col("cluster_id").is_in(large.implode()))
    lake.replace("clusters", touched, staying.with_columns(pl.lit(None, pl.String).alias("name")))
    return alone.to_list()


def _queries(lake: Lake, rows: SessionRows, of_project: pl.Expr) -> tuple[pl.Series, pl.Series]:
    """The queries of the session, and those of them that nobody else asked."""
    mine = rows.expression("selections").fill_null(False)
    asked = lake.select("selections", mine, ["query"])["query"].drop_nulls().unique()
    others = of_project & ~mine & pl.col("query").is_in(asked.implode())
    shared = lake.select("selections", others, ["query"])["query"].unique()
    return asked, asked.filter(~asked.is_in(shared.implode()))


def _is_of(queries: pl.Series) -> pl.Expr:
    """The rows of ``query_clusters`` of these queries."""
    keys = [md5(query.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest() for query in queries]
    return pl.col("query_key").is_in(keys)
