"""What one OTLP request may hold, beside its 20 MiB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from collector.body import TooLarge

T = TypeVar("T")

#: Spans or log records: eight times what the OpenTelemetry Collector sends at once, and what a commit has the memory
#: for. Those beyond are refused and counted.
MAX_RECORDS = 65_536
#: A record that says where it belongs takes 28 bytes at least, so a request can't hold so many good ones.
MAX_COUNTED = 750_000
#: Resources and scopes, with or without records in them.
MAX_GROUPS = 100_000
#: Records are decoded together up to this length on the wire, or where a longer body is light (see ``weight``):
#: bounds what is in memory at a time.
PIECE_BYTES = 256 * 1024
#: Levels of nesting of an attribute's value.
MAX_DEPTH = 50
#: Strings whose invalid UTF-8 is mended.
MAX_MENDED = 100_000
#: So many refused records are spelled out; the others are counted.
NAMED_REFUSALS = 5


class Tally:
    """What the records of one request came to."""

    def __init__(self) -> None:
        self.taken = 0
        #: Of those taken, the ones that say nothing, as the records of another signal look.
        self.empty = 0
        self._refused = 0
        self._beyond = 0
        #: Of those refused, the ones that could not even be decoded.
        self.broken = 0
        #: NaN and infinities, which became null; counted where values were looked at.
        self.nonfinite = 0
        self.reasons: list[str] = []
        #: What the sender should know though nothing was refused for it.
        self.hints: list[str] = []

    @property
    def refused(self) -> int:
        return self._refused + self._beyond

    @property
    def total(self) -> int:
        return self.taken + self.refused

    def admitted(self, records: Sequence[T]) -> Sequence[T]:
        """The records that there is room for; the others are refused. Raises TooLarge for too many even to count."""
        room = max(0, MAX_RECORDS - self.total)
        beyond = len(records) - room
        if beyond <= 0:
            return records
        if not self._beyond:
            self.hints.append(f"expected at most {MAX_RECORDS} spans or log records a request, send smaller batches")
        self._beyond += beyond
        if self.total > MAX_COUNTED:
            raise TooLarge(f"expected at most {MAX_RECORDS} spans or log records a request")
        return records[:room]

    def refuse(self, title: str, reason: str, *, broken: bool = False) -> None:
        """Count a record that is not taken; the first few are named."""
        self._refused += 1
        self.broken += broken
        if len(self.reasons) < NAMED_REFUSALS:
            self.reasons.append(f"{title}: {reason}" if title else reason)

    @property
    def message(self) -> str:
        """Why records were refused, then hints; '' where there is nothing to say."""
        more = self.refused - len(self.reasons)
        parts = [*self.reasons, f"and {more} more"] if more else list(self.reasons)
        if self.nonfinite:
            parts.append(f"{self.nonfinite} NaN or infinite numbers became null")
        return "; ".join(parts + self.hints)
