"""What kind of query it is: the weight of other features may depend on it."""

from __future__ import annotations

from ranker.features.base import Context, Feature

_SCRIPT_CODE = {"latin": 0.0, "cjk": 1.0, "other": 2.0}


def _query_terms(context: Context) -> float:
    return float(len(context.query_terms))


def _query_script(context: Context) -> float:
    return _SCRIPT_CODE[context.query_script]


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
        _query_script,
    ),
)
