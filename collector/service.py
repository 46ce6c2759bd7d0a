"""The collector of one data folder: lock, log, flusher and registry, started and stopped together.

Usable without any network: `pickwise import` writes through it when no service holds the folder.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import msgspec
import polars as pl

from collector.control import Control
from collector.dead_letters import DeadLetters
from collector.events_in import Layout, ParsedEvents, Rejection, parse_events
from collector.flusher import APPLICATION, Flusher
from collector.lake import Lake
from collector.lock import FolderLock
from collector.otlp import ParsedLogs, ParsedTraces, parse_logs, parse_traces
from collector.redact import Redactor
from collector.registry import Registry
from collector.segment import Kind
from collector.skill_changes import SKILLS
from collector.tables import FACT_TABLES
from collector.telemetry import Telemetry
from collector.wal import Wal
from pickwise.events import DEFAULT_PROJECT
from pickwise.settings import Settings

logger = logging.getLogger(__name__)

OtlpEncoding = Literal["protobuf", "json"]
T = TypeVar("T")

#: Python frames that the door decodes with less than the flusher: what one took the other must be able to read, and
#: how deep a decoder goes depends on the stack that it finds.
_MARGIN = 100


class Collector:
    """Takes events into a data folder. ``start`` before anything else, ``stop`` in the end; one a folder."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.telemetry = Telemetry()
        self.registry = Registry(self._append_write)
        self._lock = FolderLock(settings.data_dir)
        self._wal: Wal | None = None
        self._flusher: Flusher | None = None
        self._control: Control | None = None

    def start(self) -> None:
        """Take the folder, bring what an earlier run left in the log into the tables, and begin to accept.

        Raises FolderHeld when another process has the folder, LogFormatError for a log of a newer version.
        """
        self._lock.acquire()
        try:
            self._open()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Refuse what comes, commit all that was acknowledged, and give the folder back."""
        if self._wal is not None:
            self._wal.seal()
        if self._flusher is not None:
            self._flusher.stop()
        if self._wal is not None:
            self._wal.close()
        if self._control is not None:
            self._control.close()
        self._wal = self._flusher = self._control = None
        self._lock.release()

    def announce(self, address: str, http_port: int | None, grpc_port: int | None) -> None:
        """Write down where this collector listens, for those who look for it by the lock."""
        self._lock.announce(address, http_port, grpc_port)

    def append(self, kind: Kind, project: str, encoding: str, body: bytes, *, events: int = 1) -> Future[int]:
        """Log a raw request; the future gives its sequence number once it is on disk.

        ``project`` is '' where the request named none. Raises Overloaded; the future may fail with it too.
        """
        return self.wal.append(kind, project, encoding, body, events=events)

    def refresh(self, timeout_s: float | None = None) -> bool:
        """Wait until all that was acknowledged before is visible; False when it took longer than the time-out."""
        return self.flusher.refresh(timeout_s)

    def submit_traces(
        self, body: bytes, encoding: OtlpEncoding, project: str
    ) -> tuple[ParsedTraces, Future[int] | None]:
        """Judge and log an OTLP trace request; no future where nothing is to be logged.

        Raises OtlpError, Overloaded.
        """
        parsed = _with_less_stack(lambda: parse_traces(body, encoding))
        return parsed, self._submit("traces", project, encoding, body, parsed.span_count, parsed.rejected)

    def submit_logs(self, body: bytes, encoding: OtlpEncoding, project: str) -> tuple[ParsedLogs, Future[int] | None]:
        """Judge and log an OTLP log request; no future where nothing is to be logged. Raises OtlpError, Overloaded."""
        parsed = _with_less_stack(lambda: parse_logs(body, encoding))
        return parsed, self._submit("logs", project, encoding, body, parsed.record_count, parsed.rejected)

    def submit_events(self, body: bytes, layout: Layout, project: str) -> tuple[ParsedEvents, Future[int] | None]:
        """Judge and log native events; registry entries among them are left to ``submit_skills``.

        Raises BodyError, Overloaded.
        """
        parsed = parse_events(body, layout)
        total = parsed.accepted + len(parsed.rejected)
        future = self._submit("events", project, layout, body, total, len(parsed.rejected))
        self.telemetry.unknown_fields.inc(parsed.unknown_fields)
        return parsed, future

    def submit_skills(self, parsed: ParsedEvents, project: str) -> tuple[int, list[Rejection]]:
        """Bring the registry entries of a request into the registry: how many were taken, and what was refused.

        Waits for the disk. Raises Overloaded.
        """
        if not parsed.skills:
            return 0, []
        answer = self.registry.upsert(project or DEFAULT_PROJECT, parsed.skills)
        self.telemetry.accepted.labels("skills").inc(answer.accepted)
        self.telemetry.rejected.labels("skills").inc(len(answer.rejected))
        return answer.accepted, [Rejection(r.index, r.skill_id, r.reason) for r in answer.rejected]

    def registry_document(self, project: str, at: int | None = None) -> dict[str, Any]:
        """The entries of a project that hold at a time (Unix ns, None: now), declared or, where none are, observed."""
        declared = self.registry.is_declared(project)
        entries = self.registry.entries(project, at) if declared else self._observed_entries(project, at)
        return {
            "project": project,
            "registry_version": self.registry.version(project) if declared else None,
            "source": "declared" if declared else "observed",
            "skills": entries,
        }

    def _observed_entries(self, project: str, at: int | None) -> list[dict[str, Any]]:
        moment = datetime.fromtimestamp((time.time_ns() if at is None else at) / 1e9, UTC)
        # Its own view of the tables: the flusher's belongs to the flusher's thread.
        rows = Lake(self.settings.data_dir).read(SKILLS)
        seen = rows.filter(
            (pl.col("project") == project) & (pl.col("source") == "observed") & (pl.col("time") <= moment)
        )
        newest = seen.sort("time", "seq").group_by("skill_id", maintain_order=True).last().sort("skill_id")
        return [msgspec.json.decode(entry) for entry in newest["entry"]]

    @property
    def trouble(self) -> str | None:
        """Why the collector can't take events now; None while it can."""
        if self._wal is None or self._flusher is None:
            return "the collector is not started"
        if self._wal.trouble is not None:
            return self._wal.trouble
        if self._wal.backlog_bytes > self.settings.backlog_bytes:
            return f"{self._wal.backlog_bytes} bytes of the log are not yet committed"
        return None if self._flusher.is_alive else "the flusher has ended"

    @property
    def wal(self) -> Wal:
        if self._wal is None:
            raise RuntimeError("the collector is not started")
        return self._wal

    @property
    def flusher(self) -> Flusher:
        if self._flusher is None:
            raise RuntimeError("the collector is not started")
        return self._flusher

    def _submit(
        self, kind: Kind, project: str, encoding: str, body: bytes, total: int, rejected: int
    ) -> Future[int] | None:
        self.telemetry.rejected.labels(kind).inc(rejected)
        if total <= rejected:
            return None
        future = self.append(kind, project, encoding, body, events=total - rejected)
        self.telemetry.accepted.labels(kind).inc(total - rejected)
        return future

    def _append_write(self, project: str, body: bytes, received_at: int, entries: int) -> Future[int]:
        return self.wal.append("registry", project, "json", body, events=entries, received_at=received_at)

    def _open(self) -> None:
        settings = self.settings
        lake = Lake(settings.data_dir)
        self._control = Control(settings.data_dir)
        redactor = Redactor(settings, self._control.secret("redaction"))
        self._wal = Wal(
            settings.data_dir / "wal",
            queue_bytes=settings.queue_bytes,
            backlog_bytes=settings.backlog_bytes,
            floor_seq=max(0, *(lake.transaction_version(table, APPLICATION) for table in FACT_TABLES)),
        )
        dead_letters = DeadLetters(settings.data_dir / "rejected", self.telemetry)
        self._flusher = Flusher(settings, self._wal, lake, redactor, dead_letters, self.telemetry)
        self._report_recovery(self._wal, redactor)
        self._flusher.drain()
        self.registry.load(lake.read(SKILLS))
        self._wal.on_durable = self._flusher.wake
        self._flusher.start()

    def _report_recovery(self, wal: Wal, redactor: Redactor) -> None:
        recovery = wal.recovery
        if recovery.records:
            logger.info("the log holds %d records of an earlier run, committing them", recovery.records)
        self.telemetry.torn_bytes.inc(recovery.torn_bytes)
        self.telemetry.damaged.inc(len(recovery.damaged))
        watch = self.telemetry.watch
        watch("pickwise_queue_bytes", "Bytes that wait for the disk", lambda: wal.queue_bytes)
        watch("pickwise_backlog_bytes", "Bytes of the log that are not yet committed", lambda: wal.backlog_bytes)
        self.telemetry.watch_redactions(lambda: sum(redactor.counts.values()))


def _with_less_stack(judge: Callable[[], T], frames: int = _MARGIN) -> T:
    return judge() if not frames else _with_less_stack(judge, frames - 1)
