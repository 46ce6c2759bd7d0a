"""What retrieval says: the scores as sent, and our own view of query and description where none were sent."""

from __future__ import annotations

import numpy as np

from ranker.decay import Numbers
from ranker.features.base import Context, Feature


def _overlap(context: Context) -> Numbers:
    query = context.query_terms
    if not query:
        return np.full(len(context.rows), np.nan)
    return context.state.described_by.share(query, context.rows)


def _semantic(context: Context) -> Numbers:
    return np.where(context.fact("registered"), context.history.description, np.nan)


FEATURES = (
    Feature(
        "bm25", "score", "request", "the discovery layer's keyword score", lambda c: c.turn.scores["bm25"], rising=True
    ),
    Feature(
        "dense",
        "score",
        "request",
        "the discovery layer's embedding similarity",
        lambda c: c.turn.scores["dense"],
        rising=True,
    ),
    Feature(
        "rerank",
        "score",
        "request",
        "the discovery layer's cross-encoder score",
        lambda c: c.turn.scores["rerank"],
        rising=True,
    ),
    Feature(
        "overlap",
        "share",
        "request, registry",
        "share of the query's terms in name and description, when no bm25 is sent",
        _overlap,
        rising=True,
    ),
    Feature(
        "semantic",
        "cosine",
        "request, registry",
        "cosine of query and description, when no dense score is sent",
        _semantic,
        rising=True,
    ),
)
