"""How well scores rank what was picked and succeeded, each pick weighted by how seldom its place is looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ranker.dataset import Group
from ranker.decay import Numbers

#: w(calling model, rank) = min(1/θ, 10)
PickWeight = Callable[[str, int], float]


class PickGains:
    """The succeeded picks of some lists, for which the ranks by many scores are asked."""

    def __init__(self, groups: Sequence[Group], weight: PickWeight) -> None:
        picks = [(place, index) for place, group in enumerate(groups) for index in group.succeeded.tolist()]
        #: By pick.
        self.weights = np.array([weight(groups[place].turn.model, index + 1) for place, index in picks])
        lengths = np.array([len(group.labels) for group in groups], dtype=np.intp)
        places, indices = np.array(picks, dtype=np.intp).reshape(-1, 2).T
        begins = np.cumsum(lengths) - lengths
        #: Where the scores of the picks lie, and those of their lists one after the other.
        self._picked = begins[places] + indices
        lengths = lengths[places]
        self._starts = np.cumsum(lengths) - lengths
        self._pick_of = np.repeat(np.arange(len(picks)), lengths)
        self._rows = np.arange(lengths.sum()) + (begins[places] - self._starts)[self._pick_of]
        self._is_before = self._rows < self._picked[self._pick_of]

    def gains(self, scores: Sequence[Numbers], depth: int = 5) -> Numbers:
        """1 ÷ log2(1 + rank) of each pick down to ``depth``, else 0; equal scores keep their order."""
        if not len(self._picked):
            return np.zeros(0)
        flat = np.concatenate(scores)
        rows, own = flat[self._rows], flat[self._picked][self._pick_of]
        is_ahead = (rows > own) | ((rows == own) & self._is_before)
        ranks = 1 + np.add.reduceat(is_ahead, self._starts, dtype=np.intp)
        return np.where(ranks <= depth, 1 / np.log2(1 + ranks), 0.0)

    def ndcg(self, scores: Sequence[Numbers]) -> float:
        """IPS-weighted NDCG@5: Σ w·gain ÷ Σ w; 0 without a pick."""
        return float(self.gains(scores) @ self.weights / self.weights.sum()) if len(self.weights) else 0.0

    def lead(self, new: Sequence[Numbers], old: Sequence[Numbers]) -> tuple[float, float]:
        """How far ``new`` leads ``old``, the weighted mean of the gains' differences, and its standard error."""
        values, weights = self.gains(new) - self.gains(old), self.weights
        mean = float(values @ weights / weights.sum())
        return mean, float(np.sqrt((weights**2 * (values - mean) ** 2).sum()) / weights.sum())


def effective_sample(weights: Numbers) -> float:
    """(Σw)² ÷ Σw², Kish's effective sample size; 0 without weights."""
    return float(weights.sum() ** 2 / (weights**2).sum()) if len(weights) else 0.0
