"""The bootstrap interval of a mean (Efron 1979) whose values come in groups that belong together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Resamples; the bounds of a 95 % interval are then each the 50th from its end.
RESAMPLES = 2_000
_SEED = 0
#: Numbers held at once.
_AT_ONCE = 4_000_000


def bootstrap_mean(totals: Sequence[float], counts: Sequence[int]) -> tuple[float, float] | tuple[None, None]:
    """Bounds of the 95 % percentile interval of Σ totals ÷ Σ counts, whole units (total, count) drawn again.

    The same units give the same bounds, in whatever order they come. Without any unit there are none.
    """
    if not len(totals):
        return None, None
    # Units that are alike are drawn together: how often each kind comes is multinomial.
    kinds, times = np.unique(np.column_stack([totals, counts]), axis=0, return_counts=True)
    n = int(times.sum())
    rng = np.random.default_rng(_SEED)
    at_once = max(1, _AT_ONCE // len(kinds))
    means = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, at_once):
        stop = min(start + at_once, RESAMPLES)
        drawn = rng.multinomial(n, times / n, size=stop - start) @ kinds
        means[start:stop] = drawn[:, 0] / drawn[:, 1]
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)
