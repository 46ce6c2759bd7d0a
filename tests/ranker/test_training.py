from __future__ import annotations

import numpy as np
import pytest

from bench.simulated_agents import PUBLISHED_SHARES, TWO_MODELS, Agents, planted_theta
from ranker import features
from ranker.dataset import Group
from ranker.training import LEAST_REGULARISED, MIN_TRAIN_GROUPS, TooLittle, fit, train
from ranker.turns import SCORES, Turn


def planted(lists: int, seed: int, agents: Agents = TWO_MODELS) -> list[Group]:
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
        model = list(agents.shares)[index % len(agents.shares)]
        pick = agents.pick(model, right, rng)
        labels = np.zeros(8, dtype=np.int8)
        if pick is not None:
            labels[pick] = 2 if agents.succeeds(bool(right[pick]), rng) else 0
        scores = {name: np.full(8, np.nan) for name in SCORES} | {"dense": dense}
        turn = Turn(f"t{index}", float(index), "q", np.zeros(0, np.float32), [f"s{i}" for i in range(8)], scores, model)
        groups.append(Group(turn, matrix, labels, dense))
    return groups


def test_position_factors_are_the_planted_curves() -> None:
    five = Agents({f"m{place}": shares for place, shares in enumerate(PUBLISHED_SHARES)})
    groups = [group for group in planted(12_000, 1, five) if group.has_contrast]
    _, curves = fit(groups, None, LEAST_REGULARISED, seed=1)
    for model, shares in five.shares.items():
        errors = np.abs(np.array(curves[model]) - planted_theta(shares, 8))
        assert errors.mean() < 0.15, model


def test_same_seed_same_model() -> None:
    groups = planted(900, 2)
    first, again = (train(groups[:700], groups[700:], {}, seed=5) for _ in range(2))
    assert first.booster.model_to_string() == again.booster.model_to_string()
    assert first.trials == again.trials
    assert (first.coefficients == again.coefficients).all()


def test_refuses_too_little() -> None:
    groups = planted(900, 3)
    with pytest.raises(TooLittle, match=f"{MIN_TRAIN_GROUPS} are needed"):
        train(groups[:50], groups[50:], {}, seed=1)
    blank = [Group(g.turn, g.features, np.zeros(8, dtype=np.int8), g.before_model) for g in groups]
    with pytest.raises(TooLittle, match=r"^0 ranked selections with a pick and a skip"):
        train(blank, groups, {}, seed=1)
    with pytest.raises(TooLittle, match="validation"):
        train(groups, blank, {}, seed=1)
