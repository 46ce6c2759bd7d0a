"""Mapping in processes of their own, where there is much to map: the door's interpreter is left to the door.

They start with the first large batch and end after some idle minutes, run at a low priority, so that a busy machine
answers first, and end with the collector, also when it is killed. One that dies or hangs costs nothing: its records are
mapped again, each alone; only a record that kills its process twice is set aside.
"""

from __future__ import annotations

import gc
import logging
import math
import multiprocessing as mp
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field

from collector.columns import to_frame
from collector.faults import Fault
from collector.mapping_work import Mapped, Work
from collector.record_mapper import RecordMapper
from collector.segment import Record
from collector.wire import Wire, spawned
from pickwise.settings import Settings

logger = logging.getLogger(__name__)

#: Fewer events are mapped by the collector itself, sooner than they would get to another process and back.
_WORTH_EVENTS = 1_000
#: What one process maps at once, so that several share a batch.
_CHUNK_EVENTS = 1_000
_CHUNK_BYTES = 4 * 2**20
#: More takes some hundred MiB to map: one process does so at a time, and is ended after it to give them back. An event
#: takes 2 KiB, however short it was said.
_HEAVY_BYTES = 8 * 2**20
_HEAVY_EVENTS = 50_000
_NICENESS = 10
_IDLE_S = 300.0
#: How long the end of the collector waits for a process that has work.
_FAREWELL_S = 10.0
#: A process that says nothing for so long, and so much longer for each MiB that it maps, hangs. That takes a tenth of a
#: second, on a machine that is busy with other things some seconds.
_HANGS_S = 60.0
_HANGS_S_A_MIB = 30.0
#: Where no process or no thread can live, the next try comes so much later.
_PAUSE_S = 60.0
#: A record that killed so many processes, alone with them, is set aside.
_DEATHS = 2
_DIED = Fault("Died", "the process that mapped it died each time", "")
#: Decoding makes many objects and no cycles: collected rarely, they cost a sixth less.
GC_THRESHOLDS = (100_000, 50, 50)
_NOTHING = Work([], {}, None)


class _Died(RuntimeError):  # noqa: N818 - a state
    """A process is gone, or can't be started."""


@dataclass(frozen=True, slots=True)
class _Job:
    """Work for some process; ``mapped`` is empty where that died."""

    work: Work
    mapped: Future[list[Mapped]] = field(default_factory=Future)


class MappingPool:
    """Maps records in up to ``processes`` processes; with 0 in the caller's."""

    def __init__(self, settings: Settings, key: bytes, processes: int) -> None:
        """``key``: that of the installation's redaction."""
        self._own = RecordMapper(settings, key)
        self._all = [_Process(settings, key) for _ in range(processes)]
        #: The one that worked last comes first: where one is enough, the others are not started.
        self._free: queue.LifoQueue[_Process] = queue.LifoQueue()
        for process in self._all:
            self._free.put(process)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        #: One a process, started when there is work: who waits for one holds up no other.
        self._threads: list[threading.Thread] = []
        self._heavy = threading.Lock()
        self._used_at = -math.inf
        self._paused_until = -math.inf
        self._farewell: threading.Timer | None = None

    def begin(self, work: Work) -> Callable[[], list[Mapped]]:
        """Start to map; what is returned waits for the result, in the records' order."""
        is_much = sum(record.header.events for record in work.records) >= _WORTH_EVENTS
        if not (is_much and self._can_share()):
            return lambda: [self._own.map(work)]
        self._used_at = time.monotonic()
        jobs = [_Job(work._replace(records=chunk)) for chunk in _chunks(work)]
        for job in jobs:
            self._jobs.put(job)
        return lambda: [mapped for job in jobs for mapped in job.mapped.result() or self._each(job.work)]

    def _can_share(self) -> bool:
        """Whether other processes may map: one is enough, where the machine gives no thread for the rest."""
        if time.monotonic() < self._paused_until:
            return False
        try:
            while len(self._threads) < len(self._all):
                thread = threading.Thread(target=self._do_jobs, name="mapping", daemon=True)
                thread.start()
                self._threads.append(thread)
        except RuntimeError as error:
            if not self._threads:
                self._pause(error)
        return bool(self._threads)

    def _pause(self, reason: Exception) -> None:
        logger.error("%s: the collector maps by itself for %.0f s", reason, _PAUSE_S)
        self._paused_until = max(self._paused_until, time.monotonic() + _PAUSE_S)

    @property
    def rest_in_s(self) -> float:
        """Seconds until the processes have been idle for long; infinite where there are none."""
        return max(0.0, self._used_at + _IDLE_S - time.monotonic()) if self._used_at > 0 else math.inf

    def rest(self) -> None:
        """End processes that have been idle for long: they hold memory."""
        if self.rest_in_s == 0.0:
            self._used_at = -math.inf
            for process in self._all:
                process.end()

    def retire(self) -> None:
        """The collector is about to end: it maps the rest itself, and waits for a process no longer than seconds."""
        self._paused_until = math.inf
        self._farewell = threading.Timer(_FAREWELL_S, self._kill)
        self._farewell.daemon = True
        try:
            self._farewell.start()
        except RuntimeError:  # the machine gives no thread that could wait
            self._kill()

    def _kill(self) -> None:
        for process in self._all:
            process.kill()

    def close(self) -> None:
        """End the processes, also those at work."""
        if self._farewell is not None:
            self._farewell.cancel()
        with suppress(queue.Empty):
            while True:
                self._jobs.get_nowait()  # nobody waits for it any more
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            while thread.is_alive():
                self._kill()
                thread.join(0.1)
        for process in self._all:
            process.end()

    def _do_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.mapped.set_result(self._map(job.work))

    def _map(self, work: Work) -> list[Mapped]:
        """The result of some process; empty where it died."""
        is_heavy = _is_heavy(work)
        with self._heavy if is_heavy else nullcontext():
            return self._map_by(self._free.get(), work, ends=is_heavy)

    def _map_by(self, process: _Process, work: Work, *, ends: bool) -> list[Mapped]:
        try:
            mapped = process.map(work)
            if ends:
                process.end()
            return [mapped]
        except Exception as error:  # noqa: BLE001 - whoever waits must get an answer
            logger.error("%s; it was at %d records, which are mapped again one by one", error, len(work.records))
            return []
        finally:
            self._free.put(process)

    def _each(self, work: Work) -> list[Mapped]:
        return [self._alone(work._replace(records=[record])) for record in work.records]

    def _alone(self, work: Work) -> Mapped:
        """Map one record, which may have killed a process before."""
        process = self._free.get()
        try:
            for _ in range(_DEATHS):
                if time.monotonic() < self._paused_until:
                    return self._own.map(work)
                try:
                    return process.map(work)
                except _Died:
                    continue
            process.map(_NOTHING)  # whether it was the record, and not the machine
            return Mapped(set_aside=[(record, _DIED) for record in work.records])
        except _Died as error:
            self._pause(error)
            return self._own.map(work)
        finally:
            self._free.put(process)


