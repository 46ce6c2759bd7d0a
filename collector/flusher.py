"""The flusher: the one thread that turns the log into table rows.

It reads synced records in order and commits every second or every few thousand events, each table with the sequence
number of the batch as an application transaction: after a crash every table skips what it already has. Then the batch
goes, redacted, to the archive, and the log is released. While it does so the next batch is being mapped, see
``mapping_pool``. A batch that cannot be written (a full disk) is tried again until it can; a record that cannot be
mapped is set aside. Between batches the thread does what operators ask of the tables (`operations`) and, once an hour,
tidies up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from typing import Any, TypeVar

import polars as pl
from deltalake.exceptions import DeltaError

from collector.batches import Batch, BatchMaker, Begun
from collector.faults import Fault
from collector.mapping_pool import MappingPool
from collector.operations import Operation
from collector.segment import SUFFIX, Record
from collector.self_traces import note, traced
from collector.stores import Stores
from collector.tables import FACT_TABLES
from collector.telemetry import Telemetry
from collector.upkeep import Upkeep
from collector.wal import Wal

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

#: Application id of the transactions that tell how far a table has the log.
APPLICATION = "wal"
#: Bytes of log read for one commit at most, and events, in settings' ``flush_events``: bound the memory of mapping.
_BATCH_BYTES = 32 * 2**20
_BATCH_FLUSHES = 4
_RETRY_S = (0.2, 1.0, 5.0, 15.0)
#: Files of one minute are small; larger ones are left to the hourly upkeep, so that no row is rewritten every minute.
_SMALL_FILE_BYTES = 16 * 2**20
#: An operation that fails (another process changed a table meanwhile) is begun again so often at once.
_ATTEMPTS = 3
_END = object()
_INTERRUPTED = "the collector stopped before this was done; it goes on with it when it is next started"


@dataclass(slots=True)
class _Task:
    """An operation on its way; ``steps`` is None until it is begun."""

    operation: Operation
    done: Callable[[], None]
    future: Future[Any]
    steps: Iterator[None] | None = None
    attempts: int = 0


class Interrupted(RuntimeError):  # noqa: N818 - a state
    """The collector stopped before the operation was done; it is begun again when the folder is next opened."""


class _GivenUp(RuntimeError):  # noqa: N818 - a decision
    """The collector stops while something can't be written; what is not committed stays in the log."""


