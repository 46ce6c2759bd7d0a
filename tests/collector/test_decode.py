"""A rule of the mapping that fails takes nothing with it but its own span."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from collector import mapping
from collector.decode import PART_ITEMS, Unmapped, decode_facts, decode_parts
from collector.facts import Facts
from collector.lake import Lake
from collector.remembered import Remembered
from collector.segment import Header, Record
from collector.service import Collector
from collector.spans import Span
from pickwise.settings import Settings
from tests.collector.otlp_client import json_request, json_span, request, span


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dialect that fails on spans of one name."""

    def rule(item: Span, _settings: Settings) -> Facts | None:
        if item.name == "trap":
            raise KeyError("what the dialect expected")
        return None

    monkeypatch.setattr(mapping, "RULES", (rule, *mapping.RULES))
    monkeypatch.setattr(mapping, "_asked", Remembered(1_024))  # what is known of the rules as they were


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_a_span_that_cannot_be_mapped_is_set_aside_alone(tmp_path: Path, encoding: Any) -> None:
    body = request(span("a"), span("bad", name="trap"), span("b"), span("worse", name="trap"))
    if encoding == "json":
        trapped = [json_span("bad", name="trap"), json_span("worse", name="trap")]
        body = json_request(json_span("a"), *trapped, json_span("b"))
    collector = Collector(Settings(data_dir=tmp_path, flush_interval_s=0.05))
    collector.start()
    try:
        parsed, durable = collector.submit_traces(body, encoding, "p")
        assert parsed.rejected == 0
        assert durable is not None
        durable.result(20)
        assert collector.refresh(20)
        assert sorted(Lake(tmp_path).read("calls")["skill_id"]) == ["a", "b"]
    finally:
        collector.stop()
    (letter,) = (tmp_path / "rejected").glob("*.json")
    content = json.loads(letter.read_text())
    assert "2 could not be mapped" in content["reason"]
    assert "KeyError: 'what the dialect expected'" in content["reason"]


def record(body: bytes) -> Record:
    header = Header(seq=7, kind="traces", project="", received_at=1, encoding="protobuf", events=2)
    return Record(header, body, len(body))


@pytest.mark.usefixtures("failing")
def test_what_is_set_aside_is_the_failed_part() -> None:
    kept: list[tuple[Record, Exception]] = []
    given = record(request(span("a"), span("bad", name="trap")))
    (found,) = decode_parts(given, Settings(), lambda part, error: kept.append((part, error)))
    assert [call.skill_id for call in found.by_project["default"].calls] == ["a"]
    ((part, error),) = kept
    assert isinstance(error, Unmapped)
    assert (part.header.seq, part.header.events) == (7, 1)
    assert [item["name"] for item in json.loads(part.body)] == ["trap"]
    assert base64.b64encode(part.body)  # bytes, as the record's own


@pytest.mark.usefixtures("failing")
def test_without_a_place_for_it_the_failure_is_raised() -> None:
    with pytest.raises(Unmapped, match="1 could not be mapped"):
        decode_facts(record(request(span("a"), span("bad", name="trap"))), Settings())


def test_a_span_of_too_many_facts_is_set_aside_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "MAX_FACTS", 1_000)
    calls = [{"type": "tool_call", "id": str(number), "name": "w"} for number in range(mapping.MAX_FACTS + 1)]
    turn = SpanMessage(name="chat", trace_id=b"t" * 16, span_id=b"s" * 8)
    said = {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": calls}]),
    }
    for key, text in said.items():
        turn.attributes.add(key=key).value.string_value = text
    kept: list[Exception] = []
    (found,) = decode_parts(record(request(span("a"), turn)), Settings(), lambda _, error: kept.append(error))
    assert [call.skill_id for call in found.by_project["default"].calls] == ["a"]
    assert f"at most {mapping.MAX_FACTS} facts" in str(kept[0])


def test_a_long_record_comes_in_parts_that_add_up_to_it() -> None:
    given = record(request(*(span(f"s{number}") for number in range(PART_ITEMS + 3))))
    parts = list(decode_parts(given, Settings()))
    assert [len(part.items) for part in parts] == [PART_ITEMS, 3]
    whole, items = decode_facts(given, Settings())
    assert [call for part in parts for call in part.by_project["default"].calls] == whole["default"].calls
    assert [item for part in parts for item in part.items] == items


def test_many_native_events_come_in_parts_too() -> None:
    lines = [json.dumps({"type": "call", "event_id": str(n), "skill_id": "s"}) for n in range(PART_ITEMS)]
    lines += [json.dumps({"type": "selection", "event_id": f"s{n}"}) for n in range(3)]
    body = "\n".join(lines).encode()
    header = Header(seq=7, kind="events", project="p", received_at=1, encoding="ndjson", events=len(lines))
    parts = list(decode_parts(Record(header, body, len(body)), Settings()))
    assert [len(part.by_project["p"]) for part in parts] == [3, PART_ITEMS]
