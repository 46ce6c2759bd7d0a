"""Archived requests mapped anew: all rows of a request give way to what today's mapping and settings say of it.

Each chunk of requests replaces its rows table by table, each table in one commit, so a reader never sees a row twice or
not at all. The same chunk again finds its rows as they are and commits nothing; a replay that a crash interrupted is
begun again from its start and ends the same.

A repeat of an event is stored once, under the request that brought it first. So a new row is left out where a row that
is not replaced says exactly the same, and where none does it comes in, whichever request the old one stood under.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

import msgspec
import numpy as np
import polars as pl

from collector.archive import UnreadableArchive
from collector.archived import ArchivedRequest, RowsByTable
from collector.columns import to_frame
from collector.decode import ITEMS, decode_facts
from collector.dedup import KEY_COLUMNS, keys_of
from collector.facts import Facts
from collector.mapping import MAPPING_VERSION
from collector.operations import ReplayRequest
from collector.projects import project_of
from collector.reobserve import Told, observed_again
from collector.rows import Ledger, to_rows
from collector.segment import Record
from collector.skill_changes import SKILLS
from collector.skill_rows import declared_rows
from collector.stores import Stores
from collector.tables import FACT_TABLES, TABLES, source_request

logger = logging.getLogger(__name__)

#: Items of a chunk: enough that a commit is worth it, few enough for the memory.
_CHUNK_ITEMS = 10_000
_EVENT_TABLES = tuple(table for table in FACT_TABLES if table != SKILLS)
_ORDER = ("project", "event_id", "fact", "source_request")
_SKILL_ORDER = ("project", "skill_id", "time", "fact", "source_request")


class Memory(Protocol):
    """What the flusher knows of the rows by heart, told when they change behind its back."""

    def remember(self, table: str, rows: pl.DataFrame) -> None:
        """These rows are in the table now: a repeat of theirs is one."""

    def relearn(self) -> None:
        """The skills table has changed."""


class TableChange(msgspec.Struct):
    """How many rows a replay took from a table and put in; rows that stay as they are count for neither."""

    removed: int = 0
    added: int = 0


class ReplayReport(msgspec.Struct):
    """What a replay did, or would do."""

    dry_run: bool
    mapping_version: str = MAPPING_VERSION
    requests: int = 0
    items: int = 0
    tables: dict[str, TableChange] = {}
    #: Dead letters that could be mapped now, and those that still can't.
    mended: int = 0
    still_dead: int = 0
    problems: list[str] = []


class Replay:
    """Maps the archived requests of a window anew."""

    def __init__(self, request: ReplayRequest, stores: Stores, memory: Memory) -> None:
        self._request = request
        self._stores = stores
        self._memory = memory
        self.report = ReplayReport(request.dry_run)

    def steps(self) -> Iterator[None]:
        self.report = ReplayReport(self._request.dry_run)
        for chunk in self._chunks():
            self._replace(chunk)
            yield
        for record in self._stores.dead_letters.records():
            if self._is_meant(record.header.received_at):
                self._retry(record)
                yield

    # -- archived requests ------------------------------------------------------------------------------------------

    def _chunks(self) -> Iterator[list[ArchivedRequest]]:
        archive = self._stores.archive
        chunk: list[ArchivedRequest] = []
        for file in archive.files(_moment(self._request.start)):
            try:
                chunk += [
                    found
                    for found in archive.read(file)
                    if self._is_meant(found.received_at) and self._items_meant(found)
                ]
            except UnreadableArchive as error:
                self._problem(str(error))
            if sum(len(found.items) for found in chunk) >= _CHUNK_ITEMS:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def _is_meant(self, received_at: int) -> bool:
        start, end = self._request.start, self._request.end
        return (start is None or received_at >= start) and (end is None or received_at < end)

    def _items_meant(self, request: ArchivedRequest) -> int:
        """How many of its items are of the project: resources may name several in one request."""
        wanted = self._request.project
        if wanted is None:
            return len(request.items)
        return sum(project_of(item.held, request.project) == wanted for item in request.items)

    def _replace(self, chunk: list[ArchivedRequest]) -> None:
        found = _Found(self._request.project)
        for request in chunk:
            self._map(request, found)
        self._put(found)
        self.report.requests += len(chunk)
        self.report.items += sum(map(self._items_meant, chunk))

    def _map(self, request: ArchivedRequest, found: _Found) -> None:
        """Today's rows of a request. One that fails keeps the rows that it has."""
        name = source_request(request.seq, request.imported)
        archivist, ledger = self._stores.archivist, Ledger()
        try:
            facts, lost = archivist.facts(request, ledger)
            rows = {project: archivist.rows(request, project, told, ledger, name) for project, told in facts.items()}
        except Exception as error:  # noqa: BLE001 - a fault in mapping must not stop the requests behind it
            self._problem(f"request {name}: {type(error).__name__} in mapping, its rows stay as they are")
            return
        found.add(name, request.seq, request.received_at, facts)
        for project in facts:
            found.take(project, rows[project])
        for project, by_table in lost.items():
            receipt = _receipt(project, request.received_at, name)
            found.take(project, {table: [row | receipt for row in kept] for table, kept in by_table.items()})

    def _put(self, found: _Found) -> None:
        """Replace the rows of the requests found by what was found."""
        for table in _EVENT_TABLES:
            self._replace_rows(table, found.of_requests(), found.frame(table))
        self._replace_observed(found)

    def _replace_rows(self, table: str, doomed: pl.Expr, fresh: pl.DataFrame) -> None:
        lake = self._stores.lake
        old = lake.select(table, doomed)
        fresh = _without_repeats(fresh, self._kept_keys(table, doomed, old, fresh))
        if _equal(old, fresh, _ORDER):
            return
        unchanged = old.join(fresh, on=[*_ORDER, "mapping_version"], how="semi", nulls_equal=True).height
        self._count(table, old.height - unchanged, fresh.height - unchanged)
        if not self._request.dry_run:
            lake.replace(table, doomed, fresh)
            self._memory.remember(table, fresh)

    def _kept_keys(self, table: str, doomed: pl.Expr, old: pl.DataFrame, fresh: pl.DataFrame) -> pl.DataFrame:
        """The key columns of rows that stay and may say the same as a fresh one; what was there already is unique."""
        unsure = fresh.select(KEY_COLUMNS).join(old.select(KEY_COLUMNS), on=KEY_COLUMNS, how="anti", nulls_equal=True)
        if not unsure.height:
            return unsure
        among = pl.col("event_id").is_in(unsure["event_id"].unique().implode())
        return self._stores.lake.select(table, among & ~doomed, KEY_COLUMNS)

    def _replace_observed(self, found: _Found) -> None:
        lake = self._stores.lake
        observed, theirs = pl.col("source") == "observed", found.of_requests()
        old, others = lake.select(SKILLS, observed & theirs), lake.select(SKILLS, observed & ~theirs)
        fresh = observed_again(old, others, found.told, lake, self._stores.redactor)
        if _equal(old, fresh, _SKILL_ORDER):
            return
        unchanged = old.join(fresh, on=_SKILL_ORDER, how="semi", nulls_equal=True).height
        self._count(SKILLS, old.height - unchanged, fresh.height - unchanged)
        if not self._request.dry_run:
            lake.replace(SKILLS, observed & theirs, fresh)
            self._memory.relearn()

    # -- dead letters -----------------------------------------------------------------------------------------------

    def _retry(self, record: Record) -> None:
        """Map a record that failed once more; what fails again stays a dead letter."""
        name = source_request(record.header.seq, record.header.imported)
        try:
            is_done = self._declare(record) if record.header.kind == "registry" else self._map_again(record, name)
        except Exception as error:  # noqa: BLE001 - it failed before
            self._problem(f"dead letter {name}: {type(error).__name__}, it is still not mapped")
            self.report.still_dead += 1
            return
        if is_done:
            self.report.mended += 1
            if not self._request.dry_run:
                self._stores.dead_letters.remove(record)

    def _map_again(self, record: Record, name: str) -> bool:
        """Put in what the record says; False where it is of projects that are not meant. Raises what mapping raises."""
        stores, header = self._stores, record.header
        found, ledger = _Found(self._request.project), Ledger()
        by_project, seen = decode_facts(record, stores.settings)
        if not all(map(found.counts, by_project)):
            return False
        for project, facts in by_project.items():
            found.take(project, self._rows(record, project, facts, name, ledger))
        # A record that was set aside in part has good rows beside it.
        found.add(name, header.seq, header.received_at, by_project, is_whole=header.encoding != ITEMS)
        self._put(found)
        archived = stores.archivist.archived(record, seen, ledger.made)
        if archived is not None and stores.archive.is_on and not self._request.dry_run:
            stores.archive.insert(archived, is_whole=header.encoding != ITEMS)
        return True

    def _declare(self, record: Record) -> bool:
        """Put in what a registry write says. The running service takes it over when it next starts."""
        if self._request.project not in (None, record.header.project):
            return False
        rows = declared_rows(record)
        if not self._request.dry_run:
            theirs = pl.col("source_request") == source_request(record.header.seq, record.header.imported)
            self._stores.lake.replace(SKILLS, (pl.col("source") == "declared") & theirs, rows)
        self._count(SKILLS, 0, rows.height)
        return True

    def _rows(self, record: Record, project: str, facts: Facts, name: str, ledger: Ledger) -> RowsByTable:
        return to_rows(
            project,
            facts,
            received_at=record.header.received_at,
            source_request=name,
            redactor=self._stores.redactor,
            ledger=ledger,
        )

    def _count(self, table: str, removed: int, added: int) -> None:
        change = self.report.tables.setdefault(table, TableChange())
        change.removed += removed
        change.added += added

    def _problem(self, text: str) -> None:
        logger.error("%s", text)
        self.report.problems.append(text)


