"""Every guard: a case that passes, one that trips it, one without data, and its setting."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest

from pickwise.scores import SCORES
from pickwise.settings import Settings
from ranker import features
from ranker.dataset import Group
from ranker.guards import (
    all_guards,
    concentration,
    flips,
    gini,
    golden_set,
    item_position,
    never_shown,
    scoring_time,
)
from ranker.turns import Turn

LISTS, LENGTH, SKILLS = 800, 8, 16
SETTINGS = Settings()
SHOWN = np.arange(LENGTH, 0.0, -1.0)


@pytest.fixture(scope="module")
def groups() -> list[Group]:
    """Lists of eight out of sixteen skills; which ones turns round, so that each has its share of every rank."""
    found = []
    for index in range(LISTS):
        skill_ids = [f"s{(index + step) % SKILLS}" for step in range(LENGTH)]
        turn = Turn(
            selection_id=f"t{index}",
            time=float(index),
            query="",
            vector=np.zeros(0, np.float32),
            skill_ids=skill_ids,
            scores={name: np.full(LENGTH, np.nan) for name in SCORES},
            model="m",
            randomized=True,
        )
        blank = np.zeros((LENGTH, len(features.NAMES)), np.float32)
        found.append(Group(turn, blank, np.zeros(LENGTH, dtype=np.int8), SHOWN))
    return found


@pytest.fixture(scope="module")
def booster() -> lgb.Booster:
    rng = np.random.default_rng(0)
    data = lgb.Dataset(rng.random((400, len(features.NAMES))), label=rng.random(400))
    return lgb.train({"objective": "regression", "verbosity": -1, "num_threads": 1}, data, num_boost_round=20)


def noise(seed: int) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).random((LISTS, LENGTH)))


def favourites(groups: list[Group], wanted: int) -> list[np.ndarray]:
    """Scores that put the first ``wanted`` skills first wherever they are offered."""
    return [np.array([float(int(skill[1:]) < wanted) for skill in group.turn.skill_ids]) for group in groups]


def test_golden_set(groups: list[Group]) -> None:
    right = {group.turn.selection_id: [group.turn.skill_ids[0]] for group in groups[:50]}
    top = [SHOWN] * LISTS
    worse = [-SHOWN] * LISTS
    assert golden_set(groups, top, top, right, SETTINGS).outcome == "passed"
    tripped = golden_set(groups, worse, top, right, SETTINGS)
    assert (tripped.outcome, tripped.values["n"], tripped.values["new"]) == ("tripped", 50, 0.0)
    assert golden_set(groups, worse, top, right, Settings(gate_golden_drop=1.0)).outcome == "passed"
    assert golden_set(groups, worse, top, right, Settings(gate_golden_min=51)).outcome == "not_evaluated"
    assert golden_set(groups, worse, top, {}, SETTINGS).outcome == "not_evaluated"


def test_item_position(groups: list[Group]) -> None:
    assert item_position(groups, noise(1), SETTINGS).outcome == "passed"
    tripped = item_position(groups, [SHOWN] * LISTS, SETTINGS)  # repeats the shown order: it knows the position
    assert (tripped.outcome, tripped.values["mean"]) == ("tripped", 5.0)
    assert item_position(groups, [SHOWN] * LISTS, Settings(gate_item_position_off=4)).outcome == "passed"
    assert item_position(groups[:599], [SHOWN] * 599, SETTINGS).outcome == "not_evaluated"
    assert item_position(groups[:599], [SHOWN] * 599, Settings(gate_item_position_min=2_995)).outcome == "tripped"


def test_concentration(groups: list[Group]) -> None:
    assert concentration(groups, noise(1), noise(2), SETTINGS).outcome == "passed"
    tripped = concentration(groups, favourites(groups, 5), noise(2), SETTINGS)
    assert tripped.outcome == "tripped"
    assert tripped.values["new"] - tripped.values["old"] > 0.2
    assert concentration(groups, noise(2), favourites(groups, 5), SETTINGS).outcome == "passed"
    relaxed = Settings(gate_concentration_rise=0.9)
    assert concentration(groups, favourites(groups, 5), noise(2), relaxed).outcome == "passed"
    assert concentration([], [], [], SETTINGS).outcome == "not_evaluated"


def test_never_shown(groups: list[Group]) -> None:
    # Skills 12 to 15 always last: a list of eight never has to show them among its first five.
    hidden = [np.array([float(int(skill[1:]) < 12) for skill in group.turn.skill_ids]) for group in groups]
    assert never_shown(groups, noise(1), noise(2), SETTINGS).outcome == "passed"
    tripped = never_shown(groups, hidden, noise(2), SETTINGS)
    assert (tripped.outcome, tripped.values["old"]) == ("tripped", 0.0)
    assert tripped.values["new"] > 0.1
    assert never_shown(groups, hidden, noise(2), Settings(gate_never_shown_rise=0.5)).outcome == "passed"
    assert never_shown([], [], [], SETTINGS).outcome == "not_evaluated"


def test_scoring_time(groups: list[Group], booster: lgb.Booster) -> None:
    assert scoring_time(booster, groups, SETTINGS).outcome == "passed"
    assert scoring_time(booster, groups, Settings(gate_scoring_p99_ms=1e-6)).outcome == "tripped"
    assert scoring_time(booster, [], SETTINGS).outcome == "not_evaluated"


def test_flips_are_reported_whatever_they_are(groups: list[Group]) -> None:
    found = flips(groups, [-SHOWN] * LISTS, [SHOWN] * LISTS)
    assert (found.outcome, found.values["share"]) == ("reported", 1.0)


def test_all_of_them_are_asked(groups: list[Group], booster: lgb.Booster) -> None:
    found = all_guards(groups, noise(1), noise(2), {}, booster, SETTINGS)
    assert {guard.name: guard.outcome for guard in found} == {
        "golden_set": "not_evaluated",
        "item_position": "passed",
        "concentration": "passed",
        "never_shown": "passed",
        "scoring_time": "passed",
        "top1_flips": "reported",
    }


def test_gini() -> None:
    assert gini(np.ones(4)) == pytest.approx(0)
    assert gini(np.array([0.0, 0, 0, 1])) == pytest.approx(0.75)
    assert gini(np.zeros(3)) == 0
