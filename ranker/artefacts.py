"""Recall by history as a file, for discovery layers that would rather not ask with every query.

An Arrow IPC file, which any language reads: `skill_id`, `domain`, `support` (32-bit) and `vector` (a list of fixed
length of 16-bit floats, of length 1), a row a skill; in the schema's metadata `project`, `weights_version` and
`embedding_version`. Versions are named after their content and never change; the newest few are kept, each beside its
gzip, in ``data_dir/recall/PROJECT``.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.projects import project_folder
from ranker.files import write_atomically
from ranker.recall import Recall

MEDIA_TYPE = "application/vnd.apache.arrow.file"
#: Versions that can be downloaded: a client that lags a little still finds its own.
KEPT = 3
#: Vectors hardly shrink, the fastest level gets what there is.
_GZIP_LEVEL = 1


class ArtefactError(ValueError):
    """There is no such artefact; the message says which was meant."""


class Artefacts:
    """The artefacts of one data folder."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = Path(data_dir)

    def keep(self, recall: Recall) -> str:
        """Write it, and remove what is too old; the version."""
        content = _encoded(recall)
        version = hashlib.sha256(content).hexdigest()[:16]
        path = self._path(recall.project, version)
        if path.exists():
            os.utime(path)  # current again
        else:
            write_atomically(path.with_suffix(".arrow.gz"), gzip.compress(content, _GZIP_LEVEL, mtime=0))
            write_atomically(path, content)
        for old in self._newest_first(recall.project)[KEPT:]:
            old.unlink(missing_ok=True)
            old.with_suffix(".arrow.gz").unlink(missing_ok=True)
        return version

    def current(self, project: str) -> str | None:
        """The version that was written last, also by another process."""
        return next((path.stem for path in self._newest_first(project)), None)

    def read(self, project: str, version: str, *, gzipped: bool) -> bytes:
        """Raises ArtefactError for a version that isn't there (any more)."""
        try:
            if not version.isalnum():
                raise FileNotFoundError(version)
            path = self._path(project, version)
            return (path.with_suffix(".arrow.gz") if gzipped else path).read_bytes()
        except OSError as error:  # among them a name that is too long for a file
            raise ArtefactError(
                f"version: no recall artefact {version!r:.80} in project {project:.80}; the newest {KEPT} are kept"
            ) from error

    def _path(self, project: str, version: str) -> Path:
        return project_folder(self._data_dir, "recall", project) / f"{version}.arrow"

    def _newest_first(self, project: str) -> list[Path]:
        written = []
        for path in project_folder(self._data_dir, "recall", project).glob("*.arrow"):
            try:
                written.append((path.stat().st_mtime_ns, path))
            except FileNotFoundError:  # another process removed it
                continue
        return [path for _, path in sorted(written, reverse=True)]


def _encoded(recall: Recall) -> bytes:
    columns = {
        "skill_id": _texts(recall.skill_ids),
        "domain": _texts(recall.domains),
        "support": _numbers(recall.support.astype(np.float32)),
        "vector": pa.FixedSizeListArray.from_arrays(
            _numbers(recall.vectors.astype(np.float16).ravel()), recall.vectors.shape[1]
        ),
    }
    told = {
        "project": recall.project,
        "weights_version": recall.weights_version,
        "embedding_version": recall.embedding_version,
    }
    table = pa.table(columns).replace_schema_metadata(told)
    written = io.BytesIO()
    with pa.ipc.new_file(written, table.schema) as file:
        file.write_table(table)
    return written.getvalue()


# ``pa.array`` would import pandas, 30 MiB, to ask whether it is given something of it.


def _numbers(values: NDArray[np.floating]) -> pa.Array:
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _texts(values: list[str]) -> pa.Array:
    return pl.Series(values, dtype=pl.String).to_arrow().cast(pa.string())
