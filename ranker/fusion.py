"""Learned coefficients for discovery layers that run no model: what heat and success weigh, and how arms are mixed.

    score = s + heat·(2·h - 1) + success·(p̂ - p_d)          s = alpha·BM25 + (1 - alpha)·dense, each min-max scaled

Both are conditional logits (``ranker.logit``) of the succeeded picks with w = min(1/θ, 10) and the defaults as prior;
`heat` and `success` are stated relative to `semantic` = 1. Adopted only where the paired difference on the later slice,
as the promotion gate computes it, is above 0 with its whole interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pickwise.scores import semantic_score
from pickwise.text import script
from ranker import features, formula, gate
from ranker.dataset import Group
from ranker.decay import Numbers
from ranker.picked import PickWeight
from ranker.training import fit_line
from ranker.weights_document import Fusion

#: How much a full unit of the semantic score is worth in log odds, before the log says otherwise.
SEMANTIC_PRIOR = 6.0
PRIOR_STRENGTH = 50.0
#: Weight of BM25 beside the dense arm that the log may correct: between the arms' best for Latin script and Chinese.
ALPHA_PRIOR = 0.3
#: Heat and success are to nudge: they never weigh more than the query.
MOST = 1.0

#: Inputs of one list, (candidates, inputs); None where the list says nothing about them.
Inputs = Callable[[Group], Numbers | None]


def learn(train: Sequence[Group], test: Sequence[Group], weight: PickWeight, current: Fusion, seed: int) -> Fusion:
    """The coefficients in force, with those replaced that do better on the later slice."""
    found = Fusion(semantic=1.0, heat=current.heat, success=current.success, alpha=dict(current.alpha))
    prior = SEMANTIC_PRIOR * np.array([1.0, formula.HEAT_COEFFICIENT, formula.SUCCESS_COEFFICIENT])
    fitted = _fit(train, _terms, weight, prior)
    relative = np.minimum(fitted / fitted[0], MOST) if fitted[0] > 0 else prior / SEMANTIC_PRIOR
    old = np.array([1.0, current.heat, current.success])
    if _is_better(test, _terms, weight, relative, old, seed):
        found.heat, found.success = float(relative[1]), float(relative[2])
    arms = SEMANTIC_PRIOR * np.array([ALPHA_PRIOR, 1 - ALPHA_PRIOR])
    for kind in ("latin", "cjk", "other"):
        of_kind: list[Sequence[Group]] = [[g for g in part if script(g.turn.query) == kind] for part in (train, test)]
        mixed = _fit(of_kind[0], _arms, weight, arms)
        if mixed.sum() <= 0:
            continue
        alpha, before = float(mixed[0] / mixed.sum()), current.alpha.get(kind, ALPHA_PRIOR)
        if _is_better(of_kind[1], _arms, weight, _mix(alpha), _mix(before), seed):
            found.alpha[kind] = alpha
    return found


def _mix(alpha: float) -> Numbers:
    return np.array([alpha, 1 - alpha])


def _terms(group: Group) -> Numbers:
    """s, 2·h - 1 and p̂ - p_d: the parts of the score before any model."""
    semantic = semantic_score(group.turn.scores, len(group.labels))
    heat = np.tanh(group.features[:, features.NAMES.index("heat_log")].astype(np.float64) / 2)
    success = (group.before_model - semantic - formula.HEAT_COEFFICIENT * heat) / formula.SUCCESS_COEFFICIENT
    return np.column_stack([semantic, heat, success])


def _arms(group: Group) -> Numbers | None:
    """BM25 and dense scores of a list that was sent both, each min-max scaled."""
    sent: Mapping[str, Numbers] = group.turn.scores
    arms = [sent["bm25"], sent["dense"]]
    if any(np.isnan(arm).any() or arm.max() <= arm.min() for arm in arms):
        return None
    return np.column_stack([(arm - arm.min()) / (arm.max() - arm.min()) for arm in arms])


def _fit(groups: Sequence[Group], inputs: Inputs, weight: PickWeight, prior: Numbers) -> Numbers:
    lists, values = _told([group for group in groups if len(group.succeeded)], inputs)
    return fit_line(lists, values, weight, prior, PRIOR_STRENGTH)


def _is_better(
    groups: Sequence[Group], inputs: Inputs, weight: PickWeight, new: Numbers, old: Numbers, seed: int
) -> bool:
    lists, values = _told(groups, inputs)
    picks = gate.succeeded_picks(lists, [x @ new for x in values], [x @ old for x in values], weight)
    low = gate.paired_difference(picks, seed).low
    return low is not None and low > 0


def _told(groups: Sequence[Group], inputs: Inputs) -> tuple[list[Group], list[Numbers]]:
    """The lists that say something about the inputs, and their inputs."""
    told = [(group, values) for group in groups if (values := inputs(group)) is not None]
    return [group for group, _ in told], [values for _, values in told]
