"""OTLP in protobuf: decoding with upb, the walk to our shape, and the repair of invalid UTF-8."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as LogMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from collector.spans import Attributes, LogRecord, Span, SpanEvent
from pickwise.events import MAX_TIME_NS

TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8
_ZERO_TRACE = bytes(TRACE_ID_BYTES)
_ZERO_SPAN = bytes(SPAN_ID_BYTES)
#: As deep as upb goes itself.
_MAX_DEPTH = 100
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5

MessageT = TypeVar("MessageT", bound=Message)


def decode(body: bytes, message_type: type[MessageT]) -> MessageT:
    """The message; invalid UTF-8 in strings becomes U+FFFD. Raises DecodeError when the body is something else."""
    try:
        return message_type.FromString(body)
    except DecodeError:
        # upb refuses a whole request for one bad string: repair the strings on the wire and try once more.
        return message_type.FromString(repair_utf8(body, cast(Descriptor, message_type.DESCRIPTOR)))


def span_problem(span: SpanMessage) -> str | None:
    """Why the span cannot be taken, or None. Attributes need no look: protobuf has checked their form."""
    if len(span.trace_id) != TRACE_ID_BYTES or span.trace_id == _ZERO_TRACE:
        return f"trace_id: expected 16 bytes, not all zero, got {span.trace_id.hex()[:40] or 'none'}"
    if len(span.span_id) != SPAN_ID_BYTES or span.span_id == _ZERO_SPAN:
        return f"span_id: expected 8 bytes, not all zero, got {span.span_id.hex()[:40] or 'none'}"
    if len(span.parent_span_id) not in (0, SPAN_ID_BYTES):
        return f"parent_span_id: expected 8 bytes or none, got {span.parent_span_id.hex()[:40]}"
    if span.start_time_unix_nano > MAX_TIME_NS or span.end_time_unix_nano > MAX_TIME_NS:
        return "start_time_unix_nano, end_time_unix_nano: expected times before 2262"
    return None


def log_problem(record: LogMessage) -> str | None:
    if len(record.trace_id) not in (0, TRACE_ID_BYTES):
        return f"trace_id: expected 16 bytes or none, got {record.trace_id.hex()[:40]}"
    if len(record.span_id) not in (0, SPAN_ID_BYTES):
        return f"span_id: expected 8 bytes or none, got {record.span_id.hex()[:40]}"
    if record.time_unix_nano > MAX_TIME_NS or record.observed_time_unix_nano > MAX_TIME_NS:
        return "time_unix_nano: expected a time before 2262"
    return None


def raw_spans(request: ExportTraceServiceRequest) -> Iterator[SpanMessage]:
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            yield from scope_spans.spans


def raw_logs(request: ExportLogsServiceRequest) -> Iterator[LogMessage]:
    for resource_logs in request.resource_logs:
        for scope_logs in resource_logs.scope_logs:
            yield from scope_logs.log_records


def spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    """The acceptable spans of a request, in its order."""
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            name, version = scope_spans.scope.name, scope_spans.scope.version
            for span in scope_spans.spans:
                if span_problem(span) is None:
                    yield _span(span, resource, name, version)


def logs(request: ExportLogsServiceRequest) -> Iterator[LogRecord]:
    for resource_logs in request.resource_logs:
        resource = _attributes(resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                if log_problem(record) is None:
                    yield _log(record, resource)


def _span(span: SpanMessage, resource: Attributes, scope_name: str, scope_version: str) -> Span:
    parent = span.parent_span_id
    return Span(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=parent.hex() if parent and parent != _ZERO_SPAN else None,
        name=span.name,
        kind=span.kind,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        status_code=span.status.code,
        status_message=span.status.message,
        attributes=_attributes(span.attributes),
        events=[
            SpanEvent(e.name, e.time_unix_nano if e.time_unix_nano <= MAX_TIME_NS else 0, _attributes(e.attributes))
            for e in span.events
        ],
        resource=resource,
        scope_name=scope_name,
        scope_version=scope_version,
    )


def _log(record: LogMessage, resource: Attributes) -> LogRecord:
    return LogRecord(
        trace_id=record.trace_id.hex() if record.trace_id and record.trace_id != _ZERO_TRACE else None,
        span_id=record.span_id.hex() if record.span_id and record.span_id != _ZERO_SPAN else None,
        time_ns=record.time_unix_nano or record.observed_time_unix_nano,
        event_name=record.event_name,
        body=_value(record.body),
        attributes=_attributes(record.attributes),
        resource=resource,
    )


def _attributes(pairs: Any) -> Attributes:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind == "double_value":
        return value.double_value if math.isfinite(value.double_value) else None
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()  # as OTLP/JSON has it
    return getattr(value, kind) if kind else None


def repair_utf8(data: bytes, descriptor: Descriptor, depth: int = 0) -> bytes:
    """The message with every string field made valid UTF-8; raises DecodeError on a broken wire format."""
    if depth > _MAX_DEPTH:
        raise DecodeError(f"nested deeper than {_MAX_DEPTH} messages")
    repaired = bytearray()
    position = 0
    while position < len(data):
        start = position
        tag, position = _varint(data, position)
        wire_type = tag & 7
        if not tag >> 3:
            raise DecodeError("a field has the number 0")
        if wire_type == _LENGTH:
            length, position = _varint(data, position)
            end = position + length
            if end > len(data):
                raise DecodeError("a length runs beyond the end of the message")
            content = _repair_field(data[position:end], descriptor.fields_by_number.get(tag >> 3), depth)
            repaired += _encode_varint(tag) + _encode_varint(len(content)) + content
        else:
            end = _skip(data, position, wire_type)
            repaired += data[start:end]
        position = end
    return bytes(repaired)


def _repair_field(content: bytes, field: FieldDescriptor | None, depth: int) -> bytes:
    if field is not None and field.type == FieldDescriptor.TYPE_STRING:
        return content.decode("utf-8", "replace").encode()
    if field is not None and field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type is not None:
        return repair_utf8(content, field.message_type, depth + 1)
    return content


def _skip(data: bytes, position: int, wire_type: int) -> int:
    if wire_type == _VARINT:
        return _varint(data, position)[1]
    if wire_type not in (_FIXED64, _FIXED32):
        raise DecodeError(f"wire type {wire_type} has no place in OTLP")
    end = position + (8 if wire_type == _FIXED64 else 4)
    if end > len(data):
        raise DecodeError("the message ends inside a field")
    return end


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if position >= len(data):
            raise DecodeError("the message ends inside a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise DecodeError("a number is longer than ten bytes")


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
