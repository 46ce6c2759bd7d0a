"""Which kinds of questions go worse than the others: metrics by query cluster, each against all that is not in it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import duckdb

from analytics.metrics.declarations import BY_NAME, MIN_N, Metric
from analytics.query import metric
from analytics.wilson import wilson
from pickwise.events import DEFAULT_PROJECT

#: The rates that a cluster is judged by: its list, its order, its calls.
JUDGED_BY = ("acceptance_rate", "mismatch_rate", "failed_tool_rate")
_ANY = "select exists (from query_clusters where project = $project and cluster_id is not null)"


def clusters_by_weakness(
    connection: duckdb.DuckDBPyConnection,
    project: str = DEFAULT_PROJECT,
    start: datetime | None = None,
    end: datetime | None = None,
) -> list[dict[str, Any]]:
    """The clusters that were asked in ``start`` <= time < ``end``, the weakest first, then those asked most.

    ``cluster``, ``cluster_name`` (its most telling words, or None), ``metrics``: by name ``value``, ``n``, ``low``,
    ``high`` and ``rest``, the value of all observations that are not of this cluster (None: there are none).
    ``weak_by``: the metrics by which it is surely worse than the rest: over 20 observations and more, with the rest
    outside of the 95 % interval. ``excess``: so many observations against it are more than the rest lets expect, by the
    metric where these are most.
    """
    if not connection.execute(_ANY, {"project": project}).fetchall()[0][0]:
        return []
    found: dict[str, dict[str, Any]] = {}
    for declared in map(BY_NAME.__getitem__, JUDGED_BY):
        rows = metric(connection, declared.name, project=project, start=start, end=end, by=["cluster"])["rows"]
        total, against = sum(row["n"] for row in rows), sum(declared.against(row) for row in rows)
        for row in rows:
            if row["cluster"] is not None:
                one = found.setdefault(row["cluster"], _blank(row))
                _judge(one, declared, row, total - row["n"], against - declared.against(row))
    return sorted(found.values(), key=lambda row: (-row["excess"], -row["metrics"][JUDGED_BY[0]]["n"], row["cluster"]))


def _blank(row: dict[str, Any]) -> dict[str, Any]:
    nothing = dict.fromkeys(("value", "low", "high", "rest")) | {"n": 0}
    metrics = {name: dict(nothing) for name in JUDGED_BY}
    return {"cluster": row["cluster"], "cluster_name": row["cluster_name"], "metrics": metrics} | {
        "weak_by": [],
        "excess": 0.0,
    }


def _judge(cluster: dict[str, Any], declared: Metric, row: dict[str, Any], others: int, against_others: int) -> None:
    """Add one metric of a cluster; of the ``others``, so many speak against it."""
    share = against_others / others if others else None
    rest = share if share is None or declared.good == "down" else 1 - share
    cluster["metrics"][declared.name] = {name: row[name] for name in ("value", "n", "low", "high")} | {"rest": rest}
    if share is None or row["n"] < MIN_N:
        return
    against = declared.against(row)
    if wilson(against, row["n"])[0] > share:
        cluster["weak_by"].append(declared.name)
        cluster["excess"] = max(cluster["excess"], against - share * row["n"])
