from __future__ import annotations

import numpy as np
import pytest

from pickwise.scores import SCORES, semantic_score
from ranker import features, formula, fusion
from ranker.dataset import Group
from ranker.turns import Turn
from ranker.weights_document import Fusion


def lists(count: int, seed: int, alpha: float, heat: float, query: str = "book a flight") -> list[Group]:
    """Lists of six whose pick follows alpha·BM25 + (1 - alpha)·dense, and the heat of the skills."""
    rng = np.random.default_rng(seed)
    groups = []
    for index in range(count):
        bm25, dense, logs = rng.random(6) * 9, rng.random(6), rng.normal(size=6)
        scaled = [(arm - arm.min()) / (arm.max() - arm.min()) for arm in (bm25, dense)]
        h = np.tanh(logs / 2)
        utility = 8 * (alpha * scaled[0] + (1 - alpha) * scaled[1] + heat * h)
        scores = {name: np.full(6, np.nan) for name in SCORES} | {"bm25": bm25, "dense": dense}
        turn = Turn(f"t{index}", float(index), query, np.zeros(0, np.float32), [f"s{i}" for i in range(6)], scores)
        turn.session_id = f"session-{index}"
        matrix = np.zeros((6, len(features.NAMES)), dtype=np.float32)
        matrix[:, features.NAMES.index("heat_log")] = logs
        labels = np.zeros(6, dtype=np.int8)
        labels[int(np.argmax(utility + rng.gumbel(size=6)))] = 2
        before = semantic_score(scores, 6) + formula.HEAT_COEFFICIENT * h
        groups.append(Group(turn, matrix, labels, before))
    return groups


def learn(groups: list[Group], current: Fusion | None = None) -> Fusion:
    cut = len(groups) * 2 // 3
    return fusion.learn(groups[:cut], groups[cut:], lambda _model, _rank: 1.0, current or Fusion(), seed=1)


@pytest.mark.parametrize(("query", "kind"), [("book a flight", "latin"), ("预订机票", "cjk")])
def test_finds_the_planted_mix_of_the_arms(query: str, kind: str) -> None:
    found = learn(lists(6_000, 1, alpha=0.8, heat=0.0, query=query))
    assert found.alpha == {kind: pytest.approx(0.8, abs=0.05)}


def test_finds_what_heat_is_worth() -> None:
    assert learn(lists(6_000, 2, alpha=0.0, heat=0.6)).heat == pytest.approx(0.6, abs=0.1)


def test_nothing_is_replaced_without_proof() -> None:
    current = Fusion(heat=0.3, success=0.2, alpha={"cjk": 0.4})
    assert learn(lists(60, 3, alpha=0.3, heat=0.15), current) == current
    assert fusion.learn([], [], lambda _model, _rank: 1.0, current, seed=1) == current
