"""Spans and log records in one internal shape, whatever wire and encoding they came by."""

from __future__ import annotations

from typing import Any

import msgspec

#: What an attribute may hold once decoded: plain JSON values and bytes; non-finite numbers are already null.
Attributes = dict[str, Any]

STATUS_ERROR = 2


# None of these can be part of a cycle, as attributes hold plain values only: the garbage collector need not look.


class SpanEvent(msgspec.Struct, gc=False):
    name: str
    time_ns: int
    attributes: Attributes


class SpanLink(msgspec.Struct, frozen=True, gc=False):
    """Another span, often of another trace, that the span goes back to."""

    trace_id: str
    span_id: str


class Span(msgspec.Struct, kw_only=True, gc=False):
    """One finished span. Ids are lower-case hex, times Unix nanoseconds (0: absent)."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: int
    start_ns: int
    end_ns: int
    status_code: int
    status_message: str
    attributes: Attributes
    events: list[SpanEvent]
    links: list[SpanLink] = []
    resource: Attributes
    scope_name: str
    scope_version: str

    @property
    def duration_ms(self) -> float | None:
        """Milliseconds from start to end; None where a time is absent or the end lies before the start."""
        if not self.start_ns or self.end_ns < self.start_ns:
            return None
        return (self.end_ns - self.start_ns) / 1e6

    @property
    def failed(self) -> bool:
        return self.status_code == STATUS_ERROR


class LogRecord(msgspec.Struct, kw_only=True, gc=False):
    """One log record; ids are None where the record belongs to no span."""

    trace_id: str | None
    span_id: str | None
    time_ns: int
    event_name: str
    body: Any
    attributes: Attributes
    resource: Attributes