class Flusher:
    """Reads the log and writes the tables. ``start`` runs it as a thread; ``drain`` runs it in the caller's."""

    def __init__(self, wal: Wal, stores: Stores, pool: MappingPool, telemetry: Telemetry) -> None:
        self._settings = stores.settings
        self._wal = wal
        self._stores = stores
        self._lake = lake = stores.lake
        self._telemetry = telemetry
        for table in FACT_TABLES:
            lake.sync(table)
        self._versions = {table: lake.transaction_version(table, APPLICATION) for table in FACT_TABLES}
        self.pool = pool
        self._batches = BatchMaker(stores, pool, telemetry, self._set_aside)
        self._ahead: Begun | None = None
        self._commits: dict[str, int] = defaultdict(int)
        self._doubtful = False  # a commit failed, perhaps after it had gone through
        self._read_events = 0
        self._position = 0
        self._urgent = 0
        self._waiting_since: float | None = None
        self._tasks: deque[_Task] = deque()
        self._ended = False
        self._upkeep = Upkeep(stores)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._committed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)

    @property
    def position(self) -> int:
        """Sequence number of the last record that is committed."""
        return self._position

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def wake(self) -> None:
        """Something became durable."""
        self._wake.set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Commit everything that is durable, then end the thread."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def refresh(self, timeout_s: float | None = None) -> bool:
        """Commit at once all that is durable now and wait for it; False when it took longer than the time-out."""
        target = self._wal.durable_seq
        self._urgent = max(self._urgent, target)
        self._wake.set()
        with self._committed:
            return self._committed.wait_for(lambda: self._position >= target, timeout_s)

    def submit(self, operation: Operation, done: Callable[[], None] = lambda: None) -> Future[Any]:
        """Do an operation after those that wait already; the future gives its report, or Interrupted.

        ``done`` is called when it is done, before that is told.
        """
        task = _Task(operation, done, Future())
        with self._committed:
            if self._ended:
                task.future.set_exception(Interrupted(_INTERRUPTED))
            else:
                self._tasks.append(task)
        self._wake.set()
        return task.future

    def drain(self) -> None:
        """Commit all that is durable, in the caller's thread; only while the thread does not run."""
        while self._pending():
            self._flush()

    def _run(self) -> None:
        try:
            self._loop()
        except _GivenUp as given_up:
            logger.error("stopped before all was committed (%s); the log keeps the rest for the next start", given_up)
        finally:
            with self._committed:
                self._ended = True
            for task in self._tasks:
                task.future.set_exception(Interrupted(_INTERRUPTED))

    def _loop(self) -> None:
        while True:
            self._wake.wait(self._patience())
            self._wake.clear()
            if self._pending() and self._is_due():
                self._flush()
            elif self._stopping.is_set():
                if not self._pending():
                    return
            elif self._tasks:
                self._do_step(self._tasks[0])
            elif self._upkeep.is_due():
                self.submit(self._upkeep)
            else:
                self.pool.rest()

    def _pending(self) -> bool:
        return self._wal.durable_seq > self._position

    def _is_due(self) -> bool:
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return (
            self._stopping.is_set()
            or self._ahead is not None
            or self._urgent > self._position
            or self._is_much()
            or now - self._waiting_since >= self._settings.flush_interval_s
        )

    def _is_much(self) -> bool:
        return self._wal.durable_events - self._read_events >= self._settings.flush_events

    def _patience(self) -> float:
        """Seconds until something is due: a commit, the upkeep, the end of idle processes."""
        if self._stopping.is_set() or self._tasks or self._ahead or (self._pending() and self._urgent > self._position):
            return 0.0
        if not self._pending():
            return min(self._upkeep.due_in_s, self.pool.rest_in_s)
        if self._waiting_since is None:
            return 0.0
        return max(0.0, self._waiting_since + self._settings.flush_interval_s - time.monotonic())

    def _flush(self) -> None:
        durable = self._wal.durable_seq
        begun, self._ahead = self._ahead or self._begin(), None
        if begun is None:  # what was left is damaged and set aside by the log
            self._read_events = self._wal.durable_events
            self._advance(durable)
            return
        if self._is_much() and not self._tasks:  # an operation may change what mapping heeds
            self._ahead = self._begin()
        with self._telemetry.self_traces.flushing(begun.records):
            with traced("map and redact"):
                parts = self._until_done("mapping", begun.mapped)
            self._commit(self._batches.finish(begun, parts))

    def _read(self) -> list[Record]:
        return self._wal.read(self._settings.flush_events * _BATCH_FLUSHES, _BATCH_BYTES)

    def _begin(self) -> Begun | None:
        """Read the next records, if there are any, and start to map them."""
        records = self._until_done("reading the log", self._read)
        self._waiting_since = None
        if not records:
            return None
        self._read_events += sum(record.header.events for record in records)
        return self._until_done("starting to map", partial(self._batches.begin, records, self._versions))

    # -- operations -------------------------------------------------------------------------------------------------

    def _do_step(self, task: _Task) -> None:
        try:
            task.steps = task.steps if task.steps is not None else task.operation.steps()
            if next(task.steps, _END) is not _END:
                return
            task.done()
        except Exception as error:  # noqa: BLE001 - whoever asked is told; batches go on
            task.steps, task.attempts = None, task.attempts + 1
            logger.error("%s failed (attempt %d): %s", type(task.operation).__name__, task.attempts, error)
            if task.attempts >= _ATTEMPTS:
                self._tasks.popleft()
                task.future.set_exception(error)
        else:
            self._tasks.popleft()
            task.future.set_result(task.operation.report)

    def remember(self, table: str, rows: pl.DataFrame) -> None:
        """Rows that an operation put into a table: repeats of theirs are dropped from now on."""
        self._batches.remember_rows(table, rows)

    def relearn(self) -> None:
        """An operation changed the observed registry."""
        self._batches.relearn()

    def hurry(self) -> None:
        """Commit at the next opportunity all that is durable now."""
        self._urgent = max(self._urgent, self._wal.durable_seq)

    def is_clear_of(self, seq: int) -> bool:
        """Whether everything up to that record is committed and its raw bytes are deleted."""
        first = min((int(path.stem) for path in self._wal.folder.glob(f"*{SUFFIX}")), default=seq + 1)
        return self._position >= min(seq, self._wal.durable_seq) and first > seq

    # -- batches --------------------------------------------------------------------------------------------------

    def _set_aside(self, record: Record, fault: Fault) -> None:
        self._until_done("setting a record aside", partial(self._stores.dead_letters.put, record, fault))

    def _commit(self, batch: Batch) -> None:
        for table, frame in batch.frames.items():
            if frame.height:
                self._until_done(f"commit to {table}", partial(self._append, table, frame, batch.last_seq))
        self._batches.remember(batch)
        note(lag_seconds=self._telemetry.visible(batch.oldest_ns))
        self._advance(batch.last_seq)
        with traced("archive"):
            self._archive(batch)
        with traced("release"):
            self._release(batch)
        self._compact_when_due()

    def _archive(self, batch: Batch) -> None:
        """Only then may the log go. Whoever waits to see the rows need not wait for it."""
        if batch.archived:
            self._until_done("writing the archive", partial(self._stores.archive.write, batch.archived))

    def _release(self, batch: Batch) -> None:
        self._wal.release(batch.last_seq, batch.size)

    def _advance(self, seq: int) -> None:
        with self._committed:
            self._position = max(self._position, seq)
            self._committed.notify_all()

    def _append(self, table: str, frame: pl.DataFrame, seq: int) -> None:
        """Commit one table's rows, unless an attempt that failed afterwards had already brought them in."""
        if self._doubtful:
            self._versions[table] = self._lake.transaction_version(table, APPLICATION)
            self._lake.sync(table)
            self._doubtful = False
        if self._versions[table] >= seq:
            return
        self._doubtful = True
        with self._telemetry.commit_seconds.labels(table).time(), traced("commit", table=table, rows=frame.height):
            self._lake.append(table, frame, (APPLICATION, seq))
        self._doubtful = False
        self._versions[table] = seq
        self._commits[table] += 1
        self._telemetry.rows.labels(table).inc(frame.height)

    def _until_done(self, what: str, action: Callable[[], _T]) -> _T:
        """Try again whatever fails: the log holds the records until they are in. Raises _GivenUp when stopping."""
        for wait in chain(_RETRY_S, repeat(_RETRY_S[-1])):
            try:
                return action()
            except Exception as error:
                logger.error("%s failed, again in %.1f s: %s", what, wait, error)
                self._telemetry.commit_failures.labels(what).inc()
                if self._stopping.wait(wait):
                    raise _GivenUp(what) from error
        raise AssertionError("unreachable")

    def _compact_when_due(self) -> None:
        for table, commits in list(self._commits.items()):
            if commits < self._settings.compact_every:
                continue
            self._commits[table] = 0
            try:
                with traced("compact", table=table):
                    self._lake.compact(table, _SMALL_FILE_BYTES)
                self._telemetry.compactions.labels(table, "done").inc()
            except (OSError, DeltaError) as error:
                self._telemetry.compactions.labels(table, "put_off").inc()
                # Another process may have committed meanwhile; small files only cost time, so later is soon enough.
                logger.warning("compaction of %s put off: %s", table, error)
