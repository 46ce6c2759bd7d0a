"""Ranking models on disk: ``data_dir/models/PROJECT/VERSION/{model.txt, meta.json}``, immutable and checked at load."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from collector.projects import project_folder
from ranker import blend, features
from ranker.decay import Numbers
from ranker.files import write_atomically
from ranker.trees import Trees, TreesUnusable

if TYPE_CHECKING:
    import lightgbm as lgb


class ModelUnusable(ValueError):  # noqa: N818 - a finding about a file
    """The stored model can't be served: missing, corrupted, or made for other features or vectors."""


class ModelMeta(msgspec.Struct, kw_only=True):
    """What is stored beside a model. ``trained_at`` in Unix seconds; ``curves`` is exp(b_k - b_1) by calling model."""

    version: str
    sha256: str
    features: list[str]
    embedding_version: str
    trained_at: float
    seed: int
    regularisation: float
    trees: int
    validation_ndcg: float
    curves: dict[str, list[float]]
    #: Coefficients of ``ranker.blend`` by feature.
    blend: dict[str, float] = {}


@dataclass(frozen=True)
class Model:
    """A blend and the trees boosted on top of it."""

    booster: lgb.Booster | Trees
    meta: ModelMeta

    def score(self, matrices: Sequence[features.Matrix]) -> list[Numbers]:
        """Scores of each list's candidates; a matrix a list, with the columns of ``features.NAMES``."""
        if not matrices:
            return []
        trees = np.asarray(self.booster.predict(self._columns(np.concatenate(matrices)), num_threads=1))
        ends = np.cumsum([len(matrix) for matrix in matrices])[:-1]
        return [
            found + self.blended(matrix).sum(axis=1)
            for found, matrix in zip(np.split(trees, ends), matrices, strict=True)
        ]

    def blended(self, matrix: features.Matrix) -> Numbers:
        """What each term of the blend adds to the scores of one list, shape (candidates, len(blend.TERMS))."""
        return blend.inputs(matrix) * self._coefficients

    @cached_property
    def _coefficients(self) -> Numbers:
        return blend.coefficients(self.meta.blend)

    def _columns(self, matrix: features.Matrix) -> features.Matrix:
        if tuple(self.meta.features) == features.NAMES:
            return matrix
        return matrix[:, [features.NAMES.index(name) for name in self.meta.features]]


def model_version(model_text: str, coefficients: Mapping[str, float]) -> str:
    content = model_text.encode() + msgspec.json.encode(coefficients, order="sorted")
    return hashlib.sha256(content).hexdigest()[:16]


def save(data_dir: Path, project: str, booster: lgb.Booster | Trees, meta: ModelMeta) -> Path:
    """Write a model under its version; the meta file comes last and makes it whole."""
    folder = _folder(data_dir, project, meta.version)
    write_atomically(folder / "model.txt", booster.model_to_string().encode())
    write_atomically(folder / "meta.json", msgspec.json.encode(meta))
    return folder


def load(data_dir: Path, project: str, version: str, embedding_version: str) -> Model:
    """The stored model. Raises ModelUnusable with the reason."""
    folder = _folder(data_dir, project, version)
    try:
        meta = msgspec.json.decode((folder / "meta.json").read_bytes(), type=ModelMeta)
        text = (folder / "model.txt").read_bytes()
    except (OSError, msgspec.DecodeError) as error:
        raise ModelUnusable(f"model {version} of project {project} can't be read: {error}") from error
    if hashlib.sha256(text).hexdigest() != meta.sha256:
        raise ModelUnusable(f"model {version} of project {project} is corrupted: its sha256 differs from meta.json")
    if meta.blend and model_version(text.decode(), meta.blend) != version:
        raise ModelUnusable(f"model {version} of project {project} is corrupted: its content is of another version")
    missing = [name for name in meta.features if name not in features.NAMES]
    if missing:
        raise ModelUnusable(f"model {version} needs features that this release lacks: {', '.join(missing)}")
    if meta.embedding_version != embedding_version:
        raise ModelUnusable(
            f"model {version} was trained on vectors of {meta.embedding_version}, in force is {embedding_version}"
        )
    try:
        return Model(Trees(text.decode()), meta)
    except TreesUnusable as error:
        raise ModelUnusable(f"model {version} of project {project} can't be used: {error}") from error


def meta_of(data_dir: Path, project: str, version: str) -> ModelMeta | None:
    """The meta file of a stored model, None where it can't be read."""
    try:
        return msgspec.json.decode((_folder(data_dir, project, version) / "meta.json").read_bytes(), type=ModelMeta)
    except (OSError, msgspec.DecodeError):
        return None


def _folder(data_dir: Path, project: str, version: str) -> Path:
    return project_folder(data_dir, "models", project) / version
