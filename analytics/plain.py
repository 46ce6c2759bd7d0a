"""Names and messages are data from outside: what of them may stand in a line of text."""

from __future__ import annotations

import re

#: What moves a cursor, breaks a line, turns the direction of reading, or is no character.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


def plain(text: str) -> str:
    """Text of unknown origin on one line, without what a reader can't see."""
    return _UNPRINTABLE.sub(" ", text)
