"""The third arm of recall: which skills answered queries like this one, as the service remembers it.

The service's artefact is one vector a skill: of the queries that picked it and succeeded, and of its description. It is
downloaded when it changed, so that no query waits for the service.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discovery.documents import PolledDocument
from discovery.fusion import FloatArray, min_max
from pickwise.embed import Vectors

logger = logging.getLogger(__name__)

ARTEFACT_PATH = "/v1/recall/artefact"
#: Successes that retrieval's own score counts for. NDCG@5 on MetaTool after 50, 200, 600, 1,500 and 4,000 turns: 0.652,
#: 0.664, 0.689, 0.715, 0.749; retrieval alone 0.651, history alone 0.137, 0.369, 0.567, 0.698, 0.746.
RETRIEVAL_COUNTS_FOR = 3.0


@dataclass(frozen=True, eq=False)
class History:
    """Vectors of length 1 by skill, comparable with those of ``embedding_version``; ``support`` in successes."""

    skill_ids: list[str]
    support: FloatArray
    vectors: Vectors
    weights_version: str
    embedding_version: str


def decode_history(content: bytes) -> History:
    """Raises ValueError naming what has the wrong form."""
    table = pa.ipc.open_file(pa.py_buffer(content)).read_all()
    told = table.schema.metadata or {}
    missing = [name for name in ("skill_id", "support", "vector") if name not in table.column_names]
    missing += [name.decode() for name in (b"weights_version", b"embedding_version") if name not in told]
    if missing:
        raise ValueError(f"{missing[0]}: missing in the artefact")
    if not pa.types.is_fixed_size_list(table.schema.field("vector").type):
        raise ValueError(f"vector: expected a list of fixed length, got {table.schema.field('vector').type}")
    flat = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return History(
        skill_ids=table["skill_id"].to_pylist(),
        support=table["support"].to_numpy().astype(np.float64),
        vectors=flat.astype(np.float32).reshape(table.num_rows, -1),
        weights_version=told[b"weights_version"].decode(),
        embedding_version=told[b"embedding_version"].decode(),
    )


class HistoryClient(PolledDocument[History]):
    """Polls ``GET /v1/recall/artefact``. ``value`` is the last good one, None while no skill has a history."""

    def __init__(self, http: httpx.Client, cache_path: Path | None = None) -> None:
        super().__init__(http, ARTEFACT_PATH, decode_history, cache_path, parse=bytes, may_be_missing=True)


class UsageArm:
    """A history over the skills of one index, in its order."""

    def __init__(self, history: History, skill_ids: Sequence[str]) -> None:
        row_of = {skill_id: row for row, skill_id in enumerate(history.skill_ids)}
        known = [(position, row_of[skill_id]) for position, skill_id in enumerate(skill_ids) if skill_id in row_of]
        self._positions = np.array([position for position, _ in known], dtype=np.intp)
        rows = [row for _, row in known]
        self._vectors = history.vectors[rows]
        # What nobody picked yet is judged as the average skill is: by retrieval while there is little history at all.
        support = np.full(len(skill_ids), history.support[rows].sum() / max(len(skill_ids), 1))
        support[self._positions] = history.support[rows]
        self._trust = support / (support + RETRIEVAL_COUNTS_FOR)

    def blend(self, scores: FloatArray, dense: FloatArray, query: Vectors) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Retrieval's scores with history's, which weighs n ÷ (n + 3) for n successes.

        Both are min-max scaled over all skills; ``dense``, their cosines, stands in where there is no history. Returns
        the scores, and which skills owe the larger part of theirs to their history.
        """
        led = np.zeros(len(scores), dtype=bool)
        if not len(self._positions):
            return scores, led
        similar = dense.copy()
        similar[self._positions] = self._vectors @ query
        by_use, by_retrieval = self._trust * min_max(similar), (1 - self._trust) * min_max(scores)
        led[self._positions] = (by_use > by_retrieval)[self._positions]
        return by_use + by_retrieval, led


def usable(history: History, embedding_version: str) -> bool:
    """Whether a layer with that embedder can use it; the log says why not."""
    if history.embedding_version != embedding_version:
        logger.warning(
            "history is of %s, queries are embedded by %s: it is left out", history.embedding_version, embedding_version
        )
        return False
    return True
