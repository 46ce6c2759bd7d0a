from __future__ import annotations

import numpy as np
import pytest

from bench.simulated_agents import TWO_MODELS, planted_theta
from ranker import features
from ranker.dataset import Group
from ranker.training import MIN_TRAIN_GROUPS, TooLittle, fit, train
from ranker.turns import SCORES, Turn


def planted(lists: int, seed: int) -> list[Group]:
    """Lists whose right skill `semantic` points at, roughly, and which `dense`, the logging order, often misplaces."""
    rng = np.random.default_rng(seed)
    groups = []
    for index in range(lists):
        matrix = np.zeros((8, len(features.NAMES)), dtype=np.float32)
        right = np.arange(8) == rng.integers(8)
        dense = rng.random(8) + 0.3 * right
        order = np.argsort(-dense)
        right, dense = right[order], dense[order]
        matrix[:, features.NAMES.index("dense")] = dense
        matrix[:, features.NAMES.index("semantic")] = right + 0.35 * rng.normal(size=8)
        model = list(TWO_MODELS.shares)[index % 2]
        pick = TWO_MODELS.pick(model, right, rng)
        labels = np.zeros(8, dtype=np.int8)
        if pick is not None:
            labels[pick] = 2 if TWO_MODELS.succeeds(bool(right[pick]), rng) else 0
        scores = {name: np.full(8, np.nan) for name in SCORES} | {"dense": dense}
        turn = Turn(f"t{index}", float(index), "q", np.zeros(0, np.float32), [f"s{i}" for i in range(8)], scores, model)
        groups.append(Group(turn, matrix, labels, dense))
    return groups


def test_position_factors_are_the_planted_curve() -> None:
    groups = [group for group in planted(6_000, 1) if group.has_contrast]
    _, curves = fit(groups, 0.0, seed=1)
    for model, shares in TWO_MODELS.shares.items():
        errors = np.abs(np.array(curves[model]) - planted_theta(shares, 8))
        assert errors.mean() < 0.15


def test_same_seed_same_model() -> None:
    groups = planted(900, 2)
    first, again = (train(groups[:700], groups[700:], {}, seed=5) for _ in range(2))
    assert first.booster.model_to_string() == again.booster.model_to_string()
    assert first.trials == again.trials


def test_refuses_too_little() -> None:
    groups = planted(900, 3)
    with pytest.raises(TooLittle, match=f"{MIN_TRAIN_GROUPS} are needed"):
        train(groups[:100], groups[100:], {}, seed=1)
    blank = [Group(g.turn, g.features, np.zeros(8, dtype=np.int8), g.before_model) for g in groups]
    with pytest.raises(TooLittle, match=r"^0 ranked selections with a pick and a skip"):
        train(blank, groups, {}, seed=1)
    with pytest.raises(TooLittle, match="validation"):
        train(groups, blank, {}, seed=1)
