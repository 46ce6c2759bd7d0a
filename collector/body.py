"""Request bodies: what a Content-Type means, and inflating with the size cap applied while it goes on."""

from __future__ import annotations

from email.message import Message
from typing import Any

from isal import igzip_lib, isal_zlib

from pickwise.events import MAX_REQUEST_BYTES

GZIP_WBITS = 31
_ZLIB_WBITS = 15
_RAW_WBITS = -15
#: What senders mostly say: taking a header apart costs more than the rest of a small request's headers.
_PLAIN = frozenset({"application/x-protobuf", "application/json", "application/x-ndjson"})
ACCEPTED_CODINGS = "gzip, deflate"


class TooLarge(ValueError):  # noqa: N818 - named after its status, 413
    """The body is larger than the cap after decompression, or holds too many items."""

    def __init__(self, message: str = f"expected at most {MAX_REQUEST_BYTES} bytes after decompression") -> None:
        super().__init__(message)


class UnknownCoding(ValueError):  # noqa: N818 - named after its status, 415
    """A Content-Encoding that is not taken."""


class CorruptBody(ValueError):  # noqa: N818 - the body's state
    """Bytes that do not inflate."""


def media_type(content_type: str) -> str:
    """The media type of a Content-Type header, in lower case and without its parameters; '' where there is none.

    Of a list none is chosen: it is given whole, and is no media type.
    """
    if content_type in _PLAIN:
        return content_type
    if "," in content_type:
        return content_type.lower()
    message = Message()
    message["Content-Type"] = content_type
    return message.get_content_type() if "/" in content_type else ""


def inflate(body: bytes, coding: str) -> bytes:
    """The body as it was before its Content-Encoding. Raises TooLarge, UnknownCoding, CorruptBody."""
    match coding.strip().lower():
        case "" | "identity":
            if len(body) > MAX_REQUEST_BYTES:
                raise TooLarge
            return body
        case "gzip" | "x-gzip":
            return _inflate(body, GZIP_WBITS)
        case "deflate":
            # The standard means the zlib format; some senders mean the bare stream.
            return _inflate(body, _ZLIB_WBITS if _has_zlib_header(body) else _RAW_WBITS)
        case _:
            raise UnknownCoding(f"content-encoding: expected gzip, deflate or none, got {coding!r:.60}")


def _inflate(body: bytes, wbits: int) -> bytes:
    parts: list[bytes] = []
    room = MAX_REQUEST_BYTES
    rest = body
    while True:
        stream = isal_zlib.decompressobj(wbits=wbits)
        for part in _stream(stream, rest, room):
            room -= len(part)
            parts.append(part)
        rest = stream.unused_data
        # Gzip bodies may have several members, and padding behind the last.
        if wbits != GZIP_WBITS or not rest.strip(b"\0"):
            return b"".join(parts)


def _stream(stream: Any, data: bytes, room: int) -> list[bytes]:
    """Inflate one stream into at most ``room`` bytes."""
    parts: list[bytes] = []
    try:
        while not stream.eof:
            # One byte more than fits: it tells a body of just that size from a longer one.
            part = stream.decompress(data, room + 1)
            room -= len(part)
            if room < 0:
                raise TooLarge
            if not part and not stream.eof and not stream.unconsumed_tail:
                raise CorruptBody("the compressed body ends before its stream does")
            parts.append(part)
            data = stream.unconsumed_tail
    except igzip_lib.IsalError as error:  # type: ignore[misc]  # its stub types the class as an instance
        raise CorruptBody(f"the body is not what its content-encoding says: {error}") from error
    return parts


def _has_zlib_header(body: bytes) -> bool:
    return len(body) >= 2 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0
