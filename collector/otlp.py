"""OTLP requests: judged before the acknowledgement, and read again the very same way behind it.

A bad record is refused and named; the rest of its request goes on. At the door protobuf is decoded but attributes are
not walked, which is what keeps it cheap enough to stand in front of the write-ahead log; nothing is kept but counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, cast

import msgspec
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from collector import json_text, otlp_json, otlp_protobuf, otlp_whole
from collector.body import TooLarge
from collector.mapping import pickwise as native
from collector.otlp_limits import Tally
from collector.otlp_protobuf import LOGS, METRICS, SPANS, Broken, Converter, Piece
from collector.spans import LogRecord, Span
from collector.weight import refuse_heavy_json, refuse_heavy_message

Encoding = Literal["protobuf", "json"]

#: A NaN or an infinity as `double_value` on the wire. No valid string contains it, so a look at the bytes tells.
_NONFINITE = re.compile(rb"\x21.{6}[\xf0-\xff][\x7f\xff]", re.DOTALL)
_NONFINITE_TAG = b"\x21"
#: With more tags than one in so many bytes, the expression finds them faster than one call each.
_BETWEEN_TAGS = 256
#: Pieces of a refused request that are looked at to tell what it is instead.
_LOOK_AT = 3
_NO_METRICS = (
    "metrics are not taken, only traces and logs: set OTEL_METRICS_EXPORTER=none, or send them to another endpoint"
)
#: What the fields of other requests mean in this one.
_STRANGERS = {
    "resourceSpans": "resourceSpans belongs to /v1/traces",
    "resourceLogs": "resourceLogs belongs to /v1/logs",
    "resourceMetrics": _NO_METRICS,
}


class OtlpError(ValueError):
    """The body is not such a request at all; the message says why."""


class TraceBody(msgspec.Struct):
    """The bytes of a trace request."""

    body: bytes
    encoding: Encoding

    def spans(self) -> Iterator[Span]:
        """The acceptable spans, in their order, decoded as they are asked for. Raises OtlpError, TooLarge."""
        return _spans(self.body, self.encoding, Tally(), convert=True)


class LogBody(msgspec.Struct):
    """The bytes of a log request."""

    body: bytes
    encoding: Encoding

    def records(self) -> Iterator[LogRecord]:
        """The acceptable records, as ``TraceBody.spans``."""
        return _logs(self.body, self.encoding, Tally(), convert=True)


class ParsedTraces(TraceBody):
    """A validated trace request. ``message`` names what was refused and what became null ('' when nothing)."""

    rejected: int
    message: str
    span_count: int
    #: NaN and infinities that are null now.
    nonfinite: int = 0


class ParsedLogs(LogBody):
    """A validated log request."""

    rejected: int
    message: str
    record_count: int
    nonfinite: int = 0


class ParsedMetrics(msgspec.Struct):
    """A metric request: its data points, none of which is taken."""

    rejected: int

    @property
    def message(self) -> str:
        return _NO_METRICS if self.rejected else ""


def parse_traces(body: bytes, encoding: Encoding) -> ParsedTraces:
    """Validate an ExportTraceServiceRequest. Raises OtlpError when the body is none, TooLarge."""
    if encoding == "protobuf" and body.rfind(native.MARK) < 0 and (count := otlp_whole.count_spans(body)):
        return ParsedTraces(body, encoding, 0, "", count)
    _refuse_heavy(body, encoding, ExportTraceServiceRequest)
    tally = Tally()
    for _ in _spans(body, encoding, tally, convert=False):
        pass
    if encoding == "protobuf":
        _check_door(body, tally, "trace")
    return ParsedTraces(body, encoding, tally.refused, tally.message, tally.total, tally.nonfinite)


def parse_logs(body: bytes, encoding: Encoding) -> ParsedLogs:
    """Validate an ExportLogsServiceRequest. Raises OtlpError when the body is none, TooLarge."""
    _refuse_heavy(body, encoding, ExportLogsServiceRequest)
    tally = Tally()
    for _ in _logs(body, encoding, tally, convert=False):
        pass
    if encoding == "protobuf":
        _check_door(body, tally, "log")
    return ParsedLogs(body, encoding, tally.refused, tally.message, tally.total, tally.nonfinite)


def parse_metrics(body: bytes, encoding: Encoding) -> ParsedMetrics:
    """Count what an ExportMetricsServiceRequest holds. Raises OtlpError when the body is none, TooLarge."""
    _refuse_heavy(body, encoding, ExportMetricsServiceRequest)
    if encoding == "json":
        document = _document(body, "resourceMetrics", Tally(), "metric")
        return ParsedMetrics(otlp_json.data_points(document))
    tally = Tally()
    points = 0
    for piece in _pieces(body, METRICS, tally, "metric"):
        points += sum(map(otlp_protobuf.data_points, piece.records))
    if tally.broken and not points:
        raise OtlpError(_explain(body, "metric", tally.reasons[0]))
    return ParsedMetrics(points + tally.broken)


def traces_response(parsed: ParsedTraces, encoding: Encoding) -> bytes:
    """ExportTraceServiceResponse; ``partial_success`` is set only when there is something to say."""
    return _response(parsed, encoding, ExportTraceServiceResponse, "rejected_spans", "rejectedSpans")


def logs_response(parsed: ParsedLogs, encoding: Encoding) -> bytes:
    """ExportLogsServiceResponse, as ``traces_response``."""
    return _response(parsed, encoding, ExportLogsServiceResponse, "rejected_log_records", "rejectedLogRecords")


def metrics_response(parsed: ParsedMetrics, encoding: Encoding) -> bytes:
    """ExportMetricsServiceResponse, as ``traces_response``."""
    return _response(parsed, encoding, ExportMetricsServiceResponse, "rejected_data_points", "rejectedDataPoints")


def _refuse_heavy(body: bytes, encoding: Encoding, message: type[Message]) -> None:
    """Raises TooLarge for a body that would take too much to decode."""
    if encoding == "protobuf":
        refuse_heavy_message(body, cast(Descriptor, message.DESCRIPTOR))
    else:
        refuse_heavy_json(body)


def _spans(body: bytes, encoding: Encoding, tally: Tally, *, convert: bool) -> Iterator[Span]:
    """The acceptable spans; what is refused goes to the tally. Without ``convert`` they need only be counted."""
    if encoding == "json":
        reader = otlp_json.Reader()
        document = _document(body, "resourceSpans", tally, "trace")
        yield from _taken(reader.spans(document), reader, tally, _bad_event)
        return
    converter = Converter()
    for piece in _pieces(body, SPANS, tally, "trace"):
        records = tally.admitted(piece.records)
        good = _without_bad(records, piece.problem, otlp_protobuf.judged_spans, tally, lambda span: f"{span.name:.60}")
        carries_events = piece.raw.rfind(native.MARK) >= 0  # faster than `in`: a `p` is rarer than a `t`
        if not convert and not carries_events and not _may_be_nonfinite(piece.raw):
            tally.taken += len(good)
            continue
        for span in converter.spans(good, piece):
            if carries_events and (why := native.problem(span)):
                tally.refuse(f"{span.name:.60}", why)
            else:
                tally.taken += 1
                yield span
        tally.nonfinite = converter.nonfinite


def _logs(body: bytes, encoding: Encoding, tally: Tally, *, convert: bool) -> Iterator[LogRecord]:
    """The same of log records."""
    if encoding == "json":
        reader = otlp_json.Reader()
        document = _document(body, "resourceLogs", tally, "log")
        yield from _taken(reader.logs(document), reader, tally, lambda _: None)
        return
    converter = Converter()
    for piece in _pieces(body, LOGS, tally, "log"):
        records = tally.admitted(piece.records)
        good = _without_bad(records, piece.problem, otlp_protobuf.judged_logs, tally, lambda _: f"record {tally.total}")
        tally.taken += len(good)
        tally.empty += sum(not _says_something(message) for message in good)
        if convert or _may_be_nonfinite(piece.raw):
            for message in good:
                yield converter.log(message, piece)
            tally.nonfinite = converter.nonfinite


def _without_bad(
    records: Sequence[Any],
    common: str | None,
    judged: Callable[[Sequence[Any]], tuple[list[Any], list[tuple[Any, str]]]],
    tally: Tally,
    title: Callable[[Any], str],
) -> list[Any]:
    """The records that can be taken; the others go to the tally, all of them where they have a problem in common."""
    good, bad = ([], [(record, common) for record in records]) if common else judged(records)
    for record, why in bad:
        tally.refuse(title(record), why)
    return good


def _may_be_nonfinite(raw: bytes) -> bool:
    """Whether the bytes may hold a NaN or an infinity. Few have many of its tags, and between them ``find`` is fast."""
    at = raw.find(_NONFINITE_TAG)
    for _ in range(len(raw) // _BETWEEN_TAGS):
        if at < 0:
            return False
        if _NONFINITE.match(raw, at):
            return True
        at = raw.find(_NONFINITE_TAG, at + 1)
    return at >= 0 and _NONFINITE.search(raw, at) is not None


def _taken(
    records: Iterator[Any], reader: otlp_json.Reader, tally: Tally, problem: Callable[[Any], str | None]
) -> Iterator[Any]:
    for record in records:
        if not tally.admitted((record,)):
            continue
        if isinstance(record, otlp_json.Refused):
            tally.refuse(record.title, record.reason)
        elif why := problem(record):
            tally.refuse(f"{record.name:.60} (spanId {record.span_id})", why)
        else:
            tally.taken += 1
            yield record
    tally.nonfinite = reader.nonfinite


def _bad_event(span: Span) -> str | None:
    """Our own events travel as attributes; one that does not validate refuses its span like any other bad form."""
    return native.problem(span)


def _pieces(body: bytes, signal: Any, tally: Tally, name: str) -> Iterator[Piece[Any]]:
    """The pieces of a protobuf request; what cannot be decoded goes to the tally. Raises OtlpError."""
    try:
        for piece in otlp_protobuf.pieces(body, signal):
            if isinstance(piece, Broken):
                tally.refuse(f"{piece.place} {tally.total}", piece.reason, broken=True)
            else:
                yield piece
    except DecodeError as error:
        raise OtlpError(_explain(body, name, str(error))) from error


def _check_door(body: bytes, tally: Tally, name: str) -> None:
    """Raises OtlpError where nothing could be taken because the body is something else."""
    if tally.taken > tally.empty or not tally.total:
        return
    if tally.broken == tally.total:
        raise OtlpError(_explain(body, name, tally.reasons[0]))
    if hint := _wrong_door(body, name):
        raise OtlpError(f"the body is not a {name} request: {hint}")


def _explain(body: bytes, name: str, reason: str) -> str:
    hint = _wrong_door(body, name) or reason
    if body.lstrip()[:1] in (b"{", b"["):
        hint += "; JSON needs Content-Type: application/json"
    return f"the body is not a {name} request: {hint}"


def _wrong_door(body: bytes, name: str) -> str | None:
    if name != "log" and _holds(body, LOGS, _is_log):
        return "it holds log records, which belong to /v1/logs"
    if name != "trace" and _holds(body, SPANS, lambda span: otlp_protobuf.span_problem(span) is None):
        return "it holds spans, which belong to /v1/traces"
    if name != "metric" and _holds(body, METRICS, lambda metric: otlp_protobuf.data_points(metric) > 0):
        return f"it holds metrics; {_NO_METRICS}"
    return None


def _is_log(record: Any) -> bool:
    return otlp_protobuf.log_problem(record) is None and _says_something(record)


def _says_something(record: Any) -> bool:
    return bool(record.attributes or record.event_name or record.HasField("body"))


def _holds(body: bytes, signal: Any, known: Callable[[Any], bool]) -> bool:
    """Whether the request's first records are those of a signal."""
    try:
        for piece in islice(otlp_protobuf.pieces(body, signal, mend=False), _LOOK_AT):
            if isinstance(piece, Piece) and any(map(known, piece.records)):
                return True
    except (DecodeError, TooLarge):
        return False
    return False


