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

from collector.access import Access
from collector.admission import Admission
from collector.allocator import give_large_blocks_back
from collector.archive import Archive
from collector.archivist import Archivist
from collector.control import Control
from collector.dead_letters import DeadLetters
from collector.early_mapper import EarlyMapper, EarlyRecord
from collector.events_in import Layout, ParsedEvents, Rejection, parse_events
from collector.flusher import APPLICATION, Flusher
from collector.foreign import OwnLogs, OwnTraces, own_logs, own_traces
from collector.forget import Forget, ForgetReport
from collector.lake import Lake
from collector.lock import FolderLock
from collector.mapping_pool import MappingPool
from collector.operations import (
    ForgetRequest,
    Operation,
    PendingRequest,
    PendingRequests,
    ReplayRequest,
    RetentionRequest,
)
from collector.otlp import ParsedLogs, ParsedMetrics, ParsedTraces, parse_logs, parse_metrics, parse_traces
from collector.redact import Redactor
from collector.registry import Registry
from collector.replay import Replay, ReplayReport
from collector.retention import Retention, RetentionReport
from collector.segment import Kind
from collector.self_traces import SelfTraces
from collector.skill_changes import SKILLS
from collector.stores import Stores
from collector.tables import FACT_TABLES
from collector.telemetry import Telemetry
from collector.tombstones import Tombstones
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

    def __init__(self, settings: Settings, *, processes: int = 0) -> None:
        """``processes``: how many may be started to map what comes, where there is much of it."""
        self.settings = settings
        self._processes = processes
        self.telemetry = Telemetry(SelfTraces(settings.self_traces, settings.self_traces_ratio))
        self.registry = Registry(self._append_write)
        self.access = Access(settings.require_keys, self.telemetry)
        self.admission = Admission(settings.inflight_bytes, settings.inflight_requests)
        self._lock = FolderLock(settings.data_dir)
        self._wal: Wal | None = None
        self._flusher: Flusher | None = None
        self._pool: MappingPool | None = None
        self._control: Control | None = None
        self._stores: Stores | None = None
        self._early: EarlyMapper | None = None
        self._requests = PendingRequests(settings.data_dir / "operations")

    def start(self) -> None:
        """Take the folder, bring what an earlier run left in the log into the tables, and begin to accept.

        Raises FolderHeld when another process has the folder, LogFormatError for a log of a newer version.
        """
        self._lock.acquire()
        give_large_blocks_back()
        try:
            self.telemetry.self_traces.start()
            self._open()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Refuse what comes, commit all that was acknowledged, and give the folder back."""
        if self._wal is not None:
            self._wal.seal()
        if self._pool is not None:
            self._pool.retire()
        if self._flusher is not None:
            self._flusher.stop()
        if self._pool is not None:
            self._pool.close()
        if self._wal is not None:
            self._wal.close()
        self.access.close()
        if self._control is not None:
            self._control.close()
        self._wal = self._flusher = self._pool = self._control = self._stores = None
        self._lock.release()
        self.telemetry.self_traces.stop()

    def announce(self, address: str, http_port: int | None, grpc_port: int | None) -> None:
        """Write down where this collector listens, for those who look for it by the lock."""
        self._lock.announce(address, http_port, grpc_port)
        self.telemetry.self_traces.avoid(address, http_port, grpc_port)

    def append(
        self,
        kind: Kind,
        project: str,
        encoding: str,
        body: bytes,
        *,
        events: int = 1,
        bound: bool = False,
        imported: bool = False,
    ) -> Future[int]:
        """Log a raw request; the future gives its sequence number once it is on disk.

        ``project`` is '' where the request named none; ``bound`` says that a key decided it, ``imported`` that it is
        history that no retention takes. Raises Overloaded; the future may fail with it too.
        """
        return self.wal.append(kind, project, encoding, body, events=events, bound=bound, imported=imported)

    def refresh(self, timeout_s: float | None = None) -> bool:
        """Wait until all that was acknowledged before is visible; False when it took longer than the time-out."""
        return self.flusher.refresh(timeout_s)

    def replay(self, request: ReplayRequest) -> Future[ReplayReport]:
        """Map archived requests anew, see ``replay``. The future fails with Interrupted when the collector stops."""
        if request.dry_run:
            return self.flusher.submit(Replay(request, self.stores, self.flusher))
        return self._begin(self._requests.add(request))

    def forget(self, project: str, session_id: str) -> Future[ForgetReport]:
        """Remove a session, see ``forget``. From here on it is sure to go, also through a crash."""
        request = ForgetRequest(project=project, session_id=session_id, at=time.time_ns(), seq=self.wal.durable_seq)
        return self._begin(self._requests.add(request))

    def retain(self, project: str, *, dry_run: bool = False) -> Future[RetentionReport]:
        """Remove what is older than the settings say, as is done of itself every hour."""
        request = RetentionRequest(at=time.time_ns(), project=project, dry_run=dry_run)
        return self.flusher.submit(Retention(request, self.stores))

    def submit_traces(
        self, body: bytes, encoding: OtlpEncoding, project: str, bound: bool = False, imported: bool = False
    ) -> tuple[ParsedTraces | OwnTraces, Future[int] | None]:
        """Judge and log an OTLP trace request; no future where nothing is to be logged.

        ``imported`` as in ``append``; ``bound``: a key decided the project, spans that name another one are refused.
        Raises OtlpError, Overloaded.
        """
        whole = _with_less_stack(lambda: parse_traces(body, encoding))
        parsed = own_traces(whole, body, project) if bound else whole
        self._note("traces", whole.nonfinite, parsed)
        future, refused = self._submit(
            "traces", project, encoding, body, parsed.span_count, parsed.rejected, bound, imported
        )
        _tell(parsed, refused)
        return parsed, future

    def submit_logs(
        self, body: bytes, encoding: OtlpEncoding, project: str, bound: bool = False, imported: bool = False
    ) -> tuple[ParsedLogs | OwnLogs, Future[int] | None]:
        """Judge and log an OTLP log request, as ``submit_traces`` does. Raises OtlpError, Overloaded."""
        whole = _with_less_stack(lambda: parse_logs(body, encoding))
        parsed = own_logs(whole, body, project) if bound else whole
        self._note("logs", whole.nonfinite, parsed)
        future, refused = self._submit(
            "logs", project, encoding, body, parsed.record_count, parsed.rejected, bound, imported
        )
        _tell(parsed, refused)
        return parsed, future

    def submit_metrics(
        self, body: bytes, encoding: OtlpEncoding, _project: str, _bound: bool = False, _imported: bool = False
    ) -> tuple[ParsedMetrics, None]:
        """Count and refuse an OTLP metric request: nothing of it is ever logged. Raises OtlpError."""
        parsed = _with_less_stack(lambda: parse_metrics(body, encoding))
        self.telemetry.rejected.labels("metrics").inc(parsed.rejected)
        return parsed, None

    def submit_events(
        self, body: bytes, layout: Layout, project: str, bound: bool = False, imported: bool = False
    ) -> tuple[ParsedEvents, Future[int] | None]:
        """Judge and log native events; registry entries among them are left to ``submit_skills``.

        ``bound`` as in ``submit_traces``. Raises BodyError, Overloaded.
        """
        parsed = parse_events(body, layout, project if bound else None)
        total = parsed.accepted + len(parsed.rejected)
        future, _ = self._submit("events", project, layout, body, total, len(parsed.rejected), bound, imported)
        self.telemetry.explain("events", [refused.reason for refused in parsed.rejected])
        self.telemetry.unknown_fields.inc(parsed.unknown_fields)
        self.telemetry.nonfinite.labels("events").inc(parsed.nonfinite)
        return parsed, future

    def submit_skills(self, parsed: ParsedEvents, project: str) -> tuple[int, list[Rejection]]:
        """Bring the registry entries of a request into the registry: how many were taken, and what was refused.

        Waits for the disk. Raises Overloaded.
        """
        if not parsed.skills:
            return 0, []
        answer = self.registry.upsert(project or DEFAULT_PROJECT, parsed.skills)
        self.telemetry.took("skills", answer.accepted)
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

    @property
    def stores(self) -> Stores:
        if self._stores is None:
            raise RuntimeError("the collector is not started")
        return self._stores

    def _begin(self, pending: PendingRequest) -> Future[Any]:
        request = pending.request
        operation: Operation
        if isinstance(request, ForgetRequest):
            operation = Forget(pending, request, self.stores, self.flusher)
        elif isinstance(request, ReplayRequest):
            operation = Replay(request, self.stores, self.flusher)
        else:
            operation = Retention(request, self.stores)
        return self.flusher.submit(operation, pending.done)

    def _note(self, kind: Kind, nonfinite: int, parsed: ParsedTraces | OwnTraces | ParsedLogs | OwnLogs) -> None:
        """Count what became null, and why items were refused."""
        self.telemetry.nonfinite.labels(kind).inc(nonfinite)
        if parsed.rejected:
            self.telemetry.explain(kind, [parsed.message])

    def _submit(
        self,
        kind: Kind,
        project: str,
        encoding: str,
        body: bytes,
        total: int,
        rejected: int,
        bound: bool,
        imported: bool,
    ) -> tuple[Future[int] | None, EarlyRecord | None]:
        """Log what is acceptable of a request; what was refused of it since, where it is mapped first."""
        self.telemetry.rejected.labels(kind).inc(rejected)
        if total <= rejected:
            return None, None
        events = total - rejected
        if self._early is None:
            future = self.append(kind, project, encoding, body, events=events, bound=bound, imported=imported)
            self.telemetry.took(kind, events)
            return future, None
        future, early = self._early.append(kind, project, encoding, body, events, bound, imported)
        if early.refused:
            logger.error("%d %s could not be mapped (%s) and are refused", early.refused, kind, early.reason)
            self.telemetry.rejected.labels(kind).inc(early.refused)
        self.telemetry.took(kind, events - early.refused)
        return future, early

    def _append_write(self, project: str, body: bytes, received_at: int, entries: int) -> Future[int]:
        return self.wal.append("registry", project, "json", body, events=entries, received_at=received_at)

    def _open(self) -> None:
        settings = self.settings
        lake = Lake(settings.data_dir)
        lake.migrate()
        self._control = Control(settings.data_dir)
        self.access.open(self._control)
        key = self._control.secret("redaction")
        redactor = Redactor(settings, key)
        archive = Archive(settings.data_dir / "archive", settings.archive_days)
        dead_letters = DeadLetters(settings.data_dir / "rejected", self.telemetry)
        self._wal = Wal(
            settings.data_dir / "wal",
            queue_bytes=settings.queue_bytes,
            backlog_bytes=settings.backlog_bytes,
            floor_seq=max(
                archive.last_seq,
                dead_letters.last_seq,
                *(lake.transaction_version(table, APPLICATION) for table in FACT_TABLES),
            ),
        )
        self._stores = stores = Stores(
            settings=settings,
            lake=lake,
            archive=archive,
            archivist=Archivist(settings, Redactor(settings, key)),  # its own counts: nothing is counted twice
            dead_letters=dead_letters,
            tombstones=Tombstones(self._control, redactor),
            redactor=redactor,
            wal_folder=settings.data_dir / "wal",
        )
        self._pool = MappingPool(settings, key, self._processes)
        self._early = EarlyMapper(settings, key, self._wal) if settings.redact_before_log else None
        self._flusher = Flusher(self._wal, stores, self._pool, self.telemetry)
        self._report_recovery(self._wal, self._flusher, redactor)
        self._flusher.drain()
        self.registry.load(lake.read(SKILLS))
        self._wal.on_durable = self._flusher.wake
        for pending in self._requests.left():
            logger.info("going on with a %s that was interrupted", type(pending.request).__name__)
            self._begin(pending)
        self._flusher.start()

    def _report_recovery(self, wal: Wal, flusher: Flusher, redactor: Redactor) -> None:
        recovery = wal.recovery
        if recovery.records:
            logger.info("the log holds %d records of an earlier run, committing them", recovery.records)
        self.telemetry.torn_bytes.inc(recovery.torn_bytes)
        self.telemetry.damaged.inc(len(recovery.damaged))
        watch = self.telemetry.watch
        watch("pickwise_queue_bytes", lambda: wal.queue_bytes)
        watch("pickwise_queue_requests", lambda: wal.queue_requests)
        watch("pickwise_inflight_bytes", lambda: self.admission.bytes)
        watch("pickwise_inflight_requests", lambda: self.admission.requests)
        watch("pickwise_inflight_refused_total", lambda: self.admission.refused)
        watch("pickwise_backlog_bytes", lambda: wal.backlog_bytes)
        watch("pickwise_backlog_requests", lambda: max(0, wal.durable_seq - flusher.position))
        watch("pickwise_redactions_total", redactor.counts.copy)


def _tell(parsed: ParsedTraces | OwnTraces | ParsedLogs | OwnLogs, early: EarlyRecord | None) -> None:
    """Let the sender know what was refused when it was mapped."""
    if early is not None and early.refused:
        parsed.rejected += early.refused
        reason = f"{early.refused} could not be mapped ({early.reason})"
        parsed.message = "; ".join(filter(None, (parsed.message, reason)))


def _with_less_stack(judge: Callable[[], T], frames: int = _MARGIN) -> T:
    return judge() if not frames else _with_less_stack(judge, frames - 1)
