"""The flusher: the one thread that turns the log into table rows.

It reads synced records in order and commits every second or every few thousand events, each table with the sequence
number of the batch as an application transaction: after a crash every table skips what it already has. A batch that
cannot be committed (a full disk) is tried again until it can; a record that cannot be mapped is set aside.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain, repeat

import polars as pl
from deltalake.exceptions import DeltaError

from collector import rows
from collector.dead_letters import DeadLetters
from collector.decode import decode_facts
from collector.dedup import KeyIndex, Keys, keys_of
from collector.facts import Facts
from collector.lake import Lake
from collector.observed import ObservedSkills
from collector.redact import Redactor
from collector.registry import decode_write
from collector.segment import Record
from collector.skill_changes import SKILLS, SkillChange, Source, to_rows
from collector.tables import FACT_TABLES
from collector.telemetry import Telemetry
from collector.wal import Wal
from pickwise.settings import Settings

logger = logging.getLogger(__name__)

#: Application id of the transactions that tell how far a table has the log.
APPLICATION = "wal"
#: Bytes of log read for one commit at most: bounds the memory of mapping.
_BATCH_BYTES = 32 * 2**20
_RETRY_S = (0.2, 1.0, 5.0, 15.0)
#: Tables whose exact repeats are dropped; the registry's change log has its own rule.
_KEYED = tuple(table for table in FACT_TABLES if table != SKILLS)


#: Rows of one table with the record that they come from.
_RecordRows = tuple[Record, list[rows.Row]]


@dataclass(slots=True)
class _Batch:
    """Rows of a run of records, by table, with the keys that they bring."""

    last_seq: int
    size: int
    oldest_ns: int
    frames: dict[str, pl.DataFrame] = field(default_factory=dict)
    keys: dict[str, Keys] = field(default_factory=dict)


class _GivenUp(RuntimeError):  # noqa: N818 - a decision
    """The collector stops while something can't be written; what is not committed stays in the log."""


