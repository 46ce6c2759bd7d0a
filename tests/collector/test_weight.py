"""What is too heavy to be parsed is told from its bytes; no real request is."""

from __future__ import annotations

import json

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.body import TooLarge
from collector.weight import LIGHT_BYTES, MAX_MESSAGES, MAX_SPANS, MAX_VALUES, refuse_heavy_json, refuse_heavy_message
from pickwise.events import MAX_REQUEST_BYTES

TRACES, LOGS = ExportTraceServiceRequest.DESCRIPTOR, ExportLogsServiceRequest.DESCRIPTOR
IDS = b"\x0a\x10" + b"\2" * 16 + b"\x12\x08" + b"\1" * 8


def number(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def field(tag: int, content: bytes) -> bytes:
    return number(tag << 3 | 2) + number(len(content)) + content


def spans(content: bytes) -> bytes:
    """A request with one scope of that content."""
    return field(1, field(2, content))


HALF = MAX_REQUEST_BYTES // 2 - 64


@pytest.mark.parametrize(
    "body",
    [
        spans(b"\x12\x00" * HALF),
        spans(b"\x92\x00\x00" * (HALF // 2)),  # the tag is written with a byte more than it needs
        spans(b"\x12\x80\x00" * (HALF // 2)),  # and here the length
        b"\x0a\x00" * HALF,
        spans(field(2, IDS + b"\x4a\x00" * HALF)),
        spans(field(2, IDS + b"\x5a\x00" * HALF)),
        spans(field(2, IDS + b"\x6a\x00" * HALF)),
        spans(field(2, IDS + field(9, field(1, b"k") + field(2, field(5, b"\x0a\x00" * HALF))))),
    ],
    ids=["spans", "long tags", "long lengths", "resources", "attributes", "events", "links", "array"],
)
def test_millions_of_empty_messages_are_refused(body: bytes) -> None:
    assert len(body) <= MAX_REQUEST_BYTES
    with pytest.raises(TooLarge, match="expected at most"):
        refuse_heavy_message(body, TRACES)


def test_the_limits_are_exact() -> None:
    rest = b"\x0a\x00" * 400_000
    refuse_heavy_message(spans(b"\x12\x00" * MAX_SPANS) + rest, TRACES)
    with pytest.raises(TooLarge, match=f"{MAX_SPANS} spans or log records"):
        refuse_heavy_message(spans(b"\x12\x00" * (MAX_SPANS + 1)) + rest, LOGS)
    refuse_heavy_message(b"\x0a\x00" * MAX_MESSAGES, LOGS)
    with pytest.raises(TooLarge, match=f"{MAX_MESSAGES} messages"):
        refuse_heavy_message(b"\x0a\x00" * (MAX_MESSAGES + 1), TRACES)


def test_full_requests_of_the_shortest_real_spans_pass() -> None:
    attributes = b"".join(
        field(9, field(1, name) + field(2, b"\x18\x01")) for name in (b"http.status_code", b"gen_ai.usage.out")
    )
    span = field(2, IDS + attributes)
    refuse_heavy_message(spans(span * (HALF * 2 // len(span))), TRACES)


@pytest.mark.parametrize("tail", [b"", b"\xff" * 9, b"\x0a", b"\x0a\xff", b"\x0b", b"\x12\x05a"])
def test_what_is_broken_is_left_to_the_parser(tail: bytes) -> None:
    refuse_heavy_message(spans(b"\x12\x00" * 500_000) + b"\x0a\x00" * 600_000 + tail, TRACES)


@pytest.mark.parametrize("item", [b"{}", b"[0]", b'"a"'])
def test_millions_of_json_values_are_refused(item: bytes) -> None:
    body = b'{"resourceSpans":[' + b",".join([item] * (MAX_REQUEST_BYTES // (len(item) + 1) - 20)) + b"]}"
    with pytest.raises(TooLarge, match=f"{MAX_VALUES} JSON values"):
        refuse_heavy_json(body)


def test_separators_in_strings_are_no_values() -> None:
    text = json.dumps({"query": ",[{" * (MAX_REQUEST_BYTES // 4) + '"\\'})
    assert text.count(",") > MAX_VALUES
    refuse_heavy_json(text.encode())
    refuse_heavy_json(b'{"a": "' + b"," * (MAX_VALUES + 2))  # not whole: the parser says so


def test_lines_are_counted_as_such() -> None:
    event = b'{"type":"call","skill_id":"s","arguments":[1,2,3,4,5,6,7,8,9]}\n'
    refuse_heavy_json(event * (MAX_REQUEST_BYTES // len(event)), lines=True)
    with pytest.raises(TooLarge):
        refuse_heavy_json(b"a\n" * (MAX_VALUES + 1), lines=True)


def test_short_bodies_are_not_looked_at() -> None:
    refuse_heavy_json(b"[" + b"," * (LIGHT_BYTES - 1))
    refuse_heavy_message(b"\x0a\x00" * (LIGHT_BYTES // 2), TRACES)
