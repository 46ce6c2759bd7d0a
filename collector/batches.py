"""Batches: what mapped records bring that the tables do not have yet. All that needs memory of earlier records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

import polars as pl

from collector.archived import EncodedRequest
from collector.dedup import KeyIndex, Keys, keys_of
from collector.faults import Fault
from collector.mapping_pool import MappingPool
from collector.mapping_work import Mapped, OfferedIn, Work
from collector.observed import ObservedSkills
from collector.segment import Header, Record
from collector.self_traces import traced
from collector.skill_changes import SKILLS, SkillChange
from collector.skill_rows import declared_rows, observed_rows
from collector.stores import Stores
from collector.tables import FACT_TABLES, source_request
from collector.telemetry import Telemetry

#: Tables whose exact repeats are dropped; the registry's change log has its own rule.
_KEYED = tuple(table for table in FACT_TABLES if table != SKILLS)


@dataclass(slots=True)
class Begun:
    """Records that are being mapped; ``mapped`` waits for it, and may be asked again where it fails."""

    records: Sequence[Record]
    versions: Mapping[str, int]
    mapped: Callable[[], list[Mapped]]


@dataclass(slots=True)
class Batch:
    """Rows of a run of records, by table, with the keys that they bring; and what goes to the archive."""

    last_seq: int
    size: int
    oldest_ns: int
    frames: dict[str, pl.DataFrame] = field(default_factory=dict)
    keys: dict[str, Keys] = field(default_factory=dict)
    archived: list[EncodedRequest] = field(default_factory=list)


class BatchMaker:
    """Makes batches of records. Knows by heart which rows there are already and which skills were seen."""

    def __init__(
        self, stores: Stores, pool: MappingPool, telemetry: Telemetry, set_aside: Callable[[Record, Fault], None]
    ) -> None:
        self._stores = stores
        self._pool = pool
        self._telemetry = telemetry
        self._set_aside = set_aside
        lake = stores.lake
        self._indexes = {table: KeyIndex.of_files(lake.files(table)) for table in _KEYED}
        self._observed = ObservedSkills.of_rows(lake.read(SKILLS), stores.redactor)

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
        self._observed = ObservedSkills.of_rows(self._stores.lake.read(SKILLS), self._stores.redactor)

    def begin(self, records: Sequence[Record], versions: Mapping[str, int]) -> Begun:
        """Start to map records; ``versions``: up to which number each table has the log already.

        Nothing may be forgotten between this and ``finish``.
        """
        archive = self._stores.archive
        versions = dict(versions)
        work = Work(records, versions, archive.last_seq if archive.is_on else None, self._stores.tombstones.forgotten)
        return Begun(records, versions, self._pool.begin(work))

    def finish(self, begun: Begun, parts: Sequence[Mapped]) -> Batch:
        """The batch of the records, of what they were mapped to; they came after those of all batches before."""
        records = begun.records
        batch = Batch(
            records[-1].header.seq,
            sum(record.size for record in records),
            min(record.header.received_at for record in records),
        )
        for part in parts:
            for record, fault in part.set_aside:
                self._set_aside(record, fault)
            batch.archived += part.archived
            self._stores.redactor.counts.update(part.redactions)
        for table in _KEYED:
            frames = [part.frames[table] for part in parts if table in part.frames]
            if frames:
                batch.frames[table] = pl.concat(frames)
        with traced("dedup"):
            for table in batch.frames:
                self._drop_repeats(batch, table)
        changes = list(self._changes(begun, [offer for part in parts for offer in part.offered]))
        if changes:
            batch.frames[SKILLS] = pl.concat(changes)
        return batch

    def _changes(self, begun: Begun, offered: Sequence[OfferedIn]) -> Iterator[pl.DataFrame]:
        """Rows of the registry: declared, and learned from what was offered."""
        records = {record.header.seq: record for record in begun.records}
        for record in begun.records:
            if record.header.kind == "registry" and record.header.seq > begun.versions[SKILLS]:
                yield from self._unless_bad(record, partial(declared_rows, record))
        for header, project, offers in offered:
            learned = self._observed.learn(project, offers)
            if learned:
                yield from self._unless_bad(records[header.seq], partial(self._observed_rows, header, project, learned))

    def _observed_rows(self, header: Header, project: str, learned: list[SkillChange]) -> pl.DataFrame:
        return observed_rows(
            learned,
            project=project,
            seq=header.seq,
            received_at=header.received_at,
            source=source_request(header.seq, header.imported),
        )

    def _unless_bad(self, record: Record, rows: Callable[[], pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """The rows of a record, or none where it is set aside: it must not stop those behind it."""
        try:
            yield rows()
        except Exception as error:  # noqa: BLE001 - whatever a sender makes of an entry
            self._set_aside(record, Fault.of(error))

    def _drop_repeats(self, batch: Batch, table: str) -> None:
        frame = batch.frames[table]
        keys = keys_of(frame)
        fresh = self._indexes[table].fresh(keys)
        repeats = len(fresh) - int(fresh.sum())
        if repeats:
            self._telemetry.duplicates.labels(table).inc(repeats)
            keys, frame = keys[fresh], frame.filter(pl.Series(fresh))
        batch.keys[table], batch.frames[table] = keys, frame
