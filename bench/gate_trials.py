"""Does the promotion gate promote the better of two rankings? Trials with planted position bias, as one table.

    python -m bench.gate_trials [--seeds 20] [--picks 2000] [--shuffled 1500]

Each trial plants one of five published curves of how language models look at ranks and logs lists in an order that
knows little. Three rankings are compared, each against each: `naive` and `debiased` are conditional logit models
(McFadden 1974) of the logged picks on two features, the logging score and a better one, without and with the weights
min(1/θ, 10); `oracle` knows the right skill. θ is estimated from shuffled lists as the product does it. The gate judges
on later lists, once with these weights and once without (`raw`). The true Δ is the mean difference of the right skill's
DCG over 20,000 fresh lists.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bench.simulated_agents import PUBLISHED_SHARES, Agents
from pickwise.scores import SCORES
from pickwise.settings import Settings
from ranker import features, guards
from ranker.dataset import Group
from ranker.decay import Numbers
from ranker.examination import ShuffledPicks
from ranker.gate import RESAMPLES, Difference, decide, paired_difference, succeeded_picks
from ranker.picked import PickWeight
from ranker.training import weight_from_curves
from ranker.turns import Turn

LENGTH = 8
SKILLS = 40
TRAIN_LISTS = 3_000
TRUTH_LISTS = 20_000
SESSION_LISTS = 3
MODEL = "m"
RANKINGS = ("naive", "debiased", "oracle")
#: A true Δ from which the gate must see the better ranking.
MATTERS = 0.05
SETTINGS = Settings()

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Lists:
    """Lists in the order shown: right (lists, 8), inputs (lists, 8, 2): the logging score and the better feature."""

    right: NDArray[np.bool_]
    inputs: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.right)


@dataclass(frozen=True)
class Judged:
    """One comparison: does the gate promote ``new`` over ``old``, with weights and without (``raw``)?"""

    curve: int
    seed: int
    new: str
    old: str
    true_delta: float
    promoted: bool
    raw_promoted: bool
    #: Names of the guards that would have held it back.
    tripped: tuple[str, ...] = ()


def trial(
    curve: int,
    seed: int,
    picks: int = 2_000,
    shuffled: int = 1_500,
    resamples: int = RESAMPLES,
    with_guards: bool = False,
) -> list[Judged]:
    """All ordered pairs of the three rankings, judged on ``picks`` succeeded picks."""
    rng = np.random.default_rng([curve, seed])
    agents = Agents({MODEL: PUBLISHED_SHARES[curve]}, attraction_wrong=0.12, success_wrong=0.8)
    weight = _estimated_weight(agents, shuffled, rng)
    models = _fitted(agents, weight, rng)
    fresh = _lists(TRUTH_LISTS, rng)
    truth = {name: float(_gain(_scores(name, fresh, models), fresh.right).mean()) for name in RANKINGS}
    groups, lists = _later(agents, picks, rng)
    scores = {name: list(_scores(name, lists, models)) for name in RANKINGS}
    return [
        judged
        for one, other in itertools.combinations(RANKINGS, 2)
        for judged in _both_ways(Pair(groups, one, other, scores, truth), weight, [curve, seed], resamples, with_guards)
    ]


@dataclass(frozen=True)
class Pair:
    """Two of the rankings on the later slice, with the scores and the true mean gain of each."""

    groups: Sequence[Group]
    one: str
    other: str
    scores: Mapping[str, Sequence[Numbers]]
    truth: Mapping[str, float]


def _both_ways(
    pair: Pair, weight: PickWeight, numbers: Sequence[int], resamples: int, with_guards: bool
) -> Iterator[Judged]:
    """Each as the new ranking. The same draws judge both ways, so the second interval is the first one's mirror."""
    curve, seed = numbers
    weighted = succeeded_picks(pair.groups, pair.scores[pair.one], pair.scores[pair.other], weight)
    unweighted = replace(weighted, weight=np.ones(len(weighted.weight)))
    corrected, raw = (paired_difference(picks, seed, resamples) for picks in (weighted, unweighted))
    for new, old in ((pair.one, pair.other), (pair.other, pair.one)):
        yield Judged(
            curve,
            seed,
            new,
            old,
            pair.truth[new] - pair.truth[old],
            decide(corrected, [], SETTINGS).decision == "promoted",
            decide(raw, [], SETTINGS).decision == "promoted",
            _tripped(pair.groups, pair.scores[new], pair.scores[old]) if with_guards else (),
        )
        corrected, raw = _mirrored(corrected), _mirrored(raw)


