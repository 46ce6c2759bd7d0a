"""What is judged as a whole is judged as one by one."""

from __future__ import annotations

import math
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from collector import otlp, otlp_whole
from collector.otlp import OtlpError, ParsedTraces
from collector.otlp_whole import count_spans
from collector.weight import LIGHT_BYTES, LIGHT_RECORDS
from tests.collector.otlp_client import request
from tests.fuzz.otlp import TRACES, spoilt

IDS: dict[str, Any] = {"trace_id": b"\1" * 16, "span_id": b"\2" * 8}
NOW = 1_770_000_000 * 10**9


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def fixed(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + value.to_bytes(8, "little")


def one_by_one(body: bytes, monkeypatch: pytest.MonkeyPatch) -> ParsedTraces | str:
    with monkeypatch.context() as patch:
        patch.setattr(otlp_whole, "count_spans", lambda _: None)
        return parsed(body)


def parsed(body: bytes) -> ParsedTraces | str:
    try:
        return otlp.parse_traces(body, "protobuf")
    except OtlpError as error:
        return str(error)


def agree(body: bytes) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert parsed(body) == one_by_one(body, monkeypatch)
    if (count := count_spans(body)) is not None:
        assert count == len(list(otlp.TraceBody(body, "protobuf").spans()))


#: Fields of a span as they may stand on the wire: several times, in any order, of other types, of no known number.
TIMES = st.sampled_from([0, 5, 1_700_000_000, 2 * 10**15 - 1, 2 * 10**15, NOW, 2**63 - 1, 2**64 - 1])
SPAN_FIELDS = st.one_of(
    st.builds(field, st.just(1), st.sampled_from([IDS["trace_id"], b"", bytes(16), b"\1" * 15, b"\1" * 8])),
    st.builds(field, st.just(2), st.sampled_from([IDS["span_id"], b"", bytes(8), b"\1" * 7, b"\1" * 16])),
    st.builds(field, st.just(4), st.sampled_from([b"", bytes(8), b"\3" * 8, b"\3" * 9])),
    st.builds(field, st.just(5), st.sampled_from([b"chat", b"\xff", "é".encode(), b"\xc3"])),
    st.builds(fixed, st.sampled_from([1, 4, 7, 8]), TIMES),
    st.builds(field, st.sampled_from([7, 8]), st.binary(max_size=17)),
    st.builds(field, st.sampled_from([3, 9, 11, 13, 15, 99]), st.binary(max_size=9)),
    st.sampled_from([b"\x33\x34", b"\x33", b"\x00\x01", b"\x08\x01", b"\x98\x06\x01"]),
)
GOOD_IDS = field(1, IDS["trace_id"]) + field(2, IDS["span_id"])
WIRE_SPANS = st.builds(
    lambda head, fields: head + b"".join(fields),
    st.sampled_from([GOOD_IDS, GOOD_IDS, b""]),
    st.lists(SPAN_FIELDS, max_size=4),
)
#: What else a request, a group or a scope may hold, groups of the old form among it.
ODDITIES = st.sampled_from([b""] * 9 + [b"\x33\x34", b"\x0b\x0c", b"\x08\x01", field(3, b"url"), field(3, b"\xff")])


def nest(number: int, contents: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda parts, odd: b"".join(field(number, part) for part in parts) + odd,
        st.lists(contents, max_size=3),
        ODDITIES,
    )


WIRE_REQUESTS = nest(1, nest(2, nest(2, WIRE_SPANS)))


@given(WIRE_REQUESTS)
@example(field(1, field(2, field(2, GOOD_IDS + GOOD_IDS) + field(2, b""))))
@example(field(1, field(2, field(2, GOOD_IDS))) + b"\x0b\x0c")
@example(field(1, field(2, field(2, GOOD_IDS)) + b"\x33\x34"))
@example(field(1, field(2, field(2, GOOD_IDS) + b"\x33\x34")))
def test_bodies_of_any_form(body: bytes) -> None:
    agree(body)


@given(TRACES)
def test_requests(message: Message) -> None:
    agree(message.SerializeToString())


@given(TRACES, st.data())
def test_spoilt_requests(message: Message, data: st.DataObject) -> None:
    agree(data.draw(spoilt(st.just(message.SerializeToString()))))


def pairs(value: AnyValue) -> list[KeyValue]:
    return [KeyValue(key="a", value=value), KeyValue(key="b", value=AnyValue(string_value="x"))]


def nested(value: AnyValue, levels: int) -> AnyValue:
    for level in range(levels):
        one = ArrayValue(values=[value, AnyValue(int_value=1)])
        value = AnyValue(kvlist_value=KeyValueList(values=pairs(value))) if level % 2 else AnyValue(array_value=one)
    return value


def usual(value: AnyValue) -> bytes:
    span = Span(
        **IDS, parent_span_id=b"\3" * 8, name="chat", kind=Span.SPAN_KIND_CLIENT, start_time_unix_nano=NOW,
        end_time_unix_nano=NOW + 1, attributes=pairs(value), events=[Span.Event(name="e", attributes=pairs(value))],
        links=[Span.Link(**IDS, attributes=pairs(value))], status=Status(code=Status.STATUS_CODE_ERROR, message="m"),
    )  # fmt: skip
    scope = ScopeSpans(
        scope=InstrumentationScope(name="s", version="1", attributes=pairs(value)), spans=[span, Span(**IDS)]
    )
    group = ResourceSpans(resource=Resource(attributes=pairs(value)), scope_spans=[scope, scope], schema_url="u")
    return ExportTraceServiceRequest(resource_spans=[group, group]).SerializeToString()


@pytest.mark.parametrize("levels", range(5))
def test_what_exporters_send_is_judged_as_a_whole(levels: int) -> None:
    body = usual(nested(AnyValue(double_value=0.5), levels))
    assert count_spans(body) == 8
    agree(body)


@pytest.mark.parametrize("levels", range(7))
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_needs_a_closer_look(number: float, levels: int) -> None:
    body = usual(nested(AnyValue(double_value=number), levels))
    assert count_spans(body) is None
    agree(body)


def test_a_number_that_another_value_takes_the_place_of_is_not_missed() -> None:
    holder = Span(**IDS, attributes=[KeyValue(key="a", value=AnyValue(double_value=math.nan))])
    assert count_spans(request(holder, Span(**IDS, attributes=pairs(AnyValue(double_value=1.0))))) is None


def test_more_than_the_usual_needs_a_closer_look() -> None:
    assert count_spans(request(*[Span(**IDS)] * LIGHT_RECORDS)) == LIGHT_RECORDS
    assert count_spans(request(*[Span(**IDS)] * (LIGHT_RECORDS + 1))) is None
    assert count_spans(request(Span(**IDS, name="x" * LIGHT_BYTES))) is None
    groups = [ResourceSpans(scope_spans=[ScopeSpans(spans=[Span(**IDS)])])] * 300
    assert count_spans(ExportTraceServiceRequest(resource_spans=groups).SerializeToString()) is None
    scopes = [ResourceSpans(scope_spans=[ScopeSpans(spans=[Span(**IDS)])] * 300)]
    assert count_spans(ExportTraceServiceRequest(resource_spans=scopes).SerializeToString()) is None
