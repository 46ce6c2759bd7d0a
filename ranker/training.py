"""A blend, and LightGBM lambdarank on top of it, that learn from skips and tell attraction from position.

`position` of LightGBM codes (calling model, rank), so it fits a bias to each and ranks by what is left. How strongly
these biases are regularised decides whether that works, and an unweighted validation picks the naive model:
regularisation and number of trees are chosen together by the IPS-weighted NDCG@5 of the validation slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import lightgbm as lgb
import numpy as np

from ranker import blend, features, logit
from ranker.blend_fit import asked_anew, fit_blend
from ranker.dataset import Group, Progress, positions
from ranker.decay import Numbers
from ranker.examination import MAX_INVERSE, Curves
from ranker.logit import Prior
from ranker.picked import PickGains, PickWeight, effective_sample

if TYPE_CHECKING:
    import optuna

REGULARISATIONS = (0.0, 0.01, 0.1, 1.0)
#: Numbers of trees that are compared; one is hardly any. Few and small: the blend carries most, reasons cost by tree.
CHECKPOINTS = (1, 10, 25, 50, 75, 100)
#: How many standard errors trees must lead by, on validation picks of at least so large an effective sample.
WORTH = 2.0
MIN_EFFECTIVE_SAMPLE = 100.0
#: Hyperparameters that are tried, on so many of the newest lists.
TRIALS = 8
SEARCH_GROUPS = 10_000
#: Fewer groups with contrast than this, in training or validation, teach nothing that holds.
MIN_TRAIN_GROUPS = 100
MIN_VALIDATION_GROUPS = 30
#: One: with two on a busy machine LightGBM's threads wait for each other, measured 15 times slower.
THREADS = 1


class TooLittle(ValueError):  # noqa: N818 - a finding, not a fault
    """The log can't teach a model yet; the message says what is missing."""


@dataclass(frozen=True)
class Parameters:
    """Hyperparameters of the trees; ``min_rows`` is LightGBM's `min_data_in_leaf`."""

    regularisation: float
    learning_rate: float = 0.05
    leaves: int = 7
    min_rows: int = 50


LEAST_REGULARISED = Parameters(REGULARISATIONS[0])


@dataclass(frozen=True)
class Trial:
    """What was tried, its best number of trees, and the validation NDCG@5 with them and with one tree alone.

    ``is_worth_it``: on enough picks they lead the bare blend by more than ``WORTH`` standard errors (after the rule of
    Breiman et al., "Classification and regression trees", 1984): with few lists the best of many numbers is chance.
    """

    parameters: Parameters
    trees: int
    ndcg_at_5: float
    bare_ndcg_at_5: float
    is_worth_it: bool

    def bare(self) -> Trial:
        """The same with one tree."""
        return Trial(self.parameters, CHECKPOINTS[0], self.bare_ndcg_at_5, self.bare_ndcg_at_5, False)


@dataclass(frozen=True)
class Trained:
    """A model and how it came about."""

    booster: lgb.Booster
    coefficients: Numbers
    best: Trial
    trials: list[Trial]
    #: θ by calling model, exp(c_k - c_1) of the blend's offsets.
    curves: Curves


def check(train: Sequence[Group], validation: Sequence[Group]) -> None:
    """Raises TooLittle with the reason when there are too few groups with contrast."""
    usable = sum(group.has_contrast for group in train)
    if usable < MIN_TRAIN_GROUPS:
        raise TooLittle(f"{usable} ranked selections with a pick and a skip to train on, {MIN_TRAIN_GROUPS} are needed")
    succeeded = sum(len(group.succeeded) > 0 and group.has_contrast for group in validation)
    if succeeded < MIN_VALIDATION_GROUPS:
        raise TooLittle(f"{succeeded} validation selections with a succeeded pick, {MIN_VALIDATION_GROUPS} are needed")


