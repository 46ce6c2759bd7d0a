"""An embedder that can be taken away, as a model server that goes down."""

from __future__ import annotations

from collections.abc import Sequence

from pickwise.embed import Embedder, EmbedderUnavailable, Vectors


class BreakableEmbedder:
    """Passes everything on to the real embedder, until ``down`` is set."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.down = False

    @property
    def version(self) -> str:
        return self._embedder.version

    def embed(self, texts: Sequence[str]) -> Vectors:
        if self.down:
            raise EmbedderUnavailable("the demo took the embedding model away")
        return self._embedder.embed(texts)
