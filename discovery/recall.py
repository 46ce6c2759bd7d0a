"""Which skills could answer a query: BM25 and dense vectors side by side over one registry version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import bm25s
import numpy as np

from discovery.fusion import FloatArray
from pickwise.embed import Embedder, Vectors
from pickwise.skills import Skill
from pickwise.text import split_name, terms

_FOLDED = re.compile(r"[\W_]+")
#: A name that cannot be an ordinary word: it has a separator or an inner capital.
_IDENTIFIER = re.compile(r"^\S*(?:[_\-./]|[a-z][A-Z])\S*$")


def sparse_text(skill: Skill) -> str:
    """What BM25 reads of a skill. ``not_for`` is left out: it names what the skill is *not* about."""
    parts = [
        split_name(skill.display_name),
        skill.description or "",
        *skill.trigger_phrases,
        *(example.query for example in skill.examples),
        *(f"{capability.action} {capability.object or ''}" for capability in skill.capabilities),
    ]
    return " . ".join(part for part in parts if part)


class VectorStore:
    """Vectors of skill texts under one embedding version: a text is embedded once, when it is first registered."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._vectors: dict[str, Vectors] = {}

    @property
    def version(self) -> str:
        return self._embedder.version

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Shape (len(texts), dimension); texts no longer asked for are forgotten."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            self._vectors.update(zip(new, self._embedder.embed(new), strict=True))
        self._vectors = {text: self._vectors[text] for text in texts}
        return np.stack([self._vectors[text] for text in texts])


@dataclass(frozen=True)
class SparseScores:
    """BM25 by skill, and the share of the query's terms that the index knows."""

    bm25: FloatArray
    known_share: float


class SkillIndex:
    """Both indexes over one set of skills, never changed once built.

    ``vectors`` has one row a skill; without it (the embedder is out) only BM25 answers.
    """

    def __init__(self, skills: Sequence[Skill], registry_version: str | None, vectors: Vectors | None) -> None:
        self.skills = tuple(skills)
        self.registry_version = registry_version
        self.vectors = vectors
        self.skill_ids = [skill.skill_id for skill in skills]
        documents = [terms(sparse_text(skill)) for skill in skills]
        self._vocabulary = {term for document in documents for term in document}
        self._bm25 = bm25s.BM25()
        if self._vocabulary:
            self._bm25.index(documents, show_progress=False)
        self._by_name: dict[str, list[int]] = {}
        self._identifiers: dict[str, list[int]] = {}
        for position, skill in enumerate(skills):
            for name in {skill.skill_id, skill.display_name}:
                self._by_name.setdefault(_fold(name), []).append(position)
                if _IDENTIFIER.match(name):
                    self._identifiers.setdefault(name.casefold(), []).append(position)

    def __len__(self) -> int:
        return len(self.skills)

    def sparse(self, query: str) -> SparseScores:
        """BM25 of every skill, shape (skills,)."""
        found = terms(query)
        known = [term for term in found if term in self._vocabulary]
        if not known:
            return SparseScores(np.zeros(len(self)), 0.0)
        return SparseScores(np.asarray(self._bm25.get_scores(known), dtype=np.float64), len(known) / len(found))

    def dense(self, query_vector: Vectors) -> FloatArray:
        """Cosine similarity of every skill, shape (skills,). Raises ValueError when the index has no vectors."""
        if self.vectors is None:
            raise ValueError("vectors: this index was built without them")
        return np.asarray(self.vectors @ query_vector, dtype=np.float64)

    def exact(self, query: str) -> list[int]:
        """Positions of the skills that the query names: as a whole, or by an identifier such as `get_user` in it."""
        found = list(self._by_name.get(_fold(query), []))
        words = (word.strip("\"'`“”‘’.,:;!?()[]。，：；！？（）《》「」").casefold() for word in query.split())
        for word in words:
            found.extend(self._identifiers.get(word, []))
        return list(dict.fromkeys(found))


def best(scores: FloatArray, count: int, first: Iterable[int] = ()) -> list[int]:
    """Positions of the ``count`` best scores, best first; those in ``first`` come before all others."""
    ahead = list(first)
    taken = set(ahead)
    order = (int(position) for position in np.argsort(-scores, kind="stable"))
    return [*ahead, *(position for position in order if position not in taken)][:count]


def _fold(name: str) -> str:
    return _FOLDED.sub("", name.casefold())