def train(
    train_groups: Sequence[Group],
    validation: Sequence[Group],
    known: Curves,
    seed: int,
    progress: Progress | None = None,
    budget_s: float = 60.0,
) -> Trained:
    """Fit the blend and trees on top of it, with what had the best IPS-weighted NDCG@5 on validation, on both slices.

    ``known``: θ by calling model where it is known. At most ``TRIALS`` settings are tried, or as many as ``budget_s``
    seconds allow; the same data, seed and number of trials give the same model. Raises TooLittle.
    """
    check(train_groups, validation)
    usable = [group for group in train_groups if group.has_contrast]
    if progress:
        progress("training: the blend and position factors")
    coefficients, curves = fit_blend(usable, known)
    weight = weight_from_curves({**curves, **known})
    new = asked_anew([*train_groups, *validation])[len(train_groups) :]
    tried = search(usable[-SEARCH_GROUPS:], validation, new, coefficients, weight, seed, budget_s, progress)
    best = max(
        (trial for trial in tried if trial.is_worth_it), key=lambda trial: trial.ndcg_at_5, default=tried[0].bare()
    )
    usable += [group for group in validation if group.has_contrast]
    if progress:
        progress(f"training: the best of {len(tried)} on all {len(usable):,} lists")
    coefficients, curves = fit_blend(usable, known)
    booster = fit(usable, blended(coefficients, usable), best.parameters, seed, trees=best.trees)
    return Trained(lgb.Booster(model_str=booster.model_to_string()), coefficients, best, tried, curves)


def search(
    groups: Sequence[Group],
    validation: Sequence[Group],
    is_new: Sequence[bool],
    coefficients: Numbers,
    weight: PickWeight,
    seed: int,
    budget_s: float,
    progress: Progress | None = None,
) -> list[Trial]:
    """Tried hyperparameters, by Optuna's tree-structured Parzen estimator; the regularisations of the design first.

    Trees are worth it by the lists of ``validation`` that ``is_new`` marks: their queries are in no training list.
    """
    # Imported here: serving ranks without it.
    import optuna

    found: list[Trial] = []
    base, validation_base = blended(coefficients, groups), blended(coefficients, validation)
    anew = [place for place, new in enumerate(is_new) if new]
    picks, picks_anew = PickGains(validation, weight), PickGains([validation[place] for place in anew], weight)

    def quality(trial: optuna.Trial) -> float:
        if progress:
            progress(f"training: trial {trial.number + 1} of {TRIALS}")
        parameters = Parameters(
            regularisation=trial.suggest_categorical("regularisation", REGULARISATIONS),
            learning_rate=trial.suggest_float("learning_rate", 0.02, 0.1, log=True),
            leaves=trial.suggest_int("leaves", 4, 15),
            min_rows=trial.suggest_int("min_rows", 20, 200, log=True),
        )
        booster = fit(groups, base, parameters, seed)
        by_trees = _by_trees(booster, validation_base, validation)
        values = [picks.ndcg(scores) for scores in by_trees]
        best = int(np.argmax(values))
        bare, better = ([scores[place] for place in anew] for scores in (by_trees[0], by_trees[best]))
        is_worth_it = _is_better(picks_anew, better, bare)
        found.append(Trial(parameters, CHECKPOINTS[best], values[best], values[0], is_worth_it))
        return values[best]

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    for regularisation in REGULARISATIONS:
        study.enqueue_trial({**asdict(LEAST_REGULARISED), "regularisation": regularisation})
    study.optimize(quality, n_trials=TRIALS, timeout=budget_s)
    return found


def _is_better(picks: PickGains, new: Sequence[Numbers], old: Sequence[Numbers]) -> bool:
    """Whether ``new`` leads by more than ``WORTH`` standard errors, on enough picks."""
    if effective_sample(picks.weights) < MIN_EFFECTIVE_SAMPLE:
        return False
    lead, error = picks.lead(new, old)
    return lead > WORTH * error


