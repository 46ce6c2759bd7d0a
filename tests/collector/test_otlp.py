"""What a request may hold, what is refused and how it is named."""

from __future__ import annotations

import contextlib
import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from collector.otlp import OtlpError, logs_response, parse_logs, parse_traces, traces_response
from collector.protobuf_wire import Mender
from collector.spans import Span

TRACE, SPAN, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"


def span_json(**fields: Any) -> dict[str, Any]:
    return {
        "traceId": TRACE,
        "spanId": SPAN,
        "name": "chat",
        "kind": 3,
        "startTimeUnixNano": "1700000000000000000",
        "endTimeUnixNano": 1700000000005000000,
    } | fields


def request_json(*spans: Any, resource: Any = None) -> bytes:
    group = {"resource": {"attributes": resource or []}, "scopeSpans": [{"scope": {"name": "s"}, "spans": list(spans)}]}
    return json.dumps({"resourceSpans": [group]}).encode()


def attribute(key: str, **value: Any) -> dict[str, Any]:
    return {"key": key, "value": value}


def only(body: bytes) -> Span:
    parsed = parse_traces(body, "json")
    assert parsed.rejected == 0, parsed.message
    (span,) = parsed.spans()
    return span


def span_message(**fields: Any) -> SpanMessage:
    given = {"trace_id": bytes.fromhex(TRACE), "span_id": bytes.fromhex(SPAN), "name": "chat"} | fields
    return SpanMessage(**given)


def request_protobuf(*spans: SpanMessage) -> bytes:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.extend(spans)
    return request.SerializeToString()


def test_json_and_protobuf_say_the_same(shared: Path) -> None:
    body = (shared / "otlp/ai-sdk-6.0.326/json-generate/02-traces.json").read_bytes()
    document = json.loads(body)
    from_json = list(parse_traces(body, "json").spans())
    for group in document["resourceSpans"]:
        for scoped in group["scopeSpans"]:
            for span in scoped["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if span.get(key):
                        span[key] = msgspec.json.encode(bytes.fromhex(span[key])).decode().strip('"')
    message = json_format.ParseDict(document, ExportTraceServiceRequest(), ignore_unknown_fields=True)
    assert list(parse_traces(message.SerializeToString(), "protobuf").spans()) == from_json
    assert len(from_json) == 6


def test_json_forms_that_are_tolerated() -> None:
    span = only(
        request_json(
            span_json(
                traceId=TRACE.upper(),
                parentSpanId="",
                kind="SPAN_KIND_CLIENT",
                status={"code": "STATUS_CODE_ERROR", "message": "no"},
                attributes=[
                    attribute("text", intValue="9007199254740993"),
                    attribute("number", intValue=7),
                    attribute("nan", doubleValue="NaN"),
                    attribute("list", arrayValue={"values": [{"stringValue": "a"}, {"boolValue": True}]}),
                    attribute("map", kvlistValue={"values": [attribute("k", doubleValue=0.5)]}),
                    {"key": "empty", "value": {}},
                ],
                flags=1,
                droppedAttributesCount=0,
                unknownField={"x": 1},
            )
        )
    )
    assert (span.trace_id, span.parent_span_id, span.kind, span.status_code) == (TRACE, None, 3, 2)
    assert span.duration_ms == 5.0
    assert span.attributes == {
        "text": 9007199254740993,
        "number": 7,
        "nan": None,
        "list": ["a", True],
        "map": {"k": 0.5},
        "empty": None,
    }


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"traceId": "0" * 32}, "traceId: expected 32 hex digits"),
        ({"traceId": "CvdlGRbNQ92ESOshHIAxnA=="}, "traceId: expected 32 hex digits"),
        ({"spanId": SPAN[:-1]}, "spanId: expected 16 hex digits"),
        ({"spanId": None}, "spanId"),
        ({"parentSpanId": "xyz"}, "parentSpanId"),
        ({"startTimeUnixNano": "yesterday"}, "startTimeUnixNano"),
        ({"endTimeUnixNano": 2**63}, "endTimeUnixNano"),
        ({"attributes": {"a": 1}}, "attributes: expected a list"),
        ({"attributes": [{"key": 5, "value": {}}]}, "attributes: expected {key, value}"),
        ({"attributes": [{"key": "a", "value": "plain"}]}, "attributes: expected a value object"),
        ({"attributes": [attribute("a", intValue="1.5")]}, "intValue"),
        ({"attributes": [attribute("a", stringValue=5)]}, "stringValue"),
    ],
)
def test_a_bad_span_is_named_and_its_neighbour_taken(fields: dict[str, Any], reason: str) -> None:
    parsed = parse_traces(request_json(span_json(**fields), span_json(spanId=PARENT, name="good")), "json")
    assert (parsed.rejected, parsed.span_count) == (1, 2)
    assert reason in parsed.message
    assert [span.name for span in parsed.spans()] == ["good"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"trace_id": b"short"}, "trace_id: expected 16 bytes"),
        ({"trace_id": bytes(16)}, "trace_id"),
        ({"span_id": b""}, "span_id: expected 8 bytes"),
        ({"parent_span_id": b"abc"}, "parent_span_id"),
        ({"start_time_unix_nano": 2**64 - 1}, "start_time_unix_nano"),
    ],
)
def test_the_same_in_protobuf(fields: dict[str, Any], reason: str) -> None:
    body = request_protobuf(span_message(**fields), span_message(name="good"))
    parsed = parse_traces(body, "protobuf")
    assert (parsed.rejected, parsed.span_count) == (1, 2)
    assert reason in parsed.message
    assert [span.name for span in parsed.spans()] == ["good"]


