from __future__ import annotations

import numpy as np
import pytest

from ranker.decay import DAY_S
from ranker.history import HALF_LIFE_DAYS, RECENT, QueryHistory


def unit(*values: float) -> np.ndarray:
    vector = np.array(values, dtype=np.float32)
    return np.asarray(vector / np.linalg.norm(vector))


def test_centroid_is_decayed_and_weighted() -> None:
    history = QueryHistory(2)
    history.add(3, unit(1, 0), 0.0, 4.0)
    history.add(3, unit(0, 1), HALF_LIFE_DAYS * DAY_S, 1.0)
    # 4 halved to 2 against 1
    assert history.centroid(unit(1, 0), np.array([3]))[0] == pytest.approx(2 / np.sqrt(5), rel=1e-5)
    assert history.support(np.array([3]), HALF_LIFE_DAYS * DAY_S)[0] == pytest.approx(3)
    assert np.isnan(history.centroid(unit(1, 0), np.array([5]))[0])


def test_memory_is_bounded_and_keeps_the_newest() -> None:
    history = QueryHistory(2)
    history.add(1, unit(1, 0), 0.0, 1.0)
    assert history.nearest(unit(1, 0), np.array([1]))[0] == pytest.approx(1)
    for index in range(RECENT):
        history.add(1, unit(0, 1), float(index), 1.0)
    assert history.nearest(unit(1, 0), np.array([1]))[0] == pytest.approx(0)


def test_recall_ranks_by_centroid() -> None:
    history = QueryHistory(2)
    history.add(1, unit(1, 0), 0.0, 1.0)
    history.add(2, unit(1, 1), 0.0, 1.0)
    history.add(3, unit(0, 1), 0.0, 1.0)
    assert [row for row, _ in history.recall(unit(1, 0.1), 2)] == [1, 2]


def test_description_leads_until_there_is_history() -> None:
    history, rows = QueryHistory(2), np.array([1])
    description = unit(0, 1).reshape(1, 2)
    assert history.profile(unit(1, 0), rows, description, 0.0)[0] == pytest.approx(0)
    for _ in range(30):
        history.add(1, unit(1, 0), 0.0, 1.0)
    assert history.profile(unit(1, 0), rows, description, 0.0)[0] > 0.99
