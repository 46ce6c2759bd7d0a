"""OpenInference spans, and what frameworks hide in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.facts import Facts, SelectionFact
from collector.mapping import map_span
from collector.mapping.conversation import from_json
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
    assert facts.offered_skills[0].parameters_schema == SCHEMA


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
    facts = mapped({"openinference.span.kind": "CHAIN", "output.value": state}, parent_span_id="f" * 16)
    assert [(call.role, call.call_id, call.ok) for call in facts.calls] == [("answer", "1", False)]
    assert facts.selections == []


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


def turn(attributes: dict[str, Any]) -> Facts:
    return mapped({"openinference.span.kind": "LLM"} | attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        {"llm.tools.0.tool.json_schema": '{"name": "get", "description": "Gets.", "input_schema": {}}'},
        {"llm.tools.0.tool.name": "get", "llm.tools.0.tool.description": "Gets."},
        {"llm.tools.0.tool.name": "get", "llm.tools.0.tool.description": "Gets.", "llm.tools.0.tool.json_schema": "{}"},
        {"llm.tools": '[{"type": "function", "function": {"name": "get", "description": "Gets."}}]'},
        {"llm.tools": ['{"name": "get", "description": "Gets."}']},
        {"llm.invocation_parameters": '{"tools": [{"toolSpec": {"name": "get", "description": "Gets."}}]}'},
        {"llm.invocation_parameters": '{"functions": [{"name": "get", "description": "Gets."}]}'},
        {"input.value": '{"model": "m", "messages": [], "tools": [{"name": "get", "description": "Gets."}]}'},
    ],
)
def test_menus_in_all_shapes(attributes: dict[str, Any]) -> None:
    facts = turn(attributes)
    assert [candidate.skill_id for candidate in facts.selections[0].candidates] == ["get"]
    assert [(offer.skill_id, offer.description) for offer in facts.offered_skills] == [("get", "Gets.")]


def test_a_flattened_menu_comes_before_the_parameters_of_the_request() -> None:
    facts = turn(
        {"llm.tools.0.tool.json_schema": '{"name": "get"}', "llm.invocation_parameters": '{"tools": [{"name": "put"}]}'}
    )
    assert [candidate.skill_id for candidate in facts.selections[0].candidates] == ["get"]


@pytest.mark.parametrize(
    "attributes",
    [
        {
            "llm.output_messages.0.message.function_call_name": "get",
            "llm.output_messages.0.message.function_call_arguments_json": '{"a": 1}',
        },
        {"llm.function_call": '{"name": "get", "arguments": {"a": 1}}'},
        {"llm.function_call": '{"function_name": "get", "args": {"a": 1}}'},
        {
            "llm.output_messages.0.message.contents.0.message_content.type": "tool_use",
            "llm.output_messages.0.message.contents.0.message_content.tool_use.name": "get",
            "llm.output_messages.0.message.contents.0.message_content.tool_use.input": '{"a": 1}',
        },
        {
            "output.value": '{"choices": [{"message": {"role": "assistant", "tool_calls": [{"function": '
            '{"name": "get", "arguments": "{\\"a\\": 1}"}}]}}]}'
        },
        {"output.value": '{"role": "assistant", "content": [{"type": "tool_use", "name": "get", "input": {"a": 1}}]}'},
    ],
)
def test_calls_in_all_shapes(attributes: dict[str, Any]) -> None:
    (call,) = turn(attributes).calls
    assert (call.role, call.skill_id, from_json(call.arguments)) == ("propose", "get", {"a": 1})


def test_a_call_that_is_told_in_two_shapes_is_one() -> None:
    prefix = "llm.output_messages.0.message"
    (call,) = turn(
        {
            f"{prefix}.tool_calls.0.tool_call.id": "1",
            f"{prefix}.tool_calls.0.tool_call.function.name": "get",
            f"{prefix}.contents.0.message_content.type": "tool_use",
            f"{prefix}.contents.0.message_content.tool_use.name": "get",
            f"{prefix}.contents.0.message_content.tool_use.id": "1",
            "llm.function_call": '{"name": "get"}',
            "output.value": '{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "get"}}]}',
        }
    ).calls
    assert call.call_id == "1"


def test_messages_that_are_nowhere_but_in_the_input_of_the_model() -> None:
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "get", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "21"},
    ]
    facts = turn({"input.value": json.dumps({"messages": messages}), "llm.tools": '[{"name": "get"}]'})
    assert facts.selections[0].query == "hi"
    assert [(call.role, call.skill_id, call.call_id) for call in facts.calls] == [("answer", "get", "1")]


def test_what_is_called_a_model_but_returns_a_whole_run_is_one() -> None:
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "get", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "21"},
        {"role": "assistant", "tool_calls": [{"id": "2", "function": {"name": "get", "arguments": "{}"}}]},
    ]
    facts = mapped(
        {"openinference.span.kind": "LLM", "output.value": json.dumps({"messages": messages})}, parent_span_id="f" * 16
    )
    assert [fact.role for fact in facts.selections if isinstance(fact, SelectionFact)] == ["step", "step"]


def test_hidden_values_are_none() -> None:
    hidden = "__REDACTED__"
    facts = turn({"llm.tools": '[{"name": "get"}]', "llm.input_messages.0.message.role": "user",
                  "llm.input_messages.0.message.content": hidden})  # fmt: skip
    assert facts.selections[0].query is None
    attributes = {"openinference.span.kind": "TOOL", "tool.name": "get", "input.value": hidden, "output.value": hidden}
    assert only_call(attributes).arguments is None
    run = mapped({"openinference.span.kind": "AGENT", "input.value": hidden, "session.id": "s"}).selections[0]
    assert run.query is None


@pytest.mark.parametrize("key", ["session_id", "thread_id", "conversation_id"])
def test_a_session_that_only_the_free_metadata_tells(key: str) -> None:
    facts = turn({"llm.tools": '[{"name": "get"}]', "metadata": json.dumps({key: "s"}), "user.id": "u"})
    assert facts.selections[0].session_id == "s"
    both = turn({"llm.tools": '[{"name": "get"}]', "metadata": json.dumps({key: "s"}), "session.id": "t"})
    assert both.selections[0].session_id == "t"
    assert turn({"llm.tools": '[{"name": "get"}]', "user.id": "u"}).selections[0].session_id is None


def test_the_newer_names_of_the_model() -> None:
    names = {"llm.request.model_name": "asked", "llm.response.model_name": "answered"}
    assert turn({"llm.tools": '[{"name": "get"}]'} | names).selections[0].model == "asked"


@pytest.mark.parametrize(
    ("attributes", "arguments"),
    [
        ({"input.value": '{"a": 1}'}, '{"a": 1}'),
        (
            {"input.value": "Paris", "tool.parameters": '{"type": "object", "properties": {"city": {}}}'},
            {"city": "Paris"},
        ),
        ({"input.value": "Paris", "tool.parameters": '{"properties": {"city": {}, "unit": {}}}'}, "Paris"),
        ({"input.value": "Paris"}, "Paris"),
        ({"input.value": '{"city": "Par', "tool.parameters": '{"properties": {"city": {}}}'}, '{"city": "Par'),
        ({"tool_call.function.arguments": '{"a": 1}'}, '{"a": 1}'),
        ({"tool.parameters": '{"city": "Paris"}'}, {"city": "Paris"}),
        ({"tool.parameters": '{"city": {"type": "string"}}'}, None),
        ({}, None),
    ],
)
def test_the_arguments_of_a_tool_span(attributes: dict[str, Any], arguments: Any) -> None:
    call = only_call({"openinference.span.kind": "TOOL", "tool.name": "get"} | attributes)
    assert call.arguments == arguments


@pytest.mark.parametrize("name", ["tool_call.id", "tool.id"])
def test_the_call_that_a_tool_span_executes(name: str) -> None:
    assert only_call({"openinference.span.kind": "TOOL", "tool.name": "get", name: "1"}).call_id == "1"


def test_other_kinds_of_spans_are_not_read() -> None:
    attributes = {"openinference.span.kind": "EMBEDDING", "input.value": given(("1", "get"))}
    assert map_span(span(attributes=attributes), Settings()) is None


def test_what_lies_around_a_model_is_no_turn() -> None:
    """LlamaIndex has a second span around a model that streams: it ends well, and knows no answer."""
    attributes = {
        "openinference.span.kind": "LLM",
        "input.value": json.dumps({"messages": ["ChatMessage(role=<MessageRole.USER: 'user'>)"]}),
        "llm.tools.0.tool.json_schema": json.dumps({"name": "get"}),
    }
    (around,) = mapped(attributes, status_code=1).selections
    assert isinstance(around, SelectionFact)
    assert around.role == "run"
    (turn,) = mapped(attributes | {"output.value": "__REDACTED__"}, status_code=1).selections
    assert getattr(turn, "role", "turn") == "turn"


def test_flattened_messages_take_from_the_values_what_they_lack() -> None:
    """Ids of calls, which OpenInference for JavaScript leaves out, and Anthropic's flag of results that are errors."""
    part = {"type": "tool_use", "id": "c1", "name": "get", "input": {}}
    called = {"role": "assistant", "content": [part]}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "boom", "is_error": True}
    request = {"messages": [{"role": "user", "content": "hi"}, called, {"role": "user", "content": [result]}]}
    answer = called | {"content": [part | {"id": "c2"}]}
    prefix = "llm.input_messages"
    attributes = {
        "openinference.span.kind": "LLM",
        "input.value": json.dumps(request),
        "output.value": json.dumps(answer),
        f"{prefix}.0.message.role": "user",
        f"{prefix}.0.message.content": "hi",
        f"{prefix}.1.message.role": "assistant",
        f"{prefix}.1.message.tool_calls.0.tool_call.function.name": "get",
        f"{prefix}.2.message.role": "tool",
        f"{prefix}.2.message.content": "boom",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "get",
    }
    assert [(call.role, call.skill_id, call.call_id, call.ok) for call in mapped(attributes).calls] == [
        ("propose", "get", "c2", None),
        ("answer", "get", "c1", False),
    ]
