"""What is known of a skill whatever the query: how it fares, how fast it is, how old, how described."""

from __future__ import annotations

import numpy as np

from ranker.decay import DAY_S, Numbers
from ranker.features.base import Context, Feature


def _success_support(context: Context) -> Numbers:
    return _coarse(context.success.n_effective)


def _latency(context: Context) -> Numbers:
    total, calls = context.state.latency.scaled(context.rows).T
    return np.asarray(np.round(total / np.where(calls > 0, calls, np.nan) / np.log(2)))


def _age(context: Context) -> Numbers:
    return _coarse((context.turn.time - context.fact("first_seen")) / DAY_S)


def _description_words(context: Context) -> Numbers:
    return _coarse(context.fact("description_words"))


def _coarse(amounts: Numbers) -> Numbers:
    """log2(1 + amount), rounded: exact amounts would tell single skills apart, and a model learns them by heart."""
    return np.asarray(np.round(np.log2(1 + amounts)))


FEATURES = (
    Feature(
        "heat_log",
        "log ratio",
        "impressions, picks",
        "picked more, or less, often than its places explain",
        lambda c: c.heat.heat_log,
        rising=True,
        standing=True,
    ),
    Feature(
        "success_logit",
        "log odds",
        "calls",
        "its calls succeed more, or less, often than its domain's",
        lambda c: c.success.success_logit,
        rising=True,
        standing=True,
    ),
    Feature(
        "success_support",
        "log count",
        "calls",
        "how much the success estimate can be trusted",
        _success_support,
        standing=True,
    ),
    Feature(
        "latency_log",
        "log ms",
        "calls",
        "log2 of its mean call time: slow skills are abandoned",
        _latency,
        standing=True,
    ),
    Feature(
        "age_log",
        "log days",
        "impressions",
        "log2 of days since it was first offered: counts of young skills say less",
        _age,
        standing=True,
    ),
    Feature(
        "description_words",
        "log count",
        "registry",
        "short descriptions match less and are picked less",
        _description_words,
        standing=True,
    ),
)
