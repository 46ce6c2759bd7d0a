"""Protobuf on the wire: a message cut into its parts without decoding them, and strings mended where they lie.

A message of two bytes takes up to 250 once it is decoded, and one bad string makes the library refuse a whole request.
What is cut on the wire first can be decoded and judged part by part.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
#: As deep as upb goes itself.
_MAX_DEPTH = 100
#: Below this, whole messages are no longer tried before their parts: each level would read the rest once more.
_TRIED_DEPTH = 12

#: No message has more fields, those of unknown numbers included: they are walked one by one.
MAX_FIELDS = 1_000_000

#: Number of a field, where its tag begins, where its content begins and ends.
Part = tuple[int, int, int, int]


def parts(data: bytes, start: int, end: int) -> Iterator[Part]:
    """The length-delimited fields of a message, in its order. Raises DecodeError where its form is broken."""
    position = start
    left = MAX_FIELDS
    try:
        while position < end:
            left -= 1
            if left < 0:
                raise DecodeError(f"expected at most {MAX_FIELDS} fields in a message")
            at = position
            tag = data[position]
            position += 1
            if tag > 0x7F:
                tag, position = _varint(data, at)
            if tag < 8:
                raise DecodeError("a field has the number 0")
            if tag & 7 != _LENGTH:
                position = _skip(data, position, tag & 7)
                continue
            length = data[position]
            position += 1
            if length > 0x7F:  # as most records have it: two bytes are read here, without a call
                if (second := data[position]) <= 0x7F:
                    length, position = length - 0x80 + (second << 7), position + 1
                else:
                    length, position = _varint(data, position - 1)
            inner, position = position, position + length
            if position > end:
                break
            yield tag >> 3, at, inner, position
    except IndexError:
        position = end + 1
    if position > end:
        raise DecodeError("a field runs beyond the end of its message")


def joined(data: bytes, start: int, end: int, number: int) -> bytes:
    """The content of one field; of several of its number, all in a row, which is how a message is merged."""
    return b"".join(data[inner:stop] for found, _, inner, stop in parts(data, start, end) if found == number)


def cut(data: bytes, start: int, end: int, head: int, number: int, limit: int) -> tuple[bytes, list[tuple[int, int]]]:
    """``joined`` of the field ``head``, and the stretches of the message that hold fields of ``number``: each
    ``limit`` bytes long at most, or one field."""
    heads: list[bytes] = []
    runs: list[tuple[int, int]] = []
    first = last = start
    for found, at, inner, stop in parts(data, start, end):
        if found == head:
            heads.append(data[inner:stop])
        if found != number:
            continue
        if stop - first > limit and last > first:
            runs.append((first, last))
            first = at
        elif last == first:
            first = at
        last = stop
    if last > first:
        runs.append((first, last))
    return b"".join(heads), runs


class Mender:
    """Makes strings valid UTF-8 on the wire: what is not becomes U+FFFD."""

    def __init__(self, allowance: int) -> None:
        self.allowance = allowance

    def mend(self, data: bytes, descriptor: Descriptor, depth: int = 0) -> bytes:
        """The message with every string mended. Raises DecodeError on a broken form, and when the allowance is used up.

        Only what the library refuses is looked into, so a message costs what its bad parts cost.
        """
        if depth > _MAX_DEPTH:
            raise DecodeError(f"nested deeper than {_MAX_DEPTH} messages")
        fields = _fields(descriptor)
        mended: list[bytes] = []
        kept = 0
        for number, at, inner, stop in parts(data, 0, len(data)):
            if number not in fields:
                continue
            content, inside = data[inner:stop], fields[number]
            good = self._string(content) if inside is None else self._message(content, inside, depth + 1)
            if good is not content:
                mended += (data[kept:at], encode_varint(number << 3 | _LENGTH), encode_varint(len(good)), good)
                kept = stop
        return b"".join((*mended, data[kept:])) if mended else data

    def _string(self, content: bytes) -> bytes:
        try:
            content.decode()
        except UnicodeDecodeError:
            if not self.allowance:
                raise DecodeError("too many strings of the request have invalid UTF-8") from None
            self.allowance -= 1
            return content.decode("utf-8", "replace").encode()
        return content

    def _message(self, content: bytes, descriptor: Descriptor, depth: int) -> bytes:
        # Bytes below 128 are valid text wherever it stands between tags and lengths.
        if content.isascii() or (depth <= _TRIED_DEPTH and _is_whole(content, descriptor)):
            return content
        return self.mend(content, descriptor, depth)


@cache
def _fields(descriptor: Descriptor) -> dict[int, Descriptor | None]:
    """The strings (None) and messages of a type by their number."""
    found: dict[int, Descriptor | None] = {}
    for field in descriptor.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            found[field.number] = None
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            found[field.number] = field.message_type
    return found


@cache
def _type(descriptor: Descriptor) -> type[Message]:
    return GetMessageClass(descriptor)


def _is_whole(content: bytes, descriptor: Descriptor) -> bool:
    try:
        _type(descriptor).FromString(content)
    except DecodeError:
        return False
    return True


def _skip(data: bytes, position: int, wire_type: int) -> int:
    if wire_type == _VARINT:
        return _varint(data, position)[1]
    if wire_type not in (_FIXED64, _FIXED32):
        raise DecodeError(f"wire type {wire_type} has no place in OTLP")
    return position + (8 if wire_type == _FIXED64 else 4)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at a position and the position behind it. Raises IndexError at the end of the data."""
    value = shift = 0
    while shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise DecodeError("a number is longer than ten bytes")


def encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