def test_an_event_of_ours_that_does_not_validate_refuses_its_span() -> None:
    bad = [attribute("pickwise.event", stringValue="call"), attribute("pickwise.skill_id", intValue=7)]
    good = [attribute("pickwise.event", stringValue="call"), attribute("pickwise.skill_id", stringValue="s")]
    spans = (span_json(name="bad", attributes=bad), span_json(spanId=PARENT, name="good", attributes=good))
    parsed = parse_traces(request_json(*spans), "json")
    assert parsed.rejected == 1
    assert "pickwise.skill_id: expected `str`" in parsed.message
    assert [span.name for span in parsed.spans()] == ["good"]


def test_a_response_answers_in_the_encoding_of_its_request() -> None:
    parsed = parse_traces(request_json(span_json(spanId="x"), span_json()), "json")
    answer = json.loads(traces_response(parsed, "json"))
    assert answer["partialSuccess"]["rejectedSpans"] == "1"
    assert "spanId" in answer["partialSuccess"]["errorMessage"]
    message = ExportTraceServiceResponse.FromString(traces_response(parsed, "protobuf"))
    assert message.partial_success.rejected_spans == 1
    whole = parse_traces(request_json(span_json()), "json")
    assert json.loads(traces_response(whole, "json")) == {}
    assert traces_response(whole, "protobuf") == b""


def test_many_refusals_are_counted_but_not_all_named() -> None:
    parsed = parse_traces(request_json(*[span_json(spanId="x")] * 100), "json")
    assert parsed.rejected == 100
    assert parsed.message.endswith("and 95 more")


def test_an_empty_request_is_fine() -> None:
    assert parse_traces(b"", "protobuf").span_count == 0
    assert parse_traces(b"{}", "json").span_count == 0
    assert parse_traces(b'{"resourceSpans": []}', "json").span_count == 0
    assert parse_logs(b"", "protobuf").record_count == 0


@pytest.mark.parametrize(
    ("body", "encoding", "reason"),
    [
        (b"", "json", "not JSON"),
        (b"[]", "json", "expected an object with resourceSpans"),
        (b'{"resourceSpans": {}}', "json", "expected a list in resourceSpans"),
        (b'{"resourceLogs": []}', "json", "resourceLogs belongs to /v1/logs"),
        (b'{"resourceMetrics": []}', "json", "metrics are not taken"),
        (b'{"resourceSpans": []}', "protobuf", "JSON needs Content-Type: application/json"),
        (gzip.compress(b"x", mtime=0), "protobuf", "not a trace request"),
        (bytes(2**20), "protobuf", "number 0"),
    ],
)
def test_a_body_that_is_no_trace_request(body: bytes, encoding: Any, reason: str) -> None:
    with pytest.raises(OtlpError, match=reason):
        parse_traces(body, encoding)


@pytest.mark.parametrize(
    ("beside", "reason"),
    [
        ({"resourceSpans": [5]}, "resourceSpans: expected objects, got int"),
        ({"resourceSpans": [{"scopeSpans": {}}]}, "scopeSpans: expected a list, got dict"),
        ({"resourceSpans": [{"scopeSpans": ["x"]}]}, "scopeSpans: expected objects, got str"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": 5}]}]}, "spans: expected a list, got int"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": [5]}]}]}, "spans: expected objects, got int"),
    ],
)
def test_what_should_hold_spans_and_does_not_is_named(beside: dict[str, Any], reason: str) -> None:
    good = json.loads(request_json(span_json(name="good")))
    body = json.dumps({"resourceSpans": beside["resourceSpans"] + good["resourceSpans"]}).encode()
    parsed = parse_traces(body, "json")
    assert (parsed.rejected, reason in parsed.message) == (1, True)
    assert [span.name for span in parsed.spans()] == ["good"]


@pytest.mark.parametrize(
    "body", [b'{"resourceSpans": null}', b'{"resourceSpans": [{"scopeSpans": null}]}', b'{"resourceSpans": [{}]}']
)
def test_null_is_absent(body: bytes) -> None:
    parsed = parse_traces(body, "json")
    assert (parsed.rejected, parsed.span_count) == (0, 0)


