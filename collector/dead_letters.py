"""Acknowledged records that could not be mapped, kept for a mend and never in the way of the others."""

from __future__ import annotations

import base64
import binascii
import logging
import os
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from collector.faults import Fault
from collector.segment import Header, Record
from collector.telemetry import Telemetry

logger = logging.getLogger(__name__)


class Letter(msgspec.Struct):
    """A record set aside: why, and its raw body (base64)."""

    header: Header
    reason: str
    body: str
    traceback: str = ""


class DeadLetters:
    """One JSON file a record in ``folder``, readable by the owner only. `pickwise replay` tries them again."""

    def __init__(self, folder: Path, telemetry: Telemetry) -> None:
        self.folder = Path(folder)
        self._telemetry = telemetry

    def put(self, record: Record, fault: Fault) -> None:
        """Keep a record whose mapping failed, or a part of which did, with the reason. Raises OSError."""
        header = record.header
        path = self._path(header.seq)
        letter = Letter(header, fault.reason, base64.b64encode(record.body).decode(), fault.traceback)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(letter))
            file.flush()
            os.fsync(file.fileno())
        self._telemetry.dead_letters.inc()
        # The error may quote what the record holds, so it stands in the letter and not in a log that is kept.
        logger.error("record %d (%s) is set aside in %s: %s", header.seq, header.kind, path, fault.kind)

    def records(self) -> list[Record]:
        """The records set aside, in their order; a file that is none is left alone and named in the log."""
        found: list[Record] = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                letter = msgspec.json.decode(path.read_bytes(), type=Letter)
                body = base64.b64decode(letter.body, validate=True)
            except (msgspec.MsgspecError, binascii.Error) as error:
                logger.warning("%s is no letter of ours: %s", path, error)
                continue
            found.append(Record(letter.header, body, len(body)))
        return found

    @property
    def last_seq(self) -> int:
        """The highest number of a record set aside, 0 where there is none: it must not be given again."""
        return max((int(path.stem) for path in self.folder.glob("*.json") if path.stem.isdecimal()), default=0)

    def remove(self, record: Record) -> None:
        """Forget a record that is mended, or not wanted any more."""
        self._path(record.header.seq).unlink(missing_ok=True)

    def expire(self, now: datetime, days: float) -> int:
        """Delete what was set aside more than so many days ago; how many."""
        oldest = (now - timedelta(days=days)).timestamp()
        old = [path for path in self.folder.glob("*.json") if path.stat().st_mtime < oldest]
        for path in old:
            path.unlink(missing_ok=True)
        return len(old)

    def _path(self, seq: int) -> Path:
        return self.folder / f"{seq:020d}.json"
