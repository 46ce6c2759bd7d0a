"""Files to request bodies; the dialogues' counts against independent ones."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from collector.importers import MAX_BATCH_BYTES, Batch, Format, Problem, batches
from collector.mapping import map_traces
from collector.otlp import parse_traces
from pickwise.events import decode_event
from pickwise.settings import Settings

TAU_ERRORS = "^(Error|Unknown action)"


def read(path: Path, format: Format, **settings: Any) -> tuple[list[Batch], list[Problem]]:
    problems: list[Problem] = []
    return list(batches(path, format, Settings(**settings), problems.append)), problems


def events_of(path: Path, **settings: Any) -> list[dict[str, Any]]:
    made, problems = read(path, "openai-messages", **settings)
    assert problems == []
    events = [json.loads(line) for batch in made for line in batch.body.splitlines()]
    assert sum(batch.count for batch in made) == len(events)
    for event in events:
        assert decode_event(event)[1] == 0  # valid, and no field that would be left out
    return events


def write(path: Path, *lines: Any) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def counted_independently(path: Path, error: re.Pattern[str] | None) -> Counter[str]:
    """Calls and failures straight from the file: each result is looked for behind its call, not before its result."""
    counts: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        messages = json.loads(line)["messages"]
        for at, message in enumerate(messages):
            if message["role"] == "assistant":
                counts["selections"] += 1
                counts["without_pick"] += not message.get("tool_calls")
            for call in message.get("tool_calls") or []:
                counts["calls"] += 1
                result = next(m for m in messages[at + 1 :] if m.get("tool_call_id") == call["id"])
                counts["failed"] += bool(error.search(result["content"]) if error else result.get("is_error"))
    return counts


@pytest.mark.parametrize(
    ("name", "pattern", "calls", "failed", "sessions"),
    [
        ("tau_gpt-4o_airline", TAU_ERRORS, 1164, 73, 200),
        ("tau2_qwen2.5-7b_airline_1trial", None, 344, 79, 50),
        ("tau2_claude-sonnet-4-5_airline_1trial", None, 371, 1, 50),
        ("tau2_sierra_gpt-4.1_airline_1trial", None, 148, 1, 20),
        ("tau2_sierra_gpt-4.1_retail_1trial", None, None, None, 40),
    ],
)
def test_the_benchmarks_dialogues(
    shared: Path, name: str, pattern: str | None, calls: int | None, failed: int | None, sessions: int
) -> None:
    path = shared / f"data/messages/{name}.jsonl"
    expected = counted_independently(path, re.compile(pattern) if pattern else None)
    assert calls is None or (expected["calls"], expected["failed"]) == (calls, failed)
    events = events_of(path, error_patterns=[pattern] if pattern else [])
    found = [event for event in events if event["type"] == "call"]
    selections = [event for event in events if event["type"] == "selection"]
    assert len(found) == expected["calls"]
    assert sum(call["ok"] is False for call in found) == expected["failed"]
    assert len(selections) == expected["selections"]
    assert sum(not selection["picks"] for selection in selections) == expected["without_pick"]
    assert len({event["session_id"] for event in events}) == sessions
    # No call swallowed: ids are unique, and so is each call within its selection.
    assert len({event["event_id"] for event in events}) == len(events)
    assert len({(call["selection_id"], call["call_id"]) for call in found}) == len(found)
    assert {call["selection_id"] for call in found} <= {selection["event_id"] for selection in selections}


def test_what_else_the_data_says(shared: Path) -> None:
    folder = shared / "data/messages"
    tau = events_of(folder / "tau_gpt-4o_airline.jsonl", error_patterns=[TAU_ERRORS])
    assert sum(event["type"] == "selection" and not event["picks"] for event in tau) == 1290
    rewards = [event["value"] for event in tau if event["type"] == "feedback"]
    assert (len(rewards), rewards.count(1.0)) == (200, 84)
    qwen = events_of(folder / "tau2_qwen2.5-7b_airline_1trial.jsonl")
    failed = Counter(event["skill_id"] for event in qwen if event.get("ok") is False)
    assert failed["book_reservation"] == 32


DIALOGUE: dict[str, Any] = {
    "id": "d1",
    "session_id": "s1",
    "model": "m",
    "tools": [{"type": "function", "function": {"name": "get", "parameters": {}}}],
    "messages": [
        {"role": "user", "content": "one"},
        {
            "role": "assistant",
            "timestamp": "2025-01-01T00:00:00",
            "tool_calls": [
                {"id": "x", "function": {"name": "get", "arguments": '{"a": 1}'}},
                {"id": "x", "function": {"name": "get", "arguments": "{broken"}},
            ],
        },
        {"role": "tool", "tool_call_id": "x", "content": "fine", "timestamp": "2025-01-01T00:00:01.5"},
        {"role": "tool", "tool_call_id": "x", "content": "request timed out", "is_error": True},
        {"role": "user", "content": [{"type": "text", "text": "two"}]},
        {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "get", "arguments": {}}}]},
    ],
}


def test_a_dialogue_that_reuses_its_call_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", DIALOGUE)
    events = events_of(path)
    assert events == events_of(path)
    first, fine, late, second, open_call = events
    assert (first["query"], second["query"]) == ("one", "two")
    assert first["candidates"] == [{"skill_id": "get"}]
    assert (first["picks"], first["turn"], first["ranked"]) == (["get"], 1, False)
    assert first["trace_id"] != second["trace_id"]
    assert fine["trace_id"] == first["trace_id"]
    assert (fine["ok"], fine["latency_ms"], fine["arguments"]) == (True, 1500.0, {"a": 1})
    assert (late["ok"], late["error_kind"], late["arguments"]) == (False, "timeout", "{broken")
    assert fine["call_id"] != late["call_id"]
    assert "ok" not in open_call
    assert open_call["selection_id"] == second["event_id"]


def test_arguments_too_long_for_an_event_leave_their_names(tmp_path: Path) -> None:
    call = {"id": "x", "function": {"name": "get", "arguments": json.dumps({"b": "y" * 70_000, "a": 1})}}
    path = write(tmp_path / "d.jsonl", {"id": "d", "messages": [{"role": "assistant", "tool_calls": [call]}]})
    (event,) = [event for event in events_of(path) if event["type"] == "call"]
    assert event["args_keys"] == ["a", "b"]
    assert "arguments" not in event


def test_a_bad_line_is_named_and_the_rest_taken(tmp_path: Path) -> None:
    good = {"type": "call", "skill_id": "a"}
    path = write(tmp_path / "e.jsonl", good, "{nonsense", {"type": "call", "skill_id": 5}, "", {"type": "x"}, good)
    made, problems = read(path, "events")
    assert [batch.count for batch in made] == [2]
    assert [problem.line for problem in problems] == [2, 3, 5]
    assert str(problems[1]) == f"{path}:3: skill_id: expected `str`, got `int`"


@pytest.mark.parametrize(
    ("format", "line", "reason"),
    [
        ("openai-messages", {"messages": [{"content": "no role"}]}, "messages"),
        (
            "openai-messages",
            {"messages": [{"role": "user", "timestamp": "noon"}, {"role": "assistant", "timestamp": "x"}]},
            "time",
        ),
        ("skills", {"name": "no id"}, "skill_id"),
        ("otlp-json", {"resourceMetrics": []}, "expected an object with resourceSpans or resourceLogs"),
        ("events", [1], "expected an object"),
    ],
)
def test_what_each_format_refuses(tmp_path: Path, format: Format, line: Any, reason: str) -> None:
    made, problems = read(write(tmp_path / "f.jsonl", line), format)
    assert made == []
    assert reason in problems[0].reason


def test_arrays_and_single_documents(tmp_path: Path) -> None:
    event = {"type": "call", "skill_id": "a"}
    array = tmp_path / "a.json"
    array.write_text(json.dumps([event, event], indent=2))
    assert [batch.count for batch in read(array, "events")[0]] == [2]
    single = tmp_path / "s.json"
    single.write_text(json.dumps(event, indent=2))
    assert [batch.count for batch in read(single, "events")[0]] == [1]
    (tmp_path / "empty").write_bytes(b"")
    assert read(tmp_path / "empty", "events") == ([], [])


def test_batches_stay_below_their_limit_and_lose_nothing(tmp_path: Path) -> None:
    path = write(
        tmp_path / "e.jsonl", *[{"type": "call", "skill_id": f"s{i}", "error_message": "x" * 900} for i in range(9_000)]
    )
    made, problems = read(path, "events")
    assert problems == []
    assert len(made) > 1
    assert all(len(batch.body) <= MAX_BATCH_BYTES for batch in made)
    names = [json.loads(line)["skill_id"] for batch in made for line in batch.body.splitlines()]
    assert names == [f"s{i}" for i in range(9_000)]


def test_a_registry_and_events_as_they_are(shared: Path) -> None:
    made, problems = read(shared / "data/registry/livemcpbench.jsonl", "skills")
    assert problems == []
    assert [(batch.kind, batch.encoding, batch.count) for batch in made] == [("registry", "ndjson", 527)]
    made, problems = read(shared / "data/events/livemcpbench.jsonl", "events")
    assert problems == []
    assert sum(batch.count for batch in made) == 283 + 531 + 95


def test_recorded_otlp_json(shared: Path, tmp_path: Path) -> None:
    folder = shared / "otlp/ai-sdk-6.0.326/json-generate"
    path = write(tmp_path / "otlp.jsonl", *[file.read_text() for file in sorted(folder.iterdir())])
    made, problems = read(path, "otlp-json")
    assert problems == []
    assert [(batch.kind, batch.count) for batch in made] == [("traces", 1)] * 6
    facts = [map_traces(parse_traces(batch.body, "json"), 1, Settings()) for batch in made]
    assert sum(len(part[""].selections) for part in facts) == 13


@pytest.mark.parametrize("format", ["events", "openai-messages", "otlp-json", "skills"])
@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000, "\0", '"x"', "["])
def test_a_file_of_nothing_good_is_named_in_every_format(tmp_path: Path, format: Format, content: str) -> None:
    made, problems = read(write(tmp_path / "bad.json", content), format)
    assert made == []
    assert len(problems) >= 1


@pytest.mark.parametrize("layout", ["[%s,\n%s,\n%s]", "%s\n%s\n%s"])
def test_a_value_that_is_none_takes_no_neighbour_with_it(tmp_path: Path, layout: str) -> None:
    nan = '{"type": "call", "skill_id": "s", "event_id": "nan", "latency_ms": NaN}'
    good = '{"type": "call", "skill_id": "s", "event_id": "good"}'
    (made,), problems = read(write(tmp_path / "mixed.json", layout % (nan, "nonsense", good)), "events")
    assert [json.loads(line)["event_id"] for line in made.body.splitlines()] == ["nan", "good"]
    assert [problem.line for problem in problems] == [2]
