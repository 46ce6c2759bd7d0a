"""Demotion, the shuffled top and the slot."""

from __future__ import annotations

import numpy as np
import pytest

from bench.exploration import PROMISED, run
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
            "bad": SkillWeights(status="observation", success=0.1, n_effective=40),
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
    winners = [fill_slot(listed("a", "b"), listed("a", "new", "known"), weights, rng)[1].skill_id for _ in range(300)]
    assert 0.2 <= winners.count("new") / 300 <= 0.6


NEW_AND_DEGRADED = Weights(
    version="w",
    skills={
        "failed": SkillWeights(status="degraded", rollout_fraction=0.1, success=0.1, n_effective=60),
        **{f"new-{number}": SkillWeights(status="observation") for number in range(4)},
    },
)


def test_a_failed_past_competes_with_no_new_skill() -> None:
    rng = np.random.default_rng(2)
    recalled = listed("a", "new-0", "new-1", "new-2", "new-3", "failed")
    winners = [fill_slot(listed("a", "b"), recalled, NEW_AND_DEGRADED, rng)[1] for _ in range(1_000)]
    shares = {skill: np.mean([won.skill_id == skill for won in winners]) for skill in ("failed", "new-0")}
    assert 0.46 <= shares["failed"] <= 0.54
    assert 0.09 <= shares["new-0"] <= 0.16
    for skill, share in shares.items():
        told = [won.propensity or 0.0 for won in winners if won.skill_id == skill]
        assert np.mean(told) == pytest.approx(share, abs=0.03)


def test_a_demoted_skill_behind_the_slot_takes_part_and_is_never_pushed_off() -> None:
    rng = np.random.default_rng(4)
    shown, recalled = listed("a", "b", "failed"), listed("failed", "a", "b", "new-0")
    for rank, with_failed, with_new in (
        (None, ["a", "b", "failed"], ["a", "failed", "new-0"]),
        (2, ["a", "failed", "b"], ["a", "new-0", "failed"]),
    ):
        found = [ids(fill_slot(shown, recalled, NEW_AND_DEGRADED, rng, rank)) for _ in range(60)]
        assert all(one in (with_failed, with_new) for one in found)
        assert 15 <= found.count(with_failed) <= 45


def test_only_the_first_fifty_of_recall_can_win() -> None:
    recalled = [*listed(*(f"s{number}" for number in range(50))), *listed("failed")]
    rng = np.random.default_rng(0)
    assert ids(fill_slot(recalled[:3], recalled, NEW_AND_DEGRADED, rng)) == ["s0", "s1", "s2"]
    assert ids(fill_slot(recalled[:3], recalled[1:], NEW_AND_DEGRADED, rng)) == ["s0", "s1", "failed"]


def test_a_shuffled_slot_has_both_probabilities() -> None:
    rng = np.random.default_rng(6)
    filled = fill_slot(listed("a", "b"), listed("new-0", "failed"), NEW_AND_DEGRADED, rng)
    assert filled[1].propensity == 0.5
    shuffled = {candidate.skill_id: candidate.propensity for candidate in shuffle_top(filled, rng)}
    assert shuffled == {"a": 0.5, filled[1].skill_id: 0.25}


@pytest.mark.parametrize("new", [0, 3])
def test_a_mended_skill_gets_back_in_by_exploration_alone(new: int) -> None:
    for seed in range(3):
        explored, left_alone = run(seed, explores=True, new=new), run(seed, explores=False, new=new, watched=600)
        assert explored.recovered is not None
        assert explored.recovered <= PROMISED
        assert explored.in_list is not None
        assert (left_alone.shown, left_alone.recovered, left_alone.in_list) == (0, None, None)


def test_a_list_of_one_is_left_to_the_best() -> None:
    recalled = listed("a", "new-0", "failed")
    assert ids(fill_slot(listed("a"), recalled, NEW_AND_DEGRADED, np.random.default_rng(0))) == ["a"]


@pytest.mark.parametrize("recalled", [listed("a", "b"), []])
def test_without_an_unsettled_skill_the_list_stays(recalled: list[Candidate]) -> None:
    assert ids(fill_slot(listed("a", "b"), recalled, DEGRADED, np.random.default_rng(0))) == ["a", "b"]
