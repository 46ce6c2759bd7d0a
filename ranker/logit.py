"""Which candidate of a list is picked, as a line through a few inputs, with a prior.

    b = argmin  Σ w·(-ln softmax(x·b)[pick]) ÷ w̄ + λ/2·Σ (σ_j·(b_j - prior_j))²,  b ≥ 0

the conditional logit of McFadden, "Conditional logit analysis of qualitative choice behavior" (1974), with a weight a
pick and a Gaussian prior on the coefficients, scaled by the spread σ of their inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize

from ranker.decay import Numbers


def fit(
    lists: Sequence[Numbers], picked: Sequence[int], weights: Sequence[float], prior: Numbers, strength: float
) -> Numbers:
    """Coefficients, shape (inputs,), none of them negative; the prior where there is no list.

    ``lists``: (candidates, inputs) each; ``picked``: the index of each one's pick; ``strength``: λ.
    """
    if not lists:
        return prior.copy()
    rows = np.concatenate(lists)
    starts = np.concatenate([[0], np.cumsum([len(values) for values in lists])[:-1]])
    lengths = np.diff(np.append(starts, len(rows)))
    chosen = starts + np.asarray(picked)
    w = np.asarray(weights, dtype=np.float64)
    w = w / w.mean()
    spread = np.maximum(rows.std(axis=0), 1e-3)

    def loss(b: Numbers) -> tuple[float, Numbers]:
        scores = rows @ b
        scores -= np.repeat(np.maximum.reduceat(scores, starts), lengths)
        chances = np.exp(scores)
        totals = np.add.reduceat(chances, starts)
        expected = np.add.reduceat(rows * (chances / np.repeat(totals, lengths))[:, None], starts)
        off = spread * (b - prior)
        missed = np.log(totals) - scores[chosen]
        return (
            float(w @ missed + strength / 2 * off @ off),
            np.asarray(w @ (expected - rows[chosen]) + strength * spread * off),
        )

    found = minimize(loss, prior, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(prior))
    return np.asarray(found.x)
