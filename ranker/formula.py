"""The score before any model: s + 0.15·(2·heat - 1) + 0.10·(success - p_d), s as ``pickwise.scores`` has it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pickwise.scores import semantic_score
from ranker.decay import Numbers

HEAT_COEFFICIENT = 0.15
SUCCESS_COEFFICIENT = 0.10
#: What is left of the difference of two equal rates that were worked out in two ways.
_NOTHING = 1e-12


def terms(scores: Mapping[str, Numbers], heat: Numbers, success: Numbers, prior: Numbers) -> dict[str, Numbers]:
    """The three terms of the score, by name; their sum is the score."""
    distance = success - prior
    distance[np.abs(distance) < _NOTHING] = 0.0
    return {
        "semantic": semantic_score(scores, len(heat)),
        "heat": HEAT_COEFFICIENT * (2 * heat - 1),
        "success": SUCCESS_COEFFICIENT * distance,
    }
