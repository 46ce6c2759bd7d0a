"""The position factors that a project's models learned, from what is stored of the models."""

from __future__ import annotations

from pathlib import Path

from ranker.examination import PositionFactors
from ranker.models import meta_of
from ranker.weights_document import ServedModel
from ranker.weights_store import WeightsStore


def position_factors(data_dir: Path, project: str) -> list[PositionFactors]:
    """θ curves of the models that were promoted, oldest first, each in force from its training on."""
    store = WeightsStore(data_dir)
    try:
        return factors_with(store, data_dir, project, None)
    finally:
        store.close()


def factors_with(store: WeightsStore, data_dir: Path, project: str, also: ServedModel | None) -> list[PositionFactors]:
    """The curves of all models that ranked for everyone, and of one that is about to."""
    versions = {*store.model_versions(project), *([also.version] if also else [])}
    metas = [meta for version in versions if (meta := meta_of(data_dir, project, version))]
    return [PositionFactors(meta.trained_at, meta.curves) for meta in sorted(metas, key=lambda meta: meta.trained_at)]
