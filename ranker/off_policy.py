"""What a ranking would have earned on lists that were shuffled on purpose: the gate's second opinion.

There the policy is known: each of the first five had every rank with the same chance, 1/5. So a round is one shown rank
of one such list, the ranking's action the skill that it would put there, the reward 1 where that skill was picked and
succeeded. Values are sums over the five ranks: the share of lists that end in a succeeded pick among the first five.
θ isn't needed here, so an error in it that misleads Δ does not mislead these. They are few, and reported only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ranker.dataset import Group
from ranker.decay import Numbers
from ranker.estimators import direct_method, doubly_robust, doubly_robust_rounds, ips, snips
from ranker.examination import SHUFFLED_DEPTH
from ranker.ranks import order, ranks

#: Lists from which the reward model's rates are taken as they are; with fewer they lean to the rate of the shown rank.
_PRIOR_LISTS = 20.0


@dataclass(frozen=True)
class Shuffled:
    """Shuffled lists as an off-policy log; arrays of shape (lists, 5), by shown rank."""

    #: Whether the skill shown there was picked and succeeded.
    reward: Numbers
    #: q̂ of that skill there.
    predicted: Numbers
    #: q̂ of each of the five (third axis, by shown rank) at each rank (second).
    model: Numbers
    #: Positions in the sequence of groups.
    lists: list[int]


def shuffled_lists(groups: Sequence[Group]) -> Shuffled:
    """The shuffled lists of five and more among the groups.

    The reward model knows two things, where the score before any model puts a skill among the five, and the shown rank;
    its rates come from the other half of the lists, so that no list judges itself.
    """
    lists = [
        index for index, group in enumerate(groups) if group.turn.randomized and len(group.labels) >= SHUFFLED_DEPTH
    ]
    shape = (len(lists), SHUFFLED_DEPTH)
    reward, believed = np.zeros(shape), np.zeros(shape, dtype=np.intp)
    for row, index in enumerate(lists):
        reward[row] = groups[index].labels[:SHUFFLED_DEPTH] == 2
        believed[row] = ranks(groups[index].before_model[:SHUFFLED_DEPTH]) - 1
    half = np.arange(len(lists)) % 2
    tables = np.stack([_rates(reward[half != side], believed[half != side]) for side in (0, 1)])
    # tables[side][believed place, shown rank]
    model = np.stack([tables[half][np.arange(len(lists))[:, None], believed, k] for k in range(SHUFFLED_DEPTH)], axis=1)
    shown = np.arange(SHUFFLED_DEPTH)
    return Shuffled(reward, model[:, shown, shown], model, lists)


def values(log: Shuffled, scores: Sequence[Numbers]) -> dict[str, float | None]:
    """The four estimates for a ranking, scores by group: succeeded picks a list; None where nothing was seen."""
    weight, expected = _weight(log, scores)
    flat = weight.ravel(), log.reward.ravel(), log.predicted.ravel(), expected.ravel()
    found = {
        "dm": direct_method(flat[3]),
        "ips": ips(flat[0], flat[1]),
        "snips": snips(flat[0], flat[1]),
        "dr": doubly_robust(*flat),
    }
    return {name: None if np.isnan(value) else SHUFFLED_DEPTH * value for name, value in found.items()}


def by_list(log: Shuffled, scores: Sequence[Numbers]) -> Numbers:
    """Doubly robust succeeded picks of each list, shape (lists,)."""
    weight, expected = _weight(log, scores)
    return np.asarray(doubly_robust_rounds(weight, log.reward, log.predicted, expected).sum(axis=1))


def _weight(log: Shuffled, scores: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
    """π ÷ π₀ of what was shown at each rank, and q̂ of what the ranking would show there."""
    wanted = np.array([order(scores[index][:SHUFFLED_DEPTH]) for index in log.lists], dtype=np.intp)
    wanted = wanted.reshape(len(log.lists), SHUFFLED_DEPTH)
    weight = SHUFFLED_DEPTH * (wanted == np.arange(SHUFFLED_DEPTH)).astype(np.float64)
    return weight, np.take_along_axis(log.model, wanted[:, :, None], axis=2)[:, :, 0]


def _rates(reward: Numbers, believed: np.ndarray) -> Numbers:
    """Succeeded picks by (believed place, shown rank), shrunk towards the rate of the shown rank."""
    shown = np.broadcast_to(np.arange(SHUFFLED_DEPTH), reward.shape)
    cell = (believed * SHUFFLED_DEPTH + shown).ravel()
    size = SHUFFLED_DEPTH**2
    hits = np.bincount(cell, weights=reward.ravel(), minlength=size).reshape(SHUFFLED_DEPTH, SHUFFLED_DEPTH)
    seen = np.bincount(cell, minlength=size).reshape(SHUFFLED_DEPTH, SHUFFLED_DEPTH)
    by_rank = hits.sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    return np.asarray((hits + _PRIOR_LISTS * by_rank) / (seen + _PRIOR_LISTS))
