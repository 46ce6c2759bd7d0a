"""What a body takes once it is parsed, counted before that: one request must not take the memory of all.

A message of two bytes on the wire takes up to 250 in memory, a JSON value of two bytes sixty. No real request comes
near the limits: they are what 20 MiB hold when every span has its ids and every attribute a key and a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.body import TooLarge

Form = Literal["protobuf", "json", "ndjson"]

#: Shorter bodies are judged where they arrive: they take no time to speak of.
LIGHT_BYTES = 1024 * 1024
#: What is judged one by one takes up to 10 µs: many tiny records take longer than a long body of usual ones.
LIGHT_RECORDS = 16_384
#: The tag of each record and scope; any other byte of it is counted with them.
_RECORD_TAG = 0x12
MAX_MESSAGES = 2_500_000
MAX_SPANS = 750_000
MAX_VALUES = 2_500_000
#: Messages with at least so many bytes of content are too long to be too many.
_TINY = 16
#: With fewer short messages than this no exact count is needed, nor any where a body has fewer bytes.
_SUSPICIOUS = 1_000_000
#: What is counted at a time stays in the processor's cache.
_PIECE = 64 * 1024
_COMMA, _BRACKET, _BRACE, _NEWLINE = b",[{\n"
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
#: As much of a text as does not end within a string.
_WHOLE_STRINGS = re.compile(rb'(?:"(?:[^"\\]++|\\.)*+"|[^"]++)*+', re.DOTALL)
_WINDOW = 512 * 1024
#: The costliest messages; the rest take a fourth of them at most.
_SPANS = (Span.DESCRIPTOR, LogRecord.DESCRIPTOR)
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MAX_DEPTH = 100


def is_light_message(body: bytes) -> bool:
    """Whether protobuf is decoded and judged in a moment, and small when it is."""
    return len(body) <= LIGHT_RECORDS or (len(body) <= LIGHT_BYTES and count_byte(body, _RECORD_TAG) <= LIGHT_RECORDS)


def count_byte(body: bytes, value: int) -> int:
    """As ``bytes.count``, five times as fast."""
    return int(np.count_nonzero(np.frombuffer(body, np.uint8) == value))


def refuse_heavy_message(body: bytes, message: Descriptor) -> None:
    """Raises TooLarge for a protobuf body that would take too much. A broken one passes: parsing tells why."""
    if len(body) > _SUSPICIOUS and _short_messages(body) > _SUSPICIOUS:
        _Count().add(body, 0, len(body), message)


def refuse_heavy_json(body: bytes, lines: bool = False) -> None:
    """Raises TooLarge for JSON of too many values, or with ``lines`` for NDJSON of too many lines."""
    if len(body) <= MAX_VALUES or _separators(body, lines) <= MAX_VALUES:
        return
    found = 0
    for text in _outside_strings(body):
        found += _separators(text, lines)
        if found > MAX_VALUES:
            raise TooLarge(f"expected at most {MAX_VALUES} JSON values a request")


def _outside_strings(body: bytes) -> Iterator[bytes]:
    """The body without its strings, a part at a time: cut at once, it would lie in memory in millions of parts."""
    position = 0
    while position < len(body):
        window = body[position : position + _WINDOW]
        whole = _WHOLE_STRINGS.match(window)
        end = whole.end() if whole else 0
        if end:
            yield _STRING.sub(b"", window[:end])
            position += end
        else:  # a string longer than the window
            string = _STRING.match(body, position)
            position = string.end() if string else len(body)


def _short_messages(body: bytes) -> int:
    """At most so many short messages are in the body: places that look like a tag and a short length, or like a number
    written longer than it needs to be, which could hide them."""
    data = np.frombuffer(body, np.uint8)
    found = 0
    for start in range(0, len(data), _PIECE):
        first, second = data[start : start + _PIECE], data[start + 1 : start + _PIECE + 1]
        first = first[: len(second)]
        places = ((first & 7) == _LENGTH) & (second < _TINY) | (first >= 0x80) & (second == 0)
        found += int(np.count_nonzero(places))
    return found


def _separators(body: bytes, lines: bool) -> int:
    """As many values as the body holds, or more: what stands in strings counts too."""
    data = np.frombuffer(body, np.uint8)
    return sum(
        int(np.count_nonzero(_marks(data[start : start + _PIECE], lines))) for start in range(0, len(data), _PIECE)
    )


def _marks(piece: npt.NDArray[np.uint8], lines: bool) -> npt.NDArray[np.bool_]:
    if lines:  # each is decoded alone, and is short
        return np.equal(piece, _NEWLINE)
    return np.logical_or(np.equal(piece, _COMMA), np.logical_or(np.equal(piece, _BRACKET), np.equal(piece, _BRACE)))


class _Count:
    """Counts the messages of a body on the wire."""

    def __init__(self) -> None:
        self.messages = 0
        self.spans = 0

    def add(self, body: bytes, position: int, end: int, message: Descriptor, depth: int = 0) -> None:
        """Raises TooLarge as soon as there are too many."""
        inner = _message_fields(message)
        while position < end:
            tag, position = body[position], position + 1
            if tag >= 0x80:
                tag, position = _number(body, position - 1, end)
            wire_type = tag & 7
            if wire_type == _LENGTH and position < end:
                length, position = body[position], position + 1
                if length >= 0x80:
                    length, position = _number(body, position - 1, end)
                child = inner.get(tag >> 3)
                if child is not None:
                    self._note(child)
                    if length and depth < _MAX_DEPTH:
                        self.add(body, position, min(end, position + length), child, depth + 1)
                position += length
            elif wire_type == _VARINT:
                position = _number(body, position, end)[1]
            elif wire_type in (_FIXED64, _FIXED32):
                position += 8 if wire_type == _FIXED64 else 4
            else:
                return

    def _note(self, message: Descriptor) -> None:
        self.messages += 1
        self.spans += message in _SPANS
        if self.messages > MAX_MESSAGES:
            raise TooLarge(f"expected at most {MAX_MESSAGES} messages a request")
        if self.spans > MAX_SPANS:
            raise TooLarge(f"expected at most {MAX_SPANS} spans or log records a request")


@cache
def _message_fields(message: Descriptor) -> dict[int, Descriptor]:
    return {
        field.number: field.message_type
        for field in message.fields
        if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type is not None
    }


def _number(body: bytes, position: int, end: int) -> tuple[int, int]:
    """The variable-length number at the position, and the position behind it; ``end`` where it is cut short."""
    value = shift = 0
    while position < end:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            break
    return 0, end
