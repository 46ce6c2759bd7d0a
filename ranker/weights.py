"""Weights from the log: what each skill has earned, made current as a new version when something moved."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from analytics.tables import Tables
from collector.lake import Lake
from collector.tables import TABLES
from pickwise.settings import Settings
from ranker import canary
from ranker.examination import PositionFactors
from ranker.factors import factors_with, position_factors
from ranker.log import Log, facts_of, feed, frame, read_connection
from ranker.models import ModelMeta, meta_of
from ranker.state import State
from ranker.weights_document import (
    Fusion,
    ServedModel,
    SkillEntry,
    WeightsDocument,
    changed,
    content_version,
)
from ranker.weights_store import Pointer, WeightsError, WeightsStore

__all__ = ["WeightsError", "WeightsStore", "compute", "no_match_threshold", "position_factors", "refresh"]

#: A list is of no use where its chance of a succeeded pick is below this share of the average …
NO_MATCH_SHARE = 0.25
#: … but at most so many of the successes may lie below the no-match threshold, which is known …
NO_MATCH_QUANTILE = 0.02
#: … from so many successes on.
NO_MATCH_MIN = 200

ACTIVE = "active"
_STATUS = """
SELECT skill_id, arg_max(status, time) AS status, arg_max(rollout_fraction, time) AS rollout_fraction
FROM skill_status WHERE project = $project GROUP BY skill_id
"""


def refresh(
    data_dir: Path,
    settings: Settings,
    project: str,
    *,
    promote: ModelMeta | None = None,
    fusion: Fusion | None = None,
    now: float | None = None,
) -> WeightsDocument:
    """Compute the weights from the log and make them current, with a newly promoted, stored model, or newly learned
    coefficients, if they are given.

    What live traffic says of a canary, or of a model that was promoted lately, takes effect here (``ranker.canary``).
    Keeps the current version when no new event came or nothing moved by 0.001, and status, registry and model are the
    same. ``now`` in Unix seconds.
    """
    store = WeightsStore(data_dir)
    try:
        with store.locked(project):
            return _refresh(store, data_dir, settings, project, promote, fusion, time.time() if now is None else now)
    finally:
        store.close()


def _refresh(
    store: WeightsStore,
    data_dir: Path,
    settings: Settings,
    project: str,
    promote: ModelMeta | None,
    fusion: Fusion | None,
    now: float,
) -> WeightsDocument:
    pointer = store.pointer(project)
    old = store.document(project) if pointer else None
    is_lost = False
    if old and pointer and old.version != pointer.version:
        is_lost = True
        old.model = _last_model(data_dir, project, pointer)
    connection = Tables(data_dir).connect()
    try:
        log = read_connection(connection, settings, project)
        statuses = frame(connection, _STATUS, {"project": project})
        history, promoted = pointer.history if pointer else [], _served(promote) if promote else None
        step = canary.next_step(connection, settings, old, history, promoted, partial(_stored, data_dir, project), now)
    finally:
        connection.close()
    document = compute(project, log, statuses, factors_with(store, data_dir, project, step.model), now)
    document.model, document.canary = step.model, step.canary
    document.fusion = fusion or (old.fusion if old else document.fusion)
    if old and pointer and not is_lost and not changed(old, document, new_events=list(log.size) != pointer.size):
        return old
    document.version = content_version(document)
    document.created_at = _rfc3339(now)
    store.write(project, document)
    _append_rows(data_dir, document, now)
    store.point(project, document, log.size, step.action, now, step.evidence)
    return document


def compute(
    project: str, log: Log, statuses: pl.DataFrame, factors: list[PositionFactors], now: float
) -> WeightsDocument:
    """The document of one project as of ``now``, without version and model.

    ``statuses``: skill_id, status, rollout_fraction; the newest of each skill.
    """
    state = feed([fact for fact in facts_of(log, None) if fact.time <= now], State(0, factors))
    skill_ids = _served_skills(log, state)
    rows = state.rows(skill_ids)
    warm, fared = state.heat.at(rows, now, state.examination), state.success.at(rows, now)
    status = {row[0]: (row[1], row[2]) for row in statuses.iter_rows()}
    document = WeightsDocument(project=project)
    for index, skill_id in enumerate(skill_ids):
        name, fraction = status.get(skill_id, (ACTIVE, 1.0))
        document.skills[skill_id] = SkillEntry(
            heat=float(warm.heat[index]),
            heat_log=float(warm.heat_log[index]),
            success=float(fared.success[index]),
            success_logit=float(fared.success_logit[index]),
            n_effective=float(fared.n_effective[index]),
            status=name or ACTIVE,
            rollout_fraction=1.0 if fraction is None else float(fraction),
        )
    versions = log.skills.filter(pl.col("registry_version").is_not_null())["registry_version"]
    document.registry_version = versions[-1] if len(versions) else None
    document.no_match_threshold = no_match_threshold(log)
    return document


def no_match_threshold(log: Log) -> float | None:
    """The best `dense` similarity of a list below which hardly any list is of use; None with fewer than 200 successes.

    The chance of a succeeded pick, calibrated over the best similarity by isotonic regression (Zadrozny & Elkan, KDD
    2002), falls below a quarter of the average there. Never so high that more than 2 % of the successes lie below it.
    """
    # Imported here: only jobs calibrate, and it takes 60 MiB.
    from sklearn.isotonic import IsotonicRegression

    succeeded = log.calls.filter(pl.col("ok")).select("selection_id", "skill_id").unique()
    useful = log.candidates.filter(pl.col("picked")).join(
        succeeded, left_on=["event_id", "skill_id"], right_on=["selection_id", "skill_id"], how="semi"
    )
    best = log.candidates.group_by("event_id").agg(pl.col("dense").max()).drop_nulls().sort("dense", "event_id")
    similarity = best["dense"].to_numpy()
    was_useful = best["event_id"].is_in(useful["event_id"].unique().to_list()).to_numpy()
    if was_useful.sum() < NO_MATCH_MIN:
        return None
    chance = IsotonicRegression(out_of_bounds="clip").fit_transform(similarity, was_useful.astype(np.float64))
    useless = similarity[chance < NO_MATCH_SHARE * was_useful.mean()]
    found = float(useless[-1]) if len(useless) else float(similarity[was_useful].min())
    return min(found, float(np.quantile(similarity[was_useful], NO_MATCH_QUANTILE)))


def _last_model(data_dir: Path, project: str, pointer: Pointer) -> ServedModel | None:
    """The model of weights whose file is lost."""
    version = pointer.history[-1].model_version if pointer.history else None
    return _stored(data_dir, project, version) if version else None


def _stored(data_dir: Path, project: str, version: str) -> ServedModel | None:
    meta = meta_of(data_dir, project, version)
    return _served(meta) if meta else None


def _served(meta: ModelMeta) -> ServedModel:
    return ServedModel(version=meta.version, features=meta.features, sha256=meta.sha256)


def _served_skills(log: Log, state: State) -> list[str]:
    """Active entries of the registry; where there is none, every skill that was offered."""
    registered = log.skills.filter(pl.col("current"))["skill_id"].unique().sort().to_list()
    return registered or sorted(state.row_of)


def _append_rows(data_dir: Path, document: WeightsDocument, now: float) -> None:
    """The version's skills as rows of the `weights` table."""
    rows = [{"skill_id": skill_id, **msgspec.structs.asdict(entry)} for skill_id, entry in document.skills.items()]
    if not rows:
        return
    moment = datetime.fromtimestamp(now, UTC)
    table = pl.DataFrame(rows, infer_schema_length=None).with_columns(
        pl.lit(document.project).alias("project"),
        pl.lit(moment.date()).alias("date"),
        pl.lit(moment).cast(TABLES["weights"]["time"]).alias("time"),
        pl.lit(document.version).alias("version"),
    )
    Lake(data_dir).append("weights", table)


def _rfc3339(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
