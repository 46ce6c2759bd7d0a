"""Recall by history: the skills whose past successful queries are nearest to a query, whatever retrieval finds.

Each skill is one unit vector, its profile: the decayed sum of the queries that picked it and succeeded, and its
description. Scoring all of them is one matrix product. The same vectors can be downloaded, see ``ranker.artefacts``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pickwise.embed import Vectors
from pickwise.events import plain_reason
from ranker.decay import Numbers
from ranker.state import State

MAX_K = 200
DEFAULT_K = 50


class RecallError(ValueError):
    """A request that can't be answered; the message names the field and what was expected."""


class RecallRequest(msgspec.Struct, kw_only=True):
    """The body of ``POST /v1/recall``."""

    query: str
    k: int = DEFAULT_K
    domain: str | None = None


@dataclass(frozen=True)
class Recall:
    """The profiles of the skills that have a history, as of one version of the weights.

    ``vectors`` has a row a skill, of length 1; ``support`` is its decayed number of successes.
    """

    project: str
    weights_version: str
    embedding_version: str
    skill_ids: list[str]
    domains: list[str]
    support: Numbers
    vectors: Vectors

    def best(self, query: Vectors, asked: RecallRequest) -> dict[str, Any]:
        """The response of ``POST /v1/recall``: best first, ``score`` is the cosine."""
        scores = self.vectors @ query
        allowed = self._of(asked.domain)
        if len(allowed) > asked.k:  # so that only the best are sorted
            allowed = allowed[np.argpartition(-scores[allowed], asked.k)[: asked.k]]
        near = allowed[np.argsort(-scores[allowed], kind="stable")]
        return {
            "weights_version": self.weights_version,
            "embedding_version": self.embedding_version,
            "skills": [
                {
                    "skill_id": self.skill_ids[row],
                    "score": float(scores[row]),
                    "support": float(self.support[row]),
                }
                for row in near
            ],
        }

    def _of(self, domain: str | None) -> NDArray[np.intp]:
        return np.arange(len(self.skill_ids)) if domain is None else self._by_domain.get(domain.casefold(), _NONE)

    @cached_property
    def _by_domain(self) -> dict[str, NDArray[np.intp]]:
        rows: dict[str, list[int]] = {}
        for row, domain in enumerate(self.domains):
            rows.setdefault(domain.casefold(), []).append(row)
        return {domain: np.array(found, dtype=np.intp) for domain, found in rows.items()}


_NONE = np.zeros(0, dtype=np.intp)


def decode_recall(request: Any) -> RecallRequest:
    """Raises RecallError naming the field."""
    try:
        asked = msgspec.convert(request, RecallRequest)
    except msgspec.ValidationError as error:
        raise RecallError(plain_reason(str(error))) from error
    if not 1 <= asked.k <= MAX_K:
        raise RecallError(f"k: expected 1 to {MAX_K}, got {asked.k}")
    return asked


def recall_of(
    state: State, skill_ids: list[str], project: str, weights_version: str, embedding_version: str, now: float
) -> Recall:
    """The profiles of those of the skills that have a history, as of ``now`` (Unix seconds)."""
    rows = state.rows(skill_ids)
    support = state.history.support(rows, now)
    kept = np.flatnonzero(support > 0)
    rows = rows[kept]
    return Recall(
        project=project,
        weights_version=weights_version,
        embedding_version=embedding_version,
        skill_ids=[skill_ids[index] for index in kept],
        domains=[state.skills[row].domain for row in rows],
        support=support[kept],
        vectors=state.history.profiles(rows, state.descriptions[rows], now),
    )
