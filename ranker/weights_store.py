"""Versions of the weights: immutable files, and one atomic pointer with its history.

A version lies in ``data_dir/weights/PROJECT/VERSION.json``. The pointer and the history of what it pointed at are one
document of the control state, so they change together.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from filelock import FileLock

from collector.control import Control
from collector.projects import project_folder
from ranker.files import write_atomically
from ranker.weights_document import WeightsDocument, empty

logger = logging.getLogger(__name__)

#: Mere refreshes that are remembered; every other change of the pointer is kept.
REFRESHES = 500


class WeightsError(ValueError):
    """No such weights version in this project, or its file is damaged."""


class Change(msgspec.Struct, kw_only=True):
    """One change of the pointer; ``at`` in Unix seconds.

    ``action`` is `refresh`, `promote` or `rollback`; of canaries and models that are watched: `canary`, `graduate`,
    `withdraw`, `auto_rollback`, each with its ``evidence`` (see ``ranker.canary``).
    """

    at: float
    version: str
    action: str
    model_version: str | None = None
    canary_version: str | None = None
    evidence: dict[str, Any] | None = None


class Interleaving(msgspec.Struct, kw_only=True):
    """Two model versions whose orders are interleaved in what is ranked, since Unix seconds."""

    first: str
    second: str
    since: float


class Pointer(msgspec.Struct, kw_only=True):
    version: str
    #: ``Log.size`` that the version was computed from.
    size: list[int]
    history: list[Change]
    interleaving: Interleaving | None = None


class WeightsStore:
    """The weights versions of one data folder. Safe to use from several threads and processes."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = Path(data_dir)
        self._control = Control(self._data_dir)
        #: The version of each project that was found whole, with its file's time and size.
        self._whole: dict[str, tuple[str, int, int]] = {}
        self._reported: set[str] = set()

    def close(self) -> None:
        self._control.close()

    def get(self, project: str, version: str | None = None) -> dict[str, Any]:
        """``document`` as plain JSON values."""
        found: dict[str, Any] = msgspec.to_builtins(self.document(project, version))
        return found

    def document(self, project: str, version: str | None = None) -> WeightsDocument:
        """A version, absent the served one: an empty document where the project has none yet.

        Raises WeightsError for a version that isn't there or is damaged.
        """
        return self._read(project, version or self.served_version(project))

    def served_version(self, project: str) -> str:
        """The current version; where its file is gone or damaged the newest whole one before it, else the empty one.

        What is damaged is logged once; the next refresh of the weights mends it.
        """
        pointer = self.pointer(project)
        newest_first = [change.version for change in reversed(pointer.history)] if pointer else []
        for version in dict.fromkeys(newest_first):
            try:
                self._check(project, version)
            except WeightsError as error:
                self._report(f"{error}; what was served before it is served until the next refresh of the weights")
            else:
                return version
        return empty(project).version

    def _check(self, project: str, version: str) -> None:
        """Raises WeightsError; a file is read once as long as it doesn't change."""
        try:
            found = self._path(project, version).stat()
        except OSError:
            self._read(project, version)  # says what is wrong
            return
        seen = version, found.st_mtime_ns, found.st_size
        if self._whole.get(project) != seen:
            self._read(project, version)
            self._whole[project] = seen

    def _read(self, project: str, version: str) -> WeightsDocument:
        nothing = empty(project)
        if version == nothing.version:
            return nothing
        path = self._path(project, version) if version.isalnum() else None
        try:
            if path is None:
                raise FileNotFoundError(version)
            return msgspec.json.decode(path.read_bytes(), type=WeightsDocument)
        except OSError as error:  # among them a name that is too long for a file
            raise WeightsError(f"version: no weights version {version!r:.80} in project {project:.80}") from error
        except msgspec.DecodeError as error:
            raise WeightsError(f"version: {path} is damaged ({error})") from error

    def _report(self, message: str) -> None:
        if message not in self._reported:
            self._reported.add(message)
            logger.error("%s", message)

    def history(self, project: str) -> list[dict[str, Any]]:
        """Changes of the pointer, newest first, each with the fields of ``Change``."""
        pointer = self.pointer(project)
        found: list[dict[str, Any]] = msgspec.to_builtins(pointer.history[::-1] if pointer else [])
        return found

    def model_versions(self, project: str) -> list[str]:
        """Distinct models that were served, the newest first."""
        changes = [Change(**change) for change in self.history(project)]
        return list(dict.fromkeys(change.model_version for change in changes if change.model_version))

    def rollback(self, project: str, version: str) -> dict[str, Any]:
        """Make an earlier version current, with its model. Raises WeightsError."""
        document = self.document(project, version)
        with self.locked(project):
            pointer = self.pointer(project)
            self.point(project, document, pointer.size if pointer else [], "rollback", time.time())
        found: dict[str, Any] = msgspec.to_builtins(document)
        return found

    def pointer(self, project: str) -> Pointer | None:
        found = self._control.get(f"weights/{project}")
        return None if found is None else msgspec.convert(found, Pointer)

    def write(self, project: str, document: WeightsDocument) -> None:
        """Store a version; one that is there stays as it is, if it is whole."""
        try:
            self._read(project, document.version)
        except WeightsError:
            write_atomically(self._path(project, document.version), msgspec.json.encode(document))

    def point(
        self,
        project: str,
        document: WeightsDocument,
        size: Sequence[int],
        action: str,
        now: float,
        evidence: dict[str, Any] | None = None,
    ) -> None:
        """Make a stored version the current one; hold ``locked`` meanwhile."""
        pointer = self.pointer(project)
        change = Change(
            at=now,
            version=document.version,
            action=action,
            model_version=document.model.version if document.model else None,
            canary_version=document.canary.version if document.canary else None,
            evidence=evidence,
        )
        moved = Pointer(
            version=document.version,
            size=list(size),
            history=_kept([*(pointer.history if pointer else []), change]),
            interleaving=pointer.interleaving if pointer else None,
        )
        self._control.put(f"weights/{project}", msgspec.to_builtins(moved))

    def interleaving(self, project: str) -> Interleaving | None:
        pointer = self.pointer(project)
        return pointer.interleaving if pointer else None

    def interleave(self, project: str, interleaving: Interleaving | None) -> None:
        """Interleave two models in what is ranked, or with None no longer. Raises WeightsError before any weights."""
        with self.locked(project):
            pointer = self.pointer(project)
            if pointer is None:
                raise WeightsError(f"project {project:.80} has no weights yet, so no model to interleave")
            pointer.interleaving = interleaving
            self._control.put(f"weights/{project}", msgspec.to_builtins(pointer))

    @contextmanager
    def locked(self, project: str) -> Iterator[None]:
        """One change of a project's weights at a time, across processes."""
        with FileLock(self._data_dir / f".weights.{quote(project, safe='')}.lock"):
            yield

    def _path(self, project: str, version: str) -> Path:
        return project_folder(self._data_dir, "weights", project) / f"{version}.json"


def _kept(changes: Sequence[Change]) -> list[Change]:
    """The changes without the refreshes that are too old to be remembered."""
    refreshes = sum(change.action == "refresh" for change in changes)
    kept = []
    for change in changes:
        if change.action == "refresh" and refreshes > REFRESHES:
            refreshes -= 1
            continue
        kept.append(change)
    return kept
