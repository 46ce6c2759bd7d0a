"""Spans of the Vercel AI SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.collector.mapping.spans import mapped, only_call

TOOLS = [json.dumps({"type": "function", "name": "get", "description": "Gets.", "inputSchema": {"type": "object"}})]


def generate(**attributes: Any) -> dict[str, Any]:
    return {"ai.operationId": "ai.generateText.doGenerate", "ai.prompt.tools": TOOLS} | attributes


def test_a_model_turn() -> None:
    calls = json.dumps([{"toolCallId": "1", "toolName": "get", "input": '{"a":1}'}])
    messages = json.dumps([{"role": "system", "content": "s"}, {"role": "user", "content": "plain text"}])
    attributes = generate(
        **{
            "ai.response.toolCalls": calls,
            "ai.prompt.messages": messages,
            "ai.model.id": "m",
            "ai.telemetry.metadata.sessionId": "s1",
            "ai.telemetry.functionId": "agent",
        }
    )
    facts = mapped(attributes)
    (selection,) = facts.selections
    assert (selection.query, selection.session_id, selection.model, selection.agent) == (
        "plain text",
        "s1",
        "m",
        "agent",
    )
    (call,) = facts.calls
    assert (call.role, call.call_id, call.skill_id, call.arguments) == ("propose", "1", "get", '{"a":1}')
    assert facts.offered_skills[0].parameters_schema == {"type": "object"}


@pytest.mark.parametrize(
    ("output", "ok", "kind"),
    [
        ({"type": "json", "value": {"a": 1}}, True, None),
        ({"type": "text", "value": "Error in the text only"}, True, None),
        ({"type": "error-text", "value": "no rooms left"}, False, None),
        ({"type": "error-text", "value": "Model tried to call unavailable tool 'x'."}, False, "not_found"),
        (
            {"type": "error-text", "value": "Invalid input for tool get: JSON parsing failed"},
            False,
            "invalid_arguments",
        ),
        ({"type": "error-json", "value": {"message": "permission denied"}}, False, "permission_denied"),
    ],
)
def test_refused_calls_are_known_from_the_next_prompt(output: dict[str, Any], ok: bool, kind: str | None) -> None:
    content = [{"type": "tool-result", "toolCallId": "1", "toolName": "get", "output": output}]
    facts = mapped(generate(**{"ai.prompt.messages": json.dumps([{"role": "tool", "content": content}])}))
    (answer,) = facts.calls
    assert (answer.role, answer.call_id, answer.ok, answer.error_kind) == ("answer", "1", ok, kind)


def test_a_tool_span() -> None:
    attributes = {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "get", "ai.toolCall.id": "1"}
    call = only_call(attributes | {"ai.toolCall.args": "{}", "ai.toolCall.result": '{"isError": true}'})
    assert (call.role, call.call_id, call.ok) == ("run", "1", False)
    assert only_call(attributes).ok is True


def test_outer_spans_repeat_what_inner_ones_say() -> None:
    assert len(mapped({"ai.operationId": "ai.generateText", "ai.prompt": "x"})) == 0
    assert len(mapped({"ai.operationId": "ai.toolCall"})) == 0