class _Found:
    """What today's mapping says of some requests. ``project``: only that of one project counts."""

    def __init__(self, project: str | None) -> None:
        self._project = project
        self._names: list[str] = []
        self.told: list[Told] = []
        self._parts: dict[str, list[pl.DataFrame]] = {table: [] for table in _EVENT_TABLES}

    def counts(self, project: str) -> bool:
        return self._project is None or project == self._project

    def add(self, name: str, seq: int, received_at: int, facts: dict[str, Facts], *, is_whole: bool = True) -> None:
        """A request that was mapped, or the part of one that was not before."""
        if is_whole:
            self._names.append(name)
        self.told += [
            Told(seq, name, received_at, project, told) for project, told in facts.items() if self.counts(project)
        ]

    def take(self, project: str, rows: RowsByTable) -> None:
        """Rows of a request."""
        if self.counts(project):
            for table, found in rows.items():
                self._parts[table].append(to_frame(table, found))

    def frame(self, table: str) -> pl.DataFrame:
        return pl.concat([TABLES[table].to_frame(), *self._parts[table]])

    def of_requests(self) -> pl.Expr:
        """The stored rows of the requests; none where there are none."""
        if not self._names:
            return pl.lit(False)
        # The range lets whole files be passed over by their statistics.
        request, names = pl.col("source_request"), sorted(self._names)
        theirs = request.is_between(pl.lit(names[0]), pl.lit(names[-1])) & request.is_in(names)
        return theirs if self._project is None else theirs & (pl.col("project") == self._project)


def _without_repeats(rows: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
    """The first of each key, but for those that other rows have already."""
    first = rows.unique(subset=KEY_COLUMNS, keep="first", maintain_order=True)
    return first.filter(~np.isin(keys_of(first), keys_of(kept)))


def _equal(old: pl.DataFrame, fresh: pl.DataFrame, order: Sequence[str]) -> bool:
    return old.height == fresh.height and old.sort(order).equals(fresh.sort(order), null_equal=True)


def _receipt(project: str, received_at: int, name: str) -> dict[str, object]:
    return {
        "project": project,
        "received_at": received_at // 1000,
        "source_request": name,
        "mapping_version": MAPPING_VERSION,
    }


def _moment(nanoseconds: int | None) -> datetime | None:
    return None if nanoseconds is None else datetime.fromtimestamp(nanoseconds / 1e9, UTC)
