"""AutoGen's messages inside the spans of its runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.facts import Facts
from collector.otlp import parse_traces
from collector.spans import SpanLink
from pickwise.events import parse_time
from tests.collector.mapping.folding import fold, recorded, turns
from tests.collector.mapping.spans import START, TRACE, mapped

MADE_AT = "2026-11-29T19:56:51.727541Z"
ORIGIN = "c" * 32
CALLS = [{"id": "1", "name": "get", "arguments": '{"a": 1}'}, {"id": "2", "name": "put", "arguments": "{"}]
REQUEST = {"id": "m1", "source": "travel", "created_at": MADE_AT, "type": "ToolCallRequestEvent", "content": CALLS}
RESULTS = [
    {"call_id": "1", "name": "get", "content": "fine", "is_error": False},
    {"call_id": "2", "name": "put", "content": "Error: Expecting value: line 1 column 2 (char 1)", "is_error": True},
    {"call_id": "3", "name": "fly", "content": "Error: tool 'fly' not found in any workbench", "is_error": True},
    {"call_id": "4", "name": "get", "content": "Error: line 3 is odd", "is_error": True},
]
EXECUTION = REQUEST | {"id": "m2", "type": "ToolCallExecutionEvent", "content": RESULTS}
ASKED = {"id": "m0", "source": "user", "created_at": MADE_AT, "type": "TextMessage", "content": "hi"}


def handled(message: Any, linked: str | None = ORIGIN, **fields: Any) -> Facts:
    attributes = {
        "messaging.operation": "process",
        "messaging.destination": "RoundRobinGroupChatManager_1.(1)-A",
        "message": message if isinstance(message, str) else json.dumps(message),
    }
    links = [SpanLink(linked, "d" * 16)] if linked else []
    return mapped(attributes, scope_name="autogen SingleThreadedAgentRuntime", links=links, **fields)


def test_a_request_of_calls_is_a_turn_where_it_was_made() -> None:
    """The span is in a trace of its own; the link leads to the agent's, where the calls run."""
    facts = handled({"message": REQUEST})
    (selection,) = facts.selections
    assert (selection.agent, selection.trace_id, selection.session_id) == ("travel", ORIGIN, None)
    assert (selection.time, selection.candidates) == (parse_time(MADE_AT), [])  # menus are not exported
    assert [(call.role, call.call_id, call.skill_id, call.arguments) for call in facts.calls] == [
        ("propose", "1", "get", '{"a": 1}'),
        ("propose", "2", "put", "{"),
    ]
    assert {call.trace_id for call in facts.calls} == {ORIGIN}


def test_a_message_that_many_spans_handle_is_one() -> None:
    first = handled({"message": REQUEST})
    again = handled(
        {"name": "travel", "response": {"chat_message": ASKED | {"source": "travel"}, "inner_messages": [REQUEST]}},
        span_id="e" * 16,
        start_ns=START + 1,
    )
    assert first == again


def test_results_are_answers_with_their_failures() -> None:
    facts = handled({"message": EXECUTION})
    assert facts.selections == []
    assert [(call.role, call.call_id, call.ok, call.error_kind) for call in facts.calls] == [
        ("answer", "1", True, None),
        ("answer", "2", False, "invalid_arguments"),
        ("answer", "3", False, "not_found"),
        ("answer", "4", False, None),
    ]


def test_what_the_user_asks_begins_a_run_that_a_linked_trace_goes_on_with() -> None:
    asked = handled({"messages": [ASKED], "output_task_messages": True}, trace_id=ORIGIN, linked="b" * 32)
    going_on = handled({}, linked=ORIGIN)
    (begun,), (gone_on,) = asked.selections, going_on.selections
    assert (begun.query, begun.trace_id) == ("hi", None)
    assert (gone_on.query, gone_on.trace_id) == (None, TRACE)
    assert begun.event_id == gone_on.event_id
    assert {getattr(fact, "role", "turn") for fact in (begun, gone_on)} == {"run"}


