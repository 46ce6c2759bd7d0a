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
from collector.forgotten import Forgotten, Stone, forgotten_digest
from collector.redact import Redactor

_PREFIX = "forgotten/"


class Tombstones:
    """The forgotten sessions of one data folder."""

    def __init__(self, control: Control, redactor: Redactor) -> None:
        self._control = control
        self._redactor = redactor
        self.forgotten = Forgotten()
        self.expire(time.time_ns())

    def __bool__(self) -> bool:
        return bool(self.forgotten)

    def put(self, project: str, session_id: str, traces: Iterable[str], at: int) -> None:
        """Keep out what the session, and the traces without one, did up to ``at`` (Unix ns)."""
        session = forgotten_digest(self._redactor, project, "session", session_id)
        until = at + int(REMEMBER.total_seconds() * 1e9)
        digests = sorted(forgotten_digest(self._redactor, project, "trace", trace) for trace in traces)
        stone = Stone(at, until, session, digests)
        self._control.put(
            _PREFIX + hashlib.blake2b(f"{session}{at}".encode()).hexdigest()[:32], msgspec.to_builtins(stone)
        )
        self.forgotten.add(stone)

    def hides(self, row: Mapping[str, Any]) -> bool:
        """Whether the row is of what was forgotten, as ``Forgotten.hides``."""
        return self.forgotten.hides(row, self._redactor)

    def expire(self, now: int) -> None:
        """Drop those that no retry can follow any more (``now`` in Unix ns)."""
        self.forgotten = Forgotten()
        for key, document in self._control.items(_PREFIX).items():
            stone = msgspec.convert(document, Stone)
            if stone.until < now:
                self._control.put(_PREFIX + key, None)
            else:
                self.forgotten.add(stone)
