"""Query-conditioned history by words: how much likelier the query's terms are among a skill's past queries.

    odds(t | skill) = ln( (c_t + 10·b_t) ÷ (n + 10) ÷ b_t ),  b_t = (df_t + ½) ÷ (N + 1)

c_t: decayed successes of the skill whose query has the term, n: all of them; df_t, N: the same over all queries. Each
skill's word rates are shrunk towards the background by ten pseudo-queries (the binary model of Robertson & Spärck
Jones, "Relevance weighting of search terms", JASIS 27 (1976), presence only). The score of a query is the mean over
its terms, 0 for a skill without history. Beside vectors of one embedder it tells near skills apart by their own words;
where no embedder is installed it is all there is.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping
from functools import lru_cache
from itertools import repeat

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
    """Decayed term counts, by term and skill row and of all queries. Facts may come in any order."""

    def __init__(self) -> None:
        self._reference: float | None = None
        self._all: dict[str, float] = {}
        self._queries = 0.0
        #: By term: how often the skills' queries had it, by row. A request asks for few terms of many skills.
        self._counts: dict[str, dict[int, float]] = {}
        #: By row, the last one of no skill: successes, and distinct terms.
        self._successes = np.zeros(1)
        self._distinct = np.zeros(1, dtype=np.intp)

    def asked(self, terms: Collection[str], time: float) -> None:
        """Count a query; ``terms`` are distinct."""
        weight = self._weight(time)
        self._queries += weight
        for term in terms:
            self._all[term] = self._all.get(term, 0.0) + weight
        if len(self._all) > ALL_TERMS:
            _forget_rarer(self._all, ALL_TERMS // 2)

    def add(self, row: int, terms: Collection[str], time: float) -> None:
        """Count a query that picked the skill and succeeded."""
        weight = self._weight(time)
        self._grow(row)
        self._successes[row] += weight
        for term in terms:
            counts = self._counts.setdefault(term, {})
            self._distinct[row] += row not in counts
            counts[row] = counts.get(row, 0.0) + weight
        if self._distinct[row] > SKILL_TERMS:
            self._set_terms(row, _forget_rarer(self.terms_of(row), SKILL_TERMS // 2))

    def terms_of(self, row: int) -> dict[str, float]:
        """The terms that are kept of a skill with their counts."""
        return {term: counts[row] for term, counts in self._counts.items() if row in counts}

    def odds(self, terms: Collection[str], rows: NDArray[np.intp], now: float) -> Numbers:
        """Mean log odds of the terms for each skill; 0 where there is no history or no term."""
        if not terms or self._reference is None:
            return np.zeros(len(rows))
        decay = 2.0 ** ((self._reference - now) / (HALF_LIFE_DAYS * DAY_S))
        # A term that no query of the skill had makes it less likely by how many there were, whatever the term.
        successes = self._successes.take(rows, mode="clip")
        total = np.log1p(successes * (decay / PRIOR_QUERIES)) * -len(terms)
        shown = rows.tolist()
        for term in terms:
            counts = self._counts.get(term)
            if counts is not None:
                background = (self._all.get(term, 0.0) * decay + 0.5) / (self._queries * decay + 1)
                of_skills = np.fromiter(map(counts.get, shown, repeat(0.0)), dtype=np.float64, count=len(shown))
                total += np.log1p(of_skills * (decay / (PRIOR_QUERIES * background)))
        return np.asarray(total / len(terms))

    def _set_terms(self, row: int, kept: Mapping[str, float]) -> None:
        for term, counts in list(self._counts.items()):
            if row in counts and term not in kept:
                del counts[row]
                if not counts:
                    del self._counts[term]
        self._distinct[row] = len(kept)

    def _grow(self, row: int) -> None:
        if row + 1 >= len(self._successes):
            more = max(row + 2, 2 * len(self._successes)) - len(self._successes)
            self._successes = np.concatenate([self._successes, np.zeros(more)])
            self._distinct = np.concatenate([self._distinct, np.zeros(more, dtype=np.intp)])

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
        self._successes *= factor
        for term in self._all:
            self._all[term] *= factor
        for counts in self._counts.values():
            for row in counts:
                counts[row] *= factor


class DescribedBy:
    """Which skills have a term in their name and description."""

    def __init__(self) -> None:
        #: Rows by term; sets would take ten times the memory.
        self._rows: dict[str, array[int]] = {}
        self._most = 0

    def move(self, row: int, before: Collection[str], now: Collection[str]) -> None:
        """The skill was described by some terms, and is by others now; both are distinct."""
        self._most = max(row, self._most)
        for term in set(before).difference(now):
            self._rows[term].remove(row)
        for term in set(now).difference(before):
            self._rows.setdefault(term, array("q")).append(row)

    def share(self, terms: Collection[str], rows: NDArray[np.intp]) -> Numbers:
        """Share of the terms that describe each skill. ``terms`` are distinct, at least one."""
        counts = np.zeros(self._most + 2, dtype=np.uint16)  # the last one is that of skills without a description
        for term in terms:
            described = self._rows.get(term)
            if described:
                counts[np.frombuffer(described, dtype=np.int64)] += 1
        return np.asarray(counts.take(rows, mode="clip") / len(terms))


def _forget_rarer(counts: dict[str, float], kept: int) -> dict[str, float]:
    """The counts without the rarest terms, as many as are too many."""
    for term in sorted(counts, key=counts.__getitem__)[: len(counts) - kept]:
        del counts[term]
    return counts
