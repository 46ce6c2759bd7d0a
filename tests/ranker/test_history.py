from __future__ import annotations

import numpy as np
import pytest

from ranker.decay import DAY_S
from ranker.history import HALF_LIFE_DAYS, RECENT, QueryHistory


def unit(*values: float) -> np.ndarray:
    vector = np.array(values, dtype=np.float32)
    return np.asarray(vector / np.linalg.norm(vector))


def nothing(rows: np.ndarray) -> np.ndarray:
    """Descriptions of skills that have none."""
    return np.zeros((len(rows), 2), dtype=np.float32)


def nearest(history: QueryHistory, rows: np.ndarray) -> np.ndarray:
    return history.compare(unit(1, 0), rows, nothing(rows), 0.0).nearest


def test_centroid_is_decayed_and_only_the_support_is_debiased() -> None:
    history = QueryHistory(2)
    history.add(3, unit(1, 0), 0.0, 4.0)
    history.add(3, unit(0, 1), HALF_LIFE_DAYS * DAY_S, 1.0)
    rows, now = np.array([3]), HALF_LIFE_DAYS * DAY_S
    # The first success is halved, whatever its rank: (½, 1) against (1, 0).
    found = history.compare(unit(1, 0), rows, nothing(rows), now)
    assert found.centroid[0] == pytest.approx(0.5 / np.sqrt(1.25), rel=1e-5)
    assert history.support(rows, now)[0] == pytest.approx(1.5)
    assert history.debiased_support(rows, now)[0] == pytest.approx(4 / 2 + 1)
    other = history.compare(unit(1, 0), np.array([5]), nothing(rows), now)
    assert np.isnan(other.centroid[0])
    assert np.isnan(other.nearest[0])
    assert history.support(np.array([5]), now)[0] == 0


def test_memory_is_bounded_and_keeps_the_newest() -> None:
    history = QueryHistory(2)
    history.add(1, unit(1, 0), 0.0, 1.0)
    assert nearest(history, np.array([1]))[0] == pytest.approx(1)
    for index in range(RECENT):
        history.add(1, unit(0, 1), float(index), 1.0)
    assert nearest(history, np.array([1]))[0] == pytest.approx(0)


def test_nearest_is_the_mean_of_the_nearest_three() -> None:
    history = QueryHistory(2)
    for x in (1.0, 0.0, 0.6, 0.8, 0.0):
        history.add(1, unit(x, np.sqrt(1 - x * x)), 0.0, 1.0)
    history.add(2, unit(0, 1), 0.0, 1.0)
    found = nearest(history, np.array([2, 7, 1]))
    assert found[0] == pytest.approx(0, abs=1e-3)
    assert np.isnan(found[1])
    assert found[2] == pytest.approx((1 + 0.8 + 0.6) / 3, abs=1e-3)


def test_many_skills_share_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranker.history.ALL_RECENT", 40)
    history = QueryHistory(2)
    for _ in range(20):
        for row in range(10):
            history.add(row, unit(1, row), 0.0, 1.0)
    assert sum(len(ring) for ring in history._recent) <= 60


def test_description_leads_until_there_is_history() -> None:
    history, rows = QueryHistory(2), np.array([1])
    description = unit(0, 1).reshape(1, 2)
    assert history.profile(unit(1, 0), rows, description, 0.0)[0] == pytest.approx(0)
    for _ in range(30):
        history.add(1, unit(1, 0), 0.0, 1.0)
    assert history.profile(unit(1, 0), rows, description, 0.0)[0] > 0.99


def test_a_profile_compared_is_the_profile_made() -> None:
    """Products with a profile's parts give its cosine, whatever the ages of what it is made of."""
    rng, history, rows = np.random.default_rng(0), QueryHistory(8), np.arange(12)
    for turn in range(200):
        history.add(int(rng.integers(9)), unit(*rng.normal(size=8)), turn * DAY_S, 1.0)
    descriptions = np.array([unit(*rng.normal(size=8)) for _ in rows])
    descriptions[[3, 10]] = 0.0
    for now in (200 * DAY_S, 500 * DAY_S):
        query = unit(*rng.normal(size=8))
        found = history.compare(query, rows, descriptions, now).profile
        np.testing.assert_allclose(found, history.profiles(rows, descriptions, now) @ query, atol=1e-5)
    assert found[10] == 0
