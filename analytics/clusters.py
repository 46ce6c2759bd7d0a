"""What queries are about: each distinct query belongs to a cluster, whose id stays the same from night to night.

A query joins the nearest cluster that is near enough; those that are near none found clusters of their own. A cluster
has the centroid of its queries, in the space of one embedder version; with another version clusters begin anew. Of a
query only a hash is stored, and names hold only words that several sessions said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb
import numpy as np
import polars as pl

from analytics.clusters_names import MIN_SESSIONS, Asked, named
from analytics.fetch import fetch
from analytics.text_vectors import TextVectors
from collector.lake import Lake
from collector.tables import TABLES
from pickwise.embed import Vectors

#: New distinct queries that a night looks at; the rest waits for the next one. About 25 s with the default embedder.
MAX_QUERIES = 5_000
#: From then on queries join clusters, but found none: their centroids are 20 MB by then.
MAX_CLUSTERS = 10_000


@dataclass(frozen=True)
class Closeness:
    """How near queries are that belong together."""

    #: Average cosine distance from which two groups stay apart.
    apart: float
    #: Cosine to a centroid from which a query joins its cluster.
    joins: float


# Measured on 5,000 queries of MetaTool and 967 of ACEBench (docs/nightly.md).
_OF_MEANING = Closeness(apart=0.7, joins=0.45)
_OF_WORDS = Closeness(apart=0.8, joins=0.3)

# The newest day's first, those asked most first.
_NEW = """
WITH asked AS (
    SELECT query, min(time) AS time, max(time) AS last_time, count(*) AS times
    FROM selections WHERE project = $project AND time >= $start AND time < $end GROUP BY query
)
SELECT md5(query) AS query_key, query, time
FROM asked
WHERE trim(query) <> '' AND NOT regexp_full_match(query, 'hash:[0-9a-f]{32}')
    AND md5(query) NOT IN (
        SELECT query_key FROM query_clusters WHERE project = $project AND embedding_version = $version
    )
ORDER BY last_time::DATE DESC, times DESC, query_key LIMIT $room
"""
_TONIGHT = "SELECT count(*) AS n FROM query_clusters WHERE project = $project AND computed_at >= $midnight"
_KEYS = """
SELECT md5(query) AS query_key
FROM (SELECT DISTINCT query FROM selections WHERE project = $project AND query IS NOT NULL)
"""
_ASKED = """
SELECT md5(query) AS query_key, query, sessions
FROM (
    SELECT query, list(DISTINCT coalesce(session_id, trace_id, event_id))[:$sessions] AS sessions
    FROM selections WHERE project = $project AND query IS NOT NULL GROUP BY query
)
"""


def cluster(
    connection: duckdb.DuckDBPyConnection,
    stored: pl.DataFrame,
    project: str,
    window: tuple[datetime, datetime],
    now: datetime,
    vectors: TextVectors,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows of ``query_clusters`` for queries asked in the window that have none yet, and rows of ``clusters``.

    These are the clusters that are new or have grown. ``stored``: rows of ``clusters`` of the project, of any version.
    """
    queries = _new_queries(connection, project, window, now, vectors.version)
    known = _newest(stored).filter(pl.col("embedding_version") == vectors.version).sort("cluster_id")
    points = vectors.of(queries["query"].to_list())
    keys = [f"{vectors.version} {key}" for key in queries["query_key"]]
    placed = _place(points, keys, known, _OF_WORDS if vectors.by_words else _OF_MEANING)
    stamps = {"project": project, "embedding_version": vectors.version, "computed_at": now}
    rows = [
        stamps | {"date": query["time"].date(), "time": query["time"], "query_key": query["query_key"], "cluster_id": c}
        for query, c in zip(queries.iter_rows(named=True), placed, strict=True)
    ]
    before = {row["cluster_id"]: row for row in known.iter_rows(named=True)}
    new = {"name": None, "time": now, "date": now.date(), "queries": 0, "centroid": 0.0}
    grown = [
        before.get(cluster_id, new) | stamps | {"cluster_id": cluster_id} | _grown(before.get(cluster_id, new), members)
        for cluster_id, members in _members(points, placed).items()
    ]
    return pl.DataFrame(rows, schema=TABLES["query_clusters"]), pl.DataFrame(grown, schema=TABLES["clusters"])


def renamed(
    connection: duckdb.DuckDBPyConnection, queries: pl.DataFrame, clusters: pl.DataFrame, project: str, now: datetime
) -> pl.DataFrame:
    """Rows of the clusters whose name changes: they have one for the first time, or too few say its words by now.

    ``queries`` and ``clusters``: all rows of the project for the tables ``query_clusters`` and ``clusters``.
    """
    if clusters.is_empty():
        return clusters
    placed = _newest(queries, "query_key").filter(pl.col("cluster_id").is_not_null())
    asked = fetch(connection, _ASKED, project=project, sessions=MIN_SESSIONS).join(
        placed.select("query_key", "cluster_id"), on="query_key"
    )
    standing = _newest(clusters).sort("cluster_id")
    names = dict(standing.select("cluster_id", "name").iter_rows())
    fresh = named([Asked(row["cluster_id"], row["query"], row["sessions"]) for row in asked.to_dicts()], names)
    changed = {cluster_id: name for cluster_id, name in fresh.items() if name != names[cluster_id]}
    return standing.filter(pl.col("cluster_id").is_in(list(changed))).with_columns(
        pl.col("cluster_id").replace_strict(changed, default=None, return_dtype=pl.String).alias("name"),
        pl.lit(now, pl.Datetime("us", "UTC")).alias("computed_at"),
    )


