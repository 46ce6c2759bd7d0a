"""From log records to the rows of one batch: decoded, mapped, redacted, without repeats; and what of it is archived."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import polars as pl

from collector import rows
from collector.archived import ArchivedRequest, Item, project_of
from collector.decode import decode_facts
from collector.dedup import KeyIndex, Keys, keys_of
from collector.facts import Facts
from collector.observed import ObservedSkills
from collector.segment import Record
from collector.self_traces import phase, traced
from collector.skill_changes import SKILLS
from collector.skill_rows import declared_rows, observed_rows
from collector.spans import Span
from collector.stores import Stores
from collector.tables import FACT_TABLES, source_request
from collector.telemetry import Telemetry
from collector.tombstones import Tombstones

logger = logging.getLogger(__name__)

#: Tables whose exact repeats are dropped; the registry's change log has its own rule.
_KEYED = tuple(table for table in FACT_TABLES if table != SKILLS)

#: Rows of one table with the record that they come from.
_RecordRows = tuple[Record, list[rows.Row]]
#: The items of a record with their facts.
_Seen = list[tuple[Item, Facts | None]]


class _Mapped(NamedTuple):
    """A record with its items, their facts, and the rows that these became."""

    record: Record
    seen: _Seen
    ledger: rows.Ledger


@dataclass(slots=True)
class Batch:
    """Rows of a run of records, by table, with the keys that they bring; and what the archive is made of."""

    last_seq: int
    size: int
    oldest_ns: int
    frames: dict[str, pl.DataFrame] = field(default_factory=dict)
    keys: dict[str, Keys] = field(default_factory=dict)
    mapped: list[_Mapped] = field(default_factory=list)


class BatchMaker:
    """Makes batches of records. Knows by heart which rows there are already and which skills were seen."""

    def __init__(self, stores: Stores, telemetry: Telemetry, set_aside: Callable[[Record, Exception], None]) -> None:
        self._stores = stores
        self._telemetry = telemetry
        self._set_aside = set_aside
        lake = stores.lake
        self._indexes = {table: KeyIndex.of_files(lake.files(table)) for table in _KEYED}
        self._observed = ObservedSkills.of_rows(lake.read(SKILLS))

    def archived(self, batch: Batch) -> list[ArchivedRequest]:
        """The batch for the archive: requests that it has not yet, where it is on."""
        archive = self._stores.archive
        fresh = [found for found in batch.mapped if found.seen and found.record.header.seq > archive.last_seq]
        with phase("redact for the archive"):
            made = [self._archived(found) for found in fresh] if archive.is_on else []
        return [request for request in made if request is not None]

    def _archived(self, mapped: _Mapped) -> ArchivedRequest | None:
        (record, seen, ledger), tombstones = mapped, self._stores.tombstones
        if tombstones:
            named = record.header.project
            seen = [(item, facts) for item, facts in seen if not _is_hidden(item, named, facts, ledger, tombstones)]
        try:
            return self._stores.archivist.archived(record, seen, ledger.made)
        except Exception as error:  # noqa: BLE001 - its rows are good; a replay leaves them as they are
            logger.error("record %d can't be archived: %s", record.header.seq, type(error).__name__)
            return None

    def remember(self, batch: Batch) -> None:
        """The batch is committed: repeats of its rows are dropped from now on."""
        today = datetime.now(UTC).date()
        for table, keys in batch.keys.items():
            self._indexes[table].add(keys, today)

    def remember_rows(self, table: str, found: pl.DataFrame) -> None:
        """The same for rows that an operation put into a table."""
        self._indexes[table].add(keys_of(found), datetime.now(UTC).date())

    def relearn(self) -> None:
        """An operation changed the observed registry."""
        self._observed = ObservedSkills.of_rows(self._stores.lake.read(SKILLS))

    def prepare(self, records: list[Record], versions: Mapping[str, int]) -> Batch:
        """The batch of some records; ``versions``: up to which number each table has the log already."""
        batch = Batch(
            records[-1].header.seq,
            sum(record.size for record in records),
            min(record.header.received_at for record in records),
        )
        found: dict[str, list[_RecordRows]] = defaultdict(list)
        changes: list[pl.DataFrame] = []
        for record in records:
            seen: _Seen = []
            ledger = rows.Ledger()
            is_new = record.header.seq > versions[SKILLS]
            with phase("map"):
                by_project = self._facts_of(record, changes if is_new else [], seen)
            for project, facts in by_project.items():
                with phase("redact"):
                    made = self._rows_of(record, project, facts, ledger)
                for table, table_rows in made.items():
                    kept = self._without_forgotten(table_rows)
                    if kept and record.header.seq > versions[table]:
                        found[table].append((record, kept))
            batch.mapped.append(_Mapped(record, seen, ledger))
        with traced("to frames"):
            batch.frames = {table: self._frame_of(table, parts) for table, parts in found.items()}
        with traced("dedup"):
            for table in batch.frames:
                self._drop_repeats(batch, table)
        if changes:
            batch.frames[SKILLS] = pl.concat(changes)
        return batch

    def _facts_of(self, record: Record, changes: list[pl.DataFrame], seen: _Seen) -> dict[str, Facts]:
        """The facts of a record by project; what it says of the registry goes to ``changes``, its items to ``seen``."""
        by_project: dict[str, Facts] = {}
        try:
            if record.header.kind == "registry":
                changes.append(declared_rows(record))
                return {}
            by_project = decode_facts(
                record, self._stores.settings, lambda item, facts: seen.append((item, facts)), self._set_aside
            )
            for project, facts in by_project.items():
                changes += self._observed_rows(record, project, facts)
        except Exception as error:  # noqa: BLE001 - a fault in mapping must not stop the records behind it
            self._set_aside(record, error)
        return by_project

    def _observed_rows(self, record: Record, project: str, facts: Facts) -> list[pl.DataFrame]:
        header = record.header
        learned = self._observed.learn(project, facts.offered, facts.selections, header.received_at)
        if not learned:
            return []
        return [
            observed_rows(
                learned,
                project=project,
                seq=header.seq,
                received_at=header.received_at,
                source=source_request(header.seq, header.imported),
                redactor=self._stores.redactor,
            )
        ]

    def _rows_of(self, record: Record, project: str, facts: Facts, ledger: rows.Ledger) -> dict[str, list[rows.Row]]:
        """The rows of a record by table; a fact that fails is set aside and takes no other with it."""
        try:
            return rows.to_rows(
                project,
                facts,
                received_at=record.header.received_at,
                source_request=source_request(record.header.seq, record.header.imported),
                redactor=self._stores.redactor,
                ledger=ledger,
            )
        except Exception as error:  # noqa: BLE001 - as above
            singles = _singles(facts)
            if len(singles) <= 1:
                self._set_aside(record, error)
                return {}
        good: dict[str, list[rows.Row]] = defaultdict(list)
        for single in singles:
            for table, table_rows in self._rows_of(record, project, single, ledger).items():
                good[table] += table_rows
        return good

    def _without_forgotten(self, table_rows: list[rows.Row]) -> list[rows.Row]:
        """The rows without those of sessions that were forgotten after they had happened."""
        tombstones = self._stores.tombstones
        return [row for row in table_rows if not tombstones.hides(row)] if tombstones else table_rows

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

    def _drop_repeats(self, batch: Batch, table: str) -> None:
        frame = batch.frames[table]
        keys = keys_of(frame)
        fresh = self._indexes[table].fresh(keys)
        repeats = len(fresh) - int(fresh.sum())
        if repeats:
            self._telemetry.duplicates.labels(table).inc(repeats)
        batch.keys[table] = keys[fresh]
        batch.frames[table] = frame.filter(pl.Series(fresh))


def _is_hidden(item: Item, named: str, facts: Facts | None, ledger: rows.Ledger, tombstones: Tombstones) -> bool:
    """Whether the item is of a forgotten session: its rows were, or it tells of no event and its trace was."""
    events = [] if facts is None else [*facts.selections, *facts.calls, *facts.feedback, *facts.routes]
    made = [ledger.made[id(event)] for event in events if id(event) in ledger.made]
    if made:
        return any(tombstones.hides(row) for row in made)
    happened = item.start_ns if isinstance(item, Span) else item.time_ns
    return tombstones.hides_trace(project_of(item, named), item.trace_id, happened)


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
