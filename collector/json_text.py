"""JSON as senders write it: decoded with tolerance for one bad value, and an array cut into its items without decoding.

What a body means must not depend on who reads it, the door or later the flusher: depth is counted, not left to the
stack of the caller.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

#: No event is nested so deep; decoders run out of stack somewhere beyond.
MAX_DEPTH = 200
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
#: What an array is cut at. Strings are matched whole, so that what stands in them counts for nothing.
_MARK = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]|,', re.DOTALL)
_OPEN, _CLOSE = (b"[", b"{"), (b"]", b"}")


def decode(body: bytes) -> Any:
    """The decoded JSON; NaN and 1e999 become non-finite numbers, lone surrogates and invalid UTF-8 U+FFFD.

    Raises ValueError when it is not JSON.
    """
    try:
        return msgspec.json.decode(body)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    except msgspec.MsgspecError as strict:
        try:
            return _without_surrogates(json.loads(body.decode("utf-8", "replace")))
        except RecursionError as error:
            raise ValueError("nested too deep") from error
        except ValueError:
            raise ValueError(str(strict)) from strict


def is_deep(text: bytes) -> bool:
    """Whether the JSON nests deeper than ``MAX_DEPTH``. Nearly always answered by counting brackets."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for mark in _MARK.finditer(text):
        token = mark[0]
        if token in _OPEN:
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif token in _CLOSE:
            depth -= 1
    return False


def split_array(body: bytes) -> Sequence[bytes | msgspec.Raw]:
    """The text of each item of a JSON array. An item that is no JSON takes no other with it.

    Raises ValueError where the items cannot be told apart.
    """
    try:
        return msgspec.json.decode(body, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError) as error:
        items = _cut_array(body)
        if items is None:
            raise ValueError(str(error)) from error
        return items


def _cut_array(body: bytes) -> list[bytes] | None:
    """Items by their brackets and commas alone; None where the body is no whole array."""
    items: list[bytes] = []
    depth = start = end = 0
    for mark in _MARK.finditer(body):
        token = mark[0]
        if token in _OPEN:
            depth += 1
            if depth == 1:
                start = mark.end()
        elif token in _CLOSE:
            depth -= 1
            if depth == 0:
                items.append(body[start : mark.start()].strip())
                end = mark.end()
                break
        elif depth == 1 and token == b",":
            items.append(body[start : mark.start()].strip())
            start = mark.end()
    if not end or body[end:].strip() or not body.lstrip().startswith(b"["):
        return None
    return [] if items == [b""] else items


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value
