"""Careless and hostile OTLP over real HTTP and gRPC: a bad span has its answer, the good one beside it is seen."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.otlp_limits import MAX_RECORDS
from tests.collector.otlp_client import (
    PROTOBUF,
    Answer,
    Sender,
    field,
    json_pair,
    json_request,
    json_span,
    raw_request,
    request,
    span,
)

NS_2262 = 2**63
SECONDS = 1_770_000_000
JSON_TOOL = json_span()["attributes"]
WAYS: dict[str, Callable[[Sender, bytes], Answer]] = {
    "http": lambda sender, body: sender.post_protobuf(body),
    "gzip": lambda sender, body: sender.post_protobuf(gzip.compress(body), **{"content-encoding": "gzip"}),
    "grpc": lambda sender, body: sender.export(body),
}


class Case(NamedTuple):
    """A bad span: how it is written in either encoding, and why it is refused; None where it is taken."""

    name: str
    json: dict[str, Any] | None
    protobuf: dict[str, Any] | None
    reason: str | None


CASES = [
    Case("base64 trace id", {"traceId": "CvdlGRbNQ92ESOshHIAxnA=="}, None, "32 hex digits"),
    Case("base64 span id", {"spanId": "t61rcWkgMzE="}, None, "16 hex digits"),
    Case("short trace id", {"traceId": "abc"}, {"trace_id": b"abc"}, "trace"),
    Case("long trace id", {"traceId": "ab" * 17}, {"trace_id": b"a" * 17}, "trace"),
    Case("no trace id", {"traceId": None}, {"trace_id": b""}, "trace"),
    Case("zero trace id", {"traceId": "0" * 32}, {"trace_id": bytes(16)}, "trace"),
    Case("short span id", {"spanId": "ab"}, {"span_id": b"ab"}, "span"),
    Case("zero span id", {"spanId": "0" * 16}, {"span_id": bytes(8)}, "span"),
    Case("id that is a number", {"spanId": 7}, None, "spanId"),
    Case("short parent id", {"parentSpanId": "ab"}, {"parent_span_id": b"ab"}, "parent"),
    Case("parent that never comes", {"parentSpanId": "ab" * 8}, {"parent_span_id": b"a" * 8}, None),
    Case("zero parent", {"parentSpanId": "0" * 16}, {"parent_span_id": bytes(8)}, None),
    Case("no kind", {"kind": None}, {"kind": 0}, None),
    Case("unheard-of kind", {"kind": 99}, {"kind": 99}, None),
    Case("no name", {"name": None}, {"name": ""}, None),
    Case("NUL in the name", {"name": "a\0b"}, {"name": "a\0b"}, None),
    Case("attributes as an object", {"attributes": {"gen_ai.tool.name": "x"}}, None, "expected a list of {key, value}"),
    Case("a plain value", {"attributes": [{"key": "k", "value": "plain"}]}, None, "expected a value object"),
    Case("an attribute that is text", {"attributes": ["k=v"]}, None, "expected {key, value} objects"),
    Case("events as an object", {"events": {"name": "x"}}, None, "events: expected a list"),
    Case("text for a name", {"name": {"text": "x"}}, None, "name: expected a string"),
    Case(
        "end before start", {"endTimeUnixNano": "1769999999000000000"}, {"end_time_unix_nano": 1769999999 * 10**9}, None
    ),
    Case("no start", {"startTimeUnixNano": "0"}, {"start_time_unix_nano": 0}, None),
    Case("no times", {"startTimeUnixNano": None, "endTimeUnixNano": None}, {"start_time_unix_nano": 0}, None),
    Case("past 2262", {"endTimeUnixNano": str(NS_2262)}, {"end_time_unix_nano": NS_2262}, "before 2262"),
    Case("largest time", {"startTimeUnixNano": str(2**64 - 1)}, {"start_time_unix_nano": 2**64 - 1}, "before 2262"),
    Case("negative time", {"startTimeUnixNano": -1}, None, "startTimeUnixNano"),
    Case("RFC 3339", {"startTimeUnixNano": "2026-01-31T12:00:00Z"}, None, "Unix nanoseconds"),
    Case("seconds", {"startTimeUnixNano": SECONDS}, {"start_time_unix_nano": SECONDS}, "seconds"),
    Case("ms", {"startTimeUnixNano": SECONDS * 10**3}, {"start_time_unix_nano": SECONDS * 10**3}, "milliseconds"),
    Case("µs", {"endTimeUnixNano": SECONDS * 10**6}, {"end_time_unix_nano": SECONDS * 10**6}, "microseconds"),
]


@pytest.mark.parametrize("case", [case for case in CASES if case.json], ids=lambda case: case.name)
def test_a_bad_span_of_json(sender: Sender, case: Case) -> None:
    bad = json_span("bad") | (case.json or {})
    answer = sender.post_json(
        json_request({key: value for key, value in bad.items() if value is not None}, json_span())
    )
    check(sender, answer, case)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", [case for case in CASES if case.protobuf], ids=lambda case: case.name)
def test_a_bad_span_of_protobuf(sender: Sender, case: Case, way: str) -> None:
    check(sender, WAYS[way](sender, request(span("bad", **(case.protobuf or {})), span())), case)


def check(sender: Sender, answer: Answer, case: Case) -> None:
    if case.reason is None:
        assert answer.is_full_success
        assert sender.skills() == ["bad", "good"]
        return
    assert (answer.status, answer.rejected) == (200, 1)
    assert case.reason in answer.message
    assert sender.skills() == ["good"]


# -- values -------------------------------------------------------------------------------------------------------

VALUES: list[tuple[Any, str | None]] = [
    ({"intValue": "9007199254740993"}, None),
    ({"intValue": 7}, None),
    ({"intValue": 1e3}, None),
    ({"intValue": str(2**63 - 1)}, None),
    ({"intValue": 2**63}, "64 bits"),
    ({"intValue": str(-(2**63) - 1)}, "64 bits"),
    ({"intValue": "9" * 5_000}, "64 bits"),
    ({"intValue": "1.5"}, "64 bits"),
    ({"intValue": True}, "64 bits"),
    ({"doubleValue": "0.5"}, None),
    ({"doubleValue": 2**70}, None),
    ({"doubleValue": "half"}, "doubleValue"),
    ({"doubleValue": True}, "doubleValue"),
    ({"boolValue": "true"}, None),
    ({"boolValue": 1}, "boolValue"),
    ({"stringValue": 5}, "stringValue"),
    ({"bytesValue": "AAEC"}, None),
    ({"bytesValue": [0, 1]}, "bytesValue"),
    ({"arrayValue": {"values": [{"stringValue": "a"}, {}, None, {"arrayValue": {}}]}}, None),
    ({"arrayValue": [{"stringValue": "a"}]}, "arrayValue"),
    ({"kvlistValue": {"values": [{"key": "k", "value": {"intValue": 1}}, {"key": "empty"}]}}, None),
    ({"kvlistValue": {"k": 1}}, None),
    ({"kvlistValue": {"values": {"k": 1}}}, "expected a list"),
    ({"valueOfTomorrow": {}}, None),
    ({"stringValue": None}, None),
    ({}, None),
    (None, None),
]


@pytest.mark.parametrize(("value", "reason"), VALUES, ids=str)
def test_a_value_of_json(sender: Sender, value: Any, reason: str | None) -> None:
    bad = json_span(
        "bad", attributes=[*JSON_TOOL[:1], json_pair("gen_ai.tool.name", "bad"), {"key": "k", "value": value}]
    )
    check(sender, sender.post_json(json_request(bad, json_span())), Case("", {}, None, reason))


def test_a_value_of_a_million_digits(sender: Sender) -> None:
    bad = json_span("bad", attributes=[{"key": "k", "value": {"intValue": "~"}}])
    body = json_request(bad, json_span()).replace(b'"~"', b"9" * 1_000_000)
    check(sender, sender.post_json(body), Case("", {}, None, "64 bits"))


def test_numbers_that_are_none(sender: Sender) -> None:
    odd = json_span("odd", attributes=[*JSON_TOOL, {"key": "k", "value": {"doubleValue": "~"}}])
    for text in (b"NaN", b"-Infinity", b"1e999", b'"NaN"', b'"-Infinity"'):
        answer = sender.post_json(json_request(odd, json_span()).replace(b'"~"', text))
        assert answer == (200, 0, "1 NaN or infinite numbers became null")
    assert sender.skills() == ["good"] * 6


def test_every_kind_of_value_in_protobuf(sender: Sender) -> None:
    odd = span("odd")
    odd.attributes.add(key="empty")
    odd.attributes.add(key="none").value.CopyFrom(AnyValue())
    odd.attributes.add(key="bytes").value.bytes_value = b"\xff\0"
    odd.attributes.add(key="int").value.int_value = -(2**63)
    odd.attributes.add(key="array").value.array_value.values.add().bool_value = True
    odd.attributes.add(key="map").value.kvlist_value.values.add(key="k").value.array_value.SetInParent()
    odd.attributes.add()
    assert sender.post_protobuf(request(odd, span())).is_full_success
    assert sender.skills() == ["good", "odd"]


# -- text ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_invalid_utf8_becomes_the_replacement_character(sender: Sender, way: str) -> None:
    body = request(span("caf~"), span("naïve"), span("中文")).replace(b"caf~", b"caf\xe9")
    assert WAYS[way](sender, body).is_full_success
    assert sender.skills() == ["caf\ufffd", "naïve", "中文"]


@pytest.mark.parametrize("written", [b"caf\xe9", rb"caf\ud83d", rb"caf\udE00", b"caf\xf0\x9f"])
def test_half_characters_of_json(sender: Sender, written: bytes) -> None:
    body = json_request(json_span("caf~"), json_span(r"\\ud800 \ud83d")).replace(b"caf~", written)
    assert sender.post_json(body).is_full_success
    assert sender.skills() == [r"\\ud800 \ud83d", "caf\ufffd"]


def test_nul_is_a_character(sender: Sender) -> None:
    assert sender.post_protobuf(request(span("a\0b"))).is_full_success
    assert sender.post_json(json_request(json_span("c\0d"))).is_full_success
    assert sender.skills() == ["a\0b", "c\0d"]


def test_a_whole_batch_of_invalid_utf8(sender: Sender) -> None:
    spans = [span(f"s{number:03}", name="n~") for number in range(300)]
    assert sender.post_protobuf(request(*spans).replace(b"n~", b"n\xff")).is_full_success
    assert len(sender.skills()) == 300


# -- forms --------------------------------------------------------------------------------------------------------


def test_a_span_that_is_no_message_is_refused_alone(sender: Sender) -> None:
    broken = [b"\xff\xff\xff", b"\x0a\x7fshort", b"\x00", b"\x0b\x0c", span().SerializeToString()[:-3]]
    answer = sender.post_protobuf(raw_request(span("a").SerializeToString(), *broken, span("b").SerializeToString()))
    assert (answer.status, answer.rejected) == (200, len(broken))
    assert sender.skills() == ["a", "b"]


def test_a_group_that_is_no_message_is_refused_alone(sender: Sender) -> None:
    answer = sender.post_protobuf(field(1, b"\xff\xff") + request(span()) + field(1, field(2, b"\x12\x7f")))
    assert (answer.status, answer.rejected) == (200, 2)
    assert sender.skills() == ["good"]


def test_a_resource_behind_its_spans_and_one_in_two_parts(sender: Sender) -> None:
    def attribute(key: str, text: str) -> bytes:
        return field(1, field(1, field(1, key.encode()) + field(2, field(1, text.encode()))))

    spans = field(2, field(2, span("a").SerializeToString()))
    late = attribute("service.version", "7")
    parts = attribute("service.version", "7") + attribute("deployment.environment.name", "test")
    assert sender.post_protobuf(field(1, spans + late)).is_full_success
    assert sender.post_protobuf(field(1, parts + field(2, field(2, span("b").SerializeToString())))).is_full_success
    found = {row["skill_id"]: (row["release"], row["environment"]) for row in sender.rows()}
    assert found == {"a": ("7", None), "b": ("7", "test")}


@pytest.mark.parametrize("depth", [20, 60, 2_000])
def test_a_deep_value_takes_no_neighbour_with_it(sender: Sender, depth: int) -> None:
    value = AnyValue(string_value="core").SerializeToString()
    for _ in range(depth):
        value = field(5, field(1, value))
    deep = span("deep").SerializeToString() + field(9, field(1, b"k") + field(2, value))
    answer = sender.post_protobuf(raw_request(deep, span("a").SerializeToString()))
    assert (answer.status, answer.rejected) == (200, int(depth > 50))
    nested = b'{"arrayValue":{"values":[' * depth + b'{"stringValue":"core"}' + b"]}}" * depth
    deep_json = json_span("deep", attributes=[*JSON_TOOL, {"key": "k", "value": "~"}])
    answer = sender.post_json(json_request(deep_json, json_span("b")).replace(b'"~"', nested))
    assert (answer.status, answer.rejected) == (200, int(depth > 50))
    assert {"a", "b"} <= set(sender.skills())


@pytest.mark.parametrize(
    ("beside", "reason"),
    [
        ({"resourceSpans": [5]}, "resourceSpans: expected objects, got int"),
        ({"resourceSpans": [{"scopeSpans": {}}]}, "scopeSpans: expected a list, got dict"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": "x"}]}]}, "spans: expected a list, got str"),
        (
            {"resourceSpans": [{"resource": [], "scopeSpans": [{"spans": [json_span()]}]}]},
            "resource: expected an object",
        ),
        ({"resourceSpans": [{"scopeSpans": [{"scope": 1, "spans": [{}]}]}]}, "scope: expected an object"),
    ],
)
def test_a_group_of_the_wrong_form_is_refused_alone(sender: Sender, beside: dict[str, Any], reason: str) -> None:
    good = json.loads(json_request(json_span()))["resourceSpans"]
    answer = sender.post_json(json.dumps({"resourceSpans": beside["resourceSpans"] + good}).encode())
    assert (answer.status, answer.rejected) == (200, 1)
    assert reason in answer.message
    assert sender.skills() == ["good"]


def test_events_of_ours_that_do_not_validate(sender: Sender) -> None:
    bad, good = span("bad"), span()
    for key, value in (("pickwise.event", "call"), ("pickwise.phase", "nonsense"), ("pickwise.skill_id", "s")):
        bad.attributes.add(key=key).value.string_value = value
    answer = sender.post_protobuf(request(bad, good))
    assert (answer.status, answer.rejected) == (200, 1)
    assert "pickwise.phase" in answer.message
    # An escape hides the mark from a look at the bytes, not from a look at the values.
    hidden = json_span("bad", attributes=[json_pair("pickwise.event", "call"), json_pair("pickwise.phase", "nonsense")])
    body = json_request(hidden, json_span()).replace(b"pickwise.event", rb"pickwise\u002eevent")
    assert sender.post_json(body).rejected == 1
    assert sender.skills() == ["good", "good"]


# -- sizes --------------------------------------------------------------------------------------------------------


def test_a_trace_of_50_000_spans(sender: Sender) -> None:
    one = span("s", span_id=b"~" * 8).SerializeToString()
    body = raw_request(*[one.replace(b"~" * 8, number.to_bytes(8)) for number in range(1, 50_001)])
    assert sender.post_protobuf(body).is_full_success
    assert sender.count() == 50_000


def test_more_spans_than_a_request_may_hold(sender: Sender) -> None:
    one = field(2, Span(trace_id=b"t" * 16, span_id=b"s" * 8).SerializeToString())
    many = field(1, field(2, one * (MAX_RECORDS + 10)))
    answer = sender.post_protobuf(gzip.compress(request(span()) + many, 1), **{"content-encoding": "gzip"})
    assert (answer.status, answer.rejected) == (200, 11)
    assert f"at most {MAX_RECORDS} spans" in answer.message
    assert sender.skills() == ["good"]


def test_many_attributes_and_long_arguments(sender: Sender) -> None:
    wide, long = span("wide"), span("long")
    for number in range(10_000):
        wide.attributes.add(key=f"k{number}").value.int_value = number
    long.attributes.add(key="gen_ai.tool.call.arguments").value.string_value = json.dumps({"text": "x" * 30_000})
    assert sender.post_protobuf(request(wide, long, span())).is_full_success
    wide_json = json_span("json")
    wide_json["attributes"] += [json_pair(f"k{number}", "v") for number in range(30_000)]
    assert sender.post_json(json_request(wide_json, json_span())).is_full_success
    assert sender.skills() == ["good", "good", "json", "long", "wide"]
    assert next(row["args_keys"] for row in sender.rows() if row["skill_id"] == "long") == ["text"]


EMPTIES = 10 * 2**20 - 200
IDS = field(1, b"t" * 16) + field(2, b"s" * 8)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("resources", lambda: b"\x0a\x00" * EMPTIES),
        ("scopes", lambda: field(1, b"\x12\x00" * EMPTIES)),
        ("spans", lambda: field(1, field(2, b"\x12\x00" * EMPTIES))),
        ("attributes", lambda: raw_request(IDS + b"\x4a\x00" * EMPTIES)),
        ("span events", lambda: raw_request(IDS + b"\x5a\x00" * EMPTIES)),
        ("values", lambda: raw_request(IDS + field(9, field(2, field(5, b"\x0a\x00" * EMPTIES))))),
        ("unknown fields", lambda: field(1, field(2, b"\x18\x01" * EMPTIES))),
    ],
)
def test_20_mib_of_nothing_take_no_memory(sender: Sender, name: str, body: Callable[[], bytes]) -> None:
    packed = gzip.compress(body(), 1)
    before = sender.forget_peak()
    answer = sender.post("/v1/traces", packed, PROTOBUF | {"content-encoding": "gzip"})
    assert answer.status_code in (400, 413), name
    assert sender.peak_mib() - before < 150
    assert sender.post_protobuf(request(span())).is_full_success


@pytest.mark.parametrize(
    "body",
    [
        b'{"resourceSpans":[' + b"{}," * 6_000_000 + b"{}]}",
        b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"{}," * 6_000_000 + b"{}]}]}]}",
        b"[" * 20_000_000,
        b'["' + rb"\"" * 10_000_000,
        b'{"resourceSpans":["' + b'",NaN,"' * 2_500_000 + b'"]}',
    ],
    ids=["groups", "spans", "brackets", "quotes", "words"],
)
def test_20_mib_of_json_for_nothing(sender: Sender, body: bytes) -> None:
    packed = gzip.compress(body, 1)
    before = sender.forget_peak()
    answer = sender.post_json(packed, **{"content-encoding": "gzip"})
    assert answer.status in (400, 413)
    assert sender.peak_mib() - before < 250
    assert sender.post_json(json_request(json_span())).is_full_success


def test_nan_hides_nowhere(sender: Sender) -> None:
    """A double on the wire is told from text that looks like one."""
    odd = span("odd", name="!234567" + "\x7f" * 3)
    odd.attributes.add(key="n").value.double_value = struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\xff")[0]
    assert sender.post_protobuf(request(odd, span())).message == "1 NaN or infinite numbers became null"
