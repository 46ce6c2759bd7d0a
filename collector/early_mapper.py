"""Maps and redacts a request before it is logged, where `redact_before_log` asks for it: nothing raw meets the disk.

It costs what mapping costs while the sender waits, and what no rule can map is refused, as it can't be set aside.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from threading import Lock
from typing import NamedTuple

from collector import mapped_records
from collector.mapping_work import Work
from collector.record_mapper import RecordMapper
from collector.redact import Redactor
from collector.segment import Header, Kind, Record
from collector.tables import FACT_TABLES
from collector.wal import Wal
from pickwise.settings import Settings

#: No table has it, nor the archive.
_VERSIONS = dict.fromkeys(FACT_TABLES, -1)


class EarlyRecord(NamedTuple):
    """``body`` for the log; ``refused`` items could not be mapped, ``reason`` says why without what they hold."""

    body: bytes
    refused: int
    reason: str


class EarlyMapper:
    """Maps by the settings and the key of one installation, one request after the other, and logs what comes of it."""

    def __init__(self, settings: Settings, key: bytes, wal: Wal) -> None:
        self._mapper = RecordMapper(settings, key)
        self._redactor = Redactor(settings, key)
        self._archive_after = -1 if settings.archive_days else None
        self._wal = wal
        self._lock = Lock()

    def append(
        self, kind: Kind, project: str, encoding: str, body: bytes, events: int, bound: bool, imported: bool
    ) -> tuple[Future[int], EarlyRecord]:
        """As ``Wal.append``, with what was refused of the request. Raises Overloaded."""
        header = Header(
            seq=0,  # the log gives it
            kind=kind,
            project=project,
            received_at=time.time_ns(),
            encoding=encoding,
            events=events,
            bound=bound,
            imported=imported,
        )
        early = self._map(Record(header, body, len(body)))
        future = self._wal.append(
            kind,
            project,
            mapped_records.ENCODING,
            early.body,
            events=events,
            received_at=header.received_at,
            bound=bound,
            imported=imported,
        )
        return future, early

    def _map(self, record: Record) -> EarlyRecord:
        with self._lock:
            mapped = self._mapper.map(Work([record], _VERSIONS, self._archive_after))
            body = mapped_records.encode(mapped, self._redactor)
        refused = sum(part.header.events for part, _ in mapped.set_aside)
        return EarlyRecord(body, refused, ", ".join(sorted({fault.kind for _, fault in mapped.set_aside})))
