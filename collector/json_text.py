"""JSON as senders write it: decoded with tolerance for one bad value, or cut into its parts without decoding them.

What a body means must not depend on who reads it, the door or later the flusher: depth is counted, not left to the
stack of the caller.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from collector.body import TooLarge

#: No event is nested so deep; decoders run out of stack somewhere beyond.
MAX_DEPTH = 200
#: The same for a whole request: what is within an event, or a value of OTLP, in what holds it.
_MAX_BODY_DEPTH = 400
#: What stands in the place of a value that is nested deeper.
TOO_DEEP = "nested too deep"
#: Longer bodies are opened level by level: decoded at once, values of two bytes take sixty each.
_LARGE_BYTES = 1024 * 1024
#: Brackets, commas and strings of a body that is no strict JSON: it is looked through one by one.
_MAX_MARKS = 5_000_000
#: A string to its end; without one, to the end of the text, so that no part of it is looked at twice.
_STRING = rb'"(?:[^"\\]++|\\.)*+"?'
#: What an array is cut at. Strings are matched whole, so that what stands in them counts for nothing.
_MARK = re.compile(_STRING + rb"|[\[{]|[\]}]|,", re.DOTALL)
#: What strict readers never stumble over, and then what they may: strings with escapes, words that stand for numbers,
#: long numbers. It always matches, so that no part of a text is looked at twice.
_ODD = re.compile(
    rb"""((?:"(?:[^"\\]++|\\[^u])*+"|[^"0-9NI-]++|-?[0-9]{1,18}+(?:\.[0-9]{1,18}+)?+(?![0-9.eE]))*+)"""
    rb"(" + _STRING + rb"|-?(?:NaN|Infinity)|-?[0-9][0-9.eE+-]*+|.|\Z)",
    re.DOTALL,
)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
#: Every escape, so that none is read from its middle; half a surrogate pair is the group.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_OPEN, _CLOSE = (b"[", b"{"), (b"]", b"}")

_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode(body: bytes) -> Any:
    """The decoded JSON; NaN and 1e999 become non-finite numbers, lone surrogates and invalid UTF-8 U+FFFD.

    Raises ValueError when it is not JSON.
    """
    return decode_counting(body)[0]


def decode_counting(body: bytes) -> tuple[Any, int]:
    """``decode``, and how many of its numbers are not finite."""
    try:
        return msgspec.json.decode(body), 0
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    except msgspec.MsgspecError as strict:
        try:
            value = _without_surrogates(json.loads(body.decode("utf-8", "replace")))
            return value, _nonfinite(value)
        except RecursionError as error:
            raise ValueError(TOO_DEEP) from error
        except ValueError:
            raise ValueError(str(strict)) from strict


def open_body(body: bytes) -> Any:
    """The JSON of a request, decoded where it is short, else opened at its first level (see ``opened``).

    What is no strict JSON is mended: invalid UTF-8 and lone surrogates become U+FFFD; NaN, infinities and numbers
    beyond every float become the strings ``NaN``, ``Infinity`` and ``-Infinity``; what is nested too deep becomes
    ``TOO_DEEP``. Raises ValueError when it is not JSON.
    """
    read = msgspec.json.decode if len(body) <= _LARGE_BYTES else _opened
    try:
        return read(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        return _mended(body, error, read)


def opened(value: Any) -> Any:
    """One level of a value: what lies below stays text until it is asked for. A decoded value is as it is.

    Raises ValueError when it is not JSON.
    """
    if not isinstance(value, msgspec.Raw):
        return value
    try:
        return _opened(value)
    except (msgspec.MsgspecError, RecursionError) as error:
        return _mended(bytes(value), error, _opened)


def whole(value: Any) -> Any:
    """The value with all that lies below it. Raises ValueError when it is not JSON."""
    if not isinstance(value, msgspec.Raw):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, RecursionError) as error:
        return _mended(bytes(value), error, msgspec.json.decode)


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


def split_array(body: bytes, limit: int | None = None) -> Sequence[bytes | msgspec.Raw]:
    """The text of each item of a JSON array. An item that is no JSON takes no other with it.

    Raises ValueError where the items cannot be told apart; with a limit, TooLarge for more of them or for too many
    values in them.
    """
    if limit is not None and body.count(b",") > _MAX_MARKS:
        return _cut_array(body, limit)
    try:
        items = _LIST.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        try:
            return _cut_array(body, limit)
        except _NoArray:
            raise ValueError(str(error)) from error
    if limit is not None and len(items) > limit:
        raise _too_many(limit)
    return items


class _NoArray(ValueError):  # noqa: N818 - what the body is
    """The body is no whole array."""


def _cut_array(body: bytes, limit: int | None) -> list[bytes]:
    """Items by their brackets and commas alone. Raises _NoArray, TooLarge."""
    if not body.lstrip().startswith(b"["):
        raise _NoArray("expected an array")
    items: list[bytes] = []
    depth = start = end = 0
    for count, mark in enumerate(_MARK.finditer(body)):
        if limit is not None and (count > _MAX_MARKS or len(items) > limit):
            raise _too_many(limit)
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
    if not end or body[end:].strip():
        raise _NoArray("expected one whole array")
    if limit is not None and len(items) > limit:
        raise _too_many(limit)
    return [] if items == [b""] else items


def _too_many(limit: int) -> TooLarge:
    return TooLarge(f"expected at most {limit} items a request, or {_MAX_MARKS} values in them")


def _opened(text: bytes | msgspec.Raw) -> Any:
    first = bytes(memoryview(text)[:64]).lstrip()[:1]
    if first == b"{":
        return _OBJECT.decode(text)
    return _LIST.decode(text) if first == b"[" else msgspec.json.decode(text)


def _mended(text: bytes, error: Exception, read: Any) -> Any:
    """What ``read`` makes of the text once it is strict JSON and not too deep. Raises ValueError."""
    if isinstance(error, RecursionError):
        text = _pruned(text)
    try:
        return read(_ODD.sub(_strict, text.decode("utf-8", "replace").encode()))
    except RecursionError as deep:
        if isinstance(error, RecursionError):
            raise ValueError(TOO_DEEP) from deep
        return _mended(text, deep, read)
    except msgspec.MsgspecError as strict:
        raise ValueError(str(strict)) from strict


def _strict(found: re.Match[bytes]) -> bytes:
    return found[1] + _strict_token(found[2])


def _strict_token(text: bytes) -> bytes:
    if text.startswith(b'"'):
        return _ESCAPE.sub(_whole_character, text) if rb"\u" in text else text
    try:
        value = float(text)
    except ValueError:  # no number: the decoder says so
        return text
    if math.isnan(value):
        return b'"NaN"'
    return text if math.isfinite(value) else b'"Infinity"' if value > 0 else b'"-Infinity"'


def _whole_character(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if escape[1] else escape[0]


def _pruned(text: bytes) -> bytes:
    """The text with what is nested too deep replaced."""
    kept: list[bytes] = []
    depth = start = 0
    for count, mark in enumerate(_MARK.finditer(text)):
        if count > _MAX_MARKS:
            raise ValueError(TOO_DEEP)
        token = mark[0]
        if token in _OPEN:
            depth += 1
            if depth == _MAX_BODY_DEPTH + 1:
                kept.append(text[start : mark.start()])
        elif token in _CLOSE:
            if depth == _MAX_BODY_DEPTH + 1:
                kept.append(b'"' + TOO_DEEP.encode() + b'"')
                start = mark.end()
            depth -= 1
    return b"".join((*kept, text[start:]))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def _nonfinite(value: Any) -> int:
    if isinstance(value, float):
        return 0 if math.isfinite(value) else 1
    if isinstance(value, dict):
        return sum(map(_nonfinite, value.values()))
    return sum(map(_nonfinite, value)) if isinstance(value, list) else 0