class _Process:
    """A process that maps one piece of work after the other; started, and started again, when there is some."""

    def __init__(self, settings: Settings, key: bytes) -> None:
        self._settings = settings
        self._key = key
        self._process: mp.process.BaseProcess | None = None
        self._wire: Wire | None = None

    def map(self, work: Work) -> Mapped:
        """Raises _Died."""
        size = sum(record.size for record in work.records)
        try:
            wire = self._wire or self._start()
            wire.wait_at_most(_HANGS_S + _HANGS_S_A_MIB * size / 2**20)
            wire.send(work)
            mapped: Mapped = wire.receive()
        except Exception as error:  # whatever it was, nobody knows what the process is at
            self.end()
            raise _Died(f"a process that maps died, hung or can't be started ({type(error).__name__})") from error
        return mapped

    def kill(self) -> None:
        """Whoever waits for it learns that it died."""
        process = self._process
        if process is not None:
            process.kill()

    def end(self) -> None:
        """While nobody waits for it: it holds nothing that would be lost."""
        self.kill()
        process, wire = self._process, self._wire
        self._process = self._wire = None
        if wire is not None:
            wire.close()
        if process is not None:
            process.join()

    def _start(self) -> Wire:
        process, ours = spawned(_serve, self._settings, self._key)
        self._process, self._wire = process, ours
        assert process.pid is not None
        with suppress(OSError):  # it may be gone already
            os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
        return ours


def _is_heavy(work: Work) -> bool:
    size = sum(record.size for record in work.records)
    return size > _HEAVY_BYTES or sum(record.header.events for record in work.records) > _HEAVY_EVENTS


def _chunks(work: Work) -> Iterator[list[Record]]:
    chunk: list[Record] = []
    events = size = 0
    for record in work.records:
        chunk.append(record)
        events += record.header.events
        size += record.size
        if events >= _CHUNK_EVENTS or size >= _CHUNK_BYTES:
            yield chunk
            chunk, events, size = [], 0, 0
    if chunk:
        yield chunk


# -- in the processes -----------------------------------------------------------------------------------------------


def _serve(wire: Wire, settings: Settings, key: bytes) -> None:
    """Map what comes until the collector closes the line, or dies."""
    mapper = RecordMapper(settings, key)
    to_frame("calls", [])  # the first one loads what takes a third of a second
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        while True:
            wire.send(mapper.map(wire.receive()))
    except (EOFError, OSError):
        return
