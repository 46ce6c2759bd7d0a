"""Native events: each judged alone, named when refused, the same at every reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.body import TooLarge
from collector.events_in import MAX_ITEMS, BodyError, Layout, parse_events, read_items
from pickwise.events import MAX_CANDIDATES, MAX_EVENT_BYTES

CALL = {"type": "call", "skill_id": "weather", "event_id": "e1"}


def ndjson(*values: Any) -> bytes:
    return b"\n".join(json.dumps(value).encode() for value in values)


def array(*values: Any) -> bytes:
    return json.dumps(values).encode()


@pytest.mark.parametrize(
    ("body", "layout"), [(json.dumps(CALL).encode(), "json"), (array(CALL), "json"), (ndjson(CALL), "ndjson")]
)
def test_one_event_in_each_layout(body: bytes, layout: Layout) -> None:
    parsed = parse_events(body, layout)
    assert parsed.accepted == 1
    (call,) = parsed.facts.calls
    assert (call.skill_id, call.event_id, call.role, call.time) == ("weather", "e1", "run", None)


def test_every_type_lands_with_its_kind() -> None:
    parsed = parse_events(
        array(
            {"type": "selection", "time": "2026-01-31T12:00:00Z", "trace_id": "A" * 32, "span_id": "B" * 16},
            CALL,
            {"type": "feedback", "kind": "rating", "value": 0.5},
            {"type": "route", "instance": "r1", "state": "probe"},
            {"type": "skill", "skill_id": "weather"},
        ),
        "json",
    )
    facts = parsed.facts
    assert [len(facts.selections), len(facts.calls), len(facts.feedback), len(facts.routes)] == [1, 1, 1, 1]
    assert [item.index for item in parsed.skills] == [4]
    assert facts.selections[0].time == 1_769_860_800_000_000_000
    assert facts.selections[0].trace_id == "a" * 32
    assert facts.selections[0].span_id == "b" * 16


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"type": "call"}, "skill_id"),
        ({"type": "pick"}, "type: expected one of selection, call, feedback, route, skill"),
        ({"type": "selection", "query": 5}, "query"),
        ({"type": "call", "skill_id": "a", "time": "yesterday"}, "time: expected RFC 3339"),
        ({"type": "call", "skill_id": "a", "trace_id": "xyz"}, "trace_id"),
        ({"type": "selection", "turn": 2**70}, "turn: expected an integer of 64 bits"),
        ({"type": "selection", "candidates": [{"skill_id": "a"}] * (MAX_CANDIDATES + 1)}, "candidates"),
        ({"type": "selection", "query": "x" * MAX_EVENT_BYTES}, f"at most {MAX_EVENT_BYTES} bytes"),
        (7, "expected an object"),
    ],
)
def test_a_bad_event_is_named_and_its_neighbours_stay(event: Any, reason: str) -> None:
    parsed = parse_events(array(CALL, event, CALL), "json")
    assert parsed.accepted == 2
    (refused,) = parsed.rejected
    assert refused.index == 1
    assert reason in refused.reason


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"nonsense", "expected a JSON object"),
        (b'{"type": "call" "skill_id": "a"}', "expected a JSON object"),
        (b'{"type": "call", "skill_id": "a", "attempt": NaN}', "attempt: expected `int | null`"),
        (b'{"type": "call", "skill_id": "a", "x": ' + b"[" * 300 + b"]" * 300 + b"}", "levels of nesting"),
        (b'{"type": "call", "skill_id": "a", "x": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", "levels of nesting"),
    ],
)
@pytest.mark.parametrize("layout", ["json", "ndjson"])
def test_an_item_that_is_no_json_takes_no_neighbour_with_it(bad: bytes, reason: str, layout: Layout) -> None:
    items = [json.dumps(CALL).encode(), bad, json.dumps(CALL | {"event_id": "e2"}).encode()]
    parsed = parse_events(b"[" + b",".join(items) + b"]" if layout == "json" else b"\n".join(items), layout)
    assert [call.event_id for call in parsed.facts.calls] == ["e1", "e2"]
    (refused,) = parsed.rejected
    assert refused.index == 1
    assert reason in refused.reason


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e999"])
def test_a_number_that_is_none_and_half_a_character_are_taken(number: bytes) -> None:
    event = b'{"type": "call", "skill_id": "a\\ud800", "latency_ms": ' + number + b', "arguments": [' + number + b"]}"
    for body in (event, b"[" + event + b"]"):
        (call,) = parse_events(body, "json").facts.calls
        assert call.skill_id == "a\ufffd"


@pytest.mark.parametrize(
    ("body", "layout"), [(b"[" + b"0," * MAX_ITEMS + b"0]", "json"), (b"0\n" * (MAX_ITEMS + 1), "ndjson")]
)
def test_too_many_items_are_not_named_one_by_one(body: bytes, layout: Layout) -> None:
    with pytest.raises(TooLarge, match=f"at most {MAX_ITEMS} items"):
        parse_events(body, layout)


def test_a_refused_event_is_named_by_its_id() -> None:
    parsed = parse_events(array({"type": "call", "event_id": "mine"}), "json")
    assert parsed.rejected[0].event_id == "mine"


def test_unknown_fields_are_kept_out_and_counted() -> None:
    parsed = parse_events(array(CALL | {"colour": "red", "shape": 1, "project": "other"}), "json")
    assert (parsed.accepted, parsed.unknown_fields) == (1, 2)


def test_a_bad_line_refuses_only_itself() -> None:
    parsed = parse_events(ndjson(CALL) + b"\n{oops\r\n\n" + ndjson(CALL | {"event_id": "e2"}) + b"\n", "ndjson")
    assert [call.event_id for call in parsed.facts.calls] == ["e1", "e2"]
    assert [refused.index for refused in parsed.rejected] == [1]


def test_invalid_utf8_becomes_the_replacement_character() -> None:
    parsed = parse_events(b'[{"type":"call","skill_id":"caf\xe9"}]', "json")
    assert parsed.facts.calls[0].skill_id == "caf\ufffd"


def test_a_byte_order_mark_is_no_error() -> None:
    assert parse_events(b"\xef\xbb\xbf" + array(CALL), "json").accepted == 1


@pytest.mark.parametrize("body", [b"", b"{", b"[1,", b"[" * 200_000, b"nonsense"])
def test_a_body_that_is_no_json_is_refused_whole(body: bytes) -> None:
    with pytest.raises(BodyError, match="expected a JSON"):
        parse_events(body, "json")


def test_deep_nesting_in_a_line_refuses_the_line() -> None:
    deep = b'{"type":"call","skill_id":"a","arguments":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    parsed = parse_events(deep + b"\n" + ndjson(CALL), "ndjson")
    assert (parsed.accepted, [refused.index for refused in parsed.rejected]) == (1, [0])


def test_nothing_in_nothing_out() -> None:
    assert parse_events(b"", "ndjson").accepted == 0
    assert parse_events(b"[]", "json").rejected == []


@given(st.binary(max_size=200), st.sampled_from(["json", "ndjson"]))
def test_no_bytes_crash_it(body: bytes, layout: Layout) -> None:
    try:
        parsed = parse_events(body, layout)
    except BodyError:
        return
    assert parsed.accepted == 0


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["event_id", "time", "trace_id", "skill_id", "ok", "latency_ms", "arguments", "candidates", "picks", "kind"]


@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES, max_size=6), max_size=5), st.data())
def test_every_event_is_either_taken_or_named(events: list[dict[str, Any]], data: st.DataObject) -> None:
    typed = [event | {"type": data.draw(st.sampled_from(["selection", "call", "feedback"]))} for event in events]
    parsed = parse_events(ndjson(*typed), "ndjson")
    assert parsed.accepted + len(parsed.rejected) == len(events)


def test_items_of_the_shared_registry_are_all_read(shared: Path) -> None:
    body = (shared / "data" / "registry" / "livemcpbench.jsonl").read_bytes()
    assert sum(1 for item in read_items(body, "ndjson") if item.reason is None) == 527


def test_numbers_that_are_none_are_counted() -> None:
    lines = (b'{"type": "call", "skill_id": "a", "latency_ms": NaN}', b'{"type": "call", "latency_ms": NaN}', b"NaN")
    parsed = parse_events(b"\n".join(lines), "ndjson")
    assert (parsed.accepted, parsed.nonfinite) == (1, 1)


def test_a_carriage_return_is_no_end_of_a_line() -> None:
    parsed = parse_events(b'{"type": "call",\r"skill_id": "a"}\r\n\r\n{"type": "call", "skill_id": "b"}', "ndjson")
    assert [call.skill_id for call in parsed.facts.calls] == ["a", "b"]
