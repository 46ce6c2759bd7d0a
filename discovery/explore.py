"""What the list owes to learning: demotion of degraded skills, a shuffled top, one slot for new skills."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np

from discovery.weights import Weights
from pickwise.events import Candidate

#: Depth of the shuffle: beyond it, position bias is taken to be that of the last shuffled rank.
SHUFFLED = 5
#: Recall's candidates that may win the exploration slot.
SLOT_POOL = 50
#: States of a skill that needs impressions to leave them.
UNSETTLED = frozenset({"observation", "degraded", "surge"})
#: Draws from which the probability of a slot winner is counted.
PROPENSITY_DRAWS = 200


def rolled_out(skill_id: str, session_id: str | None, weights: Weights | None) -> bool:
    """Whether this session sees the skill at its own rank: a fixed share of sessions, by hash, does."""
    fraction = weights.of(skill_id).rollout_fraction if weights is not None else 1.0
    if fraction >= 1.0 or session_id is None:
        return fraction >= 1.0
    digest = hashlib.blake2b(f"{skill_id}\x1f{session_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64 < fraction


def demote(candidates: Sequence[Candidate], k: int, session_id: str | None, weights: Weights | None) -> list[Candidate]:
    """The first k, those that are not rolled out to this session moved behind the others: demoted, never hidden."""
    shown = candidates[:k]
    held = [candidate for candidate in shown if not rolled_out(candidate.skill_id, session_id, weights)]
    return [candidate for candidate in shown if candidate not in held] + held


def shuffle_top(candidates: Sequence[Candidate], rng: np.random.Generator) -> list[Candidate]:
    """The first five in random order; ``propensity`` is the probability of each skill at its rank."""
    depth = min(SHUFFLED, len(candidates))
    order = [*rng.permutation(depth).tolist(), *range(depth, len(candidates))]
    return [
        msgspec.structs.replace(candidates[position], propensity=1 / depth if rank < depth else 1.0)
        for rank, position in enumerate(order)
    ]


def fill_slot(
    shown: Sequence[Candidate],
    recalled: Sequence[Candidate],
    weights: Weights,
    rng: np.random.Generator,
    rank: int | None = None,
) -> list[Candidate]:
    """Give one rank (1-based; absent: the last) to an unsettled skill that recall found, by Thompson sampling.

    Each skill draws from Beta(n·p̂ + 1, n·(1 − p̂) + 1); the largest draw wins. Without such a skill nothing changes.
    """
    taken = {candidate.skill_id for candidate in shown}
    eligible = [
        candidate
        for candidate in recalled[:SLOT_POOL]
        if candidate.skill_id not in taken and weights.of(candidate.skill_id).status in UNSETTLED
    ]
    if not eligible or not shown:
        return list(shown)
    learned = [weights.of(candidate.skill_id) for candidate in eligible]
    success = np.array([0.5 if w.success is None else w.success for w in learned])
    n = np.array([w.n_effective for w in learned])
    draws = rng.beta(n * success + 1, n * (1 - success) + 1, size=(PROPENSITY_DRAWS + 1, len(eligible)))
    winners = draws.argmax(axis=1)
    winner = int(winners[0])
    # The drawn winner counts once itself, so that no propensity is 0.
    propensity = float(np.mean(winners == winner))
    explored = msgspec.structs.replace(eligible[winner], source="explore", propensity=propensity)
    position = min(rank or len(shown), len(shown)) - 1
    return [*shown[:position], explored, *shown[position:-1]]
