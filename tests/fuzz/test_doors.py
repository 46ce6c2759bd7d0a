"""Whatever comes in: a door refuses it, or takes what the flusher will make rows of; it never fails.

``scripts/fuzz`` looks for longer.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Literal, get_args

from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from collector import columns, rows
from collector.body import CorruptBody, TooLarge, UnknownCoding, inflate
from collector.decode import decode_facts
from collector.events_in import BodyError, Layout, parse_events
from collector.facts import Facts
from collector.otlp import Encoding, OtlpError, ParsedLogs, ParsedTraces, parse_logs, parse_metrics, parse_traces
from collector.redact import Redactor
from collector.segment import Header, Record
from pickwise.settings import Settings
from tests.fuzz.events import ARRAYS, LINES
from tests.fuzz.otlp import LOGS, RECIPES, TRACES, as_json, spoilt

Kind = Literal["traces", "logs", "events"]
RECEIVED_AT = 1_770_000_000 * 10**9
SETTINGS = Settings()
REDACTOR = Redactor(SETTINGS, b"key")
ENCODINGS = st.sampled_from(get_args(Encoding))


def tables(kind: Kind, encoding: str, body: bytes) -> dict[str, list[dict[str, Any]]]:
    """The rows that the flusher makes of an accepted body. Raises whatever would have set it aside."""
    header = Header(seq=1, kind=kind, project="p", received_at=RECEIVED_AT, encoding=encoding)
    found = decode_facts(Record(header, body, len(body)), SETTINGS)[0].get("p", Facts())
    made = rows.to_rows("p", found, received_at=RECEIVED_AT, source_request="1", redactor=REDACTOR)
    return {table: columns.to_frame(table, table_rows).rows(named=True) for table, table_rows in made.items()}


def check_otlp(kind: Literal["traces", "logs"], body: bytes, encoding: Encoding) -> None:
    parse: Any = parse_traces if kind == "traces" else parse_logs
    try:
        parsed = parse(body, encoding)
    except (OtlpError, TooLarge):
        return
    taken, total = counts(parsed)
    assert taken + parsed.rejected == total
    assert bool(parsed.message) or not parsed.rejected
    again = parse(body, encoding)
    assert (counts(again), again.rejected, again.message) == ((taken, total), parsed.rejected, parsed.message)
    if taken:
        assert repr(tables(kind, encoding, body)) == repr(tables(kind, encoding, body))


def counts(parsed: ParsedTraces | ParsedLogs) -> tuple[int, int]:
    if isinstance(parsed, ParsedTraces):
        return sum(1 for _ in parsed.spans()), parsed.span_count
    return sum(1 for _ in parsed.records()), parsed.record_count


def both(request: Message) -> list[tuple[bytes, Encoding]]:
    return [(request.SerializeToString(), "protobuf"), (json.dumps(as_json(request)).encode(), "json")]


@given(TRACES)
def test_traces_are_refused_or_become_rows(request: Message) -> None:
    for body, encoding in both(request):
        check_otlp("traces", body, encoding)


@given(LOGS)
def test_logs_are_refused_or_become_rows(request: Message) -> None:
    for body, encoding in both(request):
        check_otlp("logs", body, encoding)


@given(TRACES)
def test_traces_say_the_same_in_both_encodings(request: Message) -> None:
    (binary, _), (text, _) = both(request)
    same = parse_traces(text, "json")
    try:
        found = parse_traces(binary, "protobuf")
    except OtlpError:  # where no span is good, those of protobuf may pass for log records
        assert same.rejected == same.span_count
        return
    assert (found.rejected, found.span_count, found.nonfinite) == (same.rejected, same.span_count, same.nonfinite)
    assert list(found.spans()) == list(same.spans())
    assert repr(tables("traces", "protobuf", binary)) == repr(tables("traces", "json", text))


@given(LOGS)
def test_logs_say_the_same_in_both_encodings(request: Message) -> None:
    (binary, _), (text, _) = both(request)
    try:
        found = parse_logs(binary, "protobuf")
    except OtlpError:  # records that say nothing pass for those of another signal
        return
    same = parse_logs(text, "json")
    assert (found.rejected, found.record_count, found.nonfinite) == (same.rejected, same.record_count, same.nonfinite)
    assert list(found.records()) == list(same.records())


@given(TRACES, st.data(), ENCODINGS, st.sampled_from(["traces", "logs"]))
def test_spoilt_requests(request: Message, data: st.DataObject, encoding: Encoding, kind: Any) -> None:
    body = next(body for body, written in both(request) if written == encoding)
    check_otlp(kind, data.draw(spoilt(st.just(body))), encoding)


@given(LOGS, st.data(), ENCODINGS)
def test_spoilt_logs(request: Message, data: st.DataObject, encoding: Encoding) -> None:
    body = next(body for body, written in both(request) if written == encoding)
    check_otlp("logs", data.draw(spoilt(st.just(body))), encoding)


@given(st.binary(max_size=300), ENCODINGS)
def test_any_bytes(body: bytes, encoding: Encoding) -> None:
    check_otlp("traces", body, encoding)
    check_otlp("logs", body, encoding)
    with suppress(OtlpError, TooLarge):
        assert parse_metrics(body, encoding).rejected >= 0


@given(st.data(), st.sampled_from(get_args(Layout)), st.booleans())
def test_events_are_refused_or_become_rows(data: st.DataObject, layout: Layout, spoil: bool) -> None:
    bodies = ARRAYS if layout == "json" else LINES
    body = data.draw(spoilt(bodies) if spoil else bodies)
    try:
        parsed = parse_events(body, layout)
    except (BodyError, TooLarge):
        return
    indexes = [item.index for item in parsed.skills] + [item.index for item in parsed.rejected]
    assert len(set(indexes)) == len(indexes)
    if not spoil and layout == "json":
        assert parsed.accepted + len(indexes) == len(json.loads(body))
    made = tables("events", layout, body)
    assert sum(map(len, made.values())) == parsed.accepted
    assert repr(made) == repr(tables("events", layout, body))


@given(st.binary(max_size=200), st.sampled_from(["", "gzip", "deflate", "GZIP ", "br", "identity", "gzip, gzip"]))
def test_any_coding(body: bytes, coding: str) -> None:
    with suppress(CorruptBody, TooLarge, UnknownCoding):
        assert isinstance(inflate(body, coding), bytes)


def test_what_is_drawn_is_mapped() -> None:
    """What is drawn lies over spans that the mapping knows: else all of the above would hold of nothing."""
    reached: set[str] = set()
    for recipe in RECIPES:
        request = ExportTraceServiceRequest()
        pairs = [KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in recipe.items()]
        spans = request.resource_spans.add().scope_spans.add().spans
        spans.add(trace_id=b"t" * 16, span_id=b"s" * 8, attributes=pairs)
        reached.update(tables("traces", "protobuf", request.SerializeToString()))
    assert reached == {"calls", "selections"}
