"""The promotion gate: is the new ranking better than the live one, on what agents picked later?

    Δ = Σ wᵢ(newᵢ - oldᵢ) ÷ Σ wᵢ,  wᵢ = min(1/θ, 10)

new and old are the DCG of the succeeded pick at that model's rank, 1 ÷ log2(1 + rank); θ is the examination of the
rank it was picked at. Bootstrapped by session. Picks pile up where the logging ranking put its favourites, so an
unweighted replay promotes the model that repeats the logging order; the weights undo that (inverse propensity scoring,
Joachims et al., WSDM 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ranker.dataset import Group
from ranker.decay import Numbers
from ranker.guards import Guard
from ranker.ranks import ranks
from ranker.training import PickWeight

Decision = Literal["promoted", "kept", "refused"]

#: (Σw)² ÷ Σw² below which the interval is not trusted.
MIN_EFFECTIVE_SAMPLE = 200.0
RESAMPLES = 2_000
_CHUNK = 200


@dataclass(frozen=True)
class Picks:
    """The succeeded picks of a slice; arrays of one length."""

    weight: Numbers
    new_gain: Numbers
    old_gain: Numbers
    #: Number of the session that each belongs to, from 0.
    session: NDArray[np.intp]


@dataclass(frozen=True)
class Difference:
    """The paired difference with its 95 % bootstrap interval."""

    delta: float | None
    low: float | None
    high: float | None
    effective_sample: float
    picks: int
    sessions: int


@dataclass(frozen=True)
class Verdict:
    """The gate's decision and all numbers that led to it."""

    decision: Decision
    reason: str
    difference: Difference
    guards: list[Guard] = field(default_factory=list)
    #: IPS-weighted NDCG@5 of the slice `before` (the live ranking) and `after` (the new one).
    quality: dict[str, float] = field(default_factory=dict)

    def evidence(self) -> dict[str, Any]:
        return {
            "ndcg_at_5": self.quality,
            "difference": asdict(self.difference),
            "guards": [asdict(guard) for guard in self.guards],
        }


def succeeded_picks(
    groups: Sequence[Group], new: Sequence[Numbers], old: Sequence[Numbers], weight: PickWeight
) -> Picks:
    """Weights and gains of all succeeded picks of the groups under the two rankings' scores."""
    sessions: dict[str, int] = {}
    rows: list[tuple[float, ...]] = []
    for group, new_scores, old_scores in zip(groups, new, old, strict=True):
        new_ranks, old_ranks = ranks(new_scores), ranks(old_scores)
        session = sessions.setdefault(group.turn.session_id, len(sessions))
        rows.extend(
            (weight(group.turn.model, int(index) + 1), new_ranks[index], old_ranks[index], session)
            for index in group.succeeded
        )
    table = np.array(rows, dtype=np.float64).reshape(len(rows), 4)
    return Picks(table[:, 0], 1 / np.log2(1 + table[:, 1]), 1 / np.log2(1 + table[:, 2]), table[:, 3].astype(np.intp))


def paired_difference(picks: Picks, seed: int, resamples: int = RESAMPLES) -> Difference:
    """Δ with its bootstrap interval by session; None without picks."""
    count = len(picks.weight)
    if not count:
        return Difference(None, None, None, 0.0, 0, 0)
    gains = np.bincount(picks.session, weights=picks.weight * (picks.new_gain - picks.old_gain))
    weights = np.bincount(picks.session, weights=picks.weight)
    rng, sessions = np.random.default_rng(seed), len(weights)
    draws = []
    for start in range(0, resamples, _CHUNK):
        size = min(_CHUNK, resamples - start)
        times = rng.multinomial(sessions, np.full(sessions, 1 / sessions), size=size)
        draws.append((times @ gains) / (times @ weights))
    low, high = np.quantile(np.concatenate(draws), [0.025, 0.975])
    effective = float(picks.weight.sum() ** 2 / (picks.weight**2).sum())
    return Difference(float(gains.sum() / weights.sum()), float(low), float(high), effective, count, sessions)


def decide(difference: Difference, guards: Sequence[Guard]) -> Verdict:
    """Promote only if the slice is large enough, the lower bound is above 0 and no guard trips."""
    checks = list(guards)
    if difference.effective_sample < MIN_EFFECTIVE_SAMPLE or difference.low is None:
        reason = (
            f"effective sample size {difference.effective_sample:.0f} of the later slice is below "
            f"{MIN_EFFECTIVE_SAMPLE:.0f}"
        )
        return Verdict("kept", reason, difference, checks)
    interval = f"Δ {difference.delta:+.4f}, 95 % interval [{difference.low:+.4f}, {difference.high:+.4f}]"
    if difference.low <= 0:
        return Verdict("kept", f"not shown to be better: {interval}", difference, checks)
    tripped = [guard for guard in checks if guard.outcome == "tripped"]
    if tripped:
        return Verdict("kept", "; ".join(f"{guard.name}: {guard.detail}" for guard in tripped), difference, checks)
    return Verdict("promoted", f"better on later picks: {interval}", difference, checks)