@pytest.mark.parametrize(
    ("message", "query"),
    [
        (ASKED | {"type": "MultiModalMessage", "content": ["hi", {"data": "…"}, "there"]}, "hi\nthere"),
        (ASKED | {"source": "travel"}, None),
        (ASKED | {"type": "StopMessage"}, None),
        (ASKED | {"content": ""}, None),
        (ASKED | {"content": {"a": 1}}, None),
    ],
)
def test_who_asks(message: dict[str, Any], query: str | None) -> None:
    facts = handled({"messages": [message]})
    assert next((selection.query for selection in facts.selections), None) == query


def test_messages_of_older_versions_have_neither_id_nor_time() -> None:
    older = {key: value for key, value in REQUEST.items() if key not in ("id", "created_at")}
    first, again = handled({"message": older}), handled({"message": older}, span_id="e" * 16)
    assert first == again
    assert first.selections[0].time == START
    other = handled({"message": older | {"content": CALLS[:1]}})
    assert other.selections[0].event_id != first.selections[0].event_id


@pytest.mark.parametrize("linked", [None, "", "0" * 32, "short"])
def test_without_a_link_the_spans_own_trace_counts(linked: str | None) -> None:
    assert handled({"message": REQUEST}, linked=linked).selections[0].trace_id == TRACE


@pytest.mark.parametrize(
    "message",
    [
        "No Message",
        "",
        "{",
        "null",
        "[]",
        {"message": 5},
        {"message": REQUEST | {"content": 5}},
        {"message": REQUEST | {"content": [5, {"id": "1"}]}},
        {"message": EXECUTION | {"content": [{"name": "get"}]}},
        {"message": REQUEST | {"type": 5}},
        {"message": REQUEST | {"type": "StrangeEvent"}},
    ],
)
def test_messages_of_no_use_are_passed_over(message: Any) -> None:
    assert len(handled(message)) == 0


def test_a_time_that_is_none_is_the_spans() -> None:
    assert handled({"message": REQUEST | {"created_at": "yesterday"}}).selections[0].time == START


def test_its_recording(shared: Path) -> None:
    """Counted by hand: the distinct messages inside the `message` attributes of all spans.

    ToolCallRequestEvents, each a turn that chose: 1 + 2 + 2 + 1 + 1 + 2 = 9; they hold the calls call_001 … call_010.
    The six turns that only answer cannot be told from a chat without tools, as no menu is exported. Results with
    `is_error`: call_003 (book_hotel), call_005, call_007 (launch_rocket), call_009; eight calls have an execute_tool
    span, not launch_rocket and not the calculator call whose arguments are no JSON. Without menus no name is judged.
    """
    facts = recorded(shared / "otlp/autogen-agentchat-0.7.5")
    assert len({selection.event_id for selection in turns(facts)}) == 9
    assert all(not selection.candidates for selection in turns(facts))
    folded = fold(facts)
    assert len(folded) == 10
    assert [(call.skill_id, call.error_kind) for call in folded if call.ok is False] == [
        ("book_hotel", "exception"),
        ("convert_currency", "invalid_arguments"),
        ("launch_rocket", "not_found"),
        ("calculator", "invalid_arguments"),
    ]
    assert sum(any(fact.role == "run" for fact in call.facts) for call in folded) == 8
    assert all(any(fact.arguments for fact in call.facts) for call in folded)
    assert {call.hallucinated for call in folded} == {None}


def test_links_come_in_both_encodings() -> None:
    link = {"traceId": ORIGIN.upper(), "spanId": "D" * 16}
    raw = {"traceId": TRACE, "spanId": "e" * 16, "name": "autogen process", "links": [link]}
    as_json = parse_traces(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [raw]}]}]}).encode(), "json")
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(trace_id=b"\1" * 16, span_id=b"\1" * 8)
    span.links.add(trace_id=bytes.fromhex(ORIGIN), span_id=b"\xdd" * 8)
    for parsed in (as_json, parse_traces(request.SerializeToString(), "protobuf")):
        (found,) = parsed.spans()
        assert found.links[0] == SpanLink(ORIGIN, "d" * 16)
