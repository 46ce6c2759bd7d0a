"""Mapping in processes of their own, where there is much to map: the door's interpreter is left to the door.

They start with the first large batch and end after some idle minutes, run at a low priority, so that a busy machine
answers first, and end with the collector, also when it is killed. One that dies costs nothing: its records are mapped
again, each alone; only a record that kills its process twice is set aside.
"""

from __future__ import annotations

import gc
import logging
import math
import multiprocessing as mp
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection

from collector.faults import Fault
from collector.record_mapper import Mapped, RecordMapper, Work
from collector.rows import to_frame
from collector.segment import Record
from pickwise.settings import Settings

logger = logging.getLogger(__name__)

#: Fewer events are mapped by the collector itself, sooner than they would get to another process and back.
_WORTH_EVENTS = 1_000
#: What one process maps at once, so that several share a batch.
_CHUNK_EVENTS = 1_000
_CHUNK_BYTES = 4 * 2**20
_NICENESS = 10
_IDLE_S = 300.0
#: Decoding makes many objects and no cycles: collected rarely, they cost a sixth less.
GC_THRESHOLDS = (100_000, 50, 50)
#: A record that killed so many processes, alone with them, is set aside.
_DEATHS = 2
#: The processes died, or were ended on account of others that did.
_LOST = (BrokenProcessPool, CancelledError)
_NOTHING = Work([], {}, None)
_DIED = Fault("Died", "the process that mapped it died each time", "")


class MappingPool:
    """Maps records in up to ``processes`` processes; with 0 in the caller's."""

    def __init__(self, settings: Settings, key: bytes, processes: int) -> None:
        """``key``: that of the installation's redaction."""
        self._settings = settings
        self._key = key
        self._processes = processes
        self._own = RecordMapper(settings, key)
        self._executor: ProcessPoolExecutor | None = None
        self._used_at = 0.0

    def begin(self, work: Work) -> Callable[[], list[Mapped]]:
        """Start to map; what is returned waits for the result, in the records' order."""
        if not self._processes or sum(record.header.events for record in work.records) < _WORTH_EVENTS:
            return lambda: [self._own.map(work)]
        self._used_at = time.monotonic()
        parts = [work._replace(records=chunk) for chunk in _chunks(work)]
        futures = [self._submitted(part) for part in parts]
        return lambda: [
            mapped for part, future in zip(parts, futures, strict=True) for mapped in self._result(part, future)
        ]

    @property
    def rest_in_s(self) -> float:
        """Seconds until the processes have been idle for long; infinite where there are none."""
        return math.inf if self._executor is None else max(0.0, self._used_at + _IDLE_S - time.monotonic())

    def rest(self) -> None:
        """End processes that have been idle for long: they hold memory."""
        if self.rest_in_s == 0.0:
            self.close()

    def close(self) -> None:
        """End the processes; what they were at is done first."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(cancel_futures=True)

    def _submit(self, work: Work) -> Future[Mapped]:
        """Raises BrokenProcessPool where the processes just died."""
        if self._executor is None:
            self._executor = ProcessPoolExecutor(
                self._processes, mp.get_context("spawn"), _prepare_process, (self._settings, self._key)
            )
        return self._executor.submit(_map, work)

    def _submitted(self, work: Work) -> Future[Mapped]:
        """As ``_submit``, but the future tells."""
        try:
            return self._submit(work)
        except BrokenProcessPool as error:
            failed: Future[Mapped] = Future()
            failed.set_exception(error)
            return failed

    def _result(self, work: Work, future: Future[Mapped]) -> list[Mapped]:
        try:
            return [future.result()]
        except _LOST:
            logger.error("a process that mapped records died; mapping %d again, one by one", len(work.records))
        return [self._alone(work._replace(records=[record])) for record in work.records]

    def _alone(self, work: Work) -> Mapped:
        """Map one record, which may have killed a process before."""
        deaths = 0
        while self._processes:
            try:
                return self._submit(work).result()
            except _LOST:
                self.close()
                deaths += 1
            if deaths > _DEATHS:  # the first may have been another's, of the broken processes that it met
                if self._can_run():
                    return Mapped(set_aside=[(record, _DIED) for record in work.records])
                logger.error("no process for mapping can live: the collector maps by itself until its next start")
                self._processes = 0
        return self._own.map(work)

    def _can_run(self) -> bool:
        """Whether it was the record that killed its process, and not the machine."""
        try:
            self._submit(_NOTHING).result()
        except _LOST:
            self.close()
            return False
        return True


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

_mapper: RecordMapper | None = None


def _prepare_process(settings: Settings, key: bytes) -> None:
    global _mapper
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the collector ends us
    os.nice(_NICENESS)
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    _mapper = RecordMapper(settings, key)
    to_frame("calls", [])  # the first one loads what takes a third of a second


def _end_with_parent() -> None:
    """A collector that was killed can't end its processes."""
    parent = mp.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _map(work: Work) -> Mapped:
    assert _mapper is not None
    return _mapper.map(work)