def _mirrored(found: Difference) -> Difference:
    assert found.delta is not None
    assert found.low is not None
    assert found.high is not None
    return replace(found, delta=-found.delta, low=-found.high, high=-found.low)


def _tripped(groups: Sequence[Group], new: Sequence[Numbers], old: Sequence[Numbers]) -> tuple[str, ...]:
    checks = (
        guards.item_position(groups, new, SETTINGS),
        guards.concentration(groups, new, old, SETTINGS),
        guards.never_shown(groups, new, old, SETTINGS),
    )
    return tuple(guard.name for guard in checks if guard.outcome == "tripped")


def _lists(count: int, rng: np.random.Generator) -> Lists:
    right = np.arange(LENGTH) == rng.integers(LENGTH, size=(count, 1))
    logging = rng.random((count, LENGTH)) + 0.15 * right
    better = right + 0.55 * rng.normal(size=(count, LENGTH))
    order = np.argsort(-logging, axis=1)
    inputs = np.stack([logging, better], axis=2)
    return Lists(np.take_along_axis(right, order, axis=1), np.take_along_axis(inputs, order[:, :, None], axis=1))


def _estimated_weight(agents: Agents, shuffled: int, rng: np.random.Generator) -> PickWeight:
    """min(1/θ, 10) as the product knows it: from lists whose first five are shuffled."""
    seen, lists = ShuffledPicks(), _lists(shuffled, rng)
    for right in lists.right:
        mixed = np.concatenate([rng.permutation(right[:5]), right[5:]])
        pick = agents.pick(MODEL, mixed, rng)
        seen.add(MODEL, [] if pick is None else [pick + 1], LENGTH)
    theta = seen.at(MODEL, 0.0).theta
    assert theta is not None, "too few shuffled picks"
    return weight_from_curves({MODEL: theta.tolist()})


def _fitted(agents: Agents, weight: PickWeight, rng: np.random.Generator) -> dict[str, Numbers]:
    """Coefficients of the naive and the debiased model, from one log."""
    lists = _lists(TRAIN_LISTS, rng)
    choices = [agents.pick(MODEL, right, rng) for right in lists.right]
    rows = np.array([row for row, choice in enumerate(choices) if choice is not None])
    picked = np.array([choice for choice in choices if choice is not None])
    weights = np.array([weight(MODEL, int(choice) + 1) for choice in picked])
    inputs = lists.inputs[rows]
    return {"naive": _logit(inputs, picked, np.ones(len(picked))), "debiased": _logit(inputs, picked, weights)}


