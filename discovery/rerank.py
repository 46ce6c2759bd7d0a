"""The step after recall: the order learned from use, or the score that holds before anything was learned."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx
import msgspec
import numpy as np

from discovery.weights import Weights
from pickwise.events import Candidate
from pickwise.scores import SCORES, semantic_score

RANK_PATH = "/v1/rank"
#: Longest wait for the service's order before the local score is used.
RANK_BUDGET_S = 0.25


@dataclass(frozen=True)
class Reranked:
    """The candidates in their new order, and the model that ordered them (None: the local score)."""

    candidates: list[Candidate]
    model_version: str | None


class RankUnavailable(RuntimeError):  # noqa: N818 - a state of the service
    """The service gave no usable order within the budget; the message says why."""


def local_score(candidates: Sequence[Candidate], weights: Weights | None) -> list[float]:
    """s + 0.15·(2·heat − 1) + 0.10·(success − p_d), with the coefficients of the weights document.

    s is that of ``semantic_score``: without weights it is all.
    """
    scores = {
        name: np.array([getattr(candidate, name) for candidate in candidates], dtype=np.float64) for name in SCORES
    }
    s = semantic_score(scores, len(candidates))
    if weights is None:
        return [float(value) for value in s]
    fusion = weights.fusion
    learned = [weights.of(candidate.skill_id) for candidate in candidates]
    return [
        fusion.semantic * float(value) + fusion.heat * (2 * w.heat - 1) + fusion.success * w.success_gain
        for value, w in zip(s, learned, strict=True)
    ]


def rerank_locally(candidates: Sequence[Candidate], weights: Weights | None) -> Reranked:
    """The order of the local score; equal ones stay as they came."""
    scores = local_score(candidates, weights)
    order = sorted(range(len(candidates)), key=lambda position: -scores[position])
    return Reranked([candidates[position] for position in order], None)


def rerank_by_service(
    http: httpx.Client,
    query: str,
    candidates: Sequence[Candidate],
    model: str | None = None,
    previous_skill_id: str | None = None,
    budget_s: float = RANK_BUDGET_S,
    session_id: str | None = None,
) -> Reranked:
    """The order of ``POST /v1/rank``; the session decides whether a canary ranks, and interleaved candidates have the
    ``team`` that put them there. Raises RankUnavailable on failure, a late answer or one that lost candidates."""
    body = {
        "query": query,
        "model": model,
        "previous_skill_id": previous_skill_id,
        "session_id": session_id,
        "candidates": [
            {"skill_id": c.skill_id, "score": c.score, "bm25": c.bm25, "dense": c.dense, "rerank": c.rerank}
            for c in candidates
        ],
    }
    started = time.perf_counter()
    try:
        response = http.post(RANK_PATH, content=msgspec.json.encode(body), headers=_JSON, timeout=budget_s)
        response.raise_for_status()
        answer = msgspec.json.decode(response.content, type=_RankAnswer)
    except (httpx.HTTPError, msgspec.MsgspecError) as error:
        raise RankUnavailable(f"{type(error).__name__}: {error}") from error
    if time.perf_counter() - started > budget_s:
        raise RankUnavailable(f"later than {budget_s * 1000:.0f} ms")
    by_id = {candidate.skill_id: candidate for candidate in candidates}
    ranked = {item.skill_id: item.team for item in answer.candidates}
    order = [_of_team(by_id[skill_id], team) for skill_id, team in ranked.items() if skill_id in by_id]
    if len(order) != len(candidates):
        raise RankUnavailable(f"candidates: expected {len(candidates)} of the request, got {len(order)}")
    return Reranked(order, answer.model_version)


class _Ranked(msgspec.Struct):
    skill_id: str
    team: str | None = None


class _RankAnswer(msgspec.Struct):
    candidates: list[_Ranked]
    model_version: str | None = None


_JSON = {"Content-Type": "application/json"}


def _of_team(candidate: Candidate, team: str | None) -> Candidate:
    return candidate if team is None else msgspec.structs.replace(candidate, team=team)
