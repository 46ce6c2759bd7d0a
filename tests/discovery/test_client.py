"""The client of the ranker's service: what it asks, and what it goes on with when nobody answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from discovery.client import RankerClient, RecallUnavailable
from discovery.weights import WEIGHTS_PATH
from pickwise.events import Candidate
from tests.discovery.service import Service

CANDIDATES = [Candidate(skill_id="a", score=0.9), Candidate(skill_id="b", score=0.8)]
WEIGHTS = {"version": "w-1", "skills": {"b": {"heat": 0.99, "success": 0.5}, "a": {"heat": 0.01, "success": 0.5}}}


@pytest.fixture
def client(server: Service, tmp_path: Path) -> Iterator[RankerClient]:
    server.documents[WEIGHTS_PATH] = WEIGHTS
    client = RankerClient(server.url, project="p", api_key="k", cache_dir=tmp_path)
    client.start()
    yield client
    client.close()


def order(client: RankerClient) -> list[str]:
    return [candidate.skill_id for candidate in client.rank("q", CANDIDATES, budget_s=2.0).candidates]


def test_the_service_ranks(server: Service, client: RankerClient) -> None:
    server.rank = lambda asked: {"model_version": "m-1", "candidates": asked["candidates"][::-1]}
    assert order(client) == ["b", "a"]
    assert client.rank("q", CANDIDATES, budget_s=2.0).model_version == "m-1"
    assert server.headers[0]["Authorization"] == "Bearer k"
    assert server.headers[0]["X-Pickwise-Project"] == "p"


def test_a_failing_service_leaves_the_order_of_the_last_good_weights(
    server: Service, client: RankerClient, tmp_path: Path
) -> None:
    server.status = 503
    client.refresh()
    assert client.weights.error is not None
    reranked = client.rank("q", [Candidate(skill_id=name, score=0.5) for name in "ab"], budget_s=2.0)
    assert ([c.skill_id for c in reranked.candidates], reranked.model_version) == (["b", "a"], None)
    restarted = RankerClient(server.url, cache_dir=tmp_path)
    assert restarted.weights.value is not None
    assert restarted.weights.value.version == "w-1"
    restarted.close()


def test_recall(server: Service, client: RankerClient) -> None:
    server.recall = lambda asked: {"skills": [{"skill_id": asked["domain"], "score": 0.7, "support": asked["k"]}]}
    (found,) = client.recall("q", 3, domain="d", budget_s=2.0)
    assert (found.skill_id, found.score, found.support) == ("d", 0.7, 3.0)


@pytest.mark.parametrize("answer", [{}, {"skills": [{"skill_id": 3}]}, []], ids=json.dumps)
def test_an_answer_of_another_form_is_none(server: Service, client: RankerClient, answer: Any) -> None:
    server.recall = lambda _: answer
    with pytest.raises(RecallUnavailable):
        client.recall("q", budget_s=2.0)


def test_a_late_recall_is_none(server: Service, client: RankerClient) -> None:
    server.delay_s = 0.5
    with pytest.raises(RecallUnavailable):
        client.recall("q", budget_s=0.1)
