"""Names of query clusters: their most telling words, by class-based TF-IDF (Grootendorst, "BERTopic", 2022)."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from analytics.text_vectors import common_words
from pickwise.text import script, split_name, terms

#: Sessions of a cluster that must have said a word before it is in the name: so it gives nobody away, and outlives him.
MIN_SESSIONS = 3
WORDS_IN_NAME = 3
_BETWEEN = ", "
#: Characters of Chinese that hold a sentence together: a pair with one of them names nothing.
_CONNECTING = frozenset(
    "的了着过我你您他她它们这那是在有和与或及想要请帮能可以吗呢吧啊一个些给把被就都也还去来到为用对从让跟并且会需将您自己什么怎哪"
)
_LETTERS = re.compile(r"[^\W\d_]+")


class Asked(NamedTuple):
    """A query of a cluster, and sessions that asked it: all, or at least ``MIN_SESSIONS``."""

    cluster_id: str
    query: str
    sessions: Sequence[str]


def named(asked: Sequence[Asked], names: Mapping[str, str | None]) -> dict[str, str | None]:
    """The name of each cluster in ``names``, which holds the present ones.

    A name stays as long as enough sessions say its words. None where no word is said by enough of them.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    sessions: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for cluster_id, query, said_by in asked:
        for word in set(words(query)):
            counts[cluster_id][word] += 1
            sessions[cluster_id][word].update(said_by)
    supported = {
        cluster_id: {word for word, said_by in by_word.items() if len(said_by) >= MIN_SESSIONS}
        for cluster_id, by_word in sessions.items()
    }
    overall: Counter[str] = Counter()
    for of_cluster in counts.values():
        overall.update(of_cluster)
    average = overall.total() / max(len(counts), 1)
    return {
        cluster_id: name
        if name is not None and set(name.split(_BETWEEN)) <= supported.get(cluster_id, set())
        else _name(counts[cluster_id], supported.get(cluster_id, set()), overall, average)
        for cluster_id, name in names.items()
    }


def words(text: str) -> Iterator[str]:
    """The words that a name may have: as written, in lower case; of Chinese the pairs of characters."""
    for token in _LETTERS.findall(split_name(text)):
        if script(token) == "cjk":
            yield from (term for term in terms(token) if len(term) == 2 and not _CONNECTING & set(term))
        elif len(token) > 1 and token.lower() not in common_words():
            yield token.lower()


def _name(counts: Counter[str], supported: set[str], overall: Counter[str], average: float) -> str | None:
    weights = {word: counts[word] * math.log(1 + average / overall[word]) for word in supported}
    chosen: list[str] = []
    for word in sorted(weights, key=lambda word: (-weights[word], word)):
        if not any(_same(word, other) for other in chosen):
            chosen.append(word)
        if len(chosen) == WORDS_IN_NAME:
            break
    return _BETWEEN.join(chosen) or None


def _same(word: str, other: str) -> bool:
    """Whether two words say one thing: forms of one stem, or pairs of characters that overlap."""
    if script(word) == "cjk":
        return bool(set(word) & set(other))
    return terms(word) == terms(other)
