"""Messages cut and mended on the wire agree with what the library makes of them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from collector.protobuf_wire import MAX_FIELDS, Mender, cut, encode_varint, joined, parts
from tests.collector.otlp_client import field, request, span

SPANS = st.lists(
    st.builds(Span, name=st.text(max_size=300), kind=st.integers(0, 300), flags=st.integers(0, 9)), max_size=9
)


@given(SPANS)
def test_parts_are_the_fields_of_a_message(spans: list[Span]) -> None:
    body = ScopeSpans(spans=spans, schema_url="x").SerializeToString()
    found = [body[inner:stop] for number, _, inner, stop in parts(body, 0, len(body)) if number == 2]
    assert found == [one.SerializeToString() for one in spans]
    assert joined(body, 0, len(body), 3) == b"x"


@given(SPANS, st.integers(1, 2_000))
def test_runs_hold_every_field_once(spans: list[Span], limit: int) -> None:
    body = ScopeSpans(spans=spans, schema_url="x").SerializeToString()
    head, found = cut(body, 0, len(body), 3, 2, limit)
    assert head == b"x"
    assert [one for first, last in found for one in ScopeSpans.FromString(body[first:last]).spans] == spans
    for first, last in found:
        assert last - first <= limit or len(ScopeSpans.FromString(body[first:last]).spans) == 1


@given(st.binary(max_size=60))
def test_any_bytes_have_parts_or_a_decode_error(body: bytes) -> None:
    with suppress(DecodeError):
        for _, at, inner, stop in parts(body, 0, len(body)):
            assert 0 <= at < inner <= stop <= len(body)


@given(st.integers(0, 2**63 - 1))
def test_long_numbers(number: int) -> None:
    body = encode_varint(16 << 3) + encode_varint(number) + encode_varint(16 << 3 | 2) + b"\x01x"
    assert [body[inner:stop] for _, _, inner, stop in parts(body, 0, len(body))] == [b"x"]


def test_a_part_ends_within_its_message() -> None:
    body = field(1, b"\x0a\x05abc") + b"defgh"
    with pytest.raises(DecodeError, match="beyond the end"):
        list(parts(body, 2, 7))


def test_a_message_of_too_many_fields() -> None:
    with pytest.raises(DecodeError, match=f"at most {MAX_FIELDS} fields"):
        list(parts(b"\x08\x01" * (MAX_FIELDS + 1), 0, 2 * MAX_FIELDS + 2))


SPOILT = {
    "naïve": b"na\xefve",
    "cut 中": b"cut \xe4\xb8",
    "two ~": b"two \xff\xfe",
    "pair ~": b"\xed\xa0\x80 pair",
    "~": b"\xc0",
}


@given(st.lists(st.sampled_from(["good", "gut: naïf", "中文", "x" * 200, *SPOILT]), max_size=6))
def test_strings_are_mended_as_python_replaces(texts: list[str]) -> None:
    raw = [SPOILT.get(text, text.encode()) for text in texts]
    pairs = [field(9, field(1, key) + field(2, field(5, field(1, field(1, key))))) for key in raw]
    body = field(1, field(2, field(2, b"".join(pairs))))
    mended = Mender(100).mend(body, ExportTraceServiceRequest.DESCRIPTOR)
    (one,) = ExportTraceServiceRequest.FromString(mended).resource_spans[0].scope_spans[0].spans
    for key, pair in zip(raw, one.attributes, strict=True):
        assert pair.key == pair.value.array_value.values[0].string_value == key.decode("utf-8", "replace")


def test_an_allowance_ends() -> None:
    bad = request(*[span("x", name="n~") for _ in range(3)]).replace(b"n~", b"n\xff")
    Mender(3).mend(bad, ExportTraceServiceRequest.DESCRIPTOR)
    with pytest.raises(DecodeError, match="too many strings"):
        Mender(2).mend(bad, ExportTraceServiceRequest.DESCRIPTOR)
