from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pickwise.scores import SCORES
from ranker import features
from ranker.dataset import Group
from ranker.picked import PickGains
from ranker.ranks import ranks
from ranker.turns import Turn


def group(labels: list[int], model: str = "m") -> Group:
    nothing: Any = {name: np.full(len(labels), np.nan) for name in SCORES}
    turn = Turn("t", 0.0, "q", np.zeros(0, np.float32), [str(place) for place in range(len(labels))], nothing, model)
    matrix = np.zeros((len(labels), len(features.NAMES)), np.float32)
    return Group(turn, matrix, np.array(labels, np.int8), np.zeros(len(labels)))


def weight(model: str, rank: int) -> float:
    return rank * (2.0 if model == "steep" else 1.0)


def test_gains_are_those_of_each_pick_s_rank() -> None:
    rng = np.random.default_rng(0)
    groups = [
        group(rng.integers(3, size=length).tolist(), "steep" if length % 2 else "flat")
        for length in rng.integers(1, 12, size=200)
    ]
    scores = [rng.integers(4, size=len(each.labels)) / 2 for each in groups]  # many are equal
    expected, weights = [], []
    for each, values in zip(groups, scores, strict=True):
        for index in each.succeeded:
            rank = int(ranks(values)[index])
            expected.append(1 / np.log2(1 + rank) if rank <= 5 else 0.0)
            weights.append(weight(each.turn.model, int(index) + 1))
    found = PickGains(groups, weight)
    assert found.gains(scores) == pytest.approx(expected)
    assert found.weights == pytest.approx(weights)
    assert found.ndcg(scores) == pytest.approx(np.average(expected, weights=weights))
    worse = [-values for values in scores]
    assert found.lead(scores, worse)[0] == pytest.approx(found.ndcg(scores) - found.ndcg(worse))
    assert found.lead(scores, scores) == (0.0, 0.0)


def test_without_a_pick_there_is_nothing_to_gain() -> None:
    found = PickGains([group([0, 1]), group([0])], weight)
    assert len(found.gains([np.zeros(2), np.zeros(1)])) == 0
    assert found.ndcg([np.zeros(2), np.zeros(1)]) == 0.0
    assert PickGains([], weight).ndcg([]) == 0.0
