"""OTLP in protobuf: requests decoded piece by piece, and the walk to our shape.

Traces and logs nest alike (resources, scopes, records, by the same field numbers), so one reader serves both. A piece
that cannot be decoded as a whole is decoded record by record: a bad one takes no good one with it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as LogMessage
from opentelemetry.proto.logs.v1.logs_pb2 import ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ScopeMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from collector.body import TooLarge
from collector.clock import LAST_NS, PLAUSIBLE_NS, time_problem
from collector.otlp_limits import MAX_GROUPS, MAX_MENDED, PIECE_BYTES
from collector.protobuf_wire import Mender, cut, joined, parts
from collector.spans import Attributes, LogRecord, Span, SpanEvent, SpanLink
from collector.weight import LIGHT_BYTES, is_light_message

TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8
_ZERO_TRACE = bytes(TRACE_ID_BYTES)
_ZERO_SPAN = bytes(SPAN_ID_BYTES)
#: `resource_*` of a request; `scope_*` of a group; the records of a scope; what a group or scope is of.
_GROUPS, _SCOPES, _RECORDS, _HEAD = 1, 2, 2, 1

MessageT = TypeVar("MessageT", bound=Message)


@dataclass(frozen=True)
class Signal(Generic[MessageT]):
    """What differs between the kinds of request."""

    record: type[MessageT]
    #: Decodes a scope, or a stretch of one.
    scope: Callable[[bytes], Message]
    #: Field of a scope that holds its records.
    field: str


SPANS = Signal(SpanMessage, ScopeSpans.FromString, "spans")
LOGS = Signal(LogMessage, ScopeLogs.FromString, "log_records")
METRICS = Signal(Metric, ScopeMetrics.FromString, "metrics")


@dataclass(slots=True)
class Piece(Generic[MessageT]):
    """Records of one scope that were decoded together."""

    records: list[MessageT]
    raw: bytes
    resource: Resource
    scope: InstrumentationScope
    #: Why none of them can be taken, None while they can.
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """A record, or what should hold some, that cannot be decoded."""

    place: str
    reason: str


def pieces(body: bytes, signal: Signal[MessageT], *, mend: bool = True) -> Iterator[Piece[MessageT] | Broken]:
    """The records of a request in their order, a piece at a time.

    With ``mend``, invalid UTF-8 in strings becomes U+FFFD. Raises DecodeError when the body is no such request,
    TooLarge when it holds too many groups.
    """
    yield from _Reader(body, signal, Mender(MAX_MENDED if mend else 0)).pieces()


class _Reader(Generic[MessageT]):
    def __init__(self, body: bytes, signal: Signal[MessageT], mender: Mender) -> None:
        self._body = body
        self._signal = signal
        self._mender = mender
        self._groups = 0

    def pieces(self) -> Iterator[Piece[MessageT] | Broken]:
        for number, _, start, end in parts(self._body, 0, len(self._body)):
            if number == _GROUPS:
                yield from self._guarded(partial(self._group, start, end), "resource")

    def _guarded(
        self, read: Callable[[], Iterator[Piece[MessageT] | Broken]], place: str
    ) -> Iterator[Piece[MessageT] | Broken]:
        self._groups += 1
        if self._groups > MAX_GROUPS:
            raise TooLarge(f"expected at most {MAX_GROUPS} resources and scopes a request")
        try:
            yield from read()
        except DecodeError as error:
            yield Broken(place, str(error))

    def _group(self, start: int, end: int) -> Iterator[Piece[MessageT] | Broken]:
        resource, problem = self._resource(joined(self._body, start, end, _HEAD))
        for number, _, inner, stop in parts(self._body, start, end):
            if number != _SCOPES:
                continue
            for piece in self._guarded(partial(self._scope, inner, stop), "scope"):
                if isinstance(piece, Piece):
                    piece.resource, piece.problem = resource, problem
                yield piece

    def _resource(self, content: bytes) -> tuple[Resource, str | None]:
        try:
            return self._decoded(content, Resource), None
        except DecodeError as error:
            return Resource(), f"resource: {error}"

    def _scope(self, start: int, end: int) -> Iterator[Piece[MessageT] | Broken]:
        if end - start <= LIGHT_BYTES and (whole := self._together(start, end)) is not None:
            yield whole
            return
        head, runs = cut(self._body, start, end, _HEAD, _RECORDS, PIECE_BYTES)
        scope = self._decoded(head, InstrumentationScope)
        for first, last in runs:
            run = self._together(first, last)
            if run is not None:
                run.scope = scope
                yield run
            else:
                yield from self._each(first, last, scope)

    def _together(self, start: int, end: int) -> Piece[MessageT] | None:
        raw = self._body[start:end]
        if len(raw) > PIECE_BYTES and not is_light_message(raw):
            return None
        try:
            scoped: Any = self._signal.scope(raw)
        except DecodeError:
            return None
        return Piece(getattr(scoped, self._signal.field), raw, Resource(), scoped.scope)

    def _each(self, start: int, end: int, scope: InstrumentationScope) -> Iterator[Piece[MessageT] | Broken]:
        for number, _, inner, stop in parts(self._body, start, end):
            if number != _RECORDS:
                continue
            raw = self._body[inner:stop]
            try:
                yield Piece([self._decoded(raw, self._signal.record)], raw, Resource(), scope)
            except DecodeError as error:
                yield Broken("record", str(error))

    def _decoded(self, content: bytes, message_type: type[Any]) -> Any:
        try:
            return message_type.FromString(content)
        except DecodeError:
            if not self._mender.allowance:
                raise
            return message_type.FromString(self._mender.mend(content, cast(Descriptor, message_type.DESCRIPTOR)))


def span_problem(span: SpanMessage) -> str | None:
    """Why the span cannot be taken, or None. Attributes need no look: protobuf has checked their form."""
    trace_id, span_id, parent = span.trace_id, span.span_id, span.parent_span_id
    if len(trace_id) != TRACE_ID_BYTES or trace_id == _ZERO_TRACE:
        return f"trace_id: expected 16 bytes, not all zero, got {_shown(trace_id)}"
    if len(span_id) != SPAN_ID_BYTES or span_id == _ZERO_SPAN:
        return f"span_id: expected 8 bytes, not all zero, got {_shown(span_id)}"
    if parent and len(parent) != SPAN_ID_BYTES:
        return f"parent_span_id: expected 8 bytes or none, got {_shown(parent)}"
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    if PLAUSIBLE_NS <= start < LAST_NS and PLAUSIBLE_NS <= end < LAST_NS:
        return None
    return time_problem("start_time_unix_nano", start) or time_problem("end_time_unix_nano", end)


def judged_spans(spans: Iterable[SpanMessage]) -> tuple[list[SpanMessage], list[tuple[SpanMessage, str]]]:
    """The spans that can be taken, and the others, each with its problem."""
    good, bad = [], []
    for span in spans:
        trace_id, span_id, parent = span.trace_id, span.span_id, span.parent_span_id
        # What nearly every span looks like, told without a call: the door does this for each.
        if (
            len(trace_id) == TRACE_ID_BYTES
            and trace_id != _ZERO_TRACE
            and len(span_id) == SPAN_ID_BYTES
            and span_id != _ZERO_SPAN
            and (not parent or len(parent) == SPAN_ID_BYTES)
            and PLAUSIBLE_NS <= span.start_time_unix_nano <= span.end_time_unix_nano < LAST_NS
        ) or not (why := span_problem(span)):
            good.append(span)
        else:
            bad.append((span, why))
    return good, bad


def log_problem(record: LogMessage) -> str | None:
    """The same of a log record."""
    if len(record.trace_id) not in (0, TRACE_ID_BYTES):
        return f"trace_id: expected 16 bytes or none, got {_shown(record.trace_id)}"
    if len(record.span_id) not in (0, SPAN_ID_BYTES):
        return f"span_id: expected 8 bytes or none, got {_shown(record.span_id)}"
    return time_problem("time_unix_nano", record.time_unix_nano) or time_problem(
        "observed_time_unix_nano", record.observed_time_unix_nano
    )


def judged_logs(records: Iterable[LogMessage]) -> tuple[list[LogMessage], list[tuple[LogMessage, str]]]:
    """As ``judged_spans``."""
    good, bad = [], []
    for record in records:
        if why := log_problem(record):
            bad.append((record, why))
        else:
            good.append(record)
    return good, bad


def data_points(metric: Metric) -> int:
    """How many data points a metric has."""
    data = metric.WhichOneof("data")
    return len(getattr(metric, data).data_points) if data else 0


def _shown(identifier: bytes) -> str:
    return identifier[:20].hex() or "none"


class Converter:
    """Messages in our shape; ``nonfinite`` counts the NaN and infinities that became null on the way."""

    def __init__(self) -> None:
        self.nonfinite = 0
        self._resource: tuple[Resource | None, Attributes] = (None, {})

    def spans(self, messages: Iterable[SpanMessage], piece: Piece[SpanMessage]) -> Iterator[Span]:
        """The spans of a piece, decoded as they are asked for."""
        resource, scope_name, scope_version = self._resource_of(piece), piece.scope.name, piece.scope.version
        for message in messages:
            parent, status = message.parent_span_id, message.status
            events, links = message.events, message.links
            yield Span(
                trace_id=message.trace_id.hex(),
                span_id=message.span_id.hex(),
                parent_span_id=parent.hex() if parent and parent != _ZERO_SPAN else None,
                name=message.name,
                kind=message.kind,
                start_ns=message.start_time_unix_nano,
                end_ns=message.end_time_unix_nano,
                status_code=status.code,
                status_message=status.message,
                attributes=self._attributes(message.attributes),
                events=[self._event(event) for event in events] if events else [],
                links=[SpanLink(link.trace_id.hex(), link.span_id.hex()) for link in links] if links else [],
                resource=resource,
                scope_name=scope_name,
                scope_version=scope_version,
            )

    def _event(self, event: SpanMessage.Event) -> SpanEvent:
        time_ns = event.time_unix_nano
        return SpanEvent(event.name, time_ns if time_ns < LAST_NS else 0, self._attributes(event.attributes))

    def log(self, record: LogMessage, piece: Piece[LogMessage]) -> LogRecord:
        return LogRecord(
            trace_id=record.trace_id.hex() if record.trace_id and record.trace_id != _ZERO_TRACE else None,
            span_id=record.span_id.hex() if record.span_id and record.span_id != _ZERO_SPAN else None,
            time_ns=record.time_unix_nano or record.observed_time_unix_nano,
            event_name=record.event_name,
            body=self._value(record.body),
            attributes=self._attributes(record.attributes),
            resource=self._resource_of(piece),
        )

    def _resource_of(self, piece: Piece[Any]) -> Attributes:
        """The attributes of the piece's resource: the same object for all records of it."""
        message, attributes = self._resource
        if message is not piece.resource:
            # Not counted here: what a resource says is told once for many records, or for none.
            attributes = Converter()._attributes(piece.resource.attributes)
            self._resource = (piece.resource, attributes)
        return attributes

    def _attributes(self, pairs: Any) -> Attributes:
        attributes: Attributes = {}
        for pair in pairs:
            value = pair.value
            # Nearly all are strings or numbers. What is neither, or is empty or 0, gets a closer look.
            attributes[pair.key] = value.string_value or value.int_value or self._value(value)
        return attributes

    def _value(self, value: AnyValue) -> Any:
        kind = value.WhichOneof("value")
        if kind == "string_value":
            return value.string_value
        if kind == "double_value":
            return self._finite(value.double_value)
        if kind == "array_value":
            return [self._value(item) for item in value.array_value.values]
        if kind == "kvlist_value":
            return self._attributes(value.kvlist_value.values)
        if kind == "bytes_value":
            return base64.b64encode(value.bytes_value).decode()  # as OTLP/JSON has it
        # Kinds that newer senders know are null, as in JSON.
        return getattr(value, kind) if kind in ("int_value", "bool_value") else None

    def _finite(self, value: float) -> float | None:
        if math.isfinite(value):
            return value
        self.nonfinite += 1
        return None