def test_logs_and_traces_at_the_wrong_door(shared: Path) -> None:
    folder = shared / "otlp/google-adk-2.13.0/default"
    logs, traces = (folder / "02-logs.bin").read_bytes(), (folder / "01-traces.bin").read_bytes()
    with pytest.raises(OtlpError, match="/v1/logs"):
        parse_traces(logs, "protobuf")
    with pytest.raises(OtlpError, match="/v1/traces"):
        parse_logs(traces, "protobuf")
    assert parse_logs(logs, "protobuf").record_count > 0


def test_broken_utf8_in_one_span_becomes_a_replacement_character() -> None:
    good = span_message(name="gut", attributes=[KeyValue(key="k", value=AnyValue(string_value="中文"))])
    body = request_protobuf(span_message(name="bad~~"), good).replace(b"bad~~", b"bad\xff\xfe")
    spans = list(parse_traces(body, "protobuf").spans())
    assert [span.name for span in spans] == ["bad\ufffd\ufffd", "gut"]
    assert spans[1].attributes == {"k": "中文"}


def test_broken_utf8_in_json() -> None:
    assert only(request_json(span_json(name="bad~")).replace(b"bad~", b"bad\xff")).name == "bad\ufffd"
    assert only(request_json(span_json(name="bad~")).replace(b"bad~", rb"bad\ud800")).name == "bad\ufffd"


ATTRIBUTE_VALUES = st.recursive(
    st.builds(AnyValue, string_value=st.text(max_size=9))
    | st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1))
    | st.builds(AnyValue, double_value=st.floats())
    | st.builds(AnyValue, bytes_value=st.binary(max_size=9)),
    lambda inner: (
        st.builds(lambda values: AnyValue(array_value=ArrayValue(values=values)), st.lists(inner, max_size=3))
        | st.builds(
            lambda values: AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="k", value=v) for v in values])),
            st.lists(inner, max_size=3),
        )
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.lists(ATTRIBUTE_VALUES, max_size=4), st.text(max_size=9))
def test_repair_leaves_a_valid_request_as_it_is(values: list[AnyValue], name: str) -> None:
    attributes = [KeyValue(key=f"a{i}", value=value) for i, value in enumerate(values)]
    body = request_protobuf(span_message(name=name, attributes=attributes, start_time_unix_nano=5))
    assert Mender(0).mend(body, ExportTraceServiceRequest.DESCRIPTOR) == body
    (span,) = parse_traces(body, "protobuf").spans()
    msgspec.json.encode(span)  # nothing in it that JSON cannot hold, non-finite numbers included


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["json", "protobuf"]))
def test_no_body_does_more_than_be_refused(body: bytes, encoding: Any) -> None:
    for parse in (parse_traces, parse_logs):
        with contextlib.suppress(OtlpError):
            parse(body, encoding)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 8_000), st.binary(min_size=1, max_size=4))
def test_a_recorded_request_with_a_few_bytes_changed(shared: Path, at: int, noise: bytes) -> None:
    body = bytearray((shared / "otlp/pydantic-ai-2.68.0/v5/07-traces.bin").read_bytes())
    body[at : at + len(noise)] = noise
    with contextlib.suppress(OtlpError):
        list(parse_traces(bytes(body), "protobuf").spans())


@pytest.mark.parametrize("depth", [300, 5_000])
def test_values_nested_beyond_reason(depth: int) -> None:
    value = AnyValue(string_value="core")
    encoded = value.SerializeToString()
    for _ in range(depth):  # array_value {values: …}, by hand: the library refuses to write so deep
        encoded = _length_field(5, _length_field(1, encoded))
    deep = span_message().SerializeToString() + _length_field(9, _length_field(1, b"k") + _length_field(2, encoded))
    body = _length_field(1, _length_field(2, _length_field(2, deep)))
    with pytest.raises(OtlpError):
        parse_traces(body, "protobuf")
    nested = b'{"arrayValue":{"values":[' * depth + b'{"stringValue":"core"}' + b"]}}" * depth
    raw = request_json(span_json(attributes=[attribute("k", stringValue="~")]), span_json(spanId=PARENT))
    raw = raw.replace(b'{"stringValue": "~"}', nested)
    with contextlib.suppress(OtlpError):
        assert parse_traces(raw, "json").rejected == 1


def _length_field(number: int, content: bytes) -> bytes:
    length, size = len(content), bytearray()
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([number << 3 | 2, *size, length]) + content


def test_a_bad_log_record_is_named() -> None:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    records.add(event_name="gen_ai.evaluation.result", trace_id=b"short", time_unix_nano=5)
    records.add(event_name="gen_ai.evaluation.result", time_unix_nano=6)
    parsed = parse_logs(request.SerializeToString(), "protobuf")
    assert (parsed.rejected, parsed.record_count) == (1, 2)
    assert [record.time_ns for record in parsed.records()] == [6]
    message = ExportLogsServiceResponse.FromString(logs_response(parsed, "protobuf"))
    assert message.partial_success.rejected_log_records == 1
    assert json.loads(logs_response(parsed, "json"))["partialSuccess"]["rejectedLogRecords"] == "1"