def _logit(inputs: NDArray[np.float64], picked: NDArray[np.intp], weights: Numbers, steps: int = 12) -> Numbers:
    """Weighted conditional logit by Newton's method: inputs (lists, candidates, k) → k coefficients."""
    found = np.zeros(inputs.shape[2])
    chosen = inputs[np.arange(len(picked)), picked]
    for _ in range(steps):
        utility = inputs @ found
        chance = np.exp(utility - utility.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        mean = np.einsum("nc,nck->nk", chance, inputs)
        gradient = weights @ (chosen - mean)
        second = np.einsum("n,nc,nck,ncl->kl", weights, chance, inputs, inputs, optimize=True)
        found = found + np.linalg.solve(second - np.einsum("n,nk,nl->kl", weights, mean, mean), gradient)
    return found


def _scores(name: str, lists: Lists, models: dict[str, Numbers]) -> Matrix:
    if name == "oracle":
        return lists.right.astype(np.float64)
    return np.asarray(lists.inputs @ models[name])


def _gain(scores: Matrix, right: NDArray[np.bool_]) -> Numbers:
    """DCG of the right skill of each list; no two scores are equal but the oracle's of wrong ones."""
    rank = 1 + (scores > scores[right][:, None]).sum(axis=1)
    return np.asarray(1 / np.log2(1 + rank))


def _later(agents: Agents, picks: int, rng: np.random.Generator) -> tuple[list[Group], Lists]:
    """The groups of the later slice that hold a succeeded pick, ``picks`` of them, and their lists."""
    groups: list[Group] = []
    rights, inputs = [], []
    nothing = np.full(LENGTH, np.nan)
    for index, (right, given) in enumerate(_endless(rng)):
        pick = agents.pick(MODEL, right, rng)
        if pick is None or not agents.succeeds(bool(right[pick]), rng):
            continue
        turn = Turn(
            selection_id=f"t{index}",
            time=float(index),
            query="",
            vector=np.zeros(0, np.float32),
            skill_ids=[f"s{number}" for number in rng.choice(SKILLS, LENGTH, replace=False)],
            scores=dict.fromkeys(SCORES, nothing),
            model=MODEL,
            session_id=f"session-{index // SESSION_LISTS}",
        )
        labels = np.where(np.arange(LENGTH) == pick, 2, 0).astype(np.int8)
        groups.append(Group(turn, _NO_FEATURES, labels, given[:, 0]))
        rights.append(right)
        inputs.append(given)
        if len(groups) == picks:
            break
    return groups, Lists(np.array(rights), np.array(inputs))


def _endless(rng: np.random.Generator) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.float64]]]:
    """One list after the other: right (8,), inputs (8, 2)."""
    while True:
        lists = _lists(TRAIN_LISTS, rng)
        yield from zip(lists.right, lists.inputs, strict=True)


_NO_FEATURES: features.Matrix = np.zeros((LENGTH, len(features.NAMES)), dtype=np.float32)


def markdown(found: Sequence[Judged]) -> str:
    """One line a curve and pair, then the three figures that count."""
    lines = [
        "| picks at rank 1 | new | old | true Δ, from | to | promoted by the raw gate | by ours | guards tripped |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (curve, new, old), same in itertools.groupby(found, key=lambda one: (one.curve, one.new, one.old)):
        group = list(same)
        true = [one.true_delta for one in group]
        raw, ours, tripped = (
            sum(values)
            for values in zip(*((one.raw_promoted, one.promoted, bool(one.tripped)) for one in group), strict=True)
        )
        lines.append(
            f"| {PUBLISHED_SHARES[curve][0]} | {new} | {old} | {min(true):+.3f} | {max(true):+.3f} "
            f"| {raw} of {len(group)} | {ours} of {len(group)} | {tripped} |"
        )
    better = [one for one in found if one.true_delta >= MATTERS]
    worse = [one for one in found if one.true_delta < 0]
    lines += [
        "",
        f"- true Δ ≥ {MATTERS}: ours promotes {sum(one.promoted for one in better)} of {len(better)}, "
        f"the raw gate {sum(one.raw_promoted for one in better)}",
        f"- truly worse: ours promotes {sum(one.promoted for one in worse)} of {len(worse)}, "
        f"the raw gate {sum(one.raw_promoted for one in worse)}",
        f"- smallest loss among the truly worse: {max(one.true_delta for one in worse):+.4f}",
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gate_trials", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--picks", type=int, default=2_000, help="succeeded picks of the slice")
    parser.add_argument("--shuffled", type=int, default=1_500, help="shuffled lists that θ is estimated from")
    given = parser.parse_args(argv)
    found = [
        judged
        for curve in range(len(PUBLISHED_SHARES))
        for seed in range(given.seeds)
        for judged in trial(curve, seed, given.picks, given.shuffled, with_guards=True)
    ]
    pair = {pair: place for place, pair in enumerate(itertools.permutations(RANKINGS, 2))}
    print(f"{given.seeds} seeds, {given.picks:,} succeeded picks, θ from {given.shuffled:,} shuffled lists\n")
    print(markdown(sorted(found, key=lambda one: (one.curve, pair[one.new, one.old]))))


if __name__ == "__main__":
    main()
