"""Query-conditioned history: the strongest signal by far once there is any."""

from __future__ import annotations

import numpy as np

from ranker.decay import Numbers
from ranker.features.base import Context, Feature, lead


def _support(context: Context) -> Numbers:
    return np.log1p(context.state.history.support(context.rows, context.turn.time))


FEATURES = (
    Feature(
        "history_centroid", "like the queries that picked it and succeeded", lambda c: c.history_centroid, rising=True
    ),
    Feature(
        "history_profile", "like its history and its description together", lambda c: c.history_profile, rising=True
    ),
    Feature(
        "history_lead", "its profile against the best other in the list", lambda c: lead(c.history_profile), rising=True
    ),
    Feature("history_nearest", "like one of the newest such queries", lambda c: c.history_nearest, rising=True),
    Feature(
        "history_nearest_lead",
        "the same, against the best other in the list",
        lambda c: lead(c.history_nearest),
        rising=True,
    ),
    Feature("history_support", "how much history there is", _support),
)
