"""The gate against planted position bias: which of two rankings would it promote?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.simulated_agents import PUBLISHED_SHARES, Agents, planted_theta
from pickwise.scores import SCORES
from pickwise.settings import Settings
from ranker import features
from ranker.dataset import Group
from ranker.gate import Difference, Picks, decide, off_policy_evidence, paired_difference, succeeded_picks
from ranker.guards import Guard
from ranker.training import weight_from_curves
from ranker.turns import Turn

LISTS, LENGTH = 4_000, 8
SHARES = PUBLISHED_SHARES[0]
SETTINGS = Settings()


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
    assert decide(raw, [], SETTINGS).decision == "promoted"  # the mistake that the weights are there for
    assert decide(difference(groups, logging, better, corrected=True), [], SETTINGS).decision == "kept"
    assert decide(difference(groups, better, logging, corrected=True), [], SETTINGS).decision == "promoted"


def test_difference_by_hand() -> None:
    picks = Picks(np.array([1.0, 3.0]), np.array([1.0, 0.5]), np.array([0.5, 1.0]), np.array([0, 1]))
    found = paired_difference(picks, seed=0)
    assert found.delta == pytest.approx((1 * 0.5 - 3 * 0.5) / 4)
    assert found.effective_sample == pytest.approx(16 / 10)
    assert (found.picks, found.sessions) == (2, 2)
    assert found.low == pytest.approx(-0.5)
    assert found.high == pytest.approx(0.5)


def test_promotes_only_with_enough_and_without_a_tripped_guard() -> None:
    none, enough = np.zeros(0), SETTINGS.gate_min_effective_sample
    good = Difference(0.1, 0.05, 0.15, enough, 900, 300)
    assert decide(good, [Guard("x", "not_evaluated", "no data", {})], SETTINGS).decision == "promoted"
    tripped = decide(good, [Guard("x", "tripped", "because", {})], SETTINGS)
    assert (tripped.decision, tripped.reason) == ("kept", "x: because")
    few = decide(Difference(0.1, 0.05, 0.15, enough - 1, 900, 300), [], SETTINGS)
    assert few.decision == "kept"
    assert few.reason == "effective sample size 199 of the later slice is below 200"
    assert decide(Difference(0.1, -0.01, 0.2, 999, 900, 300), [], SETTINGS).decision == "kept"
    nothing = paired_difference(Picks(none, none, none, none.astype(np.intp)), 0)
    assert decide(nothing, [], SETTINGS).decision == "kept"


def test_the_effective_sample_that_is_needed_is_a_setting() -> None:
    found = Difference(0.1, 0.05, 0.15, 250, 900, 300)
    assert decide(found, [], Settings(gate_min_effective_sample=250)).decision == "promoted"
    assert decide(found, [], Settings(gate_min_effective_sample=251)).decision == "kept"


def test_shuffled_lists_are_a_second_opinion(logged: tuple[list[Group], list[np.ndarray], list[np.ndarray]]) -> None:
    """Lists whose first five are shuffled: what two rankings would have earned on them, against the truth."""
    rng, agents = np.random.default_rng(8), Agents({"m": SHARES})
    groups, before, better, truth = [], [], [], {"new": 0.0, "old": 0.0}
    theta = planted_theta(SHARES, LENGTH)
    for group in logged[0]:
        right = np.arange(LENGTH) == rng.integers(5)
        scores = rng.random(LENGTH) + 0.1 * right, rng.random(LENGTH) + 0.6 * right
        pick, labels = agents.pick("m", right, rng), np.zeros(LENGTH, dtype=np.int8)
        if pick is not None and agents.succeeds(bool(right[pick]), rng):
            labels[pick] = 2
        turn = replace(group.turn, randomized=True)
        groups.append(Group(turn, group.features, labels, scores[0]))
        before.append(scores[0])
        better.append(scores[1])
        earned = np.where(right, 0.8 * 0.95, 0.06 * 0.5)[:5]
        for name, given in (("old", scores[0]), ("new", scores[1])):
            truth[name] += float(theta[:5] @ earned[np.argsort(-given[:5])]) / LISTS
    found = off_policy_evidence(groups, better, before, seed=1)
    assert found["lists"] == LISTS
    for name in ("new", "old"):
        for estimator in ("ips", "snips", "dr"):
            assert found[name][estimator] == pytest.approx(truth[name], abs=0.05), (name, estimator)
    # The reward model knows little, so alone it sees little of the difference; corrected by what was seen it is right.
    difference = found["difference"]
    assert difference["low"] < truth["new"] - truth["old"] < difference["high"]
    assert difference["low"] > 0
    assert found["new"]["dm"] - found["old"]["dm"] < difference["delta"]


def test_no_shuffled_list_gives_no_second_opinion(
    logged: tuple[list[Group], list[np.ndarray], list[np.ndarray]],
) -> None:
    groups, logging, better = logged
    assert off_policy_evidence(groups, better, logging, seed=1) == {"lists": 0}
