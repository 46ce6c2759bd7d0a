"""Query-conditioned history by words: how much likelier the query's terms are among a skill's past queries.

    odds(t | skill) = ln( (c_t + 10·b_t) ÷ (n + 10) ÷ b_t ),  b_t = (df_t + ½) ÷ (N + 1)

c_t: decayed successes of the skill whose query has the term, n: all of them; df_t, N: the same over all queries. Each
skill's word rates are shrunk towards the background by ten pseudo-queries (the binary model of Robertson & Spärck
Jones, "Relevance weighting of search terms", JASIS 27 (1976), presence only). The score of a query is the mean over
its terms, 0 for a skill without history. Beside vectors of one embedder it tells near skills apart by their own words;
where no embedder is installed it is all there is.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from math import log1p

import numpy as np
from numpy.typing import NDArray

from pickwise.text import terms as terms_of
from ranker.decay import DAY_S, Numbers

HALF_LIFE_DAYS = 28.0
#: Pseudo-queries from the background that every skill starts with.
PRIOR_QUERIES = 10.0
#: Terms kept a skill, and of all queries; beyond, the rarer half is forgotten.
SKILL_TERMS = 1_000
ALL_TERMS = 200_000
#: Counts are stored relative to a reference time, which moves before 2^x gets too large.
_REBASE_HALF_LIVES = 60.0


@lru_cache(maxsize=4_096)
def query_terms(query: str) -> tuple[str, ...]:
    """The distinct terms of a query, in one order: sums over them are the same in every process."""
    return tuple(sorted(set(terms_of(query))))


class WordHistory:
    """Decayed term counts, by skill row and of all queries. Facts may come in any order."""

    def __init__(self) -> None:
        self._reference: float | None = None
        self._all: dict[str, float] = {}
        self._queries = 0.0
        self._skills: dict[int, dict[str, float]] = {}
        self._successes: dict[int, float] = {}

    def asked(self, terms: Collection[str], time: float) -> None:
        """Count a query; ``terms`` are distinct."""
        weight = self._weight(time)
        self._queries += weight
        _count(self._all, terms, weight, ALL_TERMS)

    def add(self, row: int, terms: Collection[str], time: float) -> None:
        """Count a query that picked the skill and succeeded."""
        weight = self._weight(time)
        self._successes[row] = self._successes.get(row, 0.0) + weight
        _count(self._skills.setdefault(row, {}), terms, weight, SKILL_TERMS)

    def odds(self, terms: Collection[str], rows: NDArray[np.intp], now: float) -> Numbers:
        """Mean log odds of the terms for each skill; 0 where there is no history or no term."""
        if not terms or self._reference is None:
            return np.zeros(len(rows))
        decay = 2.0 ** ((self._reference - now) / (HALF_LIFE_DAYS * DAY_S))
        frequencies = np.array([self._all.get(term, 0.0) for term in terms]) * decay
        background = (frequencies + 0.5) / (self._queries * decay + 1)
        found = np.zeros(len(rows))
        # A term that no query of the skill had makes it less likely by how many there were, whatever the term.
        weights = dict(zip(terms, (decay / (PRIOR_QUERIES * background)).tolist(), strict=True))
        skills, successes = self._skills, self._successes
        for index, row in enumerate(rows.tolist()):
            counted = skills.get(row)
            if counted is not None:
                total = -len(weights) * log1p(successes[row] * decay / PRIOR_QUERIES)
                for term, weight in weights.items():
                    if term in counted:
                        total += log1p(counted[term] * weight)
                found[index] = total / len(weights)
        return found

    def _weight(self, time: float) -> float:
        half_life_s = HALF_LIFE_DAYS * DAY_S
        if self._reference is None:
            self._reference = time
        exponent = (time - self._reference) / half_life_s
        if exponent > _REBASE_HALF_LIVES:
            self._rescale(2.0**-exponent)
            self._reference, exponent = time, 0.0
        return float(2.0**exponent)

    def _rescale(self, factor: float) -> None:
        self._queries *= factor
        for counts in (self._all, *self._skills.values()):
            for term in counts:
                counts[term] *= factor
        for row in self._successes:
            self._successes[row] *= factor


def _count(counts: dict[str, float], terms: Collection[str], weight: float, room: int) -> None:
    for term in terms:
        counts[term] = counts.get(term, 0.0) + weight
    if len(counts) > room:
        for term in sorted(counts, key=counts.__getitem__)[: len(counts) - room // 2]:
            del counts[term]
