"""The estimators against the Open Bandit Pipeline's figures on the same data: `bench.obp_figures` made them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from bench.obp_figures import SEEDS, logged
from ranker.estimators import direct_method, doubly_robust, ips, snips

FIGURES = json.loads(Path(__file__).with_name("obp_figures.json").read_text())["seeds"]


@pytest.mark.parametrize("seed", SEEDS)
def test_agrees_with_obp(seed: int) -> None:
    log = logged(seed)
    at = np.arange(len(log["reward"])), log["action"], log["position"]
    weight, model = log["action_dist"][at] / log["pscore"], log["estimated_rewards_by_reg_model"]
    chances, rewards = (table[at[0], :, log["position"]] for table in (log["action_dist"], model))
    expected = (chances * rewards).sum(axis=1)
    found = {
        "dm": direct_method(expected),
        "ips": ips(weight, log["reward"]),
        "snips": snips(weight, log["reward"]),
        "dr": doubly_robust(weight, log["reward"], model[at], expected),
    }
    assert found == pytest.approx(FIGURES[str(seed)], abs=1e-6)


def test_by_hand() -> None:
    weight, reward = np.array([2.0, 0.0, 1.0]), np.array([1.0, 1.0, 0.0])
    predicted, expected = np.array([0.5, 0.5, 0.5]), np.array([0.6, 0.6, 0.3])
    assert ips(weight, reward) == pytest.approx(2 / 3)
    assert snips(weight, reward) == pytest.approx(2 / 3)
    assert snips(2 * weight, reward) == pytest.approx(2 / 3)
    assert direct_method(expected) == pytest.approx(0.5)
    assert doubly_robust(weight, reward, predicted, expected) == pytest.approx(0.5 + (2 * 0.5 - 0.5) / 3)


def test_no_round_has_no_value() -> None:
    none = np.zeros(0)
    assert all(math.isnan(value) for value in (direct_method(none), ips(none, none), snips(none, none)))
