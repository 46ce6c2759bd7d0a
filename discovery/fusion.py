"""How the keyword arm and the dense arm become one order."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pickwise.text import script

FloatArray = NDArray[np.float64]
FusionMethod = Literal["weighted", "rrf"]

#: Constant of reciprocal rank fusion (Cormack, Clarke & Büttcher, SIGIR 2009).
RRF_K = 60
#: Weight of BM25 beside the multilingual dense arm, by script of the query. R@5 with it: MetaTool (en) .74 at 0.2,
#: ACEBench (zh) .85 at 0.4; either arm alone .71 and .82 at best.
ALPHA_BY_SCRIPT = {"latin": 0.2, "cjk": 0.4, "other": 0.2}
#: Below this share of query terms that the index knows, BM25 scores are noise.
MIN_KNOWN_SHARE = 0.10


def alpha_for(query: str, known_share: float, learned: dict[str, float] | None = None) -> float:
    """Weight of BM25 in [0, 1] for this query; ``known_share`` is the share of its terms that the index knows."""
    if known_share < MIN_KNOWN_SHARE:
        return 0.0
    kind = script(query)
    return (learned or {}).get(kind, ALPHA_BY_SCRIPT[kind])


def min_max(scores: FloatArray) -> FloatArray:
    """Scores scaled to [0, 1]; 0.5 each where they are all equal, as then they say nothing."""
    if scores.size == 0:
        return scores
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.full_like(scores, 0.5)


def weighted(bm25: FloatArray, dense: FloatArray, alpha: float) -> FloatArray:
    """alpha · BM25 + (1 − alpha) · dense, each min-max scaled; shapes (skills,)."""
    return alpha * min_max(bm25) + (1 - alpha) * min_max(dense)


def reciprocal_rank(bm25: FloatArray, dense: FloatArray, alpha: float) -> FloatArray:
    """Reciprocal rank fusion; an arm of weight 0 or without a match for a skill adds nothing to it."""
    fused = 1.0 / (RRF_K + _ranks(dense))
    return fused + np.where(bm25 > 0, 1.0 / (RRF_K + _ranks(bm25)), 0.0) if alpha > 0 else fused


FUSIONS = {"weighted": weighted, "rrf": reciprocal_rank}


def _ranks(scores: FloatArray) -> FloatArray:
    """1 for the best."""
    ranks = np.empty(scores.size)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, scores.size + 1)
    return ranks
