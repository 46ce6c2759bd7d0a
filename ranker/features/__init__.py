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

#: Columns of the features that follow from the skill and the moment alone, and of the others.
STANDING: tuple[int, ...] = tuple(column for column, feature in enumerate(FEATURES) if feature.standing)
_ASKED = tuple(column for column, feature in enumerate(FEATURES) if not feature.standing)

Matrix = NDArray[np.float32]


def compute(context: Context, known: Matrix | None = None) -> Matrix:
    """All features of a turn's candidates as the state knows them, shape (candidates, len(FEATURES)).

    ``known``: those of ``STANDING``, where somebody has them already.
    """
    # By column, as it is filled and as the blend reads it.
    matrix = np.empty((len(context.turn.skill_ids), len(FEATURES)), dtype=np.float32, order="F")
    matrix[:, STANDING] = standing(context) if known is None else known
    for column in _ASKED:
        matrix[:, column] = FEATURES[column].compute(context)
    return matrix


def standing(context: Context) -> Matrix:
    """The features of ``STANDING`` alone."""
    matrix = np.empty((len(context.turn.skill_ids), len(STANDING)), dtype=np.float32, order="F")
    for place, column in enumerate(STANDING):
        matrix[:, place] = FEATURES[column].compute(context)
    return matrix
