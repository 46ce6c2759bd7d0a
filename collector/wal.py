"""The write-ahead log: what was appended and synced here will be counted, whatever dies next.

Many threads append; one thread writes whatever waits in one go, syncs once and resolves the futures (group commit).
One reader (the flusher) takes records in order up to the synced end, and releases what it has committed; segments are
deleted as soon as all of their records are. Bodies are raw requests: files 0600, folder 0700, gone within seconds.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from collector.segment import (
    FILE_HEADER,
    Header,
    Kind,
    Record,
    TornRecord,
    encode,
    read_records,
    segment_path,
    sync,
)
from collector.wal_recovery import Segment, recovered

logger = logging.getLogger(__name__)

SEGMENT_BYTES = 64 * 2**20
#: A busy log starts a new segment after so long, so that raw requests go soon after their commit.
SEGMENT_AGE_S = 10.0
#: Bytes written at most between two syncs: bounds the wait of the first of a group.
_GROUP_BYTES = 16 * 2**20
#: As many as the system takes in one call.
_PARTS_AT_ONCE = 1024


class Overloaded(RuntimeError):  # noqa: N818 - a state, not a fault
    """Not taken now; the sender should come again after ``retry_after_s``."""

    def __init__(self, reason: str, retry_after_s: int = 1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class _Pending:
    kind: Kind
    project: str
    encoding: str
    received_at: int
    events: int
    body: bytes
    future: Future[int]
    bound: bool
    imported: bool


class Wal:
    """The log in one folder, with one writer thread. ``on_durable`` is called after each group commit."""

    def __init__(
        self,
        folder: Path,
        *,
        queue_bytes: int,
        backlog_bytes: int,
        floor_seq: int = 0,
        on_durable: Callable[[], None] = lambda: None,
        segment_bytes: int = SEGMENT_BYTES,
        segment_age_s: float = SEGMENT_AGE_S,
    ) -> None:
        """Open the log and recover it; sequence numbers go on after the newest record and after ``floor_seq``.

        Raises LogFormatError for a segment that this version cannot read, OSError where the folder is not writable.
        """
        self.folder = Path(folder)
        self.on_durable = on_durable
        self._queue_limit = queue_bytes
        self._backlog_limit = backlog_bytes
        self._segment_bytes = segment_bytes
        self._segment_age_s = segment_age_s
        self._queue: deque[_Pending] = deque()
        self._queued_bytes = 0
        self._queued_requests = 0
        self._ready = threading.Condition()
        self._files = threading.Lock()  # segments and the active file: the writer's and the releaser's
        self._closing = False
        self._broken: str | None = None
        self._suspect = False  # a write to the active file failed: go on in a new one
        self.recovery, self._segments = recovered(self.folder)
        self.durable_seq = max([floor_seq, *(segment.last_seq for segment in self._segments)])
        self.durable_events = self.recovery.events
        self._backlog_bytes = sum(segment.durable_bytes - len(FILE_HEADER) for segment in self._segments)
        self._cursor: tuple[Segment, int] | None = None
        self._file = self._open_segment()
        self._writer = threading.Thread(target=self._write_loop, name="wal-writer", daemon=True)
        self._writer.start()

    @property
    def queue_bytes(self) -> int:
        """Bytes that wait for the disk."""
        return self._queued_bytes

    @property
    def queue_requests(self) -> int:
        """Requests that wait for the disk."""
        return self._queued_requests

    @property
    def backlog_bytes(self) -> int:
        """Synced bytes that are not yet committed to the tables."""
        return self._backlog_bytes

    @property
    def trouble(self) -> str | None:
        """Why nothing can be appended until a restart; None while all is well."""
        return self._broken or (None if self._writer.is_alive() else "the log's writer has ended")

    def append(
        self,
        kind: Kind,
        project: str,
        encoding: str,
        body: bytes,
        *,
        events: int = 1,
        received_at: int | None = None,
        bound: bool = False,
        imported: bool = False,
    ) -> Future[int]:
        """Queue a record; the future gives its sequence number once it is on disk.

        Raises Overloaded when the queue or the backlog is full or the log is closing; the future fails with it
        when the disk refuses.
        """
        pending = _Pending(
            kind, project, encoding, received_at or time.time_ns(), events, body, Future(), bound, imported
        )
        with self._ready:
            self._admit(len(body))
            self._queued_bytes += len(body)
            self._queued_requests += 1
            self._queue.append(pending)
            self._ready.notify()
        return pending.future

    def read(self, max_events: int, max_bytes: int) -> list[Record]:
        """The next synced records after those already read, at least one where there is any. One reader only.

        Raises OSError where not one could be read; the same ones are read when it is called again.
        """
        records: list[Record] = []
        events = size = 0
        while events < max_events and size < max_bytes:
            segment, offset, end = self._next_range()
            if segment is None:
                break
            try:
                for record in read_records(segment.path, offset, end):
                    records.append(record)
                    offset += record.size
                    events += record.header.events
                    size += record.size
                    if events >= max_events or size >= max_bytes:
                        break
            except TornRecord as torn:
                self._note_damage(segment, torn)
                offset = end
            except OSError:
                if not records:
                    raise
                max_bytes = 0  # what was read is good; the rest is tried again
            self._cursor = (segment, offset)
        return records

    def release(self, seq: int, size: int) -> None:
        """Everything up to ``seq`` is committed, ``size`` bytes more than at the last release: delete what is spent."""
        with self._files:
            self._backlog_bytes -= size
            active = self._segments[-1]
            if 0 <= active.last_seq <= seq:
                try:
                    self._rotate()
                except OSError as error:
                    logger.warning("no new log segment, the old one stays for now: %s", error)
            spent = [segment for segment in self._segments[:-1] if segment.last_seq <= seq]
            for segment in spent:
                self._drop(segment)
            self._segments = [segment for segment in self._segments if segment not in spent]

    def seal(self) -> None:
        """Refuse later appends and write what waits; reading and releasing go on."""
        with self._ready:
            self._closing = True
            self._ready.notify_all()
        self._writer.join()

    def close(self) -> None:
        """Seal the log and end its use. A log with nothing left to commit leaves no file."""
        self.seal()
        with self._files:
            os.close(self._file)
            newest = self._segments[-1]
            if newest.last_seq < 0:
                newest.path.unlink()

    # -- admission and group commit -------------------------------------------------------------------------------

    def _admit(self, size: int) -> None:
        if self._closing:
            raise Overloaded("the collector is shutting down", retry_after_s=5)
        if self._broken is not None:
            raise Overloaded(self._broken, retry_after_s=30)
        # An empty queue takes a body of any size, else one longer than the queue could never come in.
        if self._queued_bytes and self._queued_bytes + size > self._queue_limit:
            raise Overloaded(f"{self._queued_bytes} bytes already wait for the disk")
        if self._backlog_bytes > self._backlog_limit:
            raise Overloaded(f"{self._backlog_bytes} bytes of the log are not yet committed", retry_after_s=10)

    def _write_loop(self) -> None:
        while group := self._take_group():
            try:
                seqs = self._commit_group(group)
            except OSError as error:
                logger.error("the log could not be written: %s", error)
                refusal = Overloaded(_disk_reason(error), retry_after_s=10)
                for pending in group:
                    pending.future.set_exception(refusal)
            else:
                for pending, seq in zip(group, seqs, strict=True):
                    pending.future.set_result(seq)
                self.on_durable()
            with self._ready:
                self._queued_bytes -= sum(len(pending.body) for pending in group)
                self._queued_requests -= len(group)

    def _take_group(self) -> list[_Pending]:
        """Everything that waits, up to a bound; empty only when the log closes."""
        group: list[_Pending] = []
        size = 0
        with self._ready:
            while True:
                while not self._queue and not self._closing:
                    self._ready.wait()
                if not self._queue:
                    return group
                while self._queue and size < _GROUP_BYTES:
                    pending = self._queue.popleft()
                    if pending.future.set_running_or_notify_cancel():
                        group.append(pending)
                        size += len(pending.body)
                    else:
                        self._queued_bytes -= len(pending.body)
                        self._queued_requests -= 1
                if group:
                    return group

    def _commit_group(self, group: list[_Pending]) -> list[int]:
        with self._files:
            if self._broken is not None:
                raise OSError(errno.EIO, self._broken)
            if self._suspect or self._is_full():
                self._rotate()
                self._suspect = False
            segment = self._segments[-1]
            first = self.durable_seq + 1
            headers = [
                Header(
                    seq=first + index,
                    kind=pending.kind,
                    project=pending.project,
                    received_at=pending.received_at,
                    encoding=pending.encoding,
                    events=pending.events,
                    bound=pending.bound,
                    imported=pending.imported,
                )
                for index, pending in enumerate(group)
            ]
            records = (encode(header, pending.body) for header, pending in zip(headers, group, strict=True))
            parts = list(chain.from_iterable(records))
            size = sum(map(len, parts))
            try:
                _write_all(self._file, parts)
                os.fdatasync(self._file)
            except OSError:
                self._undo(segment)
                raise
            segment.durable_bytes += size
            segment.last_seq = self.durable_seq = headers[-1].seq
            self.durable_events += sum(pending.events for pending in group)
            self._backlog_bytes += size
            return [header.seq for header in headers]

    def _undo(self, segment: Segment) -> None:
        """Cut a failed write away; after a failed sync the file can't be trusted, so the next goes to a new one."""
        try:
            os.ftruncate(self._file, segment.durable_bytes)
            os.fsync(self._file)
        except OSError as error:
            self._broken = f"the log's disk fails ({error}); restart the collector when it is mended"
            logger.critical("%s", self._broken)
        self._suspect = segment.last_seq >= 0

    # -- segments -------------------------------------------------------------------------------------------------

    def _note_damage(self, segment: Segment, torn: TornRecord) -> None:
        """A record that was whole when written is not when read."""
        segment.damaged = True
        self.recovery.report(segment.path, torn.reason)

    def _is_full(self) -> bool:
        active = self._segments[-1]
        if active.last_seq < 0:
            return False
        return active.durable_bytes >= self._segment_bytes or time.monotonic() - active.opened_at >= self._segment_age_s

    def _rotate(self) -> None:
        sealed = self._file
        self._file = self._open_segment()
        os.close(sealed)

    def _open_segment(self) -> int:
        first_seq = self.durable_seq + 1
        path = segment_path(self.folder, first_seq)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            _write_all(descriptor, [FILE_HEADER])
            os.fsync(descriptor)
            sync(self.folder)
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        self._segments.append(Segment(path, first_seq, time.monotonic(), len(FILE_HEADER)))
        return descriptor

    def _drop(self, segment: Segment) -> None:
        if segment.damaged:
            segment.path.rename(segment.path.with_suffix(".damaged"))
        else:
            segment.path.unlink()

    def _next_range(self) -> tuple[Segment | None, int, int]:
        """The segment to read from, the offset to go on at, and the end of its synced part."""
        with self._files:
            for segment in self._segments:
                offset = len(FILE_HEADER)
                if self._cursor is not None:
                    at, at_offset = self._cursor
                    if segment.first_seq < at.first_seq:
                        continue
                    offset = at_offset if segment is at else offset
                if offset < segment.durable_bytes:
                    return segment, offset, segment.durable_bytes
        return None, 0, 0


def _write_all(descriptor: int, parts: Sequence[bytes]) -> None:
    """Write the parts one after the other, none of them copied."""
    for start in range(0, len(parts), _PARTS_AT_ONCE):
        left: list[bytes | memoryview] = list(parts[start : start + _PARTS_AT_ONCE])
        while left:
            written = os.writev(descriptor, left)
            done = 0
            while done < len(left) and written >= len(left[done]):
                written -= len(left[done])
                done += 1
            del left[:done]
            if left:
                left[0] = memoryview(left[0])[written:]


def _disk_reason(error: OSError) -> str:
    return "the disk is full" if error.errno == errno.ENOSPC else f"the log could not be written: {error.strerror}"
