"""LangSmith's export, and its recording against the truth of its scenario.

How the recording was counted, by hand, from the raw spans. A selection is a span of kind `llm`: each lists ten tool
definitions. There are 11 (2 + 1 + 3 + 2 + 2 + 1: the exception of turn 2 and the unreadable arguments of turn 6 end
these turns). A call is a `tool_call` or `invalid_tool_call` of such a span's `gen_ai.completion`: call_001 … call_008.
Without a pick are the last turns of 1, 3, 4 and 5. Failed: book_hotel and one convert_currency (their `tool` spans have
status ERROR), launch_rocket (the node's tool message has status `error`), calculator (`invalid_tool_calls`). Of the
scenario's truth (15, 6, 10, 4) the export lacks what LangGraph did not do: turns 2 and 6 end at their error, so 4
selections, 2 of them without a pick, and 2 calls are missing.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from collector.mapping import map_span
from collector.spans import SpanEvent
from pickwise.settings import Settings
from tests.collector.mapping.folding import fold, recorded, turns, without_pick
from tests.collector.mapping.spans import START, mapped, only_call, span

RECORDING = "otlp/langgraph-1.2.24+langsmith-otel-0.15.1"
SCHEMA = {"type": "object", "properties": {"a": {}}}
OPENAI_TOOL = {"type": "function", "function": {"name": "get", "description": "Gets.", "parameters": SCHEMA}}
OPENAI_CALL = {"id": "1", "type": "function", "function": {"name": "get", "arguments": '{"a":1}'}}


def test_the_recording_tells_its_own_truth(shared: Path) -> None:
    facts = recorded(shared / RECORDING)
    folded = fold(facts)
    assert len({selection.event_id for selection in turns(facts)}) == len(turns(facts)) == 11
    assert (without_pick(facts, folded), len(folded)) == (4, 8)
    assert Counter((call.skill_id, call.error_kind) for call in folded if call.ok is False) == {
        ("book_hotel", "exception"): 1,
        ("convert_currency", "invalid_arguments"): 1,
        ("launch_rocket", "not_found"): 1,
        ("calculator", "invalid_arguments"): 1,
    }
    assert [call.skill_id for call in folded if call.ok is None] == []
    assert [call.skill_id for call in folded if call.hallucinated] == ["launch_rocket"]
    assert len({selection.query for selection in turns(facts)}) == 6
    assert {selection.session_id for selection in turns(facts)} == {f"thread-{i}" for i in range(6)}
    assert {(s.agent, s.model, len(s.candidates)) for s in turns(facts)} == {("travel_agent", "fake-model-1", 10)}


def test_the_error_that_was_raised_is_told_without_its_traceback(shared: Path) -> None:
    booking = next(call for call in fold(recorded(shared / RECORDING)) if call.skill_id == "book_hotel")
    told = {fact.error_message for fact in booking.facts if fact.ok is False}
    assert told == {"no rooms left in 上海 for 2 nights (upstream 503)"}
    assert all(fact.arguments == {"city": "上海", "nights": 2} for fact in booking.facts)


def model(prompt: Any, completion: Any, **attributes: Any) -> dict[str, Any]:
    return {
        "langsmith.span.kind": "llm",
        "gen_ai.operation.name": "chat",
        "gen_ai.prompt": json.dumps(prompt),
        "gen_ai.completion": json.dumps(completion),
        **attributes,
    }


def lc(class_name: str, **kwargs: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", class_name], "kwargs": kwargs}


ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What?"}]
ANTHROPIC = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "get", "input": {"a": 1}}]}
RESPONSES = [{"type": "function_call", "id": "fc", "call_id": "1", "name": "get", "arguments": '{"a":1}'}]
LANGCHAIN = lc("AIMessage", content="", tool_calls=[{"name": "get", "args": {"a": 1}, "id": "1", "type": "tool_call"}])


@pytest.mark.parametrize(
    ("prompt", "completion"),
    [
        ({"messages": ASKED, "tools": [OPENAI_TOOL]}, {"choices": [{"message": {"tool_calls": [OPENAI_CALL]}}]}),
        ({"messages": ASKED, "tools": [OPENAI_TOOL]}, {"role": "assistant", "tool_calls": [OPENAI_CALL]}),
        ({"messages": ASKED, "tools": [OPENAI_TOOL]}, {"messages": [{"role": "ai", "tool_calls": [OPENAI_CALL]}]}),
        ({"messages": ASKED, "tools": [{"name": "get", "input_schema": SCHEMA}]}, ANTHROPIC),
        ({"messages": ASKED, "tools": [{"name": "get", "input_schema": SCHEMA}]}, {"output": ANTHROPIC}),
        ({"input": "What?", "tools": [{"name": "get", "parameters": SCHEMA}]}, {"output": RESPONSES}),
        ({"input": ASKED, "tools": [{"name": "get", "parameters": SCHEMA}]}, {"output": RESPONSES}),
        (
            {"messages": ASKED, "tools": [{"function_declarations": [{"name": "get", "parameters": SCHEMA}]}]},
            {"choices": [{"message": {"role": "assistant", "tool_calls": [OPENAI_CALL]}}]},
        ),
        (
            {"messages": [[lc("SystemMessage", content="Be brief."), lc("HumanMessage", content="What?")]]},
            {"generations": [[{"text": "", "message": LANGCHAIN}]]},
        ),
        ({"messages": [["user", "What?"]]}, {"generations": [[{"text": "", "message": LANGCHAIN}]]}),
    ],
)
def test_a_model_run_in_the_form_of_what_was_traced(prompt: dict[str, Any], completion: dict[str, Any]) -> None:
    for choice in completion.get("choices", []):
        choice["message"].setdefault("role", "assistant")
    attributes = model(prompt, completion)
    if "tools" not in prompt:
        attributes["gen_ai.tool.definitions"] = json.dumps([OPENAI_TOOL])
    facts = mapped(attributes)
    (selection,) = facts.selections
    assert selection.query == "What?"
    assert [candidate.skill_id for candidate in selection.candidates] == ["get"]
    assert facts.offered_skills[0].parameters_schema == SCHEMA
    (call,) = facts.calls
    assert (call.role, call.call_id, call.skill_id) == ("propose", "1", "get")
    assert call.arguments in ({"a": 1}, '{"a":1}')


def test_whose_run_it_is() -> None:
    attributes = model(
        {"messages": ASKED},
        {},
        **{
            "gen_ai.tool.definitions": json.dumps([OPENAI_TOOL]),
            "langsmith.trace.session_name": "a project",
            "langsmith.trace.session_id": "a project's id",
            "langsmith.metadata.thread_id": "t",
            "langsmith.metadata.lc_agent_name": "a",
            "langsmith.metadata.ls_model_name": "m",
        },
    )
    (selection,) = mapped(attributes).selections
    assert (selection.session_id, selection.agent, selection.model) == ("t", "a", "m")


def test_quoted_results_are_answers() -> None:
    messages = [
        lc("HumanMessage", content="What?"),
        LANGCHAIN,
        lc("ToolMessage", content="no rooms", tool_call_id="1", name="get", status="error"),
    ]
    (answer,) = mapped(model({"messages": [messages]}, {})).calls
    assert (answer.role, answer.call_id, answer.ok, answer.error_message) == ("answer", "1", False, "no rooms")


def test_calls_that_langchain_could_not_read() -> None:
    invalid = {"type": "invalid_tool_call", "id": "1", "name": "get", "args": '{"a": ', "error": "JSONDecodeError"}
    message = lc("AIMessage", content="", invalid_tool_calls=[invalid])
    (call,) = mapped(model({"messages": [["user", "hi"]]}, {"generations": [[{"message": message}]]})).calls
    assert (call.call_id, call.ok, call.error_kind, call.arguments) == ("1", False, "invalid_arguments", '{"a": ')


def tool(prompt: Any, completion: Any, **attributes: Any) -> dict[str, Any]:
    told = {"langsmith.span.kind": "tool", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get"}
    return told | {"gen_ai.prompt": json.dumps(prompt), "gen_ai.completion": json.dumps(completion)} | attributes


@pytest.mark.parametrize(
    ("prompt", "arguments"),
    [
        ({"a": 1}, {"a": 1}),
        ({"input": "{'a': 1}"}, {"a": 1}),
        ({"input": '{"a": 1}'}, {"a": 1}),
        ({"input": "an argument of that name"}, {"input": "an argument of that name"}),
        ({"input": "{'a': 1}", "b": 2}, {"input": "{'a': 1}", "b": 2}),
        ("{'a': 1}", {"a": 1}),
        ("text", "text"),
    ],
)
def test_arguments_of_a_tool_run(prompt: Any, arguments: Any) -> None:
    assert only_call(tool(prompt, {"output": "fine"})).arguments == arguments


def test_a_tool_run_knows_its_id_from_the_message_that_it_returned() -> None:
    message = {"content": "fine", "type": "tool", "name": "get", "tool_call_id": "1", "status": "success"}
    call = only_call(tool({"a": 1}, {"output": message}))
    assert (call.role, call.skill_id, call.call_id, call.ok) == ("run", "get", "1", True)
    own = only_call(tool({"a": 1}, {"output": message}, **{"gen_ai.tool.call.id": "2"}))
    assert own.call_id == "2"
    failed = only_call(tool({"a": 1}, {"output": message | {"status": "error", "content": "Error: timed out"}}))
    assert (failed.ok, failed.error_kind) == (False, "timeout")


@pytest.mark.parametrize(
    ("recorded", "message", "kind"),
    [
        ("ToolBoom('no rooms')Traceback (most recent call last):\n  File", "no rooms", "exception"),
        ("TimeoutError('too slow')\n\nTraceback (most recent call last):\n  File", "too slow", "timeout"),
        ('KeyError("it\'s")Traceback (most recent call last):', "it's", "exception"),
        ("PermissionError(13, 'denied')Traceback (most recent call last):", "denied", "permission_denied"),
        ("3 validation errors for getTraceback (most recent call last):", "3 validation errors for get", None),
        ("Boom(reason=<Reason.X: 1>)", "reason=<Reason.X: 1>", "exception"),
    ],
)
def test_the_exception_within_langsmiths_own(recorded: str, message: str, kind: str | None) -> None:
    raised = SpanEvent("exception", START, {"exception.type": "Exception", "exception.message": recorded})
    call = only_call(tool({"a": 1}, {}), status_code=2, events=[raised])
    assert (call.ok, call.error_message, call.error_kind) == (False, message, kind or "invalid_arguments")


def test_an_agent_that_waits_for_a_person_has_not_failed() -> None:
    raised = SpanEvent("exception", START, {"exception.type": "Exception", "exception.message": "GraphInterrupt((1,))"})
    call = only_call(tool({"a": 1}, {}), status_code=2, events=[raised])
    assert (call.ok, call.error_kind) == (None, None)


def test_a_node_tells_of_a_call_that_never_ran() -> None:
    given = [{"name": "x", "args": {"a": 1}, "id": "1", "type": "tool_call"}]
    message = {"content": "Error: x is not a valid tool", "type": "tool", "name": "x", "tool_call_id": "1"}
    attributes = {
        "langsmith.span.kind": "chain",
        "gen_ai.prompt": json.dumps({"input": given}),
        "gen_ai.completion": json.dumps({"messages": [message | {"status": "error"}]}),
    }
    call = only_call(attributes)
    assert (call.role, call.call_id, call.arguments, call.error_kind) == ("run", "1", {"a": 1}, "not_found")


def test_other_runs_repeat_what_these_tell() -> None:
    for kind in ("chain", "retriever", "prompt", "parser"):
        assert len(mapped({"langsmith.span.kind": kind, "gen_ai.prompt": '{"messages":[["user","hi"]]}'})) == 0


def test_spans_of_a_users_own_go_by_the_conventions() -> None:
    """LangSmith also takes spans that say their kind and keep to OpenTelemetry's or Traceloop's attributes."""
    attributes = {"langsmith.span.kind": "TOOL", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get"}
    assert only_call(attributes).skill_id == "get"
    flattened = {
        "langsmith.span.kind": "LLM",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "What?",
        "gen_ai.completion.0.tool_calls.0.name": "get",
    }
    assert mapped(flattened).selections[0].query == "What?"


@pytest.mark.parametrize("kind", ["llm", "tool", "chain"])
@pytest.mark.parametrize(
    "value", ["{", "5", "null", "[]", '{"messages": 5}', '{"messages": [[5]]}', '{"output": [null]}', 5]
)
def test_values_of_other_forms_break_nothing(kind: str, value: Any) -> None:
    attributes = {"langsmith.span.kind": kind, "gen_ai.prompt": value, "gen_ai.completion": value}
    map_span(span(attributes=attributes), Settings())
