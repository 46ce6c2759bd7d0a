"""The model that a project's weights name; where it can't be used the last good one, until it is mended."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from ranker.models import Model, ModelUnusable, load
from ranker.weights_document import WeightsDocument

log = logging.getLogger(__name__)


class NamedModels:
    """Loads the models of a data folder's projects, and remembers which were refused."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        #: Why the model that a project's weights name was refused: said once.
        self._refused: dict[str, str] = {}

    def of(
        self, project: str, document: WeightsDocument, earlier: Sequence[str], served: Model | None, embedding: str
    ) -> Model | None:
        """The named one, else the one ``served``, else the first usable of ``earlier`` versions.

        ``embedding``: the version of the vectors in force.
        """
        if document.model is None:
            return None
        named = document.model.version
        if served is not None and served.meta.version == named:
            return served
        said = self._refused.pop(project, None)
        try:
            return load(self._data_dir, project, named, embedding)
        except ModelUnusable as reason:
            self._refused[project] = str(reason)
            if str(reason) != said:
                log.error("%s; what was good before it ranks until it can be used", reason)
        return served or self._first_usable(project, [version for version in earlier if version != named], embedding)

    def is_mended(self, project: str, document: WeightsDocument, embedding: str) -> bool:
        """Whether the model that the weights name was refused and can be used now."""
        if project not in self._refused or document.model is None:
            return False
        try:
            load(self._data_dir, project, document.model.version, embedding)
        except ModelUnusable:
            return False
        return True

    def _first_usable(self, project: str, versions: Sequence[str], embedding: str) -> Model | None:
        for version in versions:
            try:
                return load(self._data_dir, project, version, embedding)
            except ModelUnusable as reason:
                log.error("%s", reason)
        return None
