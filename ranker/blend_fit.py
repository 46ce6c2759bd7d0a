"""The blend's coefficients from a log, with place told from merit, and θ of each calling model from the same fit.

An offset for each (calling model, rank) stands for how far down agents look (``ranker.logit``); what is known of θ, or
is usual, is its prior. A query that succeeded before teaches only once: later its history holds its own answer, and a
blend that learns from it trusts likeness too far where a query is new.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ranker import blend, logit
from ranker.dataset import Group, positions
from ranker.decay import Numbers
from ranker.examination import MAX_INVERSE, Curves, place_prior, theta_from_factors


def asked_anew(groups: Sequence[Group]) -> list[bool]:
    """For each list, in the order of time, whether its query had no success before; an untold query always counts."""
    succeeded: set[str] = set()
    found = []
    for group in groups:
        query = group.turn.query.strip().casefold()
        found.append(query not in succeeded)
        if query and len(group.succeeded):
            succeeded.add(query)
    return found


def fit_blend(groups: Sequence[Group], known: Curves) -> tuple[Numbers, Curves]:
    """Coefficients of the blend from the succeeded picks of new queries, and θ by calling model.

    ``groups`` in the order of time; ``known``: θ by calling model where it is known. Each list weighs min(1/e, 10), e
    being how likely a look at the right one is, Σ softmax(x·b)_k·θ_k: lists whose right skills lie deep are picked from
    more rarely. Unlike 1/θ of the pick it doesn't hang on where the pick fell, so one wrong pick at the end of a list
    doesn't count ten times.
    """
    codes, meaning = positions(groups)
    by_group = np.split(codes.astype(np.intp), np.cumsum([len(group.labels) for group in groups])[:-1])
    anew = zip(asked_anew(groups), groups, strict=True)
    picks = [(place, int(index)) for place, (is_new, group) in enumerate(anew) if is_new for index in group.succeeded]
    lists = blend.inputs_of([groups[place].features for place, _ in picks])
    picked = [index for _, index in picks]
    places = logit.Places([by_group[place] for place, _ in picks], place_prior(meaning, known))
    found, offsets = logit.fit(lists, picked, [1.0] * len(lists), blend.NORMAL_PRIOR, places)
    theta = np.exp(offsets)
    looked = [_softmax(x @ found) @ theta[code] for x, code in zip(lists, places.codes, strict=True)]
    weights = [min(1 / float(look), MAX_INVERSE) for look in looked]
    found, offsets = logit.fit(lists, picked, weights, blend.NORMAL_PRIOR, places)
    factors: dict[str, dict[int, float]] = {}
    for (model, rank), offset in zip(meaning, offsets, strict=True):
        factors.setdefault(model, {})[rank] = float(offset)
    return found, {model: theta_from_factors(by_rank) for model, by_rank in factors.items()}


def _softmax(scores: Numbers) -> Numbers:
    chances = np.exp(scores - scores.max())
    return np.asarray(chances / chances.sum())
