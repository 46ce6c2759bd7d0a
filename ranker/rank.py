"""Answers a request to rank: the promoted model's order, or before any model the formula's, with its reasons."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from pickwise.events import MAX_CANDIDATES, MAX_QUERY_BYTES, Intent, SkillId, cut_utf8, plain_reason
from pickwise.scores import SCORES
from pickwise.settings import Settings
from ranker import features
from ranker.decay import Numbers
from ranker.examination import SHUFFLED_DEPTH
from ranker.features.base import Context
from ranker.interleave import team_draft
from ranker.log import Log
from ranker.ranks import order
from ranker.recall import decode_recall
from ranker.serving import Projects, Served
from ranker.turns import Turn

Response = dict[str, Any]
#: Scores, and by candidate what each term or feature adds to its score.
_Scored = tuple[Numbers, list[msgspec.Struct]]


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


_SCORES_OF = attrgetter(*SCORES)


class Ranker:
    """Ranks for all projects of a data folder; looks for new weights and models every ``model_poll_s``.

    Safe to use from several threads.
    """

    def __init__(
        self,
        data_dir: Path,
        settings: Settings,
        seed: int | None = None,
        read: Callable[[str], Log] | None = None,
    ) -> None:
        """``read`` as for ``Projects``."""
        self.projects = Projects(data_dir, settings, read)
        self._rng = np.random.default_rng(seed)

    def close(self) -> None:
        self.projects.close()

    def is_quick(self, project: str, request: Any) -> bool:
        """Whether ranking now waits neither for loading nor for an embedding."""
        served = self.projects.loaded(project)
        return served is not None and served.is_quick(_query(request))

    def recalls_quickly(self, project: str, request: Any) -> bool:
        """The same of recall."""
        served = self.projects.loaded(project)
        return served is not None and served.recall is not None and served.is_quick(_query(request))

    def recall(self, project: str, request: Any) -> Response:
        """The response of ``POST /v1/recall``. Raises RecallError."""
        asked = decode_recall(request)
        served = self.projects.with_recall(project)
        assert served.recall is not None
        return served.recall.best(served.embed(_cut(asked.query)), asked)

    def rank(self, project: str, request: Mapping[str, Any]) -> Response:
        """The response of ``POST /v1/rank``. Raises RankError."""
        found: Response = msgspec.to_builtins(self.ranked(project, request))
        return found

    def ranked(self, project: str, request: Mapping[str, Any]) -> Response:
        """The same, to be encoded: what is many times in it comes as structs. Raises RankError."""
        asked = decode_request(request)
        served = self.projects.get(project)
        rankers = served.rankers(asked.session_id or "")
        turn = _turn(asked, served)
        with served.lock:
            context = Context(turn, served.state)
            known = served.known(context.rows)
            is_learned = bool(turn.skill_ids) and any(ranker.paths for ranker in rankers)
            matrix = features.compute(context, served.standing.of(context.rows, turn.time)) if is_learned else None
            scored = [_scored(context, matrix, ranker) for ranker in rankers]
        placed, propensities, randomized = _order(scored[0][0], known), np.ones(len(known)), False
        if asked.explore:
            placed, propensities, randomized = explore(placed, served.document.explore.shuffle_fraction, self._rng)
        versions = [ranker.model.meta.version if ranker.model else None for ranker in rankers]
        if len(rankers) == 2 and not randomized:
            candidates = self._interleaved(request, placed, scored, known, versions)
        else:
            shown = _shown(scored[0][0], known)
            candidates = [
                {
                    **request["candidates"][index],
                    "score": shown[index],
                    "contributions": scored[0][1][index],
                    "propensity": propensity,
                }
                for index, propensity in zip(placed, propensities.tolist(), strict=True)
            ]
            versions = versions[:1]
        response: Response = {
            "weights_version": served.document.version,
            "model_version": "+".join(version for version in versions if version) or None,
            "candidates": candidates,
        }
        if asked.explore:
            response["randomized"] = randomized
        return response

    def _interleaved(
        self,
        request: Mapping[str, Any],
        first: Sequence[int],
        scored: Sequence[_Scored],
        known: np.ndarray,
        versions: Sequence[str | None],
    ) -> list[dict[str, Any]]:
        """One list out of two orders, each candidate with the version that chose it as its ``team``.

        No ``propensity``: the draft is no policy whose chances are known.
        """
        shown = [_shown(scores, known) for scores, _ in scored]
        return [
            {
                **request["candidates"][index],
                "score": shown[team][index],
                "contributions": scored[team][1][index],
                "propensity": None,
                "team": versions[team],
            }
            for index, team in team_draft(first, _order(scored[1][0], known), self._rng)
        ]


def decode_request(request: Mapping[str, Any]) -> RankRequest:
    """Raises RankError naming the field."""
    try:
        asked = msgspec.convert(request, RankRequest)
    except msgspec.ValidationError as error:
        raise RankError(plain_reason(str(error))) from error
    skill_ids = [candidate.skill_id for candidate in asked.candidates]
    if len(set(skill_ids)) < len(skill_ids):
        index = next(index for index, skill_id in enumerate(skill_ids) if skill_id in skill_ids[:index])
        raise RankError(f"candidates[{index}].skill_id: {skill_ids[index]!r} is listed twice, expected distinct skills")
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


def _query(request: Any) -> str:
    """The query of a request that was not looked at yet."""
    query = request.get("query") if isinstance(request, dict) else None
    return _cut(query) if isinstance(query, str) else ""


def _cut(query: str) -> str:
    found, _ = cut_utf8(query, MAX_QUERY_BYTES)
    return found


def _order(scores: Numbers, known: np.ndarray) -> list[int]:
    """Known skills by score, then unknown ones as they came."""
    best_first = order(scores)
    if not known.all():
        best_first = np.concatenate([best_first[known[best_first]], np.flatnonzero(~known)])
    found: list[int] = best_first.tolist()
    return found


def _shown(scores: Numbers, known: np.ndarray) -> list[float]:
    """The scores as they are told: an unknown skill's is no higher than the last known one's."""
    if not known.all():
        floor = float(scores[known].min()) if known.any() else np.inf
        scores = np.where(known, scores, np.minimum(scores, floor))
    found: list[float] = scores.tolist()
    return found


def _turn(asked: RankRequest, served: Served) -> Turn:
    query = _cut(asked.query)
    told = np.array([_SCORES_OF(candidate) for candidate in asked.candidates], dtype=np.float64)
    scores = np.ascontiguousarray(told.reshape(-1, len(SCORES)).T)
    scores[np.isinf(scores)] = np.nan
    intent = asked.intent or Intent()
    return Turn(
        selection_id="",
        time=time.time(),
        query=query,
        vector=served.embed(query),
        skill_ids=[candidate.skill_id for candidate in asked.candidates],
        scores=dict(zip(SCORES, scores, strict=True)),
        model=asked.model or "",
        session_id=asked.session_id or "",
        language=asked.language,
        previous_skill_id=asked.previous_skill_id,
        intent_domain=intent.domain,
        intent_action=intent.action,
        intent_object=intent.object,
    )


def _scored(context: Context, matrix: features.Matrix | None, served: Served) -> _Scored:
    """By the served model, else by the formula. Features of a model that add nothing to any of them are left out."""
    if not context.turn.skill_ids:
        return np.zeros(0), []
    if served.paths is None or matrix is None:
        terms = served.formula_terms(context)
        names, parts = list(terms), np.array(list(terms.values()))
    else:
        names, parts = served.paths.told(matrix)
    form = _contributions(tuple(names))
    return parts.sum(axis=0), [form(*values) for values in parts.T.tolist()]


@lru_cache(maxsize=256)
def _contributions(names: tuple[str, ...]) -> type[msgspec.Struct]:
    """A form with a field for each: made in a sixth of a dict's time."""
    return msgspec.defstruct("Contributions", [(name, float) for name in names], gc=False)
