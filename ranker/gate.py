"""The promotion gate: is the new ranking better than the live one, on what agents picked later?

    Δ = Σ wᵢ(newᵢ - oldᵢ) ÷ Σ wᵢ,  wᵢ = min(1/θ, 10)

new and old are the DCG of the succeeded pick at that model's rank, 1 ÷ log2(1 + rank); θ is the examination of the
rank it was picked at. Bootstrapped by session. Picks pile up where the logging ranking put its favourites, so an
unweighted replay promotes the model that repeats the logging order; the weights undo that (inverse propensity scoring,
Joachims et al., WSDM 2017). What the two rankings would have earned on shuffled lists is reported beside it
(`ranker.off_policy`): there the logging policy is known and no θ is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from pickwise.settings import Settings
from ranker import off_policy
from ranker.dataset import Group
from ranker.decay import Numbers
from ranker.guards import Guard, all_guards
from ranker.picked import PickGains, PickWeight, effective_sample
from ranker.ranks import ranks

Decision = Literal["promoted", "kept", "refused"]

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
    #: What ``off_policy_evidence`` found.
    off_policy: dict[str, Any] = field(default_factory=dict)

    def evidence(self) -> dict[str, Any]:
        return {
            "ndcg_at_5": self.quality,
            "difference": asdict(self.difference),
            "off_policy": self.off_policy,
            "guards": [asdict(guard) for guard in self.guards],
        }


def judge(
    groups: Sequence[Group],
    new: Sequence[Numbers],
    old: Sequence[Numbers],
    weight: PickWeight,
    expected: Mapping[str, Sequence[str]],
    booster: lgb.Booster,
    settings: Settings,
    seed: int,
) -> Verdict:
    """The whole gate on a slice that the new ranking was not trained on.

    ``new`` and ``old``: the two rankings' scores by group; ``expected``: labelled skills by selection id; ``booster``
    is timed. Limits are the settings `gate_…`.
    """
    difference = paired_difference(succeeded_picks(groups, new, old, weight), seed)
    verdict = decide(difference, all_guards(groups, new, old, expected, booster, settings), settings)
    listed = PickGains(groups, weight)
    verdict.quality.update(before=listed.ndcg(old), after=listed.ndcg(new))
    verdict.off_policy.update(off_policy_evidence(groups, new, old, seed))
    return verdict


def off_policy_evidence(
    groups: Sequence[Group], new: Sequence[Numbers], old: Sequence[Numbers], seed: int
) -> dict[str, Any]:
    """Succeeded picks a shuffled list under `new` and `old` by four estimators, and the paired doubly robust difference
    with its bootstrap interval by session; only ``lists`` where none was shuffled."""
    log = off_policy.shuffled_lists(groups)
    if not log.lists:
        return {"lists": 0}
    sessions: dict[str, int] = {}
    session = [sessions.setdefault(groups[index].turn.session_id, len(sessions)) for index in log.lists]
    gains = off_policy.by_list(log, new) - off_policy.by_list(log, old)
    delta, low, high = _bootstrapped(gains, np.ones(len(gains)), np.array(session), seed)
    return {
        "lists": len(log.lists),
        "new": off_policy.values(log, new),
        "old": off_policy.values(log, old),
        "difference": {"delta": delta, "low": low, "high": high},
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
    gains = picks.weight * (picks.new_gain - picks.old_gain)
    delta, low, high = _bootstrapped(gains, picks.weight, picks.session, seed, resamples)
    effective = effective_sample(picks.weight)
    return Difference(delta, low, high, effective, count, len(np.unique(picks.session)))


def _bootstrapped(
    gains: Numbers, weights: Numbers, session: NDArray[np.intp], seed: int, resamples: int = RESAMPLES
) -> tuple[float, float, float]:
    """Σ gains ÷ Σ weights and its 95 % percentile interval, whole sessions drawn (Efron & Tibshirani 1993)."""
    by_session = np.bincount(session, weights=gains), np.bincount(session, weights=weights)
    rng, sessions = np.random.default_rng(seed), len(by_session[0])
    draws = []
    for start in range(0, resamples, _CHUNK):
        size = min(_CHUNK, resamples - start)
        drawn = rng.integers(sessions, size=(size, sessions), dtype=np.int32)
        draws.append(by_session[0][drawn].sum(axis=1) / by_session[1][drawn].sum(axis=1))
    low, high = np.quantile(np.concatenate(draws), [0.025, 0.975])
    return float(gains.sum() / weights.sum()), float(low), float(high)


def decide(difference: Difference, guards: Sequence[Guard], settings: Settings) -> Verdict:
    """Promote only if the slice is large enough, the lower bound is above 0 and no guard trips."""
    checks = list(guards)
    needed = settings.gate_min_effective_sample
    if difference.effective_sample < needed or difference.low is None:
        reason = f"effective sample size {difference.effective_sample:.0f} of the later slice is below {needed:.0f}"
        return Verdict("kept", reason, difference, checks)
    interval = f"Δ {difference.delta:+.4f}, 95 % interval [{difference.low:+.4f}, {difference.high:+.4f}]"
    if difference.low <= 0:
        return Verdict("kept", f"not shown to be better: {interval}", difference, checks)
    tripped = [guard for guard in checks if guard.outcome == "tripped"]
    if tripped:
        return Verdict("kept", "; ".join(f"{guard.name}: {guard.detail}" for guard in tripped), difference, checks)
    return Verdict("promoted", f"better on later picks: {interval}", difference, checks)
