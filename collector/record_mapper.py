"""From log records to redacted rows and archived requests: all that needs no memory of other records.

So any process can do it, for any run of records, and the same again after a crash. What fails is set aside with the
record, or the part of one, that it failed on, and takes no other with it.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from typing import NamedTuple

import polars as pl

from collector import mapped_records, rows
from collector.archived import ArchivedItem, ArchivedRequest, EncodedRequest, Item
from collector.archivist import Archivist, Arguments
from collector.columns import Columns
from collector.decode import PART_ITEMS, DecodedItem, decode_parts
from collector.facts import Facts
from collector.faults import Fault
from collector.mapping_work import Mapped, OfferedIn, Work
from collector.observed import Offers
from collector.projects import project_of
from collector.redact import Redactor
from collector.row_types import MadeRow, Receipt
from collector.segment import Record
from collector.skill_changes import SKILLS
from collector.spans import Span
from collector.tables import FACT_TABLES, source_request
from pickwise.settings import Settings

logger = logging.getLogger(__name__)

#: Rows are put into a frame when there are so many: there they take a tenth of the memory.
_FRAME_ROWS = 8_192


class RecordMapper:
    """Maps and redacts by the settings and the key of one installation."""

    def __init__(self, settings: Settings, key: bytes) -> None:
        self._settings = settings
        self._redactor = Redactor(settings, key)
        self._archivist = Archivist(settings, Redactor(settings, key))  # its own counts: nothing is counted twice

    def map(self, work: Work) -> Mapped:
        """What the records of kind `traces`, `logs` and `events` become; those of kind `registry` hold no events."""
        mapped = Mapped()
        tables = _Tables(mapped.set_aside)
        for record in work.records:
            if record.header.encoding == mapped_records.ENCODING:
                self._restore(record, work, mapped, tables)
            elif record.header.kind != "registry":
                _OneRecord(self._settings, self._redactor, self._archivist, work, record, mapped, tables).map()
        mapped.frames = tables.frames()
        mapped.redactions = Counter(self._redactor.counts)
        self._redactor.counts.clear()
        return mapped

    def _restore(self, record: Record, work: Work, mapped: Mapped, tables: _Tables) -> None:
        try:
            restored = mapped_records.restore(record, work, self._redactor)
        except Exception as error:  # noqa: BLE001 - it must not stop the records behind it
            mapped.set_aside.append((record, Fault.of(error)))
            return
        for table, frame in restored.frames.items():
            tables.put(table, frame)
        mapped.offered += restored.offered
        mapped.archived += restored.archived
        self._redactor.counts.update(restored.redactions)


class _OneRecord:
    """The way of one record into what the run becomes, part by part."""

    def __init__(
        self,
        settings: Settings,
        redactor: Redactor,
        archivist: Archivist,
        work: Work,
        record: Record,
        mapped: Mapped,
        tables: _Tables,
    ) -> None:
        self._settings = settings
        self._redactor = redactor
        self._archivist = archivist
        self._work = work
        self._record = record
        self._mapped = mapped
        self._tables = tables
        self._ledger = rows.Ledger()
        self._makers: dict[str, rows.RowMaker] = {}
        self._arguments = Arguments()

    def map(self) -> None:
        header, after = self._record.header, self._work.archive_after
        is_archived = after is not None and header.seq > after
        archived: list[ArchivedItem] = []
        try:
            if is_archived and header.events > PART_ITEMS:
                self._note_arguments()
            for part in decode_parts(self._record, self._settings, self._set_aside):
                for project, facts in part.by_project.items():
                    self._take(project, facts)
                if is_archived:
                    archived += self._archived(part.items)
                self._ledger.made.clear()
        except Exception as error:  # noqa: BLE001 - a fault in mapping must not stop the records behind it
            self._set_aside(self._record, error)
        if archived:
            request = ArchivedRequest(header.seq, header.project, header.received_at, archived, header.imported)
            self._mapped.archived.append(EncodedRequest.of(request))

    def _note_arguments(self) -> None:
        """The arguments of all calls beforehand: an error text of an early part may quote those of a late one."""
        for part in decode_parts(self._record, self._settings, lambda *_: None):
            self._arguments.note(part.items)

    def _take(self, project: str, facts: Facts) -> None:
        header, versions = self._record.header, self._work.versions
        if header.seq > versions[SKILLS] and (facts.offered or facts.selections):
            offers = Offers.of(facts.offered, facts.selections, header.received_at)
            self._mapped.offered.append(OfferedIn(header, project, offers))
        for table, table_rows in self._rows(project, facts).items():
            kept = self._without_forgotten(table_rows)
            if kept and header.seq > versions[table]:
                self._tables.add(table, self._record, kept, self._maker(project).receipt)

    def _rows(self, project: str, facts: Facts) -> dict[str, list[MadeRow]]:
        """The rows by table; a fact that fails is set aside and takes no other with it."""
        try:
            return self._maker(project).rows(facts)
        except Exception as error:  # noqa: BLE001 - as above
            singles = _singles(facts)
            if len(singles) <= 1:
                self._set_aside(self._record, error)
                return {}
        good: dict[str, list[MadeRow]] = defaultdict(list)
        for single in singles:
            for table, table_rows in self._rows(project, single).items():
                good[table] += table_rows
        return good

    def _maker(self, project: str) -> rows.RowMaker:
        header = self._record.header
        if project not in self._makers:
            source = source_request(header.seq, header.imported)
            self._makers[project] = rows.RowMaker(project, header.received_at, source, self._redactor, self._ledger)
        return self._makers[project]

    def _without_forgotten(self, table_rows: list[MadeRow]) -> list[MadeRow]:
        """The rows without those of sessions that were forgotten after they had happened."""
        forgotten = self._work.forgotten
        if not forgotten:
            return table_rows
        return [row for row in table_rows if not forgotten.hides(row.to_dict(), self._redactor)]

    def _archived(self, items: list[DecodedItem]) -> list[ArchivedItem]:
        if self._work.forgotten:
            items = [(item, facts) for item, facts in items if not self._is_forgotten(item, facts)]
        try:
            self._arguments.note(items)
            return self._archivist.items(items, self._ledger.made, self._arguments)
        except Exception as error:  # noqa: BLE001 - its rows are good; a replay leaves them as they are
            logger.error("record %d can't be archived: %s", self._record.header.seq, type(error).__name__)
            return []

    def _is_forgotten(self, item: Item, facts: Facts | None) -> bool:
        """Whether the item is of a forgotten session: its rows were, or it tells of no event and its trace was."""
        forgotten, rows_of = self._work.forgotten, self._ledger.made
        made = [] if facts is None else [rows_of[id(event)] for event in facts.events if id(event) in rows_of]
        if made:
            return any(forgotten.hides(row.to_dict(), self._redactor) for row in made)
        happened = item.start_ns if isinstance(item, Span) else item.time_ns
        project = project_of(item, self._record.header.project)
        return forgotten.hides_trace(project, item.trace_id, happened, self._redactor)

    def _set_aside(self, record: Record, error: Exception) -> None:
        self._mapped.set_aside.append((record, Fault.of(error)))


class _Waiting(NamedTuple):
    """Rows of one table, and the record that each comes from."""

    columns: Columns
    records: list[Record]


class _Tables:
    """Rows on their way into frames, by table."""

    def __init__(self, set_aside: list[tuple[Record, Fault]]) -> None:
        self._set_aside = set_aside
        self._waiting: dict[str, _Waiting] = {}
        self._frames: dict[str, list[pl.DataFrame]] = defaultdict(list)

    def add(self, table: str, record: Record, made: list[MadeRow], receipt: Receipt) -> None:
        if table not in self._waiting:
            self._waiting[table] = _Waiting(Columns(table), [])
        columns, records = self._waiting[table]
        columns.add(made, receipt)
        records += [record] * len(made)
        if len(records) >= _FRAME_ROWS:
            self._put(table)

    def put(self, table: str, frame: pl.DataFrame) -> None:
        """Rows that are a frame already, behind those before."""
        if table in self._waiting:
            self._put(table)
        self._frames[table].append(frame)

    def frames(self) -> dict[str, pl.DataFrame]:
        for table in list(self._waiting):
            self._put(table)
        return {table: pl.concat(frames) for table, frames in self._frames.items()}

    def _put(self, table: str) -> None:
        self._frames[table] += _frames_of(table, self._waiting.pop(table), self._set_aside)


def _frames_of(table: str, waiting: _Waiting, set_aside: list[tuple[Record, Fault]]) -> list[pl.DataFrame]:
    """Frames of all rows but those that fit no column: these are set aside, each with its record."""
    columns, records = waiting
    try:
        return [columns.frame()]
    except Exception as error:  # noqa: BLE001 - as above
        if len(records) == 1:
            set_aside.append((records[0], Fault.of(error)))
            return [FACT_TABLES[table].to_frame()]
    middle = len(records) // 2
    halves = [slice(middle), slice(middle, None)]
    return [
        frame for half in halves for frame in _frames_of(table, _Waiting(columns.part(half), records[half]), set_aside)
    ]


def _singles(facts: Facts) -> list[Facts]:
    """Each fact alone."""
    return [
        *(Facts(selections=[fact]) for fact in facts.selections),
        *(Facts(calls=[fact]) for fact in facts.calls),
        *(Facts(feedback=[fact]) for fact in facts.feedback),
        *(Facts(routes=[fact]) for fact in facts.routes),
    ]
