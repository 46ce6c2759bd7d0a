"""LightGBM lambdarank that learns from skips and tells attraction from position.

`position` codes (calling model, rank), so LightGBM fits a bias to each and ranks by what is left. How strongly these
biases are regularised decides whether that works, and an unweighted validation picks the naive model: regularisation
and number of trees are chosen together by the IPS-weighted NDCG@5 of the validation slice. LightGBM tells the learned
biases only through its logger, at `verbosity=2`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import lightgbm as lgb
import numpy as np

from ranker import features
from ranker.dataset import Group, Progress, positions
from ranker.decay import Numbers
from ranker.examination import MAX_INVERSE, Curves, theta_from_factors
from ranker.ranks import ranks

REGULARISATIONS = (0.0, 0.01, 0.1, 1.0)
MAX_ROUNDS = 300
#: Numbers of trees that are compared.
CHECKPOINTS = tuple(range(25, MAX_ROUNDS + 1, 25))
#: Fewer groups with contrast than this, in training or validation, teach nothing that holds.
MIN_TRAIN_GROUPS = 200
MIN_VALIDATION_GROUPS = 50
#: One: with two on a busy machine LightGBM's threads wait for each other, measured 15 times slower.
THREADS = 1

#: w(calling model, rank) = min(1/θ, 10)
PickWeight = Callable[[str, int], float]

_FACTOR_HEADER = re.compile(r"position\s+bias_factor")
_FACTOR = re.compile(r"\]\s+(\d+)\s+([-+0-9.eE]+|nan|inf|-inf)\s*$")
_LOGGER = Lock()


class TooLittle(ValueError):  # noqa: N818 - a finding, not a fault
    """The log can't teach a model yet; the message says what is missing."""


@dataclass(frozen=True)
class Trained:
    """A model and how it came about; ``trials`` has (regularisation, trees, validation NDCG@5)."""

    booster: lgb.Booster
    regularisation: float
    trees: int
    validation_ndcg: float
    trials: list[tuple[float, int, float]]
    #: exp(b_k - b_1) by calling model, of the least regularised fit: regularisation shrinks them towards 1
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
) -> Trained:
    """Fit one model a regularisation and keep the best by IPS-weighted NDCG@5 on validation.

    ``known``: θ by calling model where it is known; for the others the position factors of the least regularised fit
    stand in. Deterministic for a seed. Raises TooLittle.
    """
    check(train_groups, validation)
    usable = [group for group in train_groups if group.has_contrast]
    fits = []
    for index, regularisation in enumerate(REGULARISATIONS):
        if progress:
            progress(f"training: model {index + 1} of {len(REGULARISATIONS)}")
        fits.append(fit(usable, regularisation, seed))
    curves = fits[0][1]
    weight = weight_from_curves({**curves, **known})
    trials = [
        (regularisation, trees, weighted_ndcg(validation, predict(booster, validation, trees), weight))
        for regularisation, (booster, _) in zip(REGULARISATIONS, fits, strict=True)
        for trees in CHECKPOINTS
    ]
    best = max(trials, key=lambda trial: trial[2])
    booster = fits[REGULARISATIONS.index(best[0])][0]
    kept = lgb.Booster(model_str=booster.model_to_string(num_iteration=best[1]))
    return Trained(kept, best[0], best[1], best[2], trials, curves)


def fit(groups: Sequence[Group], regularisation: float, seed: int, naive: bool = False) -> tuple[lgb.Booster, Curves]:
    """One lambdarank fit and the θ curves of its position factors; ``naive`` ignores positions (for comparison)."""
    codes, meaning = positions(groups)
    parameters = {
        "objective": "lambdarank",
        "lambdarank_position_bias_regularization": regularisation,
        "label_gain": [0, 1, 3],
        "learning_rate": 0.05,
        "num_leaves": 15,
        "min_data_in_leaf": 50,
        "monotone_constraints": [int(feature.rising) for feature in features.FEATURES],
        "feature_fraction": 0.8,
        "feature_fraction_seed": seed,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": THREADS,
        "verbosity": 2,
    }
    data = lgb.Dataset(
        np.concatenate([group.features for group in groups]),
        label=np.concatenate([group.labels for group in groups]),
        group=[len(group.labels) for group in groups],
        position=None if naive else codes,
        feature_name=list(features.NAMES),
        params={"verbosity": 2},
    )
    with _captured() as lines:
        booster = lgb.train(parameters, data, num_boost_round=MAX_ROUNDS)
    return booster, {} if naive else _curves(lines, meaning)


def predict(booster: lgb.Booster, groups: Sequence[Group], trees: int | None = None) -> list[Numbers]:
    """Scores of every group's candidates."""
    if not groups:
        return []
    rows = np.concatenate([group.features for group in groups])
    scores = np.asarray(booster.predict(rows, num_iteration=trees, num_threads=THREADS))
    return np.split(scores, np.cumsum([len(group.labels) for group in groups])[:-1])


def weighted_ndcg(groups: Sequence[Group], scores: Sequence[Numbers], weight: PickWeight, depth: int = 5) -> float:
    """IPS-weighted NDCG@depth of the succeeded picks: Σ w·gain(rank) ÷ Σ w, gain = 1/log2(1 + rank) down to depth."""
    gained = total = 0.0
    for group, score in zip(groups, scores, strict=True):
        at = ranks(score)
        for index in group.succeeded:
            w = weight(group.turn.model, int(index) + 1)
            total += w
            gained += w / np.log2(1 + at[index]) if at[index] <= depth else 0.0
    return float(gained / total) if total else 0.0


def weight_from_curves(curves: Curves) -> PickWeight:
    """min(1/θ, 10) from learned curves; 1 for a calling model without one."""

    def weight(model: str, rank: int) -> float:
        curve = curves.get(model) or curves.get("")
        if not curve:
            return 1.0
        theta = curve[min(rank, len(curve)) - 1]
        return min(1 / theta, MAX_INVERSE) if theta > 0 else MAX_INVERSE

    return weight


class _Lines:
    """A logger that keeps what LightGBM says."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, message: str) -> None:
        self.lines.append(message)

    def warning(self, message: str) -> None:
        self.lines.append(message)


class _Silent:
    def info(self, message: str) -> None:
        del message

    def warning(self, message: str) -> None:
        del message


@contextmanager
def _captured() -> Iterator[list[str]]:
    """What LightGBM logs meanwhile. Its logger is one for the process: one training at a time."""
    with _LOGGER:
        logger: Any = _Lines()
        lgb.register_logger(logger)
        try:
            yield logger.lines
        finally:
            lgb.register_logger(_Silent())


def _curves(lines: Sequence[str], meaning: Sequence[tuple[str, int]]) -> dict[str, list[float]]:
    """θ by calling model from the last table of position factors that was logged."""
    headers = [index for index, line in enumerate(lines) if _FACTOR_HEADER.search(line)]
    factors: dict[str, dict[int, float]] = {}
    for line in lines[headers[-1] + 1 :] if headers else ():
        match = _FACTOR.search(line)
        if match:
            model, rank = meaning[int(match[1])]
            factors.setdefault(model, {})[rank] = float(match[2])
    return {model: theta_from_factors(by_rank) for model, by_rank in factors.items()}
