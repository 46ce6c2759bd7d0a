"""One segment file of the write-ahead log: its format, written, scanned and read.

File: magic and schema version, then records. Record: length of header and body together, CRC-32 of both, length of
the header, the header as JSON, the body as it came. A record counts when its whole length is there and the CRC agrees.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
from isal import isal_zlib

Kind = Literal["traces", "logs", "events", "registry"]

SCHEMA_VERSION = 1
_MAGIC = b"PKWLOG"
_FILE_HEADER = struct.Struct("<6sH")
_FRAME = struct.Struct("<III")
#: What precedes the first record of a file.
FILE_HEADER = _FILE_HEADER.pack(_MAGIC, SCHEMA_VERSION)
#: No record is longer: the request cap is 20 MiB. A greater length is noise read as a length.
_MAX_RECORD_BYTES = 64 * 2**20
SUFFIX = ".wal"


class LogFormatError(RuntimeError):
    """A segment that this version cannot read: not a segment at all, or written by a newer version."""


class TornRecord(ValueError):  # noqa: N818 - a state of the file
    """The bytes at ``offset`` are not a whole record."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What the log knows of a record. ``received_at`` is Unix nanoseconds; ``project`` is '' where none was named."""

    seq: int
    kind: Kind
    project: str
    received_at: int
    encoding: str
    #: Events that were acceptable at the door: how soon the flusher has enough for a commit.
    events: int = 1
    #: A key decided the project: items that name another one were refused.
    bound: bool = False
    #: It came by `pickwise import`, so its rows are history that no retention takes.
    imported: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    header: Header
    body: bytes
    #: Bytes that the record takes in its file.
    size: int


@dataclass(slots=True)
class Scan:
    """What one pass over a segment found."""

    records: int = 0
    events: int = 0
    last_seq: int = -1
    #: Length of the file up to the end of its last whole record.
    good_bytes: int = 0
    #: Why reading stopped before the end of the file; None where it did not.
    damage: str | None = None


def segment_path(folder: Path, first_seq: int) -> Path:
    return folder / f"{first_seq:020d}{SUFFIX}"


def encode(header: Header, body: bytes) -> tuple[bytes, bytes]:
    """The bytes of one record: what precedes the body, and the body, which is long and better not copied."""
    head = msgspec.json.encode(header)
    crc = isal_zlib.crc32(body, isal_zlib.crc32(head))
    return _FRAME.pack(len(head) + len(body), crc, len(head)) + head, body


def read_records(path: Path, offset: int = len(FILE_HEADER), end: int | None = None) -> Iterator[Record]:
    """The records from ``offset`` to ``end`` (to the end of the file).

    Raises TornRecord at the first one that is not whole, LogFormatError for a file that is no segment of ours.
    """
    limit = path.stat().st_size if end is None else end
    with path.open("rb") as file:
        _check_file_header(path, file)
        file.seek(offset)
        while offset < limit:
            record = _read_record(file, offset, limit)
            offset += record.size
            yield record


def scan(path: Path) -> Scan:
    """Read a whole segment and report what of it is good. Raises LogFormatError as ``read_records`` does."""
    found = Scan(good_bytes=len(FILE_HEADER))
    if path.stat().st_size < len(FILE_HEADER):
        found.good_bytes, found.damage = 0, "the file ends within its own header"
        return found
    try:
        for record in read_records(path):
            found.records += 1
            found.events += record.header.events
            found.last_seq = record.header.seq
            found.good_bytes += record.size
    except TornRecord as torn:
        found.damage = torn.reason
    return found


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk: a synced file whose name is not is lost with the power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_file_header(path: Path, file: BinaryIO) -> None:
    head = file.read(len(FILE_HEADER))
    if len(head) < len(FILE_HEADER) or not head.startswith(_MAGIC):
        raise LogFormatError(f"{path} is not a segment of the write-ahead log; move it out of the folder")
    version = _FILE_HEADER.unpack(head)[1]
    if version > SCHEMA_VERSION:
        raise LogFormatError(
            f"{path} has log format {version}, this version reads up to {SCHEMA_VERSION}; "
            "start the version that wrote it once, so that it commits its log, then this one"
        )


def _read_record(file: BinaryIO, offset: int, limit: int) -> Record:
    frame = file.read(_FRAME.size)
    if len(frame) < _FRAME.size:
        raise TornRecord(offset, f"record at byte {offset} ends within its frame")
    length, crc, head_length = _FRAME.unpack(frame)
    if head_length > length or length > _MAX_RECORD_BYTES:
        raise TornRecord(offset, f"record at byte {offset} has an impossible length")
    if offset + _FRAME.size + length > limit:
        raise TornRecord(offset, f"record at byte {offset} is cut short")
    head = file.read(head_length)
    body = file.read(length - head_length)
    if isal_zlib.crc32(body, isal_zlib.crc32(head)) != crc:
        raise TornRecord(offset, f"record at byte {offset} does not match its checksum")
    try:
        header = msgspec.json.decode(head, type=Header)
    except msgspec.MsgspecError as error:
        raise TornRecord(offset, f"record at byte {offset} has an unreadable header: {error}") from error
    return Record(header, body, _FRAME.size + length)
