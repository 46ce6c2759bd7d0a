"""How long a model takes to train, from the log's facts in memory: features, then blend and trees.

    python -m bench.training --impressions 1000000

Turns of ten candidates out of 500 skills, queries around their skills' topics, picks with known position bias.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from bench.simulated_agents import TWO_MODELS
from pickwise.scores import SCORES
from ranker.dataset import Group, featurise, split
from ranker.labels import Label
from ranker.log import Fact
from ranker.state import State
from ranker.train import known_curves
from ranker.training import train
from ranker.turns import Ended, Registered, Turn

T = TypeVar("T")

SKILLS, CANDIDATES, DIMENSION = 500, 10, 512
SECONDS_APART = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--impressions", type=int, default=1_000_000)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for hyperparameters, as `train_budget_s`")
    arguments = parser.parse_args()
    facts, labels = simulated(arguments.impressions // CANDIDATES)
    state = State(DIMENSION)
    print("| | s |\n|---|---|")
    groups: list[Group] = _timed("features of all impressions", lambda: featurise(facts, labels, state))
    first, validation, _ = split(groups)
    known = known_curves(state, facts[-1].time)
    found = _timed("blend, trials, trees", lambda: train(first, validation, known, 7, None, arguments.budget))
    own, second = (resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"\n{arguments.impressions:,} impressions, {len(found.trials)} trials, peak {own:,.0f} MiB")
    print(f"features in two processes, peak of the second {second:,.0f} MiB, most of it shared with the first")


def simulated(turns: int) -> tuple[list[Fact], dict[str, list[Label]]]:
    """Registry, turns and the ends of their calls, in order, and the labels by turn."""
    rng = np.random.default_rng(0)
    topics = rng.normal(size=(SKILLS, DIMENSION)).astype(np.float32)
    topics /= np.linalg.norm(topics, axis=1, keepdims=True)
    names = [f"skill_{index}" for index in range(SKILLS)]
    nothing: frozenset[str] = frozenset()
    facts: list[Fact] = [
        Registered(-np.inf, name, name, f"does {name}", "d", nothing, nothing, topic)
        for name, topic in zip(names, topics, strict=True)
    ]
    labels: dict[str, list[Label]] = {}
    for index in range(turns):
        wanted, time_ = int(rng.integers(SKILLS)), index * SECONDS_APART
        vector = topics[wanted] + rng.normal(scale=0.06, size=DIMENSION).astype(np.float32)
        others = rng.choice(SKILLS, CANDIDATES - 1, replace=False)
        shown = np.array([wanted, *others[others != wanted]])
        dense = topics[shown] @ vector + rng.normal(scale=0.5, size=len(shown))
        order = np.argsort(-dense)
        shown, dense = shown[order], dense[order]
        model = "steep" if index % 2 else "flat"
        pick = TWO_MODELS.pick(model, shown == wanted, rng)
        scores = {name: np.full(len(shown), np.nan) for name in SCORES} | {"dense": dense}
        turn = Turn(
            f"t{index}", time_, f"topic{wanted} word{index % 997} please", vector / np.linalg.norm(vector),
            [names[row] for row in shown], scores, model, f"s{index // 3}",
            picked=np.array([] if pick is None else [pick], dtype=np.intp),
        )  # fmt: skip
        facts.append(turn)
        if pick is not None:
            ok = TWO_MODELS.succeeds(bool(shown[pick] == wanted), rng)
            skill = turn.skill_ids[pick]
            facts.append(Ended(time_ + 1, skill, ok, None if ok else "tool_error", 80.0, turn if ok else None))
            labels[turn.selection_id] = [2 if ok and place == pick else 0 for place in range(len(shown))]
    return facts, labels


def _timed(what: str, work: Callable[[], T]) -> T:
    started = time.perf_counter()
    found = work()
    print(f"| {what} | {time.perf_counter() - started:.1f} |", flush=True)
    return found


if __name__ == "__main__":
    main()
