"""The blend: a line through the strongest signals, whose coefficients follow the support.

    score = Σ b_j·x_j

with b from ``ranker.logit`` over the succeeded picks (``ranker.blend_fit``). With few turns it is the prior,
which nudges the retrieval by what history there is; with many the log leads. Description and history share one place: a
skill's description counts 1 - s and its history s = n ÷ (n + 2), n its remembered successes. The trees of the model are
boosted on top of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ranker import features
from ranker.decay import Numbers
from ranker.logit import Prior

#: Successes at which history counts as much as the description.
HALF_SUPPORT = 2.0
#: A share of the query's terms in a description says so much more than a share of the best keyword score.
OVERLAP_COUNTS = 3.0
#: Cosine from which on past queries are taken for the same query, asked again.
SAME_QUERY = 0.9
#: Lists that are worked out together.
_AT_ONCE = 1_000
#: The feature `query_script` of a query in CJK.
CJK_CODE = 1.0


@dataclass(frozen=True)
class Term:
    """One x_j: the feature whose contribution it is, its prior coefficient and how far the log may easily move it (a
    standard deviation), and its values from a feature matrix, where they are not the feature's own.

    Coefficients are never negative: every term is better the more there is of it. A deviation is set by how much the
    term varies in a grown log, about 1 ÷ (7·spread): in a young one what hardly varies yet would run away.
    """

    feature: str
    prior: float
    deviation: float
    values: Callable[[_Lists], Numbers] | None = None


class _Lists:
    """The features of a list, or of several one after the other, by name, 0 where they are not known: converted once,
    as all terms ask for them."""

    def __init__(self, matrix: features.Matrix, lengths: NDArray[np.intp] | None = None) -> None:
        """``lengths``: those of the lists, none of them empty, where there are several."""
        self._lengths = lengths
        columns = matrix.T.astype(np.float64, order="C")
        self._unknown = np.isnan(columns)
        columns[self._unknown] = 0.0
        #: By column of ``features.NAMES``.
        self.columns: Numbers = columns

    def __getitem__(self, name: str) -> Numbers:
        found: Numbers = self.columns[_COLUMN[name]]
        return found

    def is_known(self, name: str) -> NDArray[np.bool_]:
        return np.asarray(~self._unknown[_COLUMN[name]])

    @cached_property
    def trust(self) -> Numbers:
        """s = n ÷ (n + 2): how far a skill's history stands for it."""
        n = np.expm1(self["history_support"])
        return np.asarray(n / (n + HALF_SUPPORT))

    def of_best(self, name: str) -> Numbers:
        """Share of the list's best value; 0 where none is sent."""
        values = np.maximum(self[name], 0.0)
        if self._lengths is None:
            best = float(values.max(initial=0.0))
            return values / best if best > 0 else values
        of_lists = np.maximum.reduceat(values, np.cumsum(self._lengths) - self._lengths)
        return np.asarray(values / np.repeat(np.where(of_lists > 0, of_lists, 1.0), self._lengths))


_COLUMN = {name: column for column, name in enumerate(features.NAMES)}


def _description(x: _Lists) -> Numbers:
    return np.where(x.is_known("semantic"), x["semantic"], x["dense"]) * (1 - x.trust)


def _cjk_words(x: _Lists) -> Numbers:
    """Keywords again where the query is written in CJK: its bigrams tell skills apart better than words elsewhere."""
    is_cjk = x["query_script"] == CJK_CODE
    if not is_cjk.any():
        return np.zeros(len(is_cjk))
    return np.asarray((x.of_best("bm25") + OVERLAP_COUNTS * x["overlap"]) * is_cjk)


def _asked_before(x: _Lists) -> Numbers:
    """1 where the skill answered this very query, 0 where the nearest are but alike: what is asked again must not teach
    how far to trust mere likeness."""
    likeness = (x["history_nearest"] - SAME_QUERY) / (1 - SAME_QUERY)
    return np.minimum(np.maximum(likeness, 0.0), 1.0) * x.trust


#: Priors by what ranks unseen queries best after 200 to 8,000 simulated turns, English and Chinese, two embedders.
TERMS: tuple[Term, ...] = (
    Term("semantic", 5.0, 1.5, _description),
    Term("history_profile", 4.0, 1.5),
    Term("history_centroid", 1.0, 1.0, lambda x: x["history_centroid"] * x.trust),
    Term("history_nearest", 3.0, 1.0, lambda x: x["history_nearest"] * x.trust),
    Term("history_nearest_lead", 3.0, 0.5, _asked_before),
    Term("history_words", 1.0, 0.35),
    Term("history_support", 0.0, 0.5, lambda x: x.trust),
    Term("bm25", 0.6, 0.6, lambda x: x.of_best("bm25")),
    Term("overlap", 0.6, 2.5),
    Term("query_script", 5.0, 1.0, _cjk_words),
    Term("rerank", 1.5, 0.6, lambda x: x.of_best("rerank")),
    Term("success_logit", 0.4, 0.35),
    Term("transition", 0.3, 0.3),
    Term("domain_match", 0.5, 0.35),
)
#: Rows of the terms that are a feature's own values, and the columns of these; and the other terms.
_OWN_ROWS = [row for row, term in enumerate(TERMS) if term.values is None]
_OWN_COLUMNS = [_COLUMN[TERMS[row].feature] for row in _OWN_ROWS]
_WORKED_OUT = [(row, term.values) for row, term in enumerate(TERMS) if term.values is not None]
PRIOR: Numbers = np.array([term.prior for term in TERMS])
NORMAL_PRIOR = Prior(PRIOR, np.array([term.deviation for term in TERMS]))


def inputs(matrix: features.Matrix) -> Numbers:
    """x of one list's candidates, shape (candidates, len(TERMS))."""
    return _inputs(_Lists(matrix))


def inputs_of(matrices: Sequence[features.Matrix]) -> list[Numbers]:
    """The same of many lists, none of them empty."""
    found: list[Numbers] = []
    for start in range(0, len(matrices), _AT_ONCE):
        part = matrices[start : start + _AT_ONCE]
        lengths = np.array([len(matrix) for matrix in part], dtype=np.intp)
        together = np.ascontiguousarray(_inputs(_Lists(np.concatenate(part), lengths)))
        ends = np.cumsum(lengths)
        found += [together[first:end] for first, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True)]
    return found


def _inputs(known: _Lists) -> Numbers:
    found = np.empty((len(TERMS), known.columns.shape[1]))
    found[_OWN_ROWS] = known.columns[_OWN_COLUMNS]
    for row, values in _WORKED_OUT:
        found[row] = values(known)
    return found.T


def coefficients(named: Mapping[str, float]) -> Numbers:
    """Coefficients in the order of TERMS, from those stored by feature; 0 for what is not among them."""
    return np.array([named.get(term.feature, 0.0) for term in TERMS])


def named(found: Numbers) -> dict[str, float]:
    """Coefficients by the feature whose contribution they make."""
    return {term.feature: float(value) for term, value in zip(TERMS, found, strict=True)}
