"""What the write-ahead log is after a stop or a crash: its segments, and what had to be cut or is damaged."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from collector.segment import SUFFIX, Scan, scan, sync

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Recovery:
    """What opening the log found."""

    records: int = 0
    events: int = 0
    #: Bytes cut from the end of the newest segment: a write that a crash interrupted, never acknowledged.
    torn_bytes: int = 0
    #: Bad places inside segments that had been synced whole: the disk lost something. One sentence each.
    damaged: list[str] = field(default_factory=list)

    def report(self, path: Path, reason: str) -> None:
        """Note a bad place in a segment."""
        self.damaged.append(f"{path.name}: {reason}")
        logger.error("%s is damaged: %s; the file is kept as %s.damaged", path.name, reason, path.stem)


@dataclass(slots=True)
class Segment:
    """One file of the log as it is in use."""

    path: Path
    first_seq: int
    opened_at: float
    durable_bytes: int
    last_seq: int = -1
    damaged: bool = False


def recovered(folder: Path) -> tuple[Recovery, list[Segment]]:
    """Open the folder of a log, made where there is none; its segments are whole and on disk from here on.

    Raises LogFormatError for a segment that this version cannot read, OSError where the folder is not writable.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    recovery, segments = Recovery(), list[Segment]()
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    for path in paths:
        segment = _recovered(path, scan(path), recovery, is_newest=path == paths[-1])
        if segment is not None:
            segments.append(segment)
    return recovery, segments


def _recovered(path: Path, found: Scan, recovery: Recovery, *, is_newest: bool) -> Segment | None:
    """The segment, None where nothing is in it."""
    if found.damage is not None and is_newest:
        _cut_tail(path, found.good_bytes, found.damage, recovery)
    elif found.damage is not None:
        recovery.report(path, found.damage)
    is_damaged = found.damage is not None and not is_newest
    if found.records == 0 and not is_damaged:
        path.unlink()
        return None
    recovery.records += found.records
    recovery.events += found.events
    sync(path)  # whole but perhaps never synced: from here on it counts as durable
    return Segment(path, int(path.stem), time.monotonic(), found.good_bytes, found.last_seq, is_damaged)


def _cut_tail(path: Path, good_bytes: int, reason: str, recovery: Recovery) -> None:
    torn = path.stat().st_size - good_bytes
    recovery.torn_bytes += torn
    logger.warning("%s: cut %d bytes of a write that a crash interrupted (%s)", path.name, torn, reason)
    os.truncate(path, good_bytes)
