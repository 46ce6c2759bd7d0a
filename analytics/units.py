"""Units: facts that can only be folded together, since a trace, a session or an id ties them to each other.

A unit is a connected component of facts and their scopes (trace, session, own id, id of the selection they name). It is
known by the smallest hash of its scopes.
"""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components


def label(database: duckdb.DuckDBPyConnection) -> None:
    """Make ``scope_units`` (scope, unit) of ``edges`` (a, b): scopes as unsigned 64-bit hashes."""
    found = database.execute("select a, b from edges").fetchnumpy()
    # By hashing: sorting so many numbers took several times as long.
    encoded = pa.array(np.concatenate([found["a"], found["b"]])).dictionary_encode()
    scopes, nodes = encoded.dictionary.to_numpy(), encoded.indices.to_numpy()
    edges = len(found["a"])
    graph = coo_array((np.ones(edges, dtype=bool), (nodes[:edges], nodes[edges:])), shape=(len(scopes), len(scopes)))
    count, component = connected_components(graph, directed=False)
    units = np.full(count, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(units, component, scopes)
    database.register("labelled", pa.table({"scope": scopes, "unit": units[component]}))
    try:
        database.execute("create or replace table scope_units as from labelled")
    finally:
        database.unregister("labelled")
