"""What an operator asks the owner of the tables to do: replay, forget. Done by the flusher between two batches.

A request is on disk before it is begun and until it is done, so that a crash in the middle only delays it: whoever
holds the folder next begins it again. So each must come to the same end however often it is begun.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from collector.durable import sync, write_whole

_SUFFIX = ".json"
#: Of requests that can't be read any more.
DAMAGED = ".damaged"

logger = logging.getLogger(__name__)


class ReplayRequest(msgspec.Struct, tag="replay", frozen=True, kw_only=True):
    """Map the archived requests received in [start, end) (Unix ns) anew. ``project`` None: of all projects."""

    project: str | None = None
    start: int | None = None
    end: int | None = None
    dry_run: bool = False


class ForgetRequest(msgspec.Struct, tag="forget", kw_only=True):
    """Remove a session. ``at``: when it was asked (Unix ns); ``seq``: the newest log record that was durable then."""

    project: str
    session_id: str
    at: int
    seq: int
    #: Found out on the way: its traces, its selections, and call ids that are its alone.
    traces: list[str] = []
    selections: list[str] = []
    calls: list[str] = []


class RetentionRequest(msgspec.Struct, tag="retention", frozen=True, kw_only=True):
    """Remove what is older than the settings say. ``at``: the age is counted from then (Unix ns).

    ``project`` None: the rows of all projects.
    """

    at: int
    project: str | None = None
    dry_run: bool = False


Request = ReplayRequest | ForgetRequest | RetentionRequest


class Operation(Protocol):
    """A request being done, a step at a time; batches are committed between steps."""

    @property
    def report(self) -> Any:
        """What it did so far."""

    def steps(self) -> Iterator[None]: ...


class PendingRequest:
    """A request with its file, which goes when it is done."""

    def __init__(self, path: Path, request: Request) -> None:
        self.request = request
        self._path = path

    def update(self, request: Request) -> None:
        """Note what was found out; durable when it returns."""
        write_whole(self._path, msgspec.json.encode(request))
        self.request = request

    def done(self) -> None:
        self._path.unlink(missing_ok=True)
        sync(self._path.parent)


class PendingRequests:
    """The requests of one data folder that are not done yet. Files may name a session: owner only."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(folder)

    def add(self, request: Request) -> PendingRequest:
        """Durable when it returns. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / f"{time.time_ns():020d}{_SUFFIX}"
        write_whole(path, msgspec.json.encode(request))
        return PendingRequest(path, request)

    def left(self) -> list[PendingRequest]:
        """Those that an earlier process did not finish, in the order of their coming; damaged ones are set aside."""
        found = []
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            try:
                found.append(PendingRequest(path, msgspec.json.decode(path.read_bytes(), type=Request)))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                aside = path.rename(path.with_suffix(DAMAGED))
                logger.error("%s is damaged (%s): ask again for what it asked for; kept as %s", path, error, aside)
        return found
