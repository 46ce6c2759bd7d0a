"""Query-conditioned history: which past queries picked a skill and succeeded.

Per skill two bounded memories: a decayed centroid (the sum of the query vectors, half-life 28 days) and the eight
newest vectors. Each success counts min(1/θ, 10) for the rank it was picked at, so that what was picked because it
stood on top doesn't drown what was found further down. Vectors are those of one embedder version; another version
starts a history of its own from the stored queries.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pickwise.embed import Vectors
from ranker.decay import DecayedSums, Numbers

HALF_LIFE_DAYS = 28.0
#: Newest query vectors kept a skill: with 512 dimensions 16 KB, 160 MB for 10,000 skills.
RECENT = 8
#: Successes that a skill's own description counts for in its profile.
DESCRIPTION_WEIGHT = 2.0


class QueryHistory:
    """Histories by skill row; skills without a success take no memory."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        #: Row of these tables by skill row.
        self._slot: dict[int, int] = {}
        self._sums = DecayedSums(HALF_LIFE_DAYS, width=dimension, dtype=np.float32)
        self._support = DecayedSums(HALF_LIFE_DAYS)
        self._recent = np.zeros((0, RECENT, dimension), dtype=np.float32)
        self._written = np.zeros(0, dtype=np.int64)

    def add(self, row: int, vector: Vectors, time: float, weight: float) -> None:
        """Remember a query that picked the skill and succeeded."""
        slot = self._slot.setdefault(row, len(self._slot))
        self._grow(slot + 1)
        self._sums.add_vector(slot, time, vector * np.float32(weight))
        self._support.add(slot, 0, time, weight)
        self._recent[slot, self._written[slot] % RECENT] = vector
        self._written[slot] += 1

    def centroid(self, query: Vectors, rows: NDArray[np.intp]) -> Numbers:
        """Cosine of the query to each skill's centroid; NaN where it has none."""
        found = np.full(len(rows), np.nan)
        has, slots = self._slots(rows)
        sums = self._sums.scaled(slots)
        found[has] = (sums @ query) / np.maximum(np.linalg.norm(sums, axis=1), 1e-12)
        return found

    def profile(self, query: Vectors, rows: NDArray[np.intp], descriptions: Vectors, now: float) -> Numbers:
        """Cosine of the query to history and description together: description leads until there is history."""
        profiles = DESCRIPTION_WEIGHT * descriptions
        has, slots = self._slots(rows)
        profiles[has] += self._sums.at(slots, now).astype(np.float32)
        return np.asarray((profiles @ query) / np.maximum(np.linalg.norm(profiles, axis=1), 1e-12), dtype=np.float64)

    def nearest(self, query: Vectors, rows: NDArray[np.intp]) -> Numbers:
        """Largest cosine of the query to one of the newest remembered queries; NaN where there is none."""
        found = np.full(len(rows), np.nan)
        has, slots = self._slots(rows)
        similarities = self._recent[slots] @ query
        unused = np.arange(RECENT) >= self._written[slots][:, None]
        found[has] = np.where(unused, -1.0, similarities).max(axis=1, initial=-1.0)
        return found

    def support(self, rows: NDArray[np.intp], now: float) -> Numbers:
        """Decayed, debiased number of remembered successes."""
        found = np.zeros(len(rows))
        has, slots = self._slots(rows)
        found[has] = self._support.at(slots, now)[:, 0]
        return found

    def recall(self, query: Vectors, k: int) -> list[tuple[int, float]]:
        """The k skill rows whose centroid is nearest to the query, with their cosine, best first."""
        rows = np.fromiter(self._slot, dtype=np.intp, count=len(self._slot))
        similarities = self.centroid(query, rows)
        best = np.argsort(-similarities, kind="stable")[:k]
        return [(int(rows[index]), float(similarities[index])) for index in best]

    def _slots(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Which of the rows have a history, and where it lies."""
        has = [index for index, row in enumerate(rows) if int(row) in self._slot]
        return np.array(has, dtype=np.intp), np.array([self._slot[int(rows[index])] for index in has], dtype=np.intp)

    def _grow(self, slots: int) -> None:
        self._sums.grow(slots)
        self._support.grow(slots)
        have = len(self._recent)
        if slots > have:
            size = max(slots, 2 * have, 16)
            self._recent = np.concatenate([self._recent, np.zeros((size - have, RECENT, self.dimension), np.float32)])
            self._written = np.concatenate([self._written, np.zeros(size - have, dtype=np.int64)])
