"""Team drafts, and who wins them: on lists alone and on real events."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy.stats import binomtest

from bench.ingest import ingest
from pickwise.settings import Settings
from ranker.interleave import team_draft
from ranker.interleave_verdict import judge, read, start
from ranker.weights import refresh
from ranker.weights_store import WeightsError, WeightsStore
from tests.ranker.conftest import SKILL_IDS, SKILLS
from tests.ranker.test_canary import NEW, OLD, stored


def test_a_draft_is_fair_and_whole() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        first, second = list(rng.permutation(9)), list(rng.permutation(9))
        drafted = team_draft(first, second, rng)
        assert sorted(candidate for candidate, _ in drafted) == list(range(9))
        teams = [team for _, team in drafted]
        for turn in range(4):  # every turn one of each
            assert sorted(teams[2 * turn : 2 * turn + 2]) == [0, 1]
        for team, order in enumerate((first, second)):  # each team's skills in its own order
            own = [order.index(candidate) for candidate, whose in drafted if whose == team]
            assert own == sorted(own)
        assert drafted[0][0] in (first[0], second[0])


def test_a_coin_decides_who_begins() -> None:
    rng = np.random.default_rng(1)
    begun = [team_draft([0, 1, 2], [2, 1, 0], rng)[0] for _ in range(2_000)]
    assert dict(begun) == {0: 0, 2: 1}
    assert sum(team for _, team in begun) / 2_000 == pytest.approx(0.5, abs=0.04)


def test_orders_of_different_candidates_are_refused() -> None:
    with pytest.raises(ValueError, match="same candidates"):
        team_draft([0, 1], [0, 2], np.random.default_rng(0))


def test_equal_rankings_win_alike_and_the_better_one_more() -> None:
    rng = np.random.default_rng(3)

    def wins(quality: tuple[float, float]) -> tuple[int, int]:
        votes = [0, 0]
        for _ in range(1_500):
            right = np.arange(8) == rng.integers(8)
            orders = [list(np.argsort(-(rng.random(8) + one * right))) for one in quality]
            for rank, (candidate, team) in enumerate(team_draft(orders[0], orders[1], rng)):
                if right[candidate] and rng.random() < 0.9 / (1 + rank):
                    votes[team] += 1
        return votes[0], votes[1]

    equal = np.array([wins((0.3, 0.3)) for _ in range(8)]).sum(axis=0)
    assert equal[0] / equal.sum() == pytest.approx(0.5, abs=0.02)
    assert judge("a", "b", *wins((0.6, 0.2)), 0).better == "a"


def test_the_verdict_is_a_sign_test() -> None:
    found = judge("a", "b", 40, 20, 7)
    assert found.p == pytest.approx(binomtest(40, 60).pvalue)
    assert found.share == pytest.approx(2 / 3)
    assert (found.better, found.ties) == ("a", 7)
    assert judge("a", "b", 20, 40, 0).better == "b"
    assert judge("a", "b", 31, 29, 0).better is None
    assert judge("a", "b", 0, 0, 3).share is None


def test_verdict_from_the_log(fresh: Settings) -> None:
    ingest(fresh, SKILLS, [])
    refresh(fresh.data_dir, fresh, "default", promote=stored(fresh, OLD))
    stored(fresh, NEW)
    with pytest.raises(WeightsError, match="second: no model 'nope' in project default"):
        start(fresh.data_dir, "default", OLD, "nope")
    with pytest.raises(WeightsError, match="expected another model"):
        start(fresh.data_dir, "default", OLD, OLD)
    with pytest.raises(WeightsError, match="project empty"):
        start(fresh.data_dir, "empty", OLD, NEW)
    begun = start(fresh.data_dir, "default", OLD, NEW)
    store, picks = WeightsStore(fresh.data_dir), [0] * 12 + [1] * 30 + [2] * 3  # OLD's, NEW's, nobody's
    assert store.interleaving("default") == begun
    candidates = [{"skill_id": SKILL_IDS[0], "team": OLD}, {"skill_id": SKILL_IDS[1], "team": NEW}]
    event = {"type": "selection", "ranked": True, "query": "q", "candidates": candidates}
    events = [
        event | {"event_id": f"i{turn}", "time": int(time.time() * 1e9), "picks": [SKILL_IDS[pick]][: pick < 2]}
        for turn, pick in enumerate(picks)
    ]
    others = [{"skill_id": SKILL_IDS[0], "team": "else"}, {"skill_id": SKILL_IDS[1], "team": NEW}]
    events.append(events[0] | {"event_id": "other", "candidates": others})
    events.append(events[0] | {"event_id": "before", "time": int((begun.since - 60) * 1e9)})
    events.append(events[0] | {"event_id": "staged", "environment": "staging"})
    ingest(fresh, [], events)
    refresh(fresh.data_dir, fresh, "default")  # a new version of the weights ends no interleaving
    found = read(fresh.data_dir, fresh, "default", begun)
    assert (found.first_wins, found.second_wins, found.ties, found.better) == (12, 30, 3, NEW)
    store.interleave("default", None)
    assert store.interleaving("default") is None
