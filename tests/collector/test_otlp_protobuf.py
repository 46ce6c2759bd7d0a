"""What is read fast is read as the plain way reads it."""

from __future__ import annotations

import base64
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from collector.otlp import TraceBody, parse_traces
from collector.otlp_protobuf import judged_spans, span_problem
from tests.collector.otlp_client import request

IDS: dict[str, Any] = {"trace_id": b"\1" * 16, "span_id": b"\2" * 8}
LATER_KIND = AnyValue.FromString(b"\xfa\x01\x01x")


def pairs_of(values: st.SearchStrategy[AnyValue]) -> st.SearchStrategy[list[KeyValue]]:
    return st.lists(st.builds(KeyValue, key=st.sampled_from("abc"), value=values), max_size=5)


VALUES = st.recursive(
    st.builds(AnyValue, string_value=st.text(max_size=9) | st.text("!", max_size=99))
    | st.builds(AnyValue, int_value=st.just(0) | st.integers(-(2**63), 2**63 - 1))
    | st.builds(AnyValue, bool_value=st.booleans())
    | st.builds(AnyValue, double_value=st.floats())
    | st.builds(AnyValue, bytes_value=st.binary(max_size=9))
    | st.sampled_from([AnyValue(), LATER_KIND]),
    lambda inner: (
        st.builds(lambda values: AnyValue(array_value=ArrayValue(values=values)), st.lists(inner, max_size=3))
        | st.builds(lambda pairs: AnyValue(kvlist_value=KeyValueList(values=pairs)), pairs_of(inner))
    ),
    max_leaves=6,
)


def plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    held = getattr(value, kind) if kind else None
    if isinstance(held, ArrayValue):
        return [plain(item) for item in held.values]
    if isinstance(held, KeyValueList):
        return plainly(held.values)
    if isinstance(held, bytes):
        return base64.b64encode(held).decode()
    return None if isinstance(held, float) and not math.isfinite(held) else held


def plainly(pairs: Any) -> dict[str, Any]:
    return {pair.key: plain(pair.value) for pair in pairs}


def nonfinite(value: AnyValue) -> int:
    inner = [*value.array_value.values, *(pair.value for pair in value.kvlist_value.values)]
    return sum(map(nonfinite, inner)) + (not math.isfinite(value.double_value))


EVENTS = st.builds(
    Span.Event, name=st.text(max_size=9), time_unix_nano=st.integers(0, 2**64 - 1), attributes=pairs_of(VALUES)
)
LINKS = st.builds(Span.Link, trace_id=st.binary(max_size=16), span_id=st.binary(max_size=8))
SPANS = st.builds(
    Span,
    name=st.text(max_size=9),
    kind=st.integers(0, 5),
    parent_span_id=st.sampled_from([b"", b"\0" * 8, b"\3" * 8]),
    status=st.none() | st.builds(Status, code=st.integers(0, 2), message=st.text(max_size=9)),
    attributes=pairs_of(VALUES),
    events=st.lists(EVENTS, max_size=2),
    links=st.lists(LINKS, max_size=2),
)


@given(st.lists(SPANS, max_size=4))
def test_spans_hold_what_their_messages_hold(messages: list[Span]) -> None:
    for message in messages:
        message.MergeFrom(Span(**IDS))
    spans = list(TraceBody(request(*messages), "protobuf").spans())
    assert len(spans) == len(messages)
    for span, message in zip(spans, messages, strict=True):
        said = (span.name, span.kind, span.status_code, span.status_message)
        assert said == (message.name, message.kind, message.status.code, message.status.message)
        assert (span.trace_id, span.span_id) == (message.trace_id.hex(), message.span_id.hex())
        assert span.parent_span_id == (message.parent_span_id.hex() if any(message.parent_span_id) else None)
        assert repr(span.attributes) == repr(plainly(message.attributes))
        assert repr([event.attributes for event in span.events]) == repr(
            [plainly(event.attributes) for event in message.events]
        )
        assert [event.name for event in span.events] == [event.name for event in message.events]
        assert [(link.trace_id, link.span_id) for link in span.links] == [
            (link.trace_id.hex(), link.span_id.hex()) for link in message.links
        ]


@given(pairs_of(VALUES), st.integers(0, 300))
def test_the_door_counts_every_number_that_is_not_finite(pairs: list[KeyValue], marks: int) -> None:
    messages = [Span(**IDS, attributes=pairs), Span(**IDS, name="!" * marks)]
    assert parse_traces(request(*messages), "protobuf").nonfinite == sum(nonfinite(pair.value) for pair in pairs)


TIMES = st.sampled_from([0, 5, 1_700_000_000, 1_999_999_999_999_999, 2 * 10**15, 2**62, 2**63, 2**64 - 1])


@given(
    st.lists(
        st.builds(
            Span,
            trace_id=st.sampled_from([b"", b"\0" * 16, b"\1" * 15, b"\1" * 16, b"\1" * 17]),
            span_id=st.sampled_from([b"", b"\0" * 8, b"\1" * 7, b"\1" * 8, b"\1" * 9]),
            parent_span_id=st.sampled_from([b"", b"\0" * 8, b"\1" * 7, b"\1" * 8]),
            start_time_unix_nano=TIMES,
            end_time_unix_nano=TIMES,
        )
        | st.builds(Span, **{name: st.just(value) for name, value in IDS.items()}, start_time_unix_nano=TIMES),
        max_size=9,
    )
)
def test_spans_are_judged_one_like_another(spans: list[Span]) -> None:
    good, bad = judged_spans(spans)
    assert good == [span for span in spans if span_problem(span) is None]
    assert bad == [(span, span_problem(span)) for span in spans if span_problem(span) is not None]
