"""Query-conditioned history: the strongest signal by far once there is any."""

from __future__ import annotations

import numpy as np

from ranker.decay import Numbers
from ranker.features.base import Context, Feature, lead


def _support(context: Context) -> Numbers:
    return np.log1p(context.state.history.support(context.rows, context.turn.time))


def _debiased_support(context: Context) -> Numbers:
    return np.log1p(context.state.history.debiased_support(context.rows, context.turn.time))


def _words(context: Context) -> Numbers:
    return context.state.words.odds(context.query_terms, context.rows, context.turn.time)


FEATURES = (
    Feature(
        "history_centroid",
        "cosine",
        "request, successes",
        "like the queries that picked it and succeeded",
        lambda c: c.history.centroid,
        rising=True,
    ),
    Feature(
        "history_profile",
        "cosine",
        "request, successes, registry",
        "like its history and its description together",
        lambda c: c.history.profile,
        rising=True,
    ),
    Feature(
        "history_lead",
        "cosine",
        "request, successes, registry",
        "its profile against the best other in the list",
        lambda c: lead(c.history.profile),
        rising=True,
    ),
    Feature(
        "history_nearest",
        "cosine",
        "request, successes",
        "like the nearest of the newest such queries",
        lambda c: c.history.nearest,
        rising=True,
    ),
    Feature(
        "history_nearest_lead",
        "cosine",
        "request, successes",
        "the same, against the best other in the list",
        lambda c: lead(c.history.nearest),
        rising=True,
    ),
    Feature(
        "history_words",
        "log odds",
        "request, successes",
        "its words are likelier in such queries than in others",
        _words,
        rising=True,
    ),
    Feature(
        "history_support",
        "log count",
        "successes",
        "log of 1 + how much history there is",
        _support,
        standing=True,
    ),
    Feature(
        "history_debiased",
        "log count",
        "successes",
        "the same, had every rank been looked at",
        _debiased_support,
        standing=True,
    ),
)
