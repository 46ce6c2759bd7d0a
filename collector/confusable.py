"""Which entries of a registry a model will take for another: names that look alike, descriptions that say alike."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from pickwise.text import terms

Entry = dict[str, Any]

#: Two descriptions that share this part of their terms are confusable; the most similar pairs are reported.
MIN_OVERLAP = 0.6
MAX_PAIRS = 50
#: Shorter descriptions share terms by chance.
MIN_TERMS = 4
_CHUNK = 512
_SEPARATORS = re.compile(r"[\W_]+")


class Pair(NamedTuple):
    """Two entries and how alike their descriptions are, in (0, 1]."""

    similarity: float
    left: Entry
    right: Entry


def fold_name(name: str) -> str:
    """A name without case and separators: what makes two names look the same to a model."""
    return _SEPARATORS.sub("", name).casefold()


def confusable_pairs(
    entries: Sequence[Entry],
    minimum: float = MIN_OVERLAP,
    limit: int = MAX_PAIRS,
    concerning: Collection[str] | None = None,
) -> list[Pair]:
    """The pairs whose descriptions are most alike, best first; ``concerning`` limits them to those of these skill ids.

    Alike is the weighted Jaccard index Σ_{A∩B} w ÷ Σ_{A∪B} w of their term sets, w = ln((1 + n) ÷ (1 + df)) + 1: what
    half of the registry says (get, the, file) counts less than what few say.
    """
    bags = [set(terms(str(entry.get("description") or ""))) for entry in entries]
    kept = [index for index, bag in enumerate(bags) if len(bag) >= MIN_TERMS]
    if len(kept) < 2:
        return []
    # Imported here: a collector that reviews no registry starts without it.
    from sklearn.feature_extraction.text import CountVectorizer

    matrix = CountVectorizer(analyzer=sorted, binary=True, dtype=np.float64).fit_transform([bags[at] for at in kept])
    weights = np.log((1 + len(kept)) / (1 + np.asarray(matrix.sum(axis=0)).ravel())) + 1
    weighted = matrix.multiply(weights).tocsr()
    sizes = matrix @ weights
    wanted = np.array([concerning is None or entries[at]["skill_id"] in concerning for at in kept])
    pairs: list[tuple[float, int, int]] = []
    for start in range(0, len(kept), _CHUNK):
        shared = (weighted[start : start + _CHUNK] @ matrix.T).tocoo()
        rows, columns = shared.row + start, shared.col
        alike = shared.data / (sizes[rows] + sizes[columns] - shared.data)
        found = np.flatnonzero((alike >= minimum) & (columns > rows) & (wanted[rows] | wanted[columns]))
        pairs.extend((float(alike[at]), kept[rows[at]], kept[columns[at]]) for at in found)
    pairs.sort(key=lambda pair: (-pair[0], pair[1], pair[2]))
    return [Pair(similarity, entries[left], entries[right]) for similarity, left, right in pairs[:limit]]
