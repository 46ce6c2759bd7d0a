"""OTLP requests: validation before the acknowledgement, and the walk to spans behind it.

A bad span is refused and named; the rest of its request goes on. Parsing protobuf validates without walking the
attributes, which is what keeps it cheap enough to stand in front of the write-ahead log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from collector import json_text, otlp_json, otlp_protobuf
from collector.mapping import pickwise as native
from collector.otlp_json import NAMED_REFUSALS
from collector.spans import LogRecord, Span

Encoding = Literal["protobuf", "json"]

_TRACES_HINT = "the body is not a trace request"
_LOGS_HINT = "the body is not a log request"


class OtlpError(ValueError):
    """The body is not such a request at all; the message says why."""


class ParsedTraces(msgspec.Struct):
    """A validated trace request. ``spans()`` walks the accepted ones, ``message`` names refused ones ('' when none)."""

    rejected: int
    message: str
    span_count: int
    _source: Any

    def spans(self) -> Iterator[Span]:
        source = self._source
        return iter(source) if isinstance(source, list) else otlp_protobuf.spans(source)


class ParsedLogs(msgspec.Struct):
    """A validated log request."""

    rejected: int
    message: str
    record_count: int
    _source: Any

    def records(self) -> Iterator[LogRecord]:
        source = self._source
        return iter(source) if isinstance(source, list) else otlp_protobuf.logs(source)


def parse_traces(body: bytes, encoding: Encoding) -> ParsedTraces:
    """Validate an ExportTraceServiceRequest. Raises OtlpError when the body is none."""
    parsed = _traces_from_json(body) if encoding == "json" else _traces_from_protobuf(body)
    return _refuse_bad_events(parsed) if native.MARK in body else parsed


def parse_logs(body: bytes, encoding: Encoding) -> ParsedLogs:
    """Validate an ExportLogsServiceRequest. Raises OtlpError when the body is none."""
    if encoding == "json":
        document = _document(body, "resourceLogs", _LOGS_HINT)
        records, problems = otlp_json.logs(document)
        return ParsedLogs(len(problems), _named(problems), len(records) + len(problems), records)
    try:
        request = otlp_protobuf.decode(body, ExportLogsServiceRequest)
    except DecodeError as error:
        raise OtlpError(_explain(body, _LOGS_HINT, error)) from error
    problems = []
    count = 0
    for record in otlp_protobuf.raw_logs(request):
        if why := otlp_protobuf.log_problem(record):
            problems.append(f"record {count}: {why}" if len(problems) < NAMED_REFUSALS else "")
        count += 1
    if count and len(problems) == count and _holds_traces(body):
        raise OtlpError(f"{_LOGS_HINT}: it holds spans, which belong to /v1/traces")
    return ParsedLogs(len(problems), _named(problems), count, request)


def traces_response(parsed: ParsedTraces, encoding: Encoding) -> bytes:
    """ExportTraceServiceResponse; ``partial_success`` is set only when something was refused."""
    if encoding == "json":
        return _json_response("rejectedSpans", parsed.rejected, parsed.message)
    response = ExportTraceServiceResponse()
    if parsed.rejected:
        partial = ExportTracePartialSuccess(rejected_spans=parsed.rejected, error_message=parsed.message)
        response.partial_success.CopyFrom(partial)
    return response.SerializeToString()


def logs_response(parsed: ParsedLogs, encoding: Encoding) -> bytes:
    """ExportLogsServiceResponse; ``partial_success`` is set only when something was refused."""
    if encoding == "json":
        return _json_response("rejectedLogRecords", parsed.rejected, parsed.message)
    response = ExportLogsServiceResponse()
    if parsed.rejected:
        partial = ExportLogsPartialSuccess(rejected_log_records=parsed.rejected, error_message=parsed.message)
        response.partial_success.CopyFrom(partial)
    return response.SerializeToString()


def _traces_from_json(body: bytes) -> ParsedTraces:
    document = _document(body, "resourceSpans", _TRACES_HINT)
    spans, problems = otlp_json.spans(document)
    return ParsedTraces(len(problems), _named(problems), len(spans) + len(problems), spans)


def _traces_from_protobuf(body: bytes) -> ParsedTraces:
    try:
        request = otlp_protobuf.decode(body, ExportTraceServiceRequest)
    except DecodeError as error:
        raise OtlpError(_explain(body, _TRACES_HINT, error)) from error
    problems: list[str] = []
    count = 0
    for span in otlp_protobuf.raw_spans(request):
        count += 1
        if why := otlp_protobuf.span_problem(span):
            problems.append(f"{span.name:.60}: {why}" if len(problems) < NAMED_REFUSALS else "")
    if count and len(problems) == count and _holds_logs(body):
        raise OtlpError(f"{_TRACES_HINT}: it holds log records, which belong to /v1/logs")
    return ParsedTraces(len(problems), _named(problems), count, request)


def _refuse_bad_events(parsed: ParsedTraces) -> ParsedTraces:
    """Our own events travel as attributes; one that does not validate refuses its span like any other bad form."""
    accepted: list[Span] = []
    reasons = [parsed.message] if parsed.message else []
    for span in parsed.spans():
        why = native.problem(span)
        if why is None:
            accepted.append(span)
        else:
            reasons.append(f"{span.name:.60} (spanId {span.span_id}): {why}")
    rejected = parsed.span_count - len(accepted)
    return ParsedTraces(rejected, _named(reasons), parsed.span_count, accepted)


def _document(body: bytes, key: str, hint: str) -> dict[str, Any]:
    try:
        document = json_text.decode(body)
    except ValueError as error:
        raise OtlpError(f"{hint}: it is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise OtlpError(f"{hint}: expected an object with {key}, got {type(document).__name__}")
    if not isinstance(document.get(key, []), list | None):
        raise OtlpError(f"{hint}: expected a list in {key}, got {type(document[key]).__name__}")
    if key not in document and document:
        raise OtlpError(f"{hint}: expected {key}, got {', '.join(map(str, list(document)[:3]))}{_path_hint(document)}")
    return document


def _path_hint(document: dict[str, Any]) -> str:
    paths = {"resourceLogs": "/v1/logs", "resourceSpans": "/v1/traces"}
    for key, path in paths.items():
        if key in document:
            return f"; this belongs to {path}"
    return "; metrics are not taken" if "resourceMetrics" in document else ""


def _explain(body: bytes, hint: str, error: DecodeError) -> str:
    if hint is _TRACES_HINT and _holds_logs(body):
        return f"{hint}: it holds log records, which belong to /v1/logs"
    if hint is _LOGS_HINT and _holds_traces(body):
        return f"{hint}: it holds spans, which belong to /v1/traces"
    looks_json = body.lstrip()[:1] in (b"{", b"[")
    return f"{hint}: {error}" + ("; JSON needs Content-Type: application/json" if looks_json else "")


def _holds_logs(body: bytes) -> bool:
    try:
        request = otlp_protobuf.decode(body, ExportLogsServiceRequest)
    except DecodeError:
        return False
    records = list(otlp_protobuf.raw_logs(request))
    return any(record.HasField("body") or record.event_name for record in records) and not any(
        map(otlp_protobuf.log_problem, records)
    )


def _holds_traces(body: bytes) -> bool:
    try:
        request = otlp_protobuf.decode(body, ExportTraceServiceRequest)
    except DecodeError:
        return False
    return any(otlp_protobuf.span_problem(span) is None for span in otlp_protobuf.raw_spans(request))


def _named(problems: Sequence[str]) -> str:
    more = len(problems) - NAMED_REFUSALS
    return "; ".join(problems[:NAMED_REFUSALS]) + (f"; and {more} more" if more > 0 else "")


def _json_response(field: str, rejected: int, message: str) -> bytes:
    if not rejected:
        return b"{}"
    return msgspec.json.encode({"partialSuccess": {field: str(rejected), "errorMessage": message}})
