"""Scores to ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ranker.decay import Numbers


def order(scores: Numbers) -> NDArray[np.intp]:
    """Indices from the best score to the worst; equal scores keep their order."""
    return np.argsort(-scores, kind="stable")


def ranks(scores: Numbers) -> NDArray[np.intp]:
    """1-based rank of each score; equal scores keep their order."""
    found = np.empty(len(scores), dtype=np.intp)
    found[order(scores)] = np.arange(1, len(scores) + 1)
    return found
