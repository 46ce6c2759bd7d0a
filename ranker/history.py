"""Query-conditioned history: which past queries picked a skill and succeeded, as vectors.

Per skill two bounded memories: a decayed centroid (the sum of the query vectors, half-life 28 days) and the newest
vectors. Every success counts alike for the direction of a centroid, which compares a skill only with itself: weights
of 1/θ there multiply the picks at deep ranks, most of which are mistakes (measured on MetaTool: NDCG@5 of the centroid
0.75 with them, 0.79 without). Position is corrected where skills are compared with each other: in ``debiased_support``,
in the fit of the blend and in the labels. Vectors are those of one embedder version; another version starts a history
of its own from the stored queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pickwise.embed import Vectors
from ranker.decay import DecayedSums, Numbers

HALF_LIFE_DAYS = 28.0
#: Newest query vectors kept a skill: with 8 of them NDCG@5 on MetaTool was 0.829, with 64 0.833, with all 0.835 …
RECENT = 64
#: … and fewer when many skills have a history: 100,000 vectors of 512 dimensions are 200 MB.
ALL_RECENT = 100_000
#: How many of the newest, the nearest ones, speak for a skill.
NEAREST = 3
#: Successes that a skill's own description counts for in its profile.
DESCRIPTION_WEIGHT = 2.0

#: Up to so many vectors a skill, copying them together takes less time than looking at each skill's by themselves.
_COPIED = 4
_COUNT, _DEBIASED = 0, 1
_UNKNOWN = np.full((2, 1), np.nan)
#: Lengths are at least this, so that what has none is like nothing.
_TINY = np.float32(1e-12)


@dataclass(frozen=True, slots=True)
class Likeness:
    """A query against the histories of some skills, arrays of one length; NaN where a skill has none.

    description: product with its description; centroid: cosine to the decayed sum of its queries; profile: to that and
    its description together; nearest: mean cosine to the ``NEAREST`` most similar of its newest queries.
    """

    description: NDArray[np.floating]
    centroid: Numbers
    profile: NDArray[np.floating]
    nearest: Numbers


class QueryHistory:
    """Histories by skill row; skills without a success take no memory."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        #: Row of these tables by skill row, -1 where it has none, as the last one never has; and the skill rows in the
        #: tables' order.
        self._slot_of = np.full(1, -1, dtype=np.intp)
        self._rows: list[int] = []
        self._sums = DecayedSums(HALF_LIFE_DAYS, width=dimension, dtype=np.float32)
        self._support = DecayedSums(HALF_LIFE_DAYS, width=2)
        #: By slot: the newest vectors as a ring, and how many were ever written.
        self._recent: list[Vectors] = []
        self._written: list[int] = []
        #: The part of each ring that was written.
        self._filled: list[Vectors] = []

    def add(self, row: int, vector: Vectors, time: float, weight: float) -> None:
        """Remember a query that picked the skill and succeeded; ``weight`` is min(1/θ, 10) of its rank."""
        slot = self._slot(row)
        self._sums.add_vector(slot, time, vector)
        self._support.add_vector(slot, time, np.array([1.0, weight]))
        self._remember(slot, vector)

    @property
    def rows(self) -> NDArray[np.intp]:
        """The skill rows that have a history."""
        return np.array(self._rows, dtype=np.intp)

    @property
    def cells(self) -> int:
        """How many numbers it holds."""
        return self._sums.cells + sum(ring.size for ring in self._recent)

    def compare(self, query: Vectors, rows: NDArray[np.intp], descriptions: Vectors, now: float) -> Likeness:
        """How like the query is to the history of each skill; ``descriptions`` as for ``profiles``."""
        has, slots = self._slots(rows)
        sums = self._sums.scaled(slots)
        along, squares, decay = sums @ query, np.vecdot(sums, sums), np.float32(self._sums.factor(now))
        centroid, nearest = _UNKNOWN.repeat(len(rows), axis=1)
        centroid[has] = along / np.maximum(np.sqrt(squares), _TINY)
        nearest[has] = self._nearest(query, slots)
        # A profile is w·d + s: its products with the query and with itself come from those of d and s.
        w, own = np.float32(DESCRIPTION_WEIGHT), descriptions if len(has) == len(rows) else descriptions[has]
        described = descriptions @ query
        profile, lengths = w * described, w * w * np.vecdot(descriptions, descriptions)
        profile[has] += decay * along
        lengths[has] += decay * (2 * w * np.vecdot(own, sums) + decay * squares)
        profile /= np.sqrt(np.maximum(lengths, _TINY * _TINY))
        return Likeness(described, centroid, profile, nearest)

    def profiles(self, rows: NDArray[np.intp], descriptions: Vectors, now: float) -> Vectors:
        """History and description as one unit vector a skill: the description leads until there is history.

        ``descriptions``: (len(rows), dimension), zeros where a skill has none.
        """
        profiles = DESCRIPTION_WEIGHT * descriptions
        has, slots = self._slots(rows)
        profiles[has] += self._sums.scaled(slots) * np.float32(self._sums.factor(now))
        profiles /= np.maximum(np.sqrt(np.vecdot(profiles, profiles)), _TINY)[:, None]
        return profiles

    def profile(self, query: Vectors, rows: NDArray[np.intp], descriptions: Vectors, now: float) -> Numbers:
        """Cosine of the query to each skill's profile."""
        return np.asarray(self.profiles(rows, descriptions, now) @ query, dtype=np.float64)

    def support(self, rows: NDArray[np.intp], now: float) -> Numbers:
        """Decayed number of remembered successes."""
        return self._supports(rows, now)[:, _COUNT]

    def debiased_support(self, rows: NDArray[np.intp], now: float) -> Numbers:
        """The same with each counted min(1/θ, 10), as if every rank had been looked at."""
        return self._supports(rows, now)[:, _DEBIASED]

    def _supports(self, rows: NDArray[np.intp], now: float) -> Numbers:
        found = np.zeros((len(rows), 2))
        has, slots = self._slots(rows)
        found[has] = self._support.at(slots, now)
        return found

    def _nearest(self, query: Vectors, slots: NDArray[np.intp]) -> Numbers:
        """Mean cosine of the query to the ``NEAREST`` most similar of each slot's newest queries."""
        if not len(slots):
            return np.zeros(0)
        rings = [self._filled[slot] for slot in slots.tolist()]
        lengths = np.array([len(ring) for ring in rings])
        if lengths.sum() <= _COPIED * len(rings):
            found = np.concatenate(rings) @ query
        else:
            found = np.concatenate([ring @ query for ring in rings])
        width = max(int(lengths.max()), NEAREST)
        similarities = np.full((len(rings), width), -np.inf, dtype=np.float32)
        similarities[np.arange(width) < lengths[:, None]] = found
        if width > NEAREST:
            similarities = np.partition(similarities, width - NEAREST, axis=1)[:, -NEAREST:]
        similarities[similarities == -np.inf] = 0.0
        return np.asarray(similarities.sum(axis=1) / np.minimum(lengths, NEAREST))

    def _slot(self, row: int) -> int:
        """Where the skill's history lies, made where it has none yet."""
        if row + 1 >= len(self._slot_of):
            more = np.full(max(row + 2, 2 * len(self._slot_of)) - len(self._slot_of), -1, dtype=np.intp)
            self._slot_of = np.concatenate([self._slot_of, more])
        if self._slot_of[row] < 0:
            self._slot_of[row] = len(self._rows)
            self._rows.append(row)
            self._sums.grow(len(self._rows))
            self._support.grow(len(self._rows))
        return int(self._slot_of[row])

    def _slots(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Which of the rows have a history, and where it lies."""
        slots = self._slot_of.take(rows, mode="clip")
        has = (slots >= 0).nonzero()[0]
        return has, slots[has]

    def _remember(self, slot: int, vector: Vectors) -> None:
        """Write into the skill's ring, which doubles until it holds as many as there is room for."""
        if slot == len(self._recent):
            self._recent.append(np.zeros((1, self.dimension), np.float32))
            self._written.append(0)
            self._filled.append(self._recent[slot][:0])
        ring, written = self._recent[slot], self._written[slot]
        room = min(RECENT, max(ALL_RECENT // len(self._recent), NEAREST))
        if written == len(ring) < room:
            more = np.zeros((min(len(ring), room - len(ring)), self.dimension), np.float32)
            ring = self._recent[slot] = np.concatenate([ring, more])
        ring[written % len(ring)] = vector
        self._written[slot] = written + 1
        if len(self._filled[slot]) < len(ring):
            self._filled[slot] = ring[: written + 1]
