"""Messages of the GenAI conventions in span events: the older generations, and the forms of the APIs below them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.spans import SpanEvent
from tests.collector.mapping.spans import START, mapped

TOOL = {"type": "function", "name": "get", "description": "Gets.", "parameters": {"type": "object"}}
CALL: dict[str, Any] = {"id": "2", "type": "function", "function": {"name": "get", "arguments": '{"a": 2}'}}
MESSAGES: list[tuple[str, dict[str, Any]]] = [
    ("gen_ai.system.message", {"content": "Be kind."}),
    ("gen_ai.user.message", {"content": "hi"}),
    ("gen_ai.assistant.message", {"tool_calls": [CALL | {"id": "1"}]}),
    ("gen_ai.tool.message", {"content": '{"error": "no"}', "id": "1"}),
]
CHOICES: list[dict[str, Any]] = [
    {"index": 0, "finish_reason": "tool_calls", "message": {"tool_calls": [CALL]}},
    {"index": 0, "finish_reason": "tool_calls", "message": {"content": None}, "tool_calls": [CALL]},
]


@pytest.mark.parametrize("choice", CHOICES, ids=["calls in the message", "calls beside it"])
@pytest.mark.parametrize("form", ["attributes", "json attribute", "events attribute"])
def test_a_turn_of_the_older_generation(form: str, choice: dict[str, Any]) -> None:
    """Up to v1.36: one event a message. Azure writes each as JSON text, Pydantic AI once wrote all as one attribute."""
    held = [*MESSAGES, ("gen_ai.choice", choice)]
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.system": "openai"}
    events = []
    if form == "events attribute":
        attributes["events"] = json.dumps([{"event.name": name, **content} for name, content in held])
        attributes["model_request_parameters"] = json.dumps({"function_tools": [TOOL], "output_tools": []})
    elif form == "json attribute":
        events = [SpanEvent(name, START, {"gen_ai.event.content": json.dumps(content)}) for name, content in held]
    else:
        events = [SpanEvent(name, START, content) for name, content in held]
    facts = mapped(attributes, events=events)
    (selection,) = facts.selections
    assert selection.query == "hi"
    assert [candidate.skill_id for candidate in selection.candidates] == (["get"] if "events" in attributes else [])
    proposal, answer = facts.calls
    assert (proposal.role, proposal.skill_id, proposal.call_id) == ("propose", "get", "2")
    assert (answer.role, answer.skill_id, answer.call_id, answer.ok) == ("answer", "get", "1", False)


def test_a_turn_of_the_oldest_generation() -> None:
    """Up to v1.27: one event for all that was sent, one for all that was returned, in OpenAI's form."""
    prompt = [{"role": "user", "content": "hi"}]
    completion = [{"role": "assistant", "content": "", "tool_calls": [CALL]}]
    events = [
        SpanEvent("gen_ai.content.prompt", START, {"gen_ai.prompt": json.dumps(prompt)}),
        SpanEvent("gen_ai.content.completion", START, {"gen_ai.completion": json.dumps(completion)}),
    ]
    facts = mapped({"gen_ai.operation.name": "chat"}, events=events)
    assert facts.selections[0].query == "hi"
    assert [(call.role, call.call_id, call.arguments) for call in facts.calls] == [("propose", "2", '{"a": 2}')]
    bare = [SpanEvent("gen_ai.content.prompt", START, {"gen_ai.prompt": "hi"}), events[1]]
    assert mapped({"gen_ai.operation.name": "chat"}, events=bare).selections[0].query == "hi"


def test_messages_of_bedrock_in_events() -> None:
    """Strands: content blocks as JSON text, tool results as messages of the user."""
    asked = [{"text": "hi"}]
    answered = [{"toolResult": {"toolUseId": "1", "status": "error", "content": [{"text": "rate limit"}]}}]
    chosen = [{"text": "Well."}, {"toolUse": {"toolUseId": "2", "name": "get", "input": {"a": 2}}}]
    events = [
        SpanEvent("gen_ai.user.message", START, {"content": json.dumps(asked)}),
        SpanEvent("gen_ai.tool.message", START, {"content": json.dumps(answered)}),
        SpanEvent("gen_ai.choice", START, {"finish_reason": "tool_use", "message": json.dumps(chosen)}),
    ]
    facts = mapped({"gen_ai.operation.name": "chat"}, events=events)
    assert facts.selections[0].query == "hi"
    proposal, answer = facts.calls
    assert (proposal.skill_id, proposal.call_id, proposal.arguments) == ("get", "2", {"a": 2})
    assert (answer.call_id, answer.ok, answer.error_kind) == ("1", False, "rate_limited")


@pytest.mark.parametrize(
    ("content", "query"),
    [
        ("hi", "hi"),
        ([{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "x"}}], "hi"),
        ({"role": "user", "parts": [{"text": "hi"}, {"inline_data": None, "text": None}]}, "hi"),
        ('[{"text": "hi"}]', "hi"),
        ('["no", "parts"]', '["no", "parts"]'),
        ('[{"no": "parts"}]', '[{"no": "parts"}]'),
    ],
    ids=["text", "parts", "gemini", "json of parts", "json of texts", "json of objects"],
)
def test_what_the_user_said_in_any_form(content: Any, query: str) -> None:
    """Attributes of span events may be structured too."""
    events = [
        SpanEvent("gen_ai.user.message", START, {"content": content}),
        SpanEvent("gen_ai.choice", START, {"message": {"tool_calls": [CALL]}}),
    ]
    assert mapped({"gen_ai.operation.name": "chat"}, events=events).selections[0].query == query


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ("fine", False),
        ('{"error": "no such city"}', True),
        ('{"error": null}', False),
        ('{"error": "", "temp": 21}', False),
        ('{"isError": true, "content": []}', True),
        ("{broken", False),
    ],
)
def test_results_that_tell_their_failure(result: str, failed: bool) -> None:
    events = [SpanEvent("gen_ai.tool.message", START, {"content": result, "id": "1"})]
    (answer,) = mapped({"gen_ai.operation.name": "chat"}, events=events).calls
    assert answer.ok is not failed


@pytest.mark.parametrize("content", ["", "{", "[{", "[{}]", "null", 7, [None], {"parts": 5}, {"message": 5}])
@pytest.mark.parametrize(
    "name", ["gen_ai.user.message", "gen_ai.tool.message", "gen_ai.choice", "gen_ai.content.prompt"]
)
@pytest.mark.parametrize("key", ["content", "message", "gen_ai.event.content", "gen_ai.prompt", "tool_calls"])
def test_events_of_no_use_are_passed_over(name: str, key: str, content: Any) -> None:
    facts = mapped({"gen_ai.operation.name": "chat"}, events=[SpanEvent(name, START, {key: content})])
    assert facts.calls == []
    assert all(getattr(fact, "role", "turn") == "run" for fact in facts.selections)
