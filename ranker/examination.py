"""Examination θ_m(k): how likely the calling model m looks at rank k, relative to rank 1.

In selections whose order was shuffled on purpose (`randomized`) every rank shows equally good skills, so the pick rate
at k divided by that at 1 is θ (Joachims et al., "Unbiased learning-to-rank with biased feedback", WSDM 2017, result
randomisation). Only the first five ranks are shuffled; beyond, the last known value holds. Until a model has
``MIN_PICKS`` listed picks in shuffled selections, θ is exp(c_k - c_1) from the position factors that the ranking model
learned in the fit of its blend (in force from the time that it was trained); without those it is unknown.

The interval of a θ from shuffled selections is that of a ratio of two counts, on the log scale: with x_k picks at rank
k and one pick a list, log θ has the variance 1/x_k + 1/x_1 (delta method on multinomial shares; Katz et al., Biometrics
1978, for the binomial case). Position factors come without one.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from analytics.wilson import Z
from ranker.decay import Numbers
from ranker.logit import Prior

#: Ranks that a shuffled selection shuffles.
SHUFFLED_DEPTH = 5
#: Ranks kept apart; deeper ones count as this one.
MAX_RANK = 20
#: Listed picks in a model's shuffled selections from which their shares are believed: with 400, a share of 0.1 is known
#: to ±0.03. With 100 the learned position factors were nearer to the truth in simulations.
MIN_PICKS = 400
#: 1/θ is never more than this, here and in every weight.
MAX_INVERSE = 10.0

#: ln θ at ranks 1 to 5 and beyond before the log says otherwise, and its deviation between models: mean and spread of
#: the published pick shares of five language models (0.68 of the picks at rank 1 for one, 0.31 for another).
USUAL_LOG_THETA = (0.0, -0.90, -1.58, -1.64, -1.60)
USUAL_DEVIATION = 0.7
#: Deviation of a ln θ that is known: about that of a share of 0.05 of ``MIN_PICKS``.
KNOWN_DEVIATION = 0.25
#: A θ of 0 is known to be small.
LEAST_THETA = 0.01

Source = Literal["randomized", "position_factors", "unknown"]
#: θ at ranks 1…depth by calling model ("" where it is not told).
Curves = Mapping[str, Sequence[float]]


def clip_rank(rank: int) -> int:
    return min(max(rank, 1), MAX_RANK)


@dataclass(frozen=True, slots=True)
class PositionFactors:
    """θ curves that a ranking model learned, known from ``since`` (Unix seconds) on."""

    since: float
    curves: Curves


@dataclass(frozen=True, slots=True)
class Examination:
    """θ at ranks 1…MAX_RANK for one calling model; ``theta`` is None where it is unknown."""

    theta: Numbers | None
    source: Source
    picks: int = 0
    #: 95 % bounds of ``theta`` at the shuffled ranks; None where θ isn't from shuffled selections.
    interval: tuple[Numbers, Numbers] | None = None

    def weight(self, rank: int) -> float:
        """min(1/θ, 10); 1 where θ is unknown."""
        if self.theta is None:
            return 1.0
        value = float(self.theta[clip_rank(rank) - 1])
        return min(1 / value, MAX_INVERSE) if value > 0 else MAX_INVERSE


@dataclass(slots=True)
class ShuffledPicks:
    """Shown and picked counts at the shuffled ranks, by calling model, with the learned factors to fall back on."""

    factors: list[PositionFactors] = field(default_factory=list)
    _shown: dict[str, Numbers] = field(default_factory=dict)
    _picked: dict[str, Numbers] = field(default_factory=dict)
    _cache: dict[tuple[str, int], Examination] = field(default_factory=dict)

    def add(self, model: str, ranks_picked: Sequence[int], shown: int) -> None:
        """Count one shuffled selection: how many of its first five ranks were shown, and which were picked."""
        shown_counts = self._shown.setdefault(model, np.zeros(SHUFFLED_DEPTH))
        picked_counts = self._picked.setdefault(model, np.zeros(SHUFFLED_DEPTH))
        shown_counts[: min(shown, SHUFFLED_DEPTH)] += 1
        for rank in ranks_picked:
            if 1 <= rank <= SHUFFLED_DEPTH:
                picked_counts[rank - 1] += 1
        self._cache.clear()

    def at(self, model: str, now: float) -> Examination:
        """The examination curve of a calling model, from what is known at ``now``."""
        known = bisect.bisect_left([factors.since for factors in self.factors], now)
        key = (model, known)
        if key not in self._cache:
            self._cache[key] = self._compute(model, known)
        return self._cache[key]

    def _compute(self, model: str, known: int) -> Examination:
        picked, shown = self._picked.get(model), self._shown.get(model)
        picks = int(picked.sum()) if picked is not None else 0
        if picked is not None and shown is not None and picks >= MIN_PICKS and picked[0] > 0:
            theta = _extended(theta_from_shuffled(picked, shown))
            return Examination(theta, "randomized", picks, theta_interval(picked, shown))
        if known:
            curves = self.factors[known - 1].curves
            curve = curves.get(model) or curves.get("")
            if curve:
                return Examination(_extended(np.asarray(curve, dtype=np.float64)), "position_factors", picks)
        return Examination(None, "unknown", picks)


def theta_from_shuffled(picked: Numbers, shown: Numbers) -> Numbers:
    """Pick rate at k ÷ pick rate at 1, for the ranks that were shown."""
    deep = int((shown > 0).sum())
    rates = picked[:deep] / shown[:deep]
    return np.asarray(rates / rates[0])


def theta_interval(picked: Numbers, shown: Numbers) -> tuple[Numbers, Numbers]:
    """95 % bounds of ``theta_from_shuffled``; half a pick stands in for none, rank 1 is 1 by definition."""
    deep = int((shown > 0).sum())
    counts = np.maximum(picked[:deep], 0.5)
    rates = counts / shown[:deep]
    half = Z * np.sqrt(1 / counts + 1 / counts[0])
    half[0] = 0.0
    ratio = rates / rates[0]
    low = np.where(picked[:deep] > 0, ratio * np.exp(-half), 0.0)
    return np.asarray(low), np.asarray(ratio * np.exp(half))


def described(found: Examination) -> dict[str, Any]:
    """What a training stores of a curve besides its values: source, listed picks, and bounds where there are any."""
    told: dict[str, Any] = {"source": found.source, "picks": found.picks}
    if found.interval is not None:
        told |= {"low": found.interval[0].tolist(), "high": found.interval[1].tolist()}
    return told


def theta_from_factors(factors: Mapping[int, float]) -> list[float]:
    """exp(b_k - b_1) for ranks 1…deepest; a rank without a factor takes its predecessor's value."""
    if 1 not in factors:
        return []
    theta = [1.0]
    for rank in range(2, max(factors) + 1):
        theta.append(float(np.exp(factors[rank] - factors[1])) if rank in factors else theta[-1])
    return theta


def place_prior(places: Sequence[tuple[str, int]], known: Curves) -> Prior:
    """Priors of ln θ for each (calling model, rank): what is known of the model, else what is usual; rank 1 is 0."""
    means, deviations = [], []
    for model, rank in places:
        curve = known.get(model)
        if curve:
            means.append(float(np.log(max(curve[min(rank, len(curve)) - 1], LEAST_THETA))))
        else:
            means.append(USUAL_LOG_THETA[min(rank, len(USUAL_LOG_THETA)) - 1])
        deviations.append(0.0 if rank == 1 else KNOWN_DEVIATION if curve else USUAL_DEVIATION)
    return Prior(np.array(means), np.array(deviations))


def _extended(theta: Numbers) -> Numbers:
    """Beyond the known depth, the last known value."""
    head = theta[:MAX_RANK]
    return np.concatenate([head, np.full(MAX_RANK - len(head), head[-1])])
