"""``train``: from the log to a gated, stored and served model, in one call."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from collector.control import Control
from collector.lake import Lake
from collector.tables import TABLES
from pickwise.settings import Settings
from ranker import blend, canary, features, fusion, gate, weights
from ranker.dataset import Group, Progress, featurise, split
from ranker.decay import Numbers
from ranker.examination import Curves, PositionFactors, described
from ranker.log import Log, facts_of, labels_by_turn, read_log
from ranker.models import Model, ModelMeta, ModelUnusable, load, model_version, save
from ranker.paths import PathContributions
from ranker.state import State
from ranker.training import (
    TooLittle,
    Trained,
    predict,
    weight_from_curves,
)
from ranker.training import train as fit_best
from ranker.vectors import VectorCache, load_vectors
from ranker.weights_document import ServedModel, WeightsDocument
from ranker.weights_store import WeightsStore

JOB = "train"
SEED = 7
#: Lists of the later slice on which the features' importance is measured.
MEASURED_LISTS = 500


def train(
    data_dir: Path, settings: Settings, *, project: str, seed: int = SEED, progress: Progress | None = None
) -> dict[str, Any]:
    """Train on the log, judge on its latest part, and promote what is better.

    Returns {decision: promoted | kept | refused, version, reason, evidence}; each run is a row in `models`.
    Raises collector.control.JobRunning when a training of the project is under way.
    """
    control = Control(data_dir)
    try:
        with control.job(JOB, project) as outcome:
            result = _train(Path(data_dir), settings, project, seed, progress)
            outcome.update(decision=result["decision"], version=result["version"], reason=result["reason"])
            return result
    finally:
        control.close()


def _train(data_dir: Path, settings: Settings, project: str, seed: int, progress: Progress | None) -> dict[str, Any]:
    vectors = load_vectors(data_dir, settings)
    log = read_log(data_dir, settings, project)
    groups, state = groups_of(log, vectors, weights.position_factors(data_dir, project), progress)
    train_groups, validation, test = split(groups)
    evidence: dict[str, Any] = {
        "turns": log.selections.height,
        "groups": {"train": len(train_groups), "validation": len(validation), "test": len(test)},
        "seed": seed,
    }
    now = time.time()
    known = known_curves(state, now)
    evidence["examination"] = {model: described(state.examination.at(model, now)) for model in state.models}
    try:
        trained = fit_best(train_groups, validation, known, seed, progress, settings.train_budget_s)
    except TooLittle as reason:
        return _record(data_dir, project, "refused", str(reason), evidence, None)
    meta = _meta(trained, vectors.version, seed)
    if progress:
        progress("judging on the later slice")
    current = _current(data_dir, project)
    live = _live_model(data_dir, project, current.model, vectors.version)
    verdict = judge(test, trained, live, known, _expected(log), settings, seed)
    evidence |= _evidence(trained, meta, test, known, live, verdict)
    weight = weight_from_curves({**trained.curves, **known})
    learned = fusion.learn([*train_groups, *validation], test, weight, current.fusion, seed)
    evidence["fusion"] = msgspec.to_builtins(learned)
    if verdict.decision != "promoted":
        weights.refresh(data_dir, settings, project, fusion=learned)
        return _record(data_dir, project, verdict.decision, verdict.reason, evidence, meta)
    if against := canary.objection(data_dir, project, meta.version):
        return _record(data_dir, project, "kept", f"{against}; {verdict.reason}", evidence, meta)
    save(data_dir, project, trained.booster, meta)
    weights.refresh(data_dir, settings, project, promote=meta, fusion=learned)
    return _record(data_dir, project, "promoted", verdict.reason, evidence, meta)


def groups_of(
    log: Log, vectors: VectorCache, factors: Sequence[PositionFactors], progress: Progress | None = None
) -> tuple[list[Group], State]:
    """All ranked turns of a log with their features, and the state after it."""
    if progress:
        progress("embedding queries and descriptions")
    facts = facts_of(log, vectors)
    state = State(vectors.dimension, factors)
    return featurise(facts, labels_by_turn(log, facts), state, progress), state


def known_curves(state: State, now: float) -> dict[str, list[float]]:
    """θ by calling model as far as shuffled lists or a served model's position factors tell it."""
    found = {}
    for model in state.models:
        theta = state.examination.at(model, now).theta
        if theta is not None:
            found[model] = [float(value) for value in theta]
    return found


