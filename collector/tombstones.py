"""What was forgotten and must not come back: keyed hashes of sessions and traces, for as long as a sender may retry.

An event is kept out when its session was forgotten and it happened before that, or does not say when it happened; what
a session does afterwards is new. Without the installation's key a hash tells nothing of the session.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from collector.control import Control
from collector.dedup import REMEMBER
from collector.redact import Redactor

_PREFIX = "forgotten/"


class _Stone(msgspec.Struct):
    """One forgotten session. Times are Unix nanoseconds."""

    at: int
    until: int
    session: str
    traces: list[str]


class Tombstones:
    """The forgotten sessions of one data folder."""

    def __init__(self, control: Control, redactor: Redactor) -> None:
        self._control = control
        self._redactor = redactor
        self._sessions: dict[str, int] = {}
        self._traces: dict[str, int] = {}
        self.expire(time.time_ns())

    def __bool__(self) -> bool:
        return bool(self._sessions)

    def put(self, project: str, session_id: str, traces: Iterable[str], at: int) -> None:
        """Keep out what the session, and the traces without one, did up to ``at`` (Unix ns)."""
        session = self._digest(project, "session", session_id)
        until = at + int(REMEMBER.total_seconds() * 1e9)
        digests = sorted(self._digest(project, "trace", trace) for trace in traces)
        stone = _Stone(at, until, session, digests)
        self._control.put(
            _PREFIX + hashlib.blake2b(f"{session}{at}".encode()).hexdigest()[:32], msgspec.to_builtins(stone)
        )
        self._take(stone)

    def hides(self, row: Mapping[str, Any]) -> bool:
        """Whether the row is of what was forgotten: ``project``, ``session_id``, ``trace_id``, ``time`` (µs)."""
        at = self._forgotten_at(row["project"], row["session_id"], row["trace_id"])
        return at is not None and (bool(row["time_is_receipt"]) or row["time"] * 1_000 <= at)

    def hides_trace(self, project: str, trace_id: str | None, time_ns: int) -> bool:
        """Whether something without a session is of a trace that was forgotten; ``time_ns`` 0: it does not say when."""
        at = self._forgotten_at(project, None, trace_id)
        return at is not None and time_ns <= at

    def _forgotten_at(self, project: str, session_id: str | None, trace_id: str | None) -> int | None:
        """When the session was forgotten (Unix ns); the trace decides where there is no session. None: it was not."""
        if not self._sessions:
            return None
        if session_id:
            return self._sessions.get(self._digest(project, "session", session_id))
        return self._traces.get(self._digest(project, "trace", trace_id)) if trace_id else None

    def expire(self, now: int) -> None:
        """Drop those that no retry can follow any more (``now`` in Unix ns)."""
        self._sessions, self._traces = {}, {}
        for key, document in self._control.items(_PREFIX).items():
            stone = msgspec.convert(document, _Stone)
            if stone.until < now:
                self._control.put(_PREFIX + key, None)
            else:
                self._take(stone)

    def _take(self, stone: _Stone) -> None:
        self._sessions[stone.session] = max(stone.at, self._sessions.get(stone.session, 0))
        for trace in stone.traces:
            self._traces[trace] = max(stone.at, self._traces.get(trace, 0))

    def _digest(self, project: str, kind: str, value: str) -> str:
        return self._redactor.digest("\x1f".join(("forgotten", project, kind, value)).encode("utf-8", "surrogatepass"))
