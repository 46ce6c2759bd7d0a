"""Agents that look at rank k with a known probability: simulated picks whose true position bias is known.

The five curves are shares of picks by rank 1…5 of shuffled lists, as published for five language models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PUBLISHED_SHARES: tuple[tuple[float, ...], ...] = (
    (0.68, 0.15, 0.05, 0.06, 0.06),
    (0.58, 0.19, 0.09, 0.08, 0.06),
    (0.49, 0.16, 0.12, 0.09, 0.14),
    (0.40, 0.31, 0.11, 0.10, 0.08),
    (0.31, 0.19, 0.15, 0.15, 0.20),
)


def planted_theta(shares: Sequence[float], depth: int) -> NDArray[np.float64]:
    """θ(k) = share(k) ÷ share(1), the last value beyond."""
    theta = np.array(shares) / shares[0]
    return np.concatenate([theta, np.full(max(depth - len(theta), 0), theta[-1])])[:depth]


@dataclass(frozen=True)
class Agents:
    """Calling models by name, each with its shares; attraction of right and wrong skills; how picks end."""

    shares: Mapping[str, Sequence[float]]
    attraction_right: float = 0.8
    attraction_wrong: float = 0.06
    success_right: float = 0.95
    success_wrong: float = 0.5

    def pick(self, model: str, right: NDArray[np.bool_], rng: np.random.Generator) -> int | None:
        """Index of the picked candidate or None: at most one pick, with probability θ(k)·attraction each."""
        theta = planted_theta(self.shares[model], len(right))
        chances = theta * np.where(right, self.attraction_right, self.attraction_wrong)
        total = max(float(chances.sum()), 1.0)
        choice = int(np.searchsorted(np.cumsum(chances) / total, rng.random()))
        return choice if choice < len(right) else None

    def succeeds(self, right: bool, rng: np.random.Generator) -> bool:
        return bool(rng.random() < (self.success_right if right else self.success_wrong))


TWO_MODELS = Agents({"steep": PUBLISHED_SHARES[0], "flat": PUBLISHED_SHARES[4]})