class Flusher:
    """Reads the log and writes the tables. ``start`` runs it as a thread; ``drain`` runs it in the caller's."""

    def __init__(
        self,
        settings: Settings,
        wal: Wal,
        lake: Lake,
        redactor: Redactor,
        dead_letters: DeadLetters,
        telemetry: Telemetry,
    ) -> None:
        self._settings = settings
        self._wal = wal
        self._lake = lake
        self._redactor = redactor
        self._dead_letters = dead_letters
        self._telemetry = telemetry
        for table in FACT_TABLES:
            lake.sync(table)
        self._versions = {table: lake.transaction_version(table, APPLICATION) for table in FACT_TABLES}
        self._indexes = {table: KeyIndex.of_files(lake.files(table)) for table in _KEYED}
        self._observed = ObservedSkills.of_rows(lake.read(SKILLS))
        self._commits: dict[str, int] = defaultdict(int)
        self._doubtful = False  # a commit failed, perhaps after it had gone through
        self._read_events = 0
        self._position = 0
        self._urgent = 0
        self._waiting_since: float | None = None
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

    def drain(self) -> None:
        """Commit all that is durable, in the caller's thread; only while the thread does not run."""
        while self._pending():
            self._flush()

    def _run(self) -> None:
        try:
            self._loop()
        except _GivenUp as given_up:
            logger.error("stopped before all was committed (%s); the log keeps the rest for the next start", given_up)

    def _loop(self) -> None:
        while True:
            self._wake.wait(self._patience())
            self._wake.clear()
            if self._pending() and self._is_due():
                self._flush()
            elif self._stopping.is_set() and not self._pending():
                return

    def _pending(self) -> bool:
        return self._wal.durable_seq > self._position

    def _is_due(self) -> bool:
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return (
            self._stopping.is_set()
            or self._urgent > self._position
            or self._wal.durable_events - self._read_events >= self._settings.flush_events
            or now - self._waiting_since >= self._settings.flush_interval_s
        )

    def _patience(self) -> float | None:
        """Seconds until the next commit is due; None while nothing waits."""
        if self._stopping.is_set() or (self._pending() and self._urgent > self._position):
            return 0.0
        if not self._pending():
            return None
        if self._waiting_since is None:
            return 0.0
        return max(0.0, self._waiting_since + self._settings.flush_interval_s - time.monotonic())

    def _flush(self) -> None:
        durable = self._wal.durable_seq
        records = self._wal.read(self._settings.flush_events, _BATCH_BYTES)
        self._waiting_since = None
        if records:
            self._read_events += sum(record.header.events for record in records)
            self._commit(self._prepare(records))
        else:  # what was left is damaged and set aside by the log
            self._read_events = self._wal.durable_events
            self._advance(durable)

    # -- rows -----------------------------------------------------------------------------------------------------

    def _prepare(self, records: list[Record]) -> _Batch:
        batch = _Batch(
            records[-1].header.seq,
            sum(record.size for record in records),
            min(record.header.received_at for record in records),
        )
        found: dict[str, list[_RecordRows]] = defaultdict(list)
        changes: list[pl.DataFrame] = []
        for record in records:
            for project, facts in self._facts_of(record, changes).items():
                for table, table_rows in self._rows_of(record, project, facts).items():
                    if record.header.seq > self._versions[table]:
                        found[table].append((record, table_rows))
        batch.frames = {table: self._frame_of(table, parts) for table, parts in found.items()}
        for table in batch.frames:
            self._drop_repeats(batch, table)
        if changes:
            batch.frames[SKILLS] = pl.concat(changes)
        return batch

    def _facts_of(self, record: Record, changes: list[pl.DataFrame]) -> dict[str, Facts]:
        """The facts of a record by project; what it says of the registry goes to ``changes``."""
        by_project: dict[str, Facts] = {}
        brought: list[pl.DataFrame] = []
        try:
            if record.header.kind == "registry":
                brought.append(_declared_rows(record))
            else:
                by_project = decode_facts(record, self._settings)
            for project, facts in by_project.items():
                brought += self._observed_rows(record, project, facts)
        except Exception as error:  # noqa: BLE001 - a fault in mapping must not stop the records behind it
            self._set_aside(record, error)
        if record.header.seq > self._versions[SKILLS]:
            changes += brought
        return by_project

    def _observed_rows(self, record: Record, project: str, facts: Facts) -> list[pl.DataFrame]:
        learned = self._observed.learn(project, facts.offered, facts.selections, record.header.received_at)
        return [_change_rows(record, project, "observed", learned)] if learned else []

    def _rows_of(self, record: Record, project: str, facts: Facts) -> dict[str, list[rows.Row]]:
        """The rows of a record by table; a fact that fails is set aside and takes no other with it."""
        try:
            return rows.to_rows(
                project,
                facts,
                received_at=record.header.received_at,
                source_request=source_request(record),
                redactor=self._redactor,
            )
        except Exception as error:  # noqa: BLE001 - as above
            singles = _singles(facts)
            if len(singles) <= 1:
                self._set_aside(record, error)
                return {}
        good: dict[str, list[rows.Row]] = defaultdict(list)
        for single in singles:
            for table, table_rows in self._rows_of(record, project, single).items():
                good[table] += table_rows
        return good

    def _frame_of(self, table: str, parts: list[_RecordRows]) -> pl.DataFrame:
        """One frame of the rows of many records; a row that fits no column is set aside with its record."""
        try:
            return rows.to_frame(table, [row for _, table_rows in parts for row in table_rows])
        except Exception as error:  # noqa: BLE001 - as above
            record, table_rows = parts[0]
            if len(parts) == len(table_rows) == 1:
                self._set_aside(record, error)
                return FACT_TABLES[table].to_frame()
        halves = _halves(parts)
        return pl.concat([self._frame_of(table, half) for half in halves])

    def _set_aside(self, record: Record, error: Exception) -> None:
        self._until_done("setting a record aside", partial(self._dead_letters.put, record, error))

    def _drop_repeats(self, batch: _Batch, table: str) -> None:
        frame = batch.frames[table]
        keys = keys_of(frame)
        fresh = self._indexes[table].fresh(keys)
        repeats = len(fresh) - int(fresh.sum())
        if repeats:
            self._telemetry.duplicates.labels(table).inc(repeats)
        batch.keys[table] = keys[fresh]
        batch.frames[table] = frame.filter(pl.Series(fresh))

    # -- commits --------------------------------------------------------------------------------------------------

    def _commit(self, batch: _Batch) -> None:
        for table, frame in batch.frames.items():
            if frame.height:
                self._until_done(f"commit to {table}", partial(self._append, table, frame, batch.last_seq))
        today = datetime.now(UTC).date()
        for table, keys in batch.keys.items():
            self._indexes[table].add(keys, today)
        self._telemetry.lag.observe(max(0.0, (time.time_ns() - batch.oldest_ns) / 1e9))
        self._wal.release(batch.last_seq, batch.size)
        self._advance(batch.last_seq)
        self._compact_when_due()

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
        self._lake.append(table, frame, (APPLICATION, seq))
        self._doubtful = False
        self._versions[table] = seq
        self._commits[table] += 1
        self._telemetry.rows.labels(table).inc(frame.height)

    def _until_done(self, what: str, action: Callable[[], None]) -> None:
        """Try again whatever fails: the log holds the records until they are in. Raises _GivenUp when stopping."""
        for wait in chain(_RETRY_S, repeat(_RETRY_S[-1])):
            try:
                action()
            except Exception as error:
                logger.error("%s failed, again in %.1f s: %s", what, wait, error)
                self._telemetry.commit_failures.labels(what).inc()
                if self._stopping.wait(wait):
                    raise _GivenUp(what) from error
            else:
                return

    def _compact_when_due(self) -> None:
        for table, commits in list(self._commits.items()):
            if commits < self._settings.compact_every:
                continue
            self._commits[table] = 0
            try:
                self._lake.compact(table)
            except (OSError, DeltaError) as error:
                # Another process may have committed meanwhile; small files only cost time, so later is soon enough.
                logger.warning("compaction of %s put off: %s", table, error)


def source_request(record: Record) -> str:
    """The name of a log record in the rows that it brought."""
    return f"{record.header.seq:020d}"


def _declared_rows(record: Record) -> pl.DataFrame:
    write = decode_write(record.body)
    return _change_rows(record, record.header.project, "declared", write.changes, write.registry_version)


def _change_rows(
    record: Record, project: str, source: Source, changes: list[SkillChange], registry_version: str | None = None
) -> pl.DataFrame:
    return to_rows(
        changes,
        project=project,
        source=source,
        seq=record.header.seq,
        received_at=record.header.received_at,
        source_request=source_request(record),
        registry_version=registry_version,
    )


def _halves(parts: list[_RecordRows]) -> tuple[list[_RecordRows], list[_RecordRows]]:
    """Two shorter lists: of records, or of the rows of one record."""
    if len(parts) > 1:
        middle = len(parts) // 2
        return parts[:middle], parts[middle:]
    record, table_rows = parts[0]
    middle = len(table_rows) // 2
    return [(record, table_rows[:middle])], [(record, table_rows[middle:])]


def _singles(facts: Facts) -> list[Facts]:
    """Each fact alone."""
    return [
        *(Facts(selections=[fact]) for fact in facts.selections),
        *(Facts(calls=[fact]) for fact in facts.calls),
        *(Facts(feedback=[fact]) for fact in facts.feedback),
        *(Facts(routes=[fact]) for fact in facts.routes),
    ]
