"""Which candidate of a list is picked, as a line through a few inputs and an offset for its place, with a prior.

    b, c = argmin  Σ w·(-ln softmax(x·b + c_place)[pick]) ÷ w̄ + ½·Σ ((b - mean) ÷ deviation)² + the same of c,  b ≥ 0

the conditional logit of McFadden, "Conditional logit analysis of qualitative choice behavior" (1974), with a weight a
pick and a normal prior on each coefficient. A pick needs a look and an attraction, P(pick at k) ∝ θ_k·exp(x·b): the
position-based model of clicks (Richardson, Dominowska & Ragno, WWW 2007), so that c_k = ln θ_k tells place from merit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ranker.decay import Numbers


@dataclass(frozen=True)
class Prior:
    """Normal priors, one a coefficient. A deviation of 0 holds a coefficient at its mean."""

    mean: Numbers
    deviation: Numbers

    def pull(self, found: Numbers) -> tuple[float, Numbers]:
        """-ln of the density at ``found``, up to a constant, and its gradient."""
        scale = np.where(self.deviation > 0, self.deviation, 1.0)
        off = (found - self.mean) / scale
        return float(off @ off / 2), np.asarray(off / scale)

    def bounds(self, least: float | None) -> list[tuple[float | None, float | None]]:
        """Where each coefficient may lie."""
        pairs = zip(self.mean.tolist(), self.deviation.tolist(), strict=True)
        return [(mean, mean) if deviation == 0 else (least, None) for mean, deviation in pairs]


@dataclass(frozen=True)
class Places:
    """Which offset each candidate's place has: ``codes``, one array a list, count into ``prior``."""

    codes: Sequence[NDArray[np.intp]]
    prior: Prior


NOWHERE = Prior(np.zeros(0), np.zeros(0))


def fit(
    lists: Sequence[Numbers],
    picked: Sequence[int],
    weights: Sequence[float],
    prior: Prior,
    places: Places | None = None,
) -> tuple[Numbers, Numbers]:
    """Coefficients, shape (inputs,), none of them negative, and the offsets of the places; the prior without lists.

    ``lists``: (candidates, inputs) each; ``picked``: the index of each one's pick.
    """
    # Imported here: serving needs the priors only.
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    of_places = places.prior if places else NOWHERE
    if not lists:
        return prior.mean.copy(), of_places.mean.copy()
    rows = np.concatenate(lists)
    code = np.concatenate(places.codes) if places else None
    starts = np.concatenate([[0], np.cumsum([len(values) for values in lists])[:-1]])
    lengths = np.diff(np.append(starts, len(rows)))
    chosen = starts + np.asarray(picked)
    w = np.asarray(weights, dtype=np.float64)
    w = w / w.mean()
    inputs = len(prior.mean)

    def loss(found: Numbers) -> tuple[float, Numbers]:
        b, c = found[:inputs], found[inputs:]
        scores = rows @ b if code is None else rows @ b + c[code]
        scores -= np.repeat(np.maximum.reduceat(scores, starts), lengths)
        chances = np.exp(scores)
        totals = np.add.reduceat(chances, starts)
        missed = np.log(totals) - scores[chosen]
        slope = chances * np.repeat(w / totals, lengths)
        slope[chosen] -= w
        off_b, pull_b = prior.pull(b)
        off_c, pull_c = of_places.pull(c)
        slope_c = np.zeros(0) if code is None else np.bincount(code, slope, len(c)) + pull_c
        return float(w @ missed) + off_b + off_c, np.concatenate([slope @ rows + pull_b, slope_c])

    bounds = [*prior.bounds(0.0), *of_places.bounds(None)]
    start = np.concatenate([prior.mean, of_places.mean])
    with threadpool_limits(1, "blas"):  # in several, on a busy machine they wait for each other: twice the time
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return np.asarray(found[:inputs]), np.asarray(found[inputs:])
