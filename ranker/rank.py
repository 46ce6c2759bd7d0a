"""Answers a request to rank: the promoted model's order, or before any model the formula's, with its reasons."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from pickwise.events import MAX_CANDIDATES, MAX_QUERY_BYTES, Intent, SkillId, cut_utf8, finite, plain_reason
from pickwise.settings import Settings
from ranker import features
from ranker.decay import Numbers
from ranker.examination import SHUFFLED_DEPTH
from ranker.features.base import Context
from ranker.ranks import order
from ranker.serving import Projects, Served
from ranker.turns import SCORES, Turn

Response = dict[str, Any]


class RankError(ValueError):
    """A request that can't be ranked; the message names the field and what was expected."""


class RankCandidate(msgspec.Struct, kw_only=True):
    skill_id: SkillId
    score: float | None = None
    bm25: float | None = None
    dense: float | None = None
    rerank: float | None = None


class RankRequest(msgspec.Struct, kw_only=True):
    """The body of ``POST /v1/rank``. ``explore`` lets the answer shuffle its first five now and then."""

    query: str
    candidates: Annotated[list[RankCandidate], msgspec.Meta(max_length=MAX_CANDIDATES)]
    model: str | None = None
    session_id: str | None = None
    previous_skill_id: str | None = None
    language: str | None = None
    intent: Intent | None = None
    explore: bool = False


class Ranker:
    """Ranks for all projects of a data folder; looks for new weights and models every ``model_poll_s``.

    Safe to use from several threads.
    """

    def __init__(self, data_dir: Path, settings: Settings, seed: int | None = None) -> None:
        self.projects = Projects(data_dir, settings)
        self._rng = np.random.default_rng(seed)

    def close(self) -> None:
        self.projects.close()

    def rank(self, project: str, request: Mapping[str, Any]) -> Response:
        """The response of ``POST /v1/rank``. Raises RankError."""
        asked = decode_request(request)
        served = self.projects.get(project)
        with served.lock:
            turn = _turn(asked, served)
            known = served.known(turn.skill_ids)
            scores, contributions = _scored(turn, served)
        placed = _order(scores, known)
        randomized, propensities = False, np.ones(len(placed))
        if asked.explore:
            placed, propensities, randomized = explore(placed, served.document.explore.shuffle_fraction, self._rng)
        floor = float(scores[known].min()) if known.any() else np.inf
        response: Response = {
            "weights_version": served.document.version,
            "model_version": served.model.meta.version if served.model else None,
            "candidates": [
                {
                    **request["candidates"][index],
                    "score": float(scores[index] if known[index] else min(scores[index], floor)),
                    "contributions": contributions[index],
                    "propensity": float(propensity),
                }
                for index, propensity in zip(placed, propensities, strict=True)
            ],
        }
        if asked.explore:
            response["randomized"] = randomized
        return response


def decode_request(request: Mapping[str, Any]) -> RankRequest:
    """Raises RankError naming the field."""
    try:
        asked = msgspec.convert(request, RankRequest)
    except msgspec.ValidationError as error:
        raise RankError(plain_reason(str(error))) from error
    skill_ids = [candidate.skill_id for candidate in asked.candidates]
    for index, skill_id in enumerate(skill_ids):
        if skill_id in skill_ids[:index]:
            raise RankError(f"candidates[{index}].skill_id: {skill_id!r} is listed twice, expected distinct skills")
    return asked


def explore(placed: Sequence[int], fraction: float, rng: np.random.Generator) -> tuple[list[int], Numbers, bool]:
    """With probability ``fraction`` the first five in random order.

    Returns the order, the probability that this policy puts each skill at its rank, and whether it was shuffled.
    """
    depth = min(SHUFFLED_DEPTH, len(placed))
    shuffled = depth > 1 and bool(rng.random() < fraction)
    top = [placed[index] for index in rng.permutation(depth)] if shuffled else list(placed[:depth])
    found = [*top, *placed[depth:]]
    propensities = np.ones(len(found))
    for rank in range(depth):
        own = (1 - fraction) if found[rank] == placed[rank] else 0.0
        propensities[rank] = own + fraction / depth if depth > 1 else 1.0
    return found, propensities, shuffled


def _order(scores: Numbers, known: np.ndarray) -> list[int]:
    """Known skills by score, then unknown ones as they came."""
    best_first = order(scores)
    return [int(index) for index in best_first if known[index]] + [
        index for index in range(len(scores)) if not known[index]
    ]


def _turn(asked: RankRequest, served: Served) -> Turn:
    query, _ = cut_utf8(asked.query, MAX_QUERY_BYTES)
    scores = {name: np.array([_number(getattr(candidate, name)) for candidate in asked.candidates]) for name in SCORES}
    intent = asked.intent or Intent()
    return Turn(
        selection_id="",
        time=time.time(),
        query=query,
        vector=served.embed(query),
        skill_ids=[candidate.skill_id for candidate in asked.candidates],
        scores=scores,
        model=asked.model or "",
        session_id=asked.session_id or "",
        language=asked.language,
        previous_skill_id=asked.previous_skill_id,
        intent_domain=intent.domain,
        intent_action=intent.action,
        intent_object=intent.object,
    )


def _number(value: float | None) -> float:
    value = finite(value)
    return np.nan if value is None else value


def _scored(turn: Turn, served: Served) -> tuple[Numbers, list[dict[str, float]]]:
    """Scores and, for each candidate, what each term or feature adds to its score.

    Features of a model that add nothing are left out; the three terms of the score before any model are always there.
    """
    if not turn.skill_ids:
        return np.zeros(0), []
    if served.model is None:
        parts = served.formula_terms(turn)
        columns, names = np.column_stack(list(parts.values())), list(parts)
    else:
        columns = served.model.contributions(features.compute(Context(turn, served.state)))
        names = [*served.model.meta.features, "base"]
    contributions = [
        {name: float(value) for name, value in zip(names, row, strict=True) if value or served.model is None}
        for row in columns
    ]
    return columns.sum(axis=1), contributions
