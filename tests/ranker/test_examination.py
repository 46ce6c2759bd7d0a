from __future__ import annotations

import numpy as np
import pytest

from bench.simulated_agents import PUBLISHED_SHARES, Agents, planted_theta
from ranker.examination import (
    KNOWN_DEVIATION,
    LEAST_THETA,
    MAX_RANK,
    MIN_PICKS,
    USUAL_DEVIATION,
    USUAL_LOG_THETA,
    PositionFactors,
    ShuffledPicks,
    described,
    place_prior,
    theta_from_factors,
    theta_interval,
)


def shuffled(shares: tuple[float, ...], lists: int, seed: int) -> ShuffledPicks:
    """Picks of one planted model in shuffled lists of eight with one right skill among the first five."""
    agents, rng, found = Agents({"m": shares}, attraction_wrong=0.02), np.random.default_rng(seed), ShuffledPicks()
    for _ in range(lists):
        right = np.zeros(8, dtype=bool)
        right[rng.integers(5)] = True
        pick = agents.pick("m", right, rng)
        found.add("m", [] if pick is None else [pick + 1], 8)
    return found


@pytest.mark.parametrize("shares", PUBLISHED_SHARES)
def test_recovers_a_planted_curve(shares: tuple[float, ...]) -> None:
    curve = shuffled(shares, 12_000, 1).at("m", 0.0)
    assert curve.source == "randomized"
    assert curve.theta is not None
    assert curve.theta[:5] == pytest.approx(planted_theta(shares, 5), abs=0.08)
    assert (curve.theta[5:] == curve.theta[4]).all()


@pytest.mark.parametrize("shares", PUBLISHED_SHARES)
def test_intervals_hold_the_planted_curve(shares: tuple[float, ...]) -> None:
    planted = planted_theta(shares, 5)[1:]
    held = []
    for seed in range(24):
        found = shuffled(shares, 2_000, seed).at("m", 0.0)
        assert found.theta is not None
        assert found.interval is not None
        low, high = found.interval
        assert (low <= found.theta[:5]).all()
        assert (found.theta[:5] <= high).all()
        held.append((low[1:] <= planted) & (planted <= high[1:]))
    # 96 intervals at 95 %, but the four of a curve share its rank 1.
    assert 0.88 <= np.mean(held) <= 1.0


def test_intervals_by_hand() -> None:
    low, high = theta_interval(np.array([100.0, 25.0, 0.0]), np.array([400.0, 400.0, 400.0]))
    half = 1.959964 * np.sqrt(1 / 100 + 1 / 25)
    assert (low[0], high[0]) == (1, 1)
    assert (low[1], high[1]) == pytest.approx((0.25 * np.exp(-half), 0.25 * np.exp(half)))
    assert low[2] == 0  # never picked there: all that is known is that θ is small
    assert 0 < high[2] < 0.12


def test_what_a_training_stores_of_a_curve() -> None:
    found = described(shuffled(PUBLISHED_SHARES[4], 1_500, 1).at("m", 0.0))
    assert (found["source"], len(found["low"]), len(found["high"])) == ("randomized", 5, 5)
    assert described(ShuffledPicks().at("m", 0.0)) == {"source": "unknown", "picks": 0}


def test_falls_back_to_position_factors_until_there_are_enough() -> None:
    picks = ShuffledPicks([PositionFactors(100.0, {"m": [1.0, 0.25], "": [1.0, 0.5]})])
    for _ in range(MIN_PICKS - 1):
        picks.add("m", [1], 5)
    assert picks.at("m", 100.0).source == "unknown"  # the factors hold from after 100 on
    later = picks.at("m", 101.0)
    assert later.source == "position_factors"
    assert later.weight(1) == 1
    assert later.weight(9) == 4
    assert picks.at("other", 101.0).weight(2) == 2
    picks.add("m", [2], 5)
    assert picks.at("m", 101.0).source == "randomized"
    assert picks.at("m", 101.0).weight(2) == 10  # never more than 10


def test_the_usual_curve_is_that_of_the_published_shares() -> None:
    logs = np.log([planted_theta(shares, 5) for shares in PUBLISHED_SHARES])
    assert logs.mean(axis=0) == pytest.approx(USUAL_LOG_THETA, abs=0.01)
    assert np.sqrt(logs[:, 1:].var(axis=0, ddof=1).mean()) == pytest.approx(USUAL_DEVIATION, abs=0.05)


def test_priors_of_places() -> None:
    places = [("known", 1), ("known", 2), ("known", 9), ("other", 1), ("other", 2), ("other", 9)]
    prior = place_prior(places, {"known": [1.0, 0.5, 0.0]})
    assert prior.mean == pytest.approx([0, np.log(0.5), np.log(LEAST_THETA), 0, USUAL_LOG_THETA[1], USUAL_LOG_THETA[4]])
    assert prior.deviation.tolist() == [0, *[KNOWN_DEVIATION] * 2, 0, *[USUAL_DEVIATION] * 2]


def test_factors_become_theta() -> None:
    assert theta_from_factors({1: 0.2, 2: -0.3, 4: -0.8}) == pytest.approx(np.exp([0, -0.5, -0.5, -1.0]))
    assert theta_from_factors({2: 1.0}) == []
    assert MAX_RANK >= 5