def write(lake: Lake, queries: pl.DataFrame, grown: pl.DataFrame, named: pl.DataFrame) -> None:
    """Clusters go first: one without queries is dropped, but queries without their cluster would stay so."""
    clusters = _newest(pl.concat([grown, named]))
    if clusters.height:
        lake.append("clusters", clusters)
    if queries.height:
        lake.append("query_clusters", queries)


def tidy(connection: duckdb.DuckDBPyConnection, lake: Lake, project: str) -> None:
    """Drop what no longer counts: queries that no selection asks any more, clusters without one, and older rows.

    Raises DeltaError when another process changed the same files; the next night finds the same.
    """
    of_project = pl.col("project") == project
    asked = fetch(connection, _KEYS, project=project)["query_key"]
    queries = lake.select("query_clusters", of_project, ["query_key", "cluster_id", "computed_at"])
    kept = _newest(queries, "query_key").filter(pl.col("query_key").is_in(asked.implode()))
    _keep(lake, "query_clusters", of_project, queries, kept, "query_key")
    clusters = lake.select("clusters", of_project, ["cluster_id", "computed_at"])
    alive = _newest(clusters).filter(pl.col("cluster_id").is_in(kept["cluster_id"].drop_nulls().unique().implode()))
    _keep(lake, "clusters", of_project, clusters, alive, "cluster_id")


def _keep(lake: Lake, table: str, of_project: pl.Expr, rows: pl.DataFrame, kept: pl.DataFrame, key: str) -> None:
    if rows.height == kept.height:
        return
    marks = kept.select(pl.struct(key, "computed_at").alias("mark"))["mark"]
    lake.replace(table, of_project & ~pl.struct(key, "computed_at").is_in(marks.implode()))


def _newest(rows: pl.DataFrame, key: str = "cluster_id") -> pl.DataFrame:
    """The newest row of each; of equally new ones the last."""
    return rows.sort("computed_at", maintain_order=True).unique(key, keep="last", maintain_order=True)


def _new_queries(
    connection: duckdb.DuckDBPyConnection, project: str, window: tuple[datetime, datetime], now: datetime, version: str
) -> pl.DataFrame:
    midnight = datetime(now.year, now.month, now.day, tzinfo=now.tzinfo)
    (tonight,) = fetch(connection, _TONIGHT, project=project, midnight=midnight)["n"]
    room = max(MAX_QUERIES - tonight, 0)
    start, end = window
    return fetch(connection, _NEW, project=project, start=start, end=end, version=version, room=room)


def _place(points: Vectors, keys: Sequence[str], known: pl.DataFrame, closeness: Closeness) -> list[str | None]:
    """The cluster of each query; None where it says nothing, or there is no room for another cluster.

    ``keys``: what the ids of new clusters are made of.
    """
    placed: list[str | None] = [None] * len(keys)
    telling = points.any(axis=1)
    near = np.zeros(len(keys), dtype=bool)
    if known.height:
        cosines = points @ np.array(known["centroid"].to_list(), dtype=np.float32).T
        near = telling & (cosines.max(axis=1, initial=-1.0) >= closeness.joins)
        for i in np.flatnonzero(near):
            placed[i] = known["cluster_id"][int(cosines[i].argmax())]
    strangers = np.flatnonzero(telling & ~near)
    for members in _groups(points[strangers], closeness.apart)[: max(MAX_CLUSTERS - known.height, 0)]:
        founders = strangers[members]
        cluster_id = _cluster_id([keys[i] for i in founders])
        for i in founders:
            placed[i] = cluster_id
    return placed


def _members(points: Vectors, placed: Sequence[str | None]) -> dict[str, Vectors]:
    """The vectors of each cluster's new queries."""
    members: dict[str, list[int]] = {}
    for i, cluster_id in enumerate(placed):
        if cluster_id is not None:
            members.setdefault(cluster_id, []).append(i)
    return {cluster_id: points[indices] for cluster_id, indices in members.items()}


def _grown(before: Mapping[str, Any], members: Vectors) -> dict[str, Any]:
    """The centroid with new members, of length 1."""
    total = np.asarray(before["centroid"], dtype=np.float32) * before["queries"] + members.sum(axis=0)
    return {"queries": before["queries"] + len(members), "centroid": (total / np.linalg.norm(total)).tolist()}


def _groups(points: Vectors, apart: float) -> list[np.ndarray[Any, np.dtype[np.intp]]]:
    """Members of the groups by average linkage (5,000 points: 4 s and 0.5 GB), the largest group first."""
    if len(points) < 2:
        return [np.array([i]) for i in range(len(points))]
    # scikit-learn takes a second to import: only a night with new queries waits for it.
    from sklearn.cluster import AgglomerativeClustering

    labels = AgglomerativeClustering(
        n_clusters=None, metric="cosine", linkage="average", distance_threshold=apart
    ).fit_predict(points)
    groups = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    return sorted(groups, key=lambda members: (-len(members), members[0]))


def _cluster_id(founders: Sequence[str]) -> str:
    """Made of its founders, so that a night that died and is run again founds the same clusters."""
    return "c" + hashlib.sha256(" ".join(sorted(founders)).encode()).hexdigest()[:10]
