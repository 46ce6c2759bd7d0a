"""Demotion, the shuffled top and the slot."""

from __future__ import annotations

import numpy as np
import pytest

from discovery.explore import demote, fill_slot, rolled_out, shuffle_top
from discovery.weights import SkillWeights, Weights
from pickwise.events import Candidate


def listed(*ids: str) -> list[Candidate]:
    return [Candidate(skill_id=i, score=1.0) for i in ids]


def ids(candidates: list[Candidate]) -> list[str]:
    return [candidate.skill_id for candidate in candidates]


DEGRADED = Weights(version="w", skills={"a": SkillWeights(status="degraded", rollout_fraction=0.1)})


def test_a_tenth_of_the_sessions_sees_a_degraded_skill_at_its_rank() -> None:
    share = np.mean([rolled_out("a", f"s{number}", DEGRADED) for number in range(5_000)])
    assert 0.085 <= share <= 0.115
    assert rolled_out("a", "s1", DEGRADED) == rolled_out("a", "s1", DEGRADED)
    assert rolled_out("b", "s1", DEGRADED)
    assert rolled_out("a", "s1", None)
    assert not rolled_out("a", None, DEGRADED)


def test_demoted_is_last_but_not_hidden() -> None:
    assert ids(demote(listed("a", "b", "c", "d"), 3, None, DEGRADED)) == ["b", "c", "a"]
    assert ids(demote(listed("a", "b"), 3, None, None)) == ["a", "b"]


def test_the_shuffle_is_uniform_over_five_ranks_and_logged() -> None:
    rng = np.random.default_rng(3)
    first = []
    for _ in range(3_000):
        shown = shuffle_top(listed("a", "b", "c", "d", "e", "f"), rng)
        assert sorted(ids(shown)) == ["a", "b", "c", "d", "e", "f"]
        assert shown[5].skill_id == "f"
        assert [candidate.propensity for candidate in shown] == [0.2] * 5 + [1.0]
        first.append(shown[0].skill_id)
    assert all(0.17 <= first.count(skill) / 3_000 <= 0.23 for skill in "abcde")


def test_short_lists_shuffle_whole() -> None:
    shown = shuffle_top(listed("a", "b"), np.random.default_rng(0))
    assert [candidate.propensity for candidate in shown] == [0.5, 0.5]


def test_the_slot_goes_to_unsettled_skills_by_their_chances() -> None:
    weights = Weights(
        version="w",
        skills={
            "good": SkillWeights(status="observation", success=0.9, n_effective=40),
            "bad": SkillWeights(status="degraded", success=0.1, n_effective=40),
            "settled": SkillWeights(success=0.99, n_effective=40),
        },
    )
    shown, recalled = listed("a", "b", "c"), listed("a", "b", "c", "settled", "bad", "good")
    filled = fill_slot(shown, recalled, weights, np.random.default_rng(1))
    assert ids(filled) == ["a", "b", "good"]
    assert filled[2].source == "explore"
    assert filled[2].propensity is not None
    assert filled[2].propensity > 0.95
    assert ids(fill_slot(shown, recalled, weights, np.random.default_rng(1), rank=2)) == ["a", "good", "b"]


def test_an_uncertain_skill_gets_its_turn() -> None:
    weights = Weights(
        version="w",
        skills={
            "new": SkillWeights(status="observation"),
            "known": SkillWeights(status="observation", success=0.6, n_effective=200),
        },
    )
    rng = np.random.default_rng(5)
    winners = [fill_slot(listed("a"), listed("a", "new", "known"), weights, rng)[0].skill_id for _ in range(300)]
    assert 0.2 <= winners.count("new") / 300 <= 0.6


@pytest.mark.parametrize("recalled", [listed("a", "b"), []])
def test_without_an_unsettled_skill_the_list_stays(recalled: list[Candidate]) -> None:
    assert ids(fill_slot(listed("a", "b"), recalled, DEGRADED, np.random.default_rng(0))) == ["a", "b"]
