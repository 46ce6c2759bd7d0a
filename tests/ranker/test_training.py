from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.simulated_agents import TWO_MODELS, Agents
from pickwise.scores import SCORES
from ranker import features
from ranker.dataset import Group
from ranker.training import MIN_TRAIN_GROUPS, TooLittle, train
from ranker.turns import Turn


def planted(lists: int, seed: int, agents: Agents = TWO_MODELS) -> list[Group]:
    """Lists whose right skill `semantic` points at, roughly, and which `bm25`, the logging order, often misplaces."""
    rng = np.random.default_rng(seed)
    groups = []
    for index in range(lists):
        matrix = np.zeros((8, len(features.NAMES)), dtype=np.float32)
        right = np.arange(8) == rng.integers(8)
        bm25 = rng.random(8) + 0.3 * right
        order = np.argsort(-bm25)
        right, bm25 = right[order], bm25[order]
        matrix[:, features.NAMES.index("bm25")] = bm25
        matrix[:, features.NAMES.index("semantic")] = right + 0.35 * rng.normal(size=8)
        model = list(agents.shares)[index % len(agents.shares)]
        pick = agents.pick(model, right, rng)
        labels = np.zeros(8, dtype=np.int8)
        if pick is not None:
            labels[pick] = 2 if agents.succeeds(bool(right[pick]), rng) else 0
        scores = {name: np.full(8, np.nan) for name in SCORES} | {"bm25": bm25}
        turn = Turn(
            f"t{index}",
            float(index),
            f"query {seed} {index}",
            np.zeros(0, np.float32),
            [f"s{i}" for i in range(8)],
            scores,
            model,
        )
        groups.append(Group(turn, matrix, labels, bm25))
    return groups


def test_trees_are_proven_on_new_queries_only() -> None:
    """The same lists; where every validation query was asked before, no number of trees is worth it."""
    groups = curved(800, 2)
    fresh = [replace(g, turn=replace(g.turn, query=f"query {place}")) for place, g in enumerate(groups)]
    stale = [replace(g, turn=replace(g.turn, query=f"query {place % 200}")) for place, g in enumerate(groups)]
    assert train(fresh[:500], fresh[500:], {}, seed=1).best.trees > 1
    assert train(stale[:500], stale[500:], {}, seed=1).best.trees == 1


def curved(lists: int, seed: int) -> list[Group]:
    """Lists whose right skill has most of four features that the blend has no term for and trees see."""
    groups = planted(lists, seed)
    rng = np.random.default_rng(seed)
    columns = [features.NAMES.index(name) for name in ("heat_log", "age_log", "latency_log", "description_words")]
    for group in groups:
        group.features[:] = 0
        group.features[:, columns] = rng.normal(size=(8, 4))
        group.labels[:] = 2 * (np.arange(8) == group.features.sum(axis=1).argmax())
    return groups


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
