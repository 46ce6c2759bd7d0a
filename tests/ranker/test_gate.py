"""The gate against planted position bias: which of two rankings would it promote?"""

from __future__ import annotations

import numpy as np
import pytest

from bench.simulated_agents import PUBLISHED_SHARES, Agents, planted_theta
from ranker import features
from ranker.dataset import Group
from ranker.gate import MIN_EFFECTIVE_SAMPLE, Difference, Picks, decide, paired_difference, succeeded_picks
from ranker.guards import Guard, Limits, gini, golden_set, item_position
from ranker.training import weight_from_curves
from ranker.turns import SCORES, Turn

LISTS, LENGTH = 4_000, 8
SHARES = PUBLISHED_SHARES[0]


@pytest.fixture(scope="module")
def logged() -> tuple[list[Group], list[np.ndarray], list[np.ndarray]]:
    """Lists in a logging order that knows little; scores of that order, and of one that knows more."""
    rng, agents = np.random.default_rng(4), Agents({"m": SHARES}, attraction_wrong=0.12, success_wrong=0.8)
    groups, logging, better = [], [], []
    for index in range(LISTS):
        right = np.arange(LENGTH) == rng.integers(LENGTH)
        score = rng.random(LENGTH) + 0.1 * right
        order = np.argsort(-score)
        right, score = right[order], score[order]
        pick = agents.pick("m", right, rng)
        labels = np.zeros(LENGTH, dtype=np.int8)
        if pick is not None and agents.succeeds(bool(right[pick]), rng):
            labels[pick] = 2
        turn = Turn(
            f"t{index}",
            float(index),
            "",
            np.zeros(0, np.float32),
            [f"s{i}" for i in range(LENGTH)],
            {name: np.full(LENGTH, np.nan) for name in SCORES},
            "m",
            f"session{index // 4}",
        )
        groups.append(Group(turn, np.zeros((LENGTH, len(features.NAMES)), np.float32), labels, score))
        logging.append(score)
        better.append(rng.random(LENGTH) + 0.6 * right)
    return groups, logging, better


def difference(groups: list[Group], new: list[np.ndarray], old: list[np.ndarray], corrected: bool) -> Difference:
    curves = {"m": planted_theta(SHARES, LENGTH).tolist()} if corrected else {}
    return paired_difference(succeeded_picks(groups, new, old, weight_from_curves(curves)), seed=1)


def test_an_uncorrected_replay_promotes_the_worst_and_ours_the_best(
    logged: tuple[list[Group], list[np.ndarray], list[np.ndarray]],
) -> None:
    groups, logging, better = logged
    raw = difference(groups, logging, better, corrected=False)
    assert decide(raw, []).decision == "promoted"  # the mistake that the weights are there for
    assert decide(difference(groups, logging, better, corrected=True), []).decision == "kept"
    assert decide(difference(groups, better, logging, corrected=True), []).decision == "promoted"


def test_difference_by_hand() -> None:
    picks = Picks(np.array([1.0, 3.0]), np.array([1.0, 0.5]), np.array([0.5, 1.0]), np.array([0, 1]))
    found = paired_difference(picks, seed=0)
    assert found.delta == pytest.approx((1 * 0.5 - 3 * 0.5) / 4)
    assert found.effective_sample == pytest.approx(16 / 10)
    assert (found.picks, found.sessions) == (2, 2)
    assert found.low == pytest.approx(-0.5)
    assert found.high == pytest.approx(0.5)


def test_promotes_only_with_enough_and_without_a_tripped_guard() -> None:
    none = np.zeros(0)
    good = Difference(0.1, 0.05, 0.15, MIN_EFFECTIVE_SAMPLE, 900, 300)
    assert decide(good, [Guard("x", "not_evaluated", "no data", {})]).decision == "promoted"
    tripped = decide(good, [Guard("x", "tripped", "because", {})])
    assert (tripped.decision, tripped.reason) == ("kept", "x: because")
    few = Difference(0.1, 0.05, 0.15, MIN_EFFECTIVE_SAMPLE - 1, 900, 300)
    assert decide(few, []).decision == "kept"
    assert "effective sample size" in decide(few, []).reason
    assert decide(Difference(0.1, -0.01, 0.2, 999, 900, 300), []).decision == "kept"
    assert decide(paired_difference(Picks(none, none, none, none.astype(np.intp)), 0), []).decision == "kept"


def test_guards_without_data_do_not_block(logged: tuple[list[Group], list[np.ndarray], list[np.ndarray]]) -> None:
    groups, logging, better = logged
    assert golden_set(groups, better, logging, {}, Limits()).outcome == "not_evaluated"
    assert item_position(groups, better, Limits()).outcome == "not_evaluated"


def test_golden_set_and_item_position_trip(logged: tuple[list[Group], list[np.ndarray], list[np.ndarray]]) -> None:
    groups, _, better = logged
    expected = {g.turn.selection_id: ["s0"] for g in groups[:50]}
    top = [np.arange(LENGTH, 0.0, -1.0)] * len(groups)
    assert golden_set(groups, top[::-1], top, expected, Limits()).outcome == "passed"
    assert golden_set(groups, [-scores for scores in top], top, expected, Limits()).outcome == "tripped"
    for group in groups:
        group.turn.randomized = True
    assert item_position(groups, better, Limits()).outcome == "passed"
    assert item_position(groups, top, Limits()).outcome == "tripped"  # repeats the shown order: knows the position
    for group in groups:
        group.turn.randomized = False


def test_gini() -> None:
    assert gini(np.ones(4)) == pytest.approx(0)
    assert gini(np.array([0.0, 0, 0, 1])) == pytest.approx(0.75)
    assert gini(np.zeros(3)) == 0
