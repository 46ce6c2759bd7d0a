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
#: States of a skill that needs impressions to leave them: new ones and recovering ones.
UNSETTLED = ("observation", "degraded")
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
    """The first five in random order; ``propensity`` is the probability of each skill at its rank.

    A skill that won the slot before has both probabilities in its own.
    """
    depth = min(SHUFFLED, len(candidates))
    order = [*rng.permutation(depth).tolist(), *range(depth, len(candidates))]
    found = []
    for rank, position in enumerate(order):
        won = candidates[position].propensity
        at_rank = 1 / depth if rank < depth else 1.0
        found.append(msgspec.structs.replace(candidates[position], propensity=at_rank * (1.0 if won is None else won)))
    return found


def fill_slot(
    shown: Sequence[Candidate],
    recalled: Sequence[Candidate],
    weights: Weights,
    rng: np.random.Generator,
    rank: int | None = None,
) -> list[Candidate]:
    """Give one rank (1-based; absent: the last) to an unsettled skill that recall found, by Thompson sampling.

    New and recovering skills have even chances, where there are both: a new skill that nobody calls stays uncertain
    for ever, and a failed past would never win against it. Within a kind each skill draws from
    Beta(n·p̂ + 1, n·(1 − p̂) + 1); the largest draw wins. Those that stand before the slot anyway don't take part; a
    demoted one behind it does. Without such a skill, or in a list of one, nothing changes.
    """
    position = min(rank or len(shown), len(shown)) - 1
    ahead = {candidate.skill_id for candidate in shown[: max(position, 0)]}
    free = [candidate for candidate in recalled[:SLOT_POOL] if candidate.skill_id not in ahead]
    kinds = [[one for one in free if weights.of(one.skill_id).status == status] for status in UNSETTLED]
    kinds = [kind for kind in kinds if kind]
    if not kinds or len(shown) < 2:
        return list(shown)
    winner, chance = _thompson(kinds[int(rng.integers(len(kinds)))], weights, rng)
    explored = msgspec.structs.replace(winner, source="explore", propensity=chance / len(kinds))
    found = _without_one(shown, explored.skill_id, weights)
    found.insert(position, explored)
    return found


def _thompson(eligible: Sequence[Candidate], weights: Weights, rng: np.random.Generator) -> tuple[Candidate, float]:
    """The winner of one draw each, and how often it would win."""
    learned = [weights.of(candidate.skill_id) for candidate in eligible]
    success = np.array([0.5 if w.success is None else w.success for w in learned])
    n = np.array([w.n_effective for w in learned])
    draws = rng.beta(n * success + 1, n * (1 - success) + 1, size=(PROPENSITY_DRAWS + 1, len(eligible)))
    winners = draws.argmax(axis=1)
    winner = int(winners[0])
    # The drawn winner counts once itself, so that no chance is 0.
    return eligible[winner], float(np.mean(winners == winner))


def _without_one(shown: Sequence[Candidate], skill_id: str, weights: Weights) -> list[Candidate]:
    """The list without the skill or, where it isn't on it, without the last settled one: demoted is never hidden."""
    leaves = next((candidate for candidate in shown if candidate.skill_id == skill_id), None)
    if leaves is None:
        settled = [candidate for candidate in shown if weights.of(candidate.skill_id).status not in UNSETTLED]
        leaves = settled[-1] if settled else shown[-1]
    return [candidate for candidate in shown if candidate is not leaves]
