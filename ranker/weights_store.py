"""Versions of the weights: immutable files, and one atomic pointer with its history.

A version lies in ``data_dir/weights/PROJECT/VERSION.json``. The pointer and the history of what it pointed at are one
document of the control state, so they change together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from filelock import FileLock

from collector.control import Control
from ranker.files import project_folder, write_atomically
from ranker.weights_document import WeightsDocument, empty

#: Mere refreshes that are remembered; every other change of the pointer is kept.
REFRESHES = 500


class WeightsError(ValueError):
    """No such weights version in this project."""


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

    def close(self) -> None:
        self._control.close()

    def get(self, project: str, version: str | None = None) -> dict[str, Any]:
        """``document`` as plain JSON values."""
        found: dict[str, Any] = msgspec.to_builtins(self.document(project, version))
        return found

    def document(self, project: str, version: str | None = None) -> WeightsDocument:
        """A version, absent the current one: an empty document where the project has none yet.

        Raises WeightsError for a version that isn't there.
        """
        wanted = version or self.current_version(project)
        nothing = empty(project)
        if wanted is None or wanted == nothing.version:
            return nothing
        try:
            if not wanted.isalnum():
                raise FileNotFoundError(wanted)
            content = self._path(project, wanted).read_bytes()
        except OSError as error:  # among them a name that is too long for a file
            raise WeightsError(f"version: no weights version {wanted!r:.80} in project {project:.80}") from error
        return msgspec.json.decode(content, type=WeightsDocument)

    def current_version(self, project: str) -> str | None:
        pointer = self.pointer(project)
        return pointer.version if pointer else None

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
        """Store a version; one that is there stays as it is."""
        path = self._path(project, document.version)
        if not path.exists():
            write_atomically(path, msgspec.json.encode(document))

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