def _document(body: bytes, key: str, tally: Tally, name: str) -> dict[str, Any]:
    """The object of a JSON request, opened. Raises OtlpError."""
    hint = f"the body is not a {name} request"
    try:
        document = json_text.open_body(body)
    except ValueError as error:
        raise OtlpError(f"{hint}: it is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise OtlpError(f"{hint}: expected an object with {key}, got {type(document).__name__}")
    others = [meaning for other, meaning in _STRANGERS.items() if other != key and other in document]
    if others and key not in document:
        raise OtlpError(f"{hint}: {'; '.join(others)}")
    tally.hints += others
    if key not in document and document and not others:
        # Fields of unknown names are to be ignored, but nobody means to send nothing else.
        tally.hints.append(f"expected {key}, got {', '.join(map(str, list(document)[:3])):.120}")
    value = document[key] = json_text.opened(document.get(key))
    if not isinstance(value, list | None):
        raise OtlpError(f"{hint}: expected a list in {key}, got {type(value).__name__}")
    return document


def _response(
    parsed: ParsedTraces | ParsedLogs | ParsedMetrics, encoding: Encoding, kind: Any, field: str, json_field: str
) -> bytes:
    if not parsed.message:
        return b"{}" if encoding == "json" else b""
    if encoding == "json":
        return msgspec.json.encode(
            {"partialSuccess": {json_field: str(parsed.rejected), "errorMessage": parsed.message}}
        )
    partial = {field: parsed.rejected, "error_message": parsed.message}
    return cast(bytes, kind(partial_success=partial).SerializeToString())
