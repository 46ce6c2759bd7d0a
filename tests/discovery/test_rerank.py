"""The step after recall: the local score, and the service's order within its budget."""

from __future__ import annotations

import math
from typing import Any

import httpx
import msgspec
import pytest

from discovery.rerank import RankUnavailable, local_score, rerank_by_service, rerank_locally
from discovery.weights import SkillWeights, Weights
from pickwise.events import Candidate
from tests.discovery.service import Service


def test_score_before_any_model() -> None:
    """s + 0.15·(2·heat − 1) + 0.10·(success − p_d), worked by hand."""
    weights = Weights(
        version="w",
        skills={
            "a": SkillWeights(heat=0.5, success=0.5, success_logit=0.0),
            "b": SkillWeights(heat=1.0, success=0.8, success_logit=math.log(16)),
        },
    )
    candidates = [Candidate(skill_id="a", score=4.0), Candidate(skill_id="b", score=2.0)]
    assert local_score(candidates, weights) == pytest.approx([1.0, 0.0 + 0.15 + 0.10 * 0.6])


def test_the_first_score_that_a_candidate_has_counts() -> None:
    candidates = [
        Candidate(skill_id="a", rerank=1.0, dense=0.1, score=9.0),
        Candidate(skill_id="b", dense=0.3, score=1.0),
        Candidate(skill_id="c", rerank=3.0),
    ]
    assert local_score(candidates, None) == [0.0, 0.5, 1.0]
    assert local_score([Candidate(skill_id="a"), Candidate(skill_id="b")], None) == [0.5, 0.5]


@pytest.mark.parametrize("name", ["rerank", "dense", "score", "bm25"])
def test_heat_never_ranks_alone(name: str) -> None:
    """Whatever score a layer of one's own has, it leads the local order."""
    weights = Weights(version="w", skills={"a": SkillWeights(heat=0.4), "b": SkillWeights(heat=0.9)})
    candidates = [
        msgspec.convert({"skill_id": skill, name: score}, Candidate) for skill, score in (("b", 0.1), ("a", 0.9))
    ]
    assert [candidate.skill_id for candidate in rerank_locally(candidates, weights).candidates] == ["a", "b"]


def test_use_reorders_near_ties_and_leaves_clear_cases() -> None:
    weights = Weights(version="w", skills={"b": SkillWeights(heat=0.9), "c": SkillWeights(heat=0.9)})
    close = [Candidate(skill_id=i, score=s) for i, s in (("a", 1.0), ("b", 0.95), ("c", 0.0))]
    assert [c.skill_id for c in rerank_locally(close, weights).candidates] == ["b", "a", "c"]


def reversed_answer(body: dict[str, Any]) -> dict[str, Any]:
    return {"model_version": "m7", "candidates": list(reversed(body["candidates"])), "weights_version": "w"}


CANDIDATES = [Candidate(skill_id="a", score=1.0, bm25=3.0, dense=0.4), Candidate(skill_id="b", score=0.2, bm25=0.0)]


def test_the_service_orders(server: Service) -> None:
    server.rank = reversed_answer
    with httpx.Client(base_url=server.url) as http:
        reranked = rerank_by_service(http, "q", CANDIDATES, "m-1", "prev", 2.0, "session-7")
    assert [candidate.skill_id for candidate in reranked.candidates] == ["b", "a"]
    assert reranked.candidates[1] is CANDIDATES[0]
    assert reranked.model_version == "m7"
    (asked,) = server.asked
    assert (asked["query"], asked["model"], asked["previous_skill_id"]) == ("q", "m-1", "prev")
    assert asked["session_id"] == "session-7"
    assert asked["candidates"][0] == {"skill_id": "a", "score": 1.0, "bm25": 3.0, "dense": 0.4, "rerank": None}


def test_interleaved_candidates_have_their_team(server: Service) -> None:
    server.rank = lambda body: {
        "model_version": "m1+m2",
        "candidates": [{**c, "team": team} for c, team in zip(body["candidates"], ("B", "A"), strict=True)],
    }
    with httpx.Client(base_url=server.url) as http:
        reranked = rerank_by_service(http, "q", CANDIDATES, budget_s=2.0)
    assert [(c.skill_id, c.team, c.dense) for c in reranked.candidates] == [("a", "B", 0.4), ("b", "A", None)]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"status": 503}, "503"),
        ({"delay_s": 0.5}, "Timeout"),
        ({"rank": lambda body: {"candidates": body["candidates"][:1]}}, "expected 2"),
        ({"rank": lambda body: {"candidates": [body["candidates"][0]] * 2}}, "expected 2"),
        ({"rank": lambda _: ["x"]}, "object"),
    ],
)
def test_no_usable_order_is_said(server: Service, fault: dict[str, Any], said: str) -> None:
    server.rank = reversed_answer
    for name, value in fault.items():
        setattr(server, name, value)
    with httpx.Client(base_url=server.url) as http, pytest.raises(RankUnavailable, match=said):
        rerank_by_service(http, "q", CANDIDATES, budget_s=0.2)
