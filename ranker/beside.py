"""Models that rank beside the one for everyone: a canary's, and those of two versions that are interleaved."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ranker.canary import chosen
from ranker.models import Model, ModelUnusable, load
from ranker.paths import PathContributions
from ranker.weights_document import WeightsDocument
from ranker.weights_store import Interleaving

log = logging.getLogger(__name__)

Ranking = tuple[Model, PathContributions]


@dataclass(frozen=True)
class Beside:
    """The other models of a project by version, and which two are interleaved."""

    models: Mapping[str, Ranking] = field(default_factory=dict)
    interleaving: Interleaving | None = None

    def rankers(self, document: WeightsDocument, session_id: str) -> list[str | None]:
        """Versions that rank for a session: two where both can be interleaved, else one; None: the one for everyone."""
        main = document.model.version if document.model else None
        pair = self.interleaving
        if pair is not None and all(version in (main, *self.models) for version in (pair.first, pair.second)):
            return [pair.first, pair.second]
        canary = document.canary
        if canary is not None and canary.version in self.models and chosen(canary, session_id):
            return [canary.version]
        return [None]


def load_beside(
    data_dir: Path,
    project: str,
    document: WeightsDocument,
    interleaving: Interleaving | None,
    embedding_version: str,
    kept: Mapping[str, Ranking],
) -> Beside:
    """What the weights and an interleaving name besides the main model; one that can't be used is logged, left out.

    ``kept``: those that are loaded already.
    """
    named = {document.canary.version} if document.canary else set()
    if interleaving is not None:
        named |= {interleaving.first, interleaving.second}
    if document.model is not None:
        named -= {document.model.version}
    models = {}
    for version in named:
        if version in kept:
            models[version] = kept[version]
            continue
        try:
            model = load(data_dir, project, version, embedding_version)
        except ModelUnusable as reason:
            log.error("%s", reason)
        else:
            models[version] = (model, PathContributions(model))
    return Beside(models, interleaving)
