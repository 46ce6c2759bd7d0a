"""Vectors of queries and descriptions: embedded once, kept in the data folder by the embedder's version.

Where no embedder is installed words stand in: hashed terms, comparable by the same cosine, under a version of their
own, so that they never meet vectors of a model.
"""

from __future__ import annotations

import logging
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from collector.vector_files import VectorFile
from pickwise.embed import WORDS, Embedder, EmbedderUnavailable, Vectors, load_embedder
from pickwise.settings import Settings
from pickwise.text import terms

log = logging.getLogger(__name__)

_BATCH = 256
#: Vectors kept in memory by one process.
_IN_MEMORY = 8_192


class HashedWords:
    """Term frequencies hashed to 1,024 signed dimensions (Weinberger et al., "Feature hashing", ICML 2009)."""

    version = "hashed-words/1"
    _DIMENSION = 1024

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self._DIMENSION), dtype=np.float32)
        for row, text in enumerate(texts):
            for term in terms(text):
                code = zlib.crc32(term.encode("utf-8", "surrogatepass"))
                vectors[row, code % self._DIMENSION] += 1.0 if code & 0x8000_0000 else -1.0
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(norms > 0, norms, 1), dtype=np.float32)


class VectorCache:
    """Vectors of one embedder, in memory and on disk (``VectorFile``).

    Every vector passes through 16 bits, so that a text has one vector whether it was read or just embedded.
    """

    def __init__(self, data_dir: Path, embedder: Embedder) -> None:
        self.embedder = embedder
        self._store = VectorFile.of(data_dir, self.version)
        self._recent: OrderedDict[str, NDArray[np.float16]] = OrderedDict()
        self._lock = Lock()

    @property
    def version(self) -> str:
        return self.embedder.version

    @property
    def dimension(self) -> int:
        return len(self.one(" "))

    def met(self, text: str) -> Vectors | None:
        """The vector of a text that this process embedded lately, else None."""
        with self._lock:
            found = self._recent.get(text)
            if found is None:
                return None
            self._recent.move_to_end(text)
        return np.asarray(found, dtype=np.float32)

    def has_met(self, text: str) -> bool:
        """Whether ``met`` would tell one."""
        return text in self._recent

    def one(self, text: str) -> Vectors:
        """The vector of one text, from memory where it was met lately; not written to disk."""
        found = self.met(text)
        if found is not None:
            return found
        vector = self.embedder.embed([text])[0].astype(np.float16)
        with self._lock:
            self._recent[text] = vector
            if len(self._recent) > _IN_MEMORY:
                self._recent.popitem(last=False)
        return np.asarray(vector, dtype=np.float32)

    def many(self, texts: Sequence[str]) -> Vectors:
        """Vectors of all texts, shape (len(texts), dimension); what is new is embedded in batches and kept."""
        if not texts:
            return np.zeros((0, 1), dtype=np.float32)
        known = self._store.read(texts)
        new = [text for text in dict.fromkeys(texts) if text not in known]
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            vectors = self.embedder.embed(batch).astype(np.float16)
            fresh = {text: vector.tobytes() for text, vector in zip(batch, vectors, strict=True)}
            self._store.keep(fresh)
            known.update(fresh)
        stacked = np.stack([np.frombuffer(known[text], dtype=np.float16) for text in texts])
        return np.asarray(stacked, dtype=np.float32)


def load_vectors(data_dir: Path, settings: Settings) -> VectorCache:
    """The cache of the configured embedder; of words where that is not installed, or where the setting is `words`."""
    if settings.embedder == WORDS:
        return VectorCache(data_dir, HashedWords())
    try:
        return VectorCache(data_dir, load_embedder(settings.embedder))
    except EmbedderUnavailable as reason:
        log.warning("history works by words: %s", reason)
        return VectorCache(data_dir, HashedWords())
