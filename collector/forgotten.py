"""What was forgotten, as whoever makes rows has to know it: digests alone, made to be sent to other processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from collector.redact import Redactor


class Stone(msgspec.Struct):
    """One forgotten session. Times are Unix nanoseconds."""

    at: int
    until: int
    session: str
    traces: list[str]


class Forgotten(msgspec.Struct):
    """When sessions and traces were forgotten (Unix ns), by their digests; false where none was."""

    sessions: dict[str, int] = {}
    traces: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.sessions)

    def hides(self, row: Mapping[str, Any], redactor: Redactor) -> bool:
        """Whether the row is of what was forgotten: ``project``, ``session_id``, ``trace_id``, ``time`` (µs)."""
        at = self._forgotten_at(row["project"], row["session_id"], row["trace_id"], redactor)
        return at is not None and (bool(row["time_is_receipt"]) or row["time"] * 1_000 <= at)

    def hides_trace(self, project: str, trace_id: str | None, time_ns: int, redactor: Redactor) -> bool:
        """Whether something without a session is of a trace that was forgotten; ``time_ns`` 0: it does not say when."""
        at = self._forgotten_at(project, None, trace_id, redactor)
        return at is not None and time_ns <= at

    def _forgotten_at(
        self, project: str, session_id: str | None, trace_id: str | None, redactor: Redactor
    ) -> int | None:
        """When the session was forgotten (Unix ns); the trace decides where there is no session. None: it was not."""
        if not self.sessions:
            return None
        if session_id:
            return self.sessions.get(forgotten_digest(redactor, project, "session", session_id))
        return self.traces.get(forgotten_digest(redactor, project, "trace", trace_id)) if trace_id else None

    def add(self, stone: Stone) -> None:
        self.sessions[stone.session] = max(stone.at, self.sessions.get(stone.session, 0))
        for trace in stone.traces:
            self.traces[trace] = max(stone.at, self.traces.get(trace, 0))


def forgotten_digest(redactor: Redactor, project: str, kind: str, value: str) -> str:
    """What stands for a session or a trace (``kind``): without the installation's key it tells nothing of it."""
    return redactor.digest("\x1f".join(("forgotten", project, kind, value)).encode("utf-8", "surrogatepass"))