def fit_line(
    groups: Sequence[Group], inputs: Sequence[Numbers], weight: PickWeight, prior: Numbers, strength: float
) -> Numbers:
    """Coefficients of a line from every succeeded pick; ``inputs``: (candidates, inputs) a group.

    ``strength``: how many picks the prior counts for, its deviations being 1 ÷ (√strength·spread of the inputs).
    """
    picks = [(place, int(index)) for place, group in enumerate(groups) for index in group.succeeded]
    weights = [weight(groups[place].turn.model, index + 1) for place, index in picks]
    lists = [inputs[place] for place, _ in picks]
    spread = np.maximum(np.concatenate(lists).std(axis=0), 1e-3) if lists else np.ones(len(prior))
    normal = Prior(prior, 1 / (np.sqrt(strength) * spread))
    return logit.fit(lists, [index for _, index in picks], weights, normal)[0]


def fit(
    groups: Sequence[Group],
    base: Sequence[Numbers] | None,
    parameters: Parameters,
    seed: int,
    naive: bool = False,
    trees: int = CHECKPOINTS[-1],
) -> lgb.Booster:
    """One lambdarank fit on top of the scores ``base`` (none: from zero). ``naive`` ignores positions (to compare)."""
    codes, _ = positions(groups)
    options = {
        "objective": "lambdarank",
        "lambdarank_position_bias_regularization": parameters.regularisation,
        "label_gain": [0, 1, 3],
        "learning_rate": parameters.learning_rate,
        "num_leaves": parameters.leaves,
        "min_data_in_leaf": parameters.min_rows,
        "monotone_constraints": [int(feature.rising) for feature in features.FEATURES],
        "feature_fraction": 0.8,
        "feature_fraction_seed": seed,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": THREADS,
        "verbosity": -1,
    }
    data = lgb.Dataset(
        np.concatenate([group.features for group in groups]),
        label=np.concatenate([group.labels for group in groups]),
        group=[len(group.labels) for group in groups],
        position=None if naive else codes,
        init_score=None if base is None else np.concatenate(base),
        feature_name=list(features.NAMES),
        params={"verbosity": -1},
    )
    return lgb.train(options, data, num_boost_round=trees)


def blended(coefficients: Numbers, groups: Sequence[Group]) -> list[Numbers]:
    """The blend's scores of every group's candidates."""
    return [inputs @ coefficients for inputs in blend.inputs_of([group.features for group in groups])]


def predict(booster: lgb.Booster, coefficients: Numbers | None, groups: Sequence[Group]) -> list[Numbers]:
    """Scores of every group's candidates: the blend and the trees on top of it."""
    return _on_top(booster, None if coefficients is None else blended(coefficients, groups), groups)


def _on_top(booster: lgb.Booster, base: Sequence[Numbers] | None, groups: Sequence[Group]) -> list[Numbers]:
    if not groups:
        return []
    rows = np.concatenate([group.features for group in groups])
    return _by_list(np.asarray(booster.predict(rows, num_threads=THREADS)), base, groups)


def _by_trees(booster: lgb.Booster, base: Sequence[Numbers], groups: Sequence[Group]) -> list[list[Numbers]]:
    """Scores of every group's candidates with each of the ``CHECKPOINTS``' numbers of trees; at least one group."""
    rows = np.concatenate([group.features for group in groups])
    found, sums, before = [], np.zeros(len(rows)), 0
    for trees in CHECKPOINTS:
        more = booster.predict(rows, start_iteration=before, num_iteration=trees - before, num_threads=THREADS)
        sums = sums + np.asarray(more)
        found.append(_by_list(sums, base, groups))
        before = trees
    return found


def _by_list(scores: Numbers, base: Sequence[Numbers] | None, groups: Sequence[Group]) -> list[Numbers]:
    found = np.split(scores, np.cumsum([len(group.labels) for group in groups])[:-1])
    return found if base is None else [of_trees + line for of_trees, line in zip(found, base, strict=True)]


def weight_from_curves(curves: Curves) -> PickWeight:
    """min(1/θ, 10) from learned curves; 1 for a calling model without one."""

    def weight(model: str, rank: int) -> float:
        curve = curves.get(model) or curves.get("")
        if not curve:
            return 1.0
        theta = curve[min(rank, len(curve)) - 1]
        return min(1 / theta, MAX_INVERSE) if theta > 0 else MAX_INVERSE

    return weight
