"""The features of a candidate. One declaration each; the order here is the order of a model's columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ranker.features import history, match, query, retrieval, session, signals
from ranker.features.base import Context, Feature

FEATURES: tuple[Feature, ...] = (
    *retrieval.FEATURES,
    *query.FEATURES,
    *match.FEATURES,
    *signals.FEATURES,
    *session.FEATURES,
    *history.FEATURES,
)
NAMES: tuple[str, ...] = tuple(feature.name for feature in FEATURES)

Matrix = NDArray[np.float32]


def compute(context: Context) -> Matrix:
    """All features of a turn's candidates as the state knows them, shape (candidates, len(FEATURES))."""
    matrix = np.empty((len(context.turn.skill_ids), len(FEATURES)), dtype=np.float32)
    for column, feature in enumerate(FEATURES):
        matrix[:, column] = feature.compute(context)
    return matrix
