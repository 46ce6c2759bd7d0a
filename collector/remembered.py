"""What was found out once and comes again: a dictionary of bounded size, whatever senders invent."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Any, TypeVar

K = TypeVar("K", bound=tuple[Hashable, ...])
V = TypeVar("V")

#: Characters of all keys together, and of one that is worth its place.
_MAX_TEXT = 8 * 1024 * 1024
_MAX_KEY = 256 * 1024
#: Words that are remembered, and the length of what is one.
_WORDS, _WORD = 1_024, 128


class Remembered(dict[K, V]):
    """Reads are those of a plain dictionary, so a hit costs one look. Full, it is emptied and begins anew."""

    def __init__(self, size: int, max_text: int | None = None) -> None:
        """``max_text``: characters of all keys together; few for values that take many times as much room."""
        super().__init__()
        self._size = size
        self._max_text = max_text
        self._text = 0

    def keep(self, key: K, value: V, weight: int | None = None) -> None:
        """``weight``: characters that count in place of the key's, where the value was made of more."""
        text = sum(map(_length, key)) if weight is None else weight
        if text > _MAX_KEY:
            return
        if len(self) >= self._size or self._text + text > (self._max_text or _MAX_TEXT):
            self.clear()
            self._text = 0
        self._text += text
        self[key] = value


def once_a_word(found: Callable[[str], bool]) -> Callable[[str], bool]:
    """Remembers the answers for words; a sender may put a megabyte in the place of one."""
    known = lru_cache(_WORDS)(found)

    @wraps(found)
    def answer(text: str) -> bool:
        return known(text) if len(text) <= _WORD else found(text)

    return answer


def _length(part: Any) -> int:
    return len(part) if isinstance(part, str | bytes) else 1
