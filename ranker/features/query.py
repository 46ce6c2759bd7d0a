"""What kind of query it is: the weight of other features may depend on it."""

from __future__ import annotations

from ranker.features.base import Context, Feature


def _query_terms(context: Context) -> float:
    return float(len(context.query_terms))


FEATURES = (
    Feature(
        "query_terms",
        "count",
        "request",
        "long queries say more by their meaning, short ones by their words",
        _query_terms,
    ),
    Feature(
        "query_script",
        "category",
        "request",
        "keyword search and embeddings differ in strength by script",
        lambda c: c.query_script,
    ),
)
