"""OpenInference spans, and what frameworks hide in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.mapping import map_span
from pickwise.settings import Settings
from tests.collector.mapping.spans import START, mapped, only_call, span

SCHEMA = {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}


def tool_message(call_id: str, name: str, content: str, status: str) -> dict[str, Any]:
    return {"type": "tool", "data": {"content": content, "name": name, "tool_call_id": call_id, "status": status}}


def given(*calls: tuple[str, str]) -> str:
    return json.dumps([{"name": name, "args": {}, "id": call_id, "type": "tool_call"} for call_id, name in calls])


def test_a_model_turn_of_flattened_names() -> None:
    attributes: dict[str, Any] = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "session.id": "s",
        "metadata": '{"lc_agent_name": "a"}',
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.contents.0.message_content.text": "in parts",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "1",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "t10",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"a": 1}',
    }
    for number in reversed(range(12)):  # ten comes after nine
        definition = {"type": "function", "function": {"name": f"t{number}", "parameters": SCHEMA}}
        attributes[f"llm.tools.{number}.tool.json_schema"] = json.dumps(definition)
    facts = mapped(attributes)
    (selection,) = facts.selections
    assert [candidate.skill_id for candidate in selection.candidates] == [f"t{i}" for i in range(12)]
    assert (selection.query, selection.model, selection.session_id, selection.agent) == ("in parts", "m", "s", "a")
    assert [(call.role, call.call_id, call.skill_id) for call in facts.calls] == [("propose", "1", "t10")]
    assert facts.offered[0].parameters_schema == SCHEMA


def test_a_quoted_result_is_an_answer_with_the_name_of_its_call() -> None:
    facts = mapped(
        {
            "openinference.span.kind": "LLM",
            "llm.tools.0.tool.json_schema": '{"name": "get"}',
            "llm.input_messages.0.message.role": "assistant",
            "llm.input_messages.0.message.tool_calls.0.tool_call.id": "1",
            "llm.input_messages.0.message.tool_calls.0.tool_call.function.name": "get",
            "llm.input_messages.1.message.role": "tool",
            "llm.input_messages.1.message.tool_call_id": "1",
            "llm.input_messages.1.message.content": "An error occurred",
        },
        settings=Settings(error_patterns=["^An error occurred"]),
    )
    (answer,) = facts.calls
    assert (answer.role, answer.skill_id, answer.call_id, answer.ok) == ("answer", "get", "1", False)


def test_a_tool_span_knows_its_id_from_the_message_that_it_returns() -> None:
    output = json.dumps(tool_message("1", "get", "fine", "success"))
    call = only_call({"openinference.span.kind": "TOOL", "tool.name": "get", "output.value": output})
    assert (call.role, call.call_id, call.ok) == ("run", "1", True)
    failed = json.dumps(tool_message("1", "get", "Error: nothing there", "error"))
    call = only_call({"openinference.span.kind": "TOOL", "tool.name": "get", "output.value": failed})
    assert (call.ok, call.error_message) == (False, "Error: nothing there")


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ('{"b": 1}', "invalid_arguments"),
        ('{"a": 1, "b": 2}', "invalid_arguments"),
        ('{"a": ', "invalid_arguments"),
        ('{"a": 1}', "tool_error"),
    ],
)
def test_arguments_that_break_the_schema_explain_a_redacted_failure(arguments: str, kind: str) -> None:
    attributes = {"openinference.span.kind": "TOOL", "tool.name": "get", "tool.parameters": json.dumps(SCHEMA)}
    call = only_call(attributes | {"input.value": arguments}, status_code=2, status_message="details are redacted")
    assert call.error_kind == kind
    assert only_call(attributes | {"input.value": arguments}).ok is True  # what succeeded is not judged


def test_a_node_of_one_call_is_a_run_with_its_id() -> None:
    output = json.dumps(
        {"messages": [tool_message("1", "x", "Error: x is not a valid tool, try one of [get].", "error")]}
    )
    attributes = {"openinference.span.kind": "CHAIN", "input.value": given(("1", "x")), "output.value": output}
    call = only_call(attributes)
    assert (call.role, call.call_id, call.ok, call.error_kind, call.latency_ms) == (
        "run",
        "1",
        False,
        "not_found",
        None,
    )


def test_a_node_of_several_calls_only_answers() -> None:
    messages = [tool_message("1", "get", "fine", "success"), tool_message("2", "put", "timed out", "error")]
    attributes = {
        "openinference.span.kind": "CHAIN",
        "input.value": given(("1", "get"), ("2", "put")),
        "output.value": json.dumps({"messages": messages}),
    }
    calls = mapped(attributes).calls
    assert [(call.role, call.call_id, call.ok, call.error_kind) for call in calls] == [
        ("answer", "1", True, None),
        ("answer", "2", False, "timeout"),
    ]
    assert len({call.event_id for call in calls}) == 2


def test_a_state_that_holds_tool_messages_is_no_tools_node() -> None:
    state = json.dumps(
        {"messages": [{"type": "human", "data": {"content": "hi"}}, tool_message("1", "get", "r", "error")]}
    )
    assert map_span(span(attributes={"openinference.span.kind": "CHAIN", "output.value": state}), Settings()) is None


def test_calls_that_langchain_could_not_read() -> None:
    invalid = {"type": "invalid_tool_call", "id": "1", "name": "get", "args": '{"a": ', "error": "JSONDecodeError"}
    output = json.dumps(
        {"generations": [[{"message": {"kwargs": {"tool_calls": [], "invalid_tool_calls": [invalid]}}}]]}
    )
    facts = mapped({"openinference.span.kind": "LLM", "output.value": output})
    (call,) = facts.calls
    assert (call.role, call.call_id, call.ok, call.error_kind) == ("propose", "1", False, "invalid_arguments")
    assert call.arguments == '{"a": '
    assert len(facts.selections) == 1


def test_a_turn_that_ends_with_an_unknown_tool() -> None:
    message = "Tool not found: {'tool_name': 'launch_rocket'}"
    call = only_call({"openinference.span.kind": "CHAIN"}, status_code=2, status_message=message)
    assert (call.skill_id, call.ok, call.error_kind, call.latency_ms) == ("launch_rocket", False, "not_found", None)
    assert call.time == START + 5_000_000  # after the model span that it contains
    assert map_span(span(attributes={"openinference.span.kind": "CHAIN"}), Settings()) is None
