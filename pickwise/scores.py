"""What a retriever's scores say of a list before anything was learned."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

#: Scores that a discovery layer may send with a candidate. The first that one of a list has is the list's.
SCORES = ("rerank", "dense", "score", "bm25")


def semantic_score(scores: Mapping[str, Numbers], candidates: int) -> Numbers:
    """s for each candidate of one list, in [0, 1]: the list's first present score, min-max scaled within the list.

    ``scores``: by name, shape (candidates,), NaN where a candidate has none; s is 0.5 there, and where all are equal.
    """
    for name in SCORES:
        values = scores[name]
        low, high = float(np.fmin.reduce(values, initial=np.nan)), float(np.fmax.reduce(values, initial=np.nan))
        if not np.isnan(high):
            if np.isinf(high - low):  # each is a number, their distance is none
                values, low, high = values / 2, low / 2, high / 2
            scaled = (values - low) / (high - low) if high > low else np.full(candidates, 0.5)
            return np.where(np.isnan(values), 0.5, scaled)
    return np.full(candidates, 0.5)
