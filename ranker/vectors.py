"""Vectors of queries and descriptions: embedded once, kept in the data folder by the embedder's version.

Where no embedder is installed words stand in: hashed terms, comparable by the same cosine, under a version of their
own, so that they never meet vectors of a model.
"""

from __future__ import annotations

import logging
import sqlite3
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from pickwise.embed import WORDS, Embedder, EmbedderUnavailable, Vectors, load_embedder
from pickwise.settings import Settings
from pickwise.text import split_name, terms

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
    """Vectors of one embedder, on disk below ``data_dir/embeddings`` as 16-bit floats (1 KB a text).

    Every vector passes through 16 bits, so that a text has one vector whether it was read or just embedded.
    """

    def __init__(self, data_dir: Path, embedder: Embedder) -> None:
        self.embedder = embedder
        folder = Path(data_dir) / "embeddings"
        folder.mkdir(parents=True, exist_ok=True)
        name = "".join(character if character.isalnum() or character in ".-" else "_" for character in self.version)
        self._path = folder / f"{name}.sqlite"
        self._recent: OrderedDict[str, NDArray[np.float16]] = OrderedDict()
        self._lock = Lock()
        with closing(self._connect()) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")

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
        distinct = list(dict.fromkeys(texts))
        keys = {text: _key(text) for text in distinct}
        with closing(self._connect()) as connection:
            known = _read(connection, list(keys.values()))
            for start in range(0, len(distinct), _BATCH):
                fresh = [text for text in distinct[start : start + _BATCH] if keys[text] not in known]
                if not fresh:
                    continue
                vectors = self.embedder.embed(fresh).astype(np.float16)
                rows = [(keys[text], vector.tobytes()) for text, vector in zip(fresh, vectors, strict=True)]
                connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
                connection.commit()
                known.update(rows)
        if not texts:
            return np.zeros((0, 1), dtype=np.float32)
        stacked = np.stack([np.frombuffer(known[keys[text]], dtype=np.float16) for text in texts])
        return np.asarray(stacked, dtype=np.float32)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)


def skill_text(skill_id: str, name: str | None, description: str | None, asked: Sequence[str] = ()) -> str:
    """The text that stands for a skill: its name in words, its description, and how it is asked for (trigger phrases,
    queries of examples): that lies nearer to what people ask than any description."""
    return " . ".join([f"{split_name(name or skill_id)}. {description or ''}".strip(), *asked])


def load_vectors(data_dir: Path, settings: Settings) -> VectorCache:
    """The cache of the configured embedder; of words where that is not installed, or where the setting is `words`."""
    if settings.embedder == WORDS:
        return VectorCache(data_dir, HashedWords())
    try:
        return VectorCache(data_dir, load_embedder(settings.embedder))
    except EmbedderUnavailable as reason:
        log.warning("history works by words: %s", reason)
        return VectorCache(data_dir, HashedWords())


def _key(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _read(connection: sqlite3.Connection, keys: list[bytes]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for start in range(0, len(keys), 500):
        part = keys[start : start + 500]
        marks = ",".join("?" * len(part))
        found.update(connection.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part))
    return found
