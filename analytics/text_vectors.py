"""Vectors of queries and descriptions for one run of a job: by the configured embedder, or by words."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache

import numpy as np

from pickwise.embed import WORDS, Embedder, EmbedderUnavailable, Vectors, load_embedder
from pickwise.text import terms

log = logging.getLogger(__name__)

_BATCH = 256
#: What a query asks for is said by then; 8 KiB of text would take half a second.
_MAX_CHARS = 1_000


class HashedTerms:
    """Terms hashed to 1,024 signed dimensions (Weinberger et al. 2009), without the words that every question has.

    It knows no corpus, so that vectors of different nights may be compared.
    """

    version = "hashed-terms/1"
    _DIMENSION = 1024

    def embed(self, texts: Sequence[str]) -> Vectors:
        # scikit-learn takes a second to import: only who works by words waits for it.
        from sklearn.feature_extraction.text import HashingVectorizer

        if not texts:
            return np.empty((0, self._DIMENSION), dtype=np.float32)
        hashed = HashingVectorizer(analyzer=_telling_terms, n_features=self._DIMENSION, norm="l2").transform(texts)
        return np.asarray(hashed.toarray(), dtype=np.float32)


class TextVectors:
    """Vectors of one embedder; each text is embedded once."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, Vectors] = {}

    @property
    def version(self) -> str:
        """Vectors are comparable only within one version."""
        return self._embedder.version

    @property
    def by_words(self) -> bool:
        return isinstance(self._embedder, HashedTerms)

    def of(self, texts: Sequence[str]) -> Vectors:
        """One vector a text, of length 1; of length 0 where a text has no word that tells anything."""
        short = [text[:_MAX_CHARS] for text in texts]
        new = [text for text in dict.fromkeys(short) if text not in self._known]
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            self._known.update(zip(batch, self._embedder.embed(batch), strict=True))
        if not short:
            return self._embedder.embed([])
        return np.stack([self._known[text] for text in short])


def load_text_vectors(setting: str) -> TextVectors:
    """Vectors of that embedder; of words where it is not installed, or where the setting is `words`."""
    if setting == WORDS:
        return TextVectors(HashedTerms())
    try:
        return TextVectors(load_embedder(setting))
    except EmbedderUnavailable as reason:
        log.warning("queries are compared by words: %s", reason)
        return TextVectors(HashedTerms())


@cache
def common_words() -> frozenset[str]:
    """English words that tell nothing of what a query is about."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS) | {"want", "need", "like", "help", "tell", "know", "looking"}


@cache
def _common_terms() -> frozenset[str]:
    return frozenset(term for word in common_words() for term in terms(word))


def _telling_terms(text: str) -> list[str]:
    return [term for term in terms(text) if term not in _common_terms()]
