"""The blend: a line through the strongest signals, whose coefficients follow the support.

    score = Σ b_j·x_j

with b from ``ranker.logit`` over the succeeded picks, each weighing min(1/θ, 10). With few turns it is the prior, which
nudges the retrieval by what history there is; with many the log leads. Description and history share one place: a
skill's description counts 1 - s and its history s = n ÷ (n + 2), n its remembered successes. The trees of the model are
boosted on top of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ranker import features
from ranker.decay import Numbers

#: λ of the prior.
PRIOR_STRENGTH = 50.0
#: Successes at which history counts as much as the description.
HALF_SUPPORT = 2.0


@dataclass(frozen=True)
class Term:
    """One x_j: the feature whose contribution it is, its prior coefficient, and its values from a feature matrix.

    Coefficients are never negative: every term is better the more there is of it.
    """

    feature: str
    prior: float
    values: Callable[[features.Matrix], Numbers]


def _column(matrix: features.Matrix, name: str) -> Numbers:
    return np.asarray(matrix[:, features.NAMES.index(name)], dtype=np.float64)


def _known(matrix: features.Matrix, name: str) -> Numbers:
    return np.nan_to_num(_column(matrix, name), nan=0.0)


def _trust(matrix: features.Matrix) -> Numbers:
    """s = n ÷ (n + 2): how far a skill's history stands for it."""
    n = np.expm1(_known(matrix, "history_support"))
    return np.asarray(n / (n + HALF_SUPPORT))


def _description(matrix: features.Matrix) -> Numbers:
    own = _column(matrix, "semantic")
    return np.asarray(np.nan_to_num(np.where(np.isnan(own), _column(matrix, "dense"), own)) * (1 - _trust(matrix)))


def _of_best(matrix: features.Matrix, name: str) -> Numbers:
    """Share of the list's best value; 0 where none is sent."""
    values = np.maximum(_known(matrix, name), 0.0)
    best = values.max(initial=0.0)
    return values / best if best > 0 else values


TERMS: tuple[Term, ...] = (
    Term("semantic", 8.0, _description),
    Term("history_centroid", 6.0, lambda m: _known(m, "history_centroid") * _trust(m)),
    Term("history_nearest", 2.0, lambda m: _known(m, "history_nearest") * _trust(m)),
    Term("history_words", 0.2, lambda m: _known(m, "history_words")),
    Term("history_support", 0.0, _trust),
    Term("bm25", 1.5, lambda m: _of_best(m, "bm25")),
    Term("overlap", 0.0, lambda m: _known(m, "overlap")),
    Term("rerank", 1.5, lambda m: _of_best(m, "rerank")),
    Term("success_logit", 0.5, lambda m: _known(m, "success_logit")),
    Term("transition", 0.3, lambda m: _known(m, "transition")),
    Term("domain_match", 0.5, lambda m: _known(m, "domain_match")),
)
PRIOR: Numbers = np.array([term.prior for term in TERMS])


def inputs(matrix: features.Matrix) -> Numbers:
    """x of one list's candidates, shape (candidates, len(TERMS))."""
    return np.column_stack([term.values(matrix) for term in TERMS])


def coefficients(named: Mapping[str, float]) -> Numbers:
    """Coefficients in the order of TERMS, from those stored by feature; 0 for what is not among them."""
    return np.array([named.get(term.feature, 0.0) for term in TERMS])


def named(found: Numbers) -> dict[str, float]:
    """Coefficients by the feature whose contribution they make."""
    return {term.feature: float(value) for term, value in zip(TERMS, found, strict=True)}
