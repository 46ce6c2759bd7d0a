"""Plain data in Python's own notation (``{'city': 'Paris'}``), as frameworks print it where JSON was meant."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

#: Longer text stays text: an event may hold no more, and a parsed tree takes many times the memory of its text.
MAX_CHARS = 65_536
#: Nothing that tools are called with nests so deep; Python's parser takes its stack for each level.
MAX_DEPTH = 64
_BEGINNINGS = ("{", "[", "(")
#: No part of a text is looked at twice: a string without its end is taken as far as it goes.
_STRINGS = re.compile(r"'(?:[^'\\\n]|\\.)*+'?|\"(?:[^\"\\\n]|\\.)*+\"?", re.DOTALL)
#: What is left of plain data without its strings: brackets and separators, numbers, constants.
_SKELETON = re.compile(r"(?:[\s,:{}\[\]()]|-?\d[\w.]*+(?:[+-]\d++)?+|True|False|None)*+")
_BRACKETS = re.compile(r"[{}\[\]()]")
_INT64 = 2**63


def from_literal(text: str) -> Any:
    """Dicts, lists and tuples decoded (tuples as lists), down to what JSON can hold; any other text as it is."""
    stripped = text.strip()
    if len(stripped) > MAX_CHARS or not stripped.startswith(_BEGINNINGS) or not _is_plain(stripped):
        return text
    try:
        value = ast.literal_eval(stripped)
        return _as_json(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _is_plain(text: str) -> bool:
    """Whether only plain data can be in the text, nested no deeper than allowed: told without parsing it."""
    skeleton = _STRINGS.sub("", text)
    if not _SKELETON.fullmatch(skeleton):
        return False
    depth = 0
    for bracket in _BRACKETS.findall(skeleton):
        depth += 1 if bracket in "{[(" else -1
        if depth > MAX_DEPTH:
            return False
    return depth == 0


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key is no text")
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and -_INT64 <= value < _INT64:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError("not plain data")
