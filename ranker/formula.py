"""The score before any model: s + 0.15·(2·heat - 1) + 0.10·(success - p_d).

s is the list's first present of `rerank`, `dense`, `score`, `bm25`, min-max scaled within the list; 0.5 where the
scores are equal or a candidate has none.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ranker.decay import Numbers
from ranker.turns import SCORES

HEAT_COEFFICIENT = 0.15
SUCCESS_COEFFICIENT = 0.10
#: What is left of the difference of two equal rates that were worked out in two ways.
_NOTHING = 1e-12


def semantic_score(scores: Mapping[str, Numbers], candidates: int) -> Numbers:
    """s for each candidate of one list, in [0, 1]."""
    for name in SCORES:
        values = scores[name]
        if not np.isnan(values).all():
            low, high = float(np.nanmin(values)), float(np.nanmax(values))
            if np.isinf(high - low):  # each is a number, their distance is none
                values, low, high = values / 2, low / 2, high / 2
            scaled = (values - low) / (high - low) if high > low else np.full(candidates, 0.5)
            return np.where(np.isnan(values), 0.5, scaled)
    return np.full(candidates, 0.5)


def terms(scores: Mapping[str, Numbers], heat: Numbers, success: Numbers, prior: Numbers) -> dict[str, Numbers]:
    """The three terms of the score, by name; their sum is the score."""
    distance = success - prior
    distance[np.abs(distance) < _NOTHING] = 0.0
    return {
        "semantic": semantic_score(scores, len(heat)),
        "heat": HEAT_COEFFICIENT * (2 * heat - 1),
        "success": SUCCESS_COEFFICIENT * distance,
    }
