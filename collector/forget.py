"""A session removed from everywhere: tables and what their history keeps, archive, dead letters, damaged log files, and
vectors of its queries.

What belongs to it: rows that name it; rows without a session in its traces; selections, calls and feedback without a
session that only an id ties to it. First all that was acknowledged before is committed and gone from the log, then the
session is barred (see ``tombstones``), then it is taken out place by place. Each step finds nothing to do when it was
done before, so a crash in the middle only means to begin again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from collector.archived import ArchivedItem, ArchivedRequest, Item
from collector.forget_queries import QUERY_TABLES, forget_queries
from collector.mapping.conversation import from_json
from collector.mapping.origin import origin_of
from collector.operations import ForgetRequest, PendingRequest
from collector.projects import project_folder, project_of
from collector.segment import Record
from collector.session_rows import SessionRows
from collector.spans import Span
from collector.stores import Stores
from collector.tables import FACT_TABLES
from collector.vector_files import vector_files

#: How often the log is looked at while what it holds is waited for, seconds.
_LOOK_S = 0.02


class Log(Protocol):
    """The write-ahead log, as far as forgetting needs it."""

    def hurry(self) -> None:
        """Commit what is acknowledged at once."""

    def is_clear_of(self, seq: int) -> bool:
        """Whether everything up to that record is committed and its raw bytes are deleted."""


class ForgetReport(msgspec.Struct):
    """What was removed: rows by table, items of the archive, whole dead letters and damaged log files."""

    rows: dict[str, int] = {}
    archived_items: int = 0
    dead_letters: int = 0
    damaged_segments: int = 0


class Forget:
    """Removes one session."""

    def __init__(self, pending: PendingRequest, request: ForgetRequest, stores: Stores, log: Log) -> None:
        self._pending = pending
        self._request = request
        self._stores = stores
        self._log = log
        self._rows = SessionRows(stores.lake, request.project, request.session_id)
        self.report = ForgetReport()

    def steps(self) -> Iterator[None]:
        self.report = ForgetReport()
        yield from self._clear_log()
        self._find()
        self._bar()
        yield
        yield from self._clean_archive()
        self._drop_letters()
        self._drop_damaged()
        alone = forget_queries(self._stores.lake, self._rows, self._request.project, self._request.selections)
        self._drop_vectors(alone)
        yield
        for table in SessionRows.TABLES:
            self._remove_rows(table)
            yield
        for table in (*FACT_TABLES, *QUERY_TABLES):
            self._stores.lake.purge(table)
            yield

    def _clear_log(self) -> Iterator[None]:
        while not self._log.is_clear_of(self._request.seq):
            self._log.hurry()
            yield
            time.sleep(_LOOK_S)

    def _find(self) -> None:
        """Find out what belongs to the session, and note it before anything that tells so is gone."""
        request = self._request
        rows = self._rows
        rows.find(request.traces, request.selections, request.calls)
        request.traces, request.selections = sorted(rows.traces), sorted(rows.selections)
        request.calls = sorted(rows.calls)
        self._pending.update(request)

    def _bar(self) -> None:
        request = self._request
        self._stores.tombstones.put(request.project, request.session_id, request.traces, request.at)

    def _clean_archive(self) -> Iterator[None]:
        archive = self._stores.archive
        for file in archive.files():
            archive.rewrite(file, self._without)
            yield

    def _without(self, archived: ArchivedRequest) -> ArchivedRequest | None:
        items = [item for item in archived.items if not self._is_its(item, archived.project)]
        self.report.archived_items += len(archived.items) - len(items)
        return msgspec.structs.replace(archived, items=items) if items else None

    def _is_its(self, item: ArchivedItem, named: str) -> bool:
        if project_of(item.held, named) != self._request.project:
            return False
        return belongs(item.held, self._request) or _mentions(
            msgspec.to_builtins(item.carried), self._request.session_id
        )

    def _drop_letters(self) -> None:
        for record in self._stores.dead_letters.records():
            if self._may_hold(record):
                self._stores.dead_letters.remove(record)
                self.report.dead_letters += 1

    def _may_hold(self, record: Record) -> bool:
        """A dead letter can't be read for certain: it goes whole where the session, or a trace of it, is in it."""
        if record.header.project not in ("", self._request.project):
            return False
        return any(mark in record.body for mark in self._marks())

    def _drop_damaged(self) -> None:
        for path in self._stores.wal_folder.glob("*.damaged"):
            if any(mark in path.read_bytes() for mark in self._marks()):
                path.unlink()
                self.report.damaged_segments += 1

    def _drop_vectors(self, queries: list[str]) -> None:
        """What ranking derived of the queries; recall's artefact holds some of them, and is written anew."""
        data_dir = self._stores.settings.data_dir
        for store in vector_files(data_dir):
            store.forget(queries)
        shutil.rmtree(project_folder(data_dir, "recall", self._request.project), ignore_errors=True)

    def _marks(self) -> list[bytes]:
        """How the session and its traces look in raw requests."""
        texts = [self._request.session_id, *self._request.traces]
        raw = [bytes.fromhex(trace) for trace in self._request.traces if _is_hex(trace)]
        return [*(text.encode("utf-8", "surrogatepass") for text in texts), *raw]

    def _remove_rows(self, table: str) -> None:
        self.report.rows[table] = self._stores.lake.replace(table, self._rows.expression(table))


def belongs(item: Item, request: ForgetRequest) -> bool:
    """Whether a span or log record is of the session: it names it, or is of its traces and names no other."""
    if _mentions([item.attributes, item.resource], request.session_id):
        return True
    if item.trace_id not in request.traces:
        return False
    other = origin_of(item).session_id if isinstance(item, Span) else None
    return other is None or other == request.session_id


def _mentions(value: Any, text: str) -> bool:
    """Whether a value anywhere in it is the text; JSON text is looked into."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if found == text:
            return True
        if isinstance(found, str) and found[:1] in ("{", "["):
            found = from_json(found)
        if isinstance(found, dict):
            waiting += found.values()
        elif isinstance(found, list | tuple):
            waiting += found
    return False


def _is_hex(text: str) -> bool:
    return len(text) % 2 == 0 and all(digit in "0123456789abcdef" for digit in text)
