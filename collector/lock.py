"""One writer a data folder. Who holds it is written beside the lock, for the next one who wants it."""

from __future__ import annotations

import logging
import os
import platform
import time
from pathlib import Path

import msgspec
import psutil
from filelock import FileLock, Timeout

logger = logging.getLogger(__name__)

_LOCK_FILE = ".lock"
_HOLDER_FILE = "lock"
#: ``holder`` takes the lock for a moment to see whether it is free: whoever starts just then waits that moment out.
_PATIENCE_S = 1.0


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The process that writes to a data folder, and where it listens (None: it does not)."""

    pid: int
    host: str
    #: The address it listens on, and the ports there (None: none).
    address: str | None = None
    http_port: int | None = None
    grpc_port: int | None = None
    #: Unix seconds.
    started_at: float


class FolderHeld(RuntimeError):  # noqa: N818 - a state, not a fault
    """Another process writes to the folder; the message says which and where it listens."""

    def __init__(self, data_dir: Path, holder: Holder | None) -> None:
        self.holder = holder
        super().__init__(f"{data_dir} is in use by {_describe(holder)}; stop it first, or give another --data-dir")


class FolderLock:
    """The right to write to a data folder, from ``acquire`` to ``release`` or the end of the process."""

    def __init__(self, data_dir: Path) -> None:
        self._dir = Path(data_dir)
        self._lock = FileLock(self._dir / _LOCK_FILE, thread_local=False)
        self._holder: Holder | None = None

    def acquire(self) -> None:
        """Take the folder. Raises FolderHeld when another process has it."""
        self._dir.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=_PATIENCE_S)
        except Timeout as error:
            raise FolderHeld(self._dir, _read_holder(self._dir)) from error
        self._write(Holder(pid=os.getpid(), host=platform.node(), started_at=time.time()))

    def announce(self, address: str, http_port: int | None, grpc_port: int | None) -> None:
        """Write down where the holder listens, once it is known."""
        assert self._holder is not None, "announce needs the lock"
        self._write(msgspec.structs.replace(self._holder, address=address, http_port=http_port, grpc_port=grpc_port))

    def release(self) -> None:
        if not self._lock.is_locked:
            return
        (self._dir / _HOLDER_FILE).unlink(missing_ok=True)
        self._holder = None
        self._lock.release()

    def _write(self, holder: Holder) -> None:
        self._holder = holder
        draft = self._dir / f".{_HOLDER_FILE}.draft"
        draft.write_bytes(msgspec.json.encode(holder))
        draft.replace(self._dir / _HOLDER_FILE)  # atomic: a reader never sees half of it


def holder(data_dir: Path) -> Holder | None:
    """The process that holds the folder now, or None. What a dead one left behind doesn't count."""
    data_dir = Path(data_dir)
    if not (data_dir / _LOCK_FILE).exists():
        return None
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        probe = FileLock(data_dir / _LOCK_FILE, thread_local=False)
        try:
            probe.acquire(timeout=0)
        except Timeout:
            found = _read_holder(data_dir)
            if found is not None and _is_alive(found):
                return found
            time.sleep(0.02)  # just taken and not yet signed, or another look like this one
        else:
            probe.release()
            return None
    return None


def _is_alive(found: Holder) -> bool:
    return found.host != platform.node() or psutil.pid_exists(found.pid)


def _read_holder(data_dir: Path) -> Holder | None:
    try:
        return msgspec.json.decode((data_dir / _HOLDER_FILE).read_bytes(), type=Holder)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        logger.warning("%s cannot be read: %s", data_dir / _HOLDER_FILE, error)
        return None


def _describe(found: Holder | None) -> str:
    if found is None:
        return "another process"
    ports = [f"{name} port {port}" for name, port in (("HTTP", found.http_port), ("gRPC", found.grpc_port)) if port]
    where = f" ({', '.join(ports)})" if ports else ""
    return f"process {found.pid} on {found.host}{where}"