def judge(
    test: Sequence[Group],
    trained: Trained,
    live: Model | None,
    known: Curves,
    expected: dict[str, list[str]],
    settings: Settings,
    seed: int,
) -> gate.Verdict:
    """The gate on the test slice, against the live model or, without one, the score before any model."""
    weight = weight_from_curves({**trained.curves, **known})
    new = predict(trained.booster, trained.coefficients, test)
    old = live_scores(test, live)
    return gate.judge(test, new, old, weight, expected, trained.booster, settings, seed)


def live_scores(groups: Sequence[Group], live: Model | None) -> list[Numbers]:
    if live is None:
        return [group.before_model for group in groups]
    return live.score([group.features for group in groups])


def _current(data_dir: Path, project: str) -> WeightsDocument:
    store = WeightsStore(data_dir)
    try:
        return store.document(project)
    finally:
        store.close()


def _live_model(data_dir: Path, project: str, served: ServedModel | None, embedding_version: str) -> Model | None:
    """The model that is served now; None where none can be."""
    if served is None:
        return None
    try:
        return load(data_dir, project, served.version, embedding_version)
    except ModelUnusable:
        return None


def _meta(trained: Trained, embedding_version: str, seed: int) -> ModelMeta:
    text = trained.booster.model_to_string()
    coefficients = blend.named(trained.coefficients)
    return ModelMeta(
        version=model_version(text, coefficients),
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        features=list(features.NAMES),
        embedding_version=embedding_version,
        trained_at=time.time(),
        seed=seed,
        regularisation=trained.best.parameters.regularisation,
        trees=trained.best.trees,
        validation_ndcg=trained.best.ndcg_at_5,
        curves={model: list(curve) for model, curve in trained.curves.items()},
        blend=coefficients,
    )


def _expected(log: Log) -> dict[str, list[str]]:
    """Labelled skills by selection; the newest label counts."""
    return {row[0]: list(row[1]) for row in log.labels.select("event_id", "expected").iter_rows()}


def _evidence(
    trained: Trained,
    meta: ModelMeta,
    test: Sequence[Group],
    known: Curves,
    live: Model | None,
    verdict: gate.Verdict,
) -> dict[str, Any]:
    return {
        "compared_with": live.meta.version if live else canary.NO_MODEL,
        "regularisation": trained.best.parameters.regularisation,
        "trees": trained.best.trees,
        "validation_ndcg_at_5": trained.best.ndcg_at_5,
        "trials": [
            {**asdict(trial.parameters), "trees": trial.trees, "ndcg_at_5": trial.ndcg_at_5} for trial in trained.trials
        ],
        "blend": blend.named(trained.coefficients),
        "theta": {"known": known, "position_factors": trained.curves},
        "importance": importance(Model(trained.booster, meta), test),
        **verdict.evidence(),
    }


def importance(model: Model, groups: Sequence[Group]) -> dict[str, float]:
    """How much each feature tells the candidates of a list apart: the root mean square of its contributions' distance
    from their list's mean, largest first."""
    paths = PathContributions(model)
    apart = [found - found.mean(axis=0) for found in (paths.of(group.features) for group in groups[-MEASURED_LISTS:])]
    if not apart:
        return {}
    spread = np.sqrt((np.concatenate(apart)[:, :-1] ** 2).mean(axis=0))
    return dict(sorted(zip(paths.names, spread.tolist(), strict=True), key=lambda item: -item[1]))


def _record(
    data_dir: Path, project: str, decision: gate.Decision, reason: str, evidence: dict[str, Any], meta: ModelMeta | None
) -> dict[str, Any]:
    """Append the run to `models` and return it."""
    now = datetime.now(UTC)
    row = {
        "project": project,
        "date": now.date(),
        "time": now,
        "version": meta.version if meta else None,
        "decision": decision,
        "reason": reason,
        "sha256": meta.sha256 if meta else None,
        "features": meta.features if meta else None,
        "evidence": json.dumps(evidence),
    }
    Lake(data_dir).append("models", pl.DataFrame([row], schema=TABLES["models"]))
    return {"decision": decision, "version": row["version"], "reason": reason, "evidence": evidence}
