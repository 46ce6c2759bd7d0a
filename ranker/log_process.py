"""Reads logs in a process of its own: tables are folded there, and the memory that takes goes with it.

In the ranker's own process DuckDB and the tables of 16,000 turns stayed at 250 MiB. The process starts when a log is
wanted, runs at a low priority, so that answers come first, and ends after some idle time, or with the ranker's own.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from collector.wire import Wire, spawned
from pickwise.settings import Settings
from ranker.log import Log, read_log

_NICENESS = 10
#: Projects are loaded one after the other: they share one process.
_IDLE_S = 10.0
#: Longer nothing takes: the process hangs.
_HANGS_S = 900.0


class LogProcess:
    """Reads the logs of one data folder. Safe to use from several threads, who wait for each other."""

    def __init__(self, data_dir: Path, settings: Settings) -> None:
        self._data_dir = data_dir
        self._settings = settings
        self._lock = threading.Lock()
        self._process: mp.process.BaseProcess | None = None
        self._wire: Wire | None = None
        self._farewell: threading.Timer | None = None

    def read(self, project: str) -> Log:
        """As ``read_log``. Raises what that raises, and OSError or EOFError where the process dies."""
        found: Log = self._ask(project)
        return found

    def projects(self) -> list[str]:
        """Every project that has events or a registry."""
        found: list[str] = self._ask(None)
        return found

    def close(self) -> None:
        with self._lock:
            self._end()

    def _ask(self, project: str | None) -> Any:
        with self._lock:
            if self._farewell is not None:
                self._farewell.cancel()
            if self._process is not None and not self._process.is_alive():  # the kernel was out of memory
                self._end()
            try:
                wire = self._wire or self._start()
                wire.send(project)
                answer = wire.receive()
            except BaseException:
                self._end()
                raise
            self._farewell = threading.Timer(_IDLE_S, self.close)
            self._farewell.daemon = True
            self._farewell.start()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _start(self) -> Wire:
        process, ours = spawned(_serve, self._data_dir, self._settings)
        ours.wait_at_most(_HANGS_S)
        self._process, self._wire = process, ours
        return ours

    def _end(self) -> None:
        """It holds nothing that would be lost."""
        if self._farewell is not None:
            self._farewell.cancel()
        if self._wire is not None:
            self._wire.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._wire = self._farewell = None


def _serve(wire: Wire, data_dir: Path, settings: Settings) -> None:
    """In the process: a log for each project that is named, the names of all for None."""
    os.nice(_NICENESS)
    with suppress(EOFError, OSError):  # the ranker is gone
        while True:
            project = wire.receive()
            wire.send(_read(data_dir, settings, project))


def _read(data_dir: Path, settings: Settings, project: str | None) -> Log | list[str] | Exception:
    from analytics.tables import Tables

    try:
        return Tables(data_dir).projects() if project is None else read_log(data_dir, settings, project)
    except Exception as error:  # noqa: BLE001 - who asked is told
        return error
