"""OpenTelemetry GenAI and MCP spans."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.spans import SpanEvent
from pickwise.events import MAX_CANDIDATES
from pickwise.settings import Settings
from tests.collector.mapping.spans import START, mapped, only_call

TOOL = {"type": "function", "name": "get", "description": "Gets.", "parameters": {"type": "object"}}


def chat(**attributes: Any) -> dict[str, Any]:
    return {"gen_ai.operation.name": "chat", "gen_ai.tool.definitions": json.dumps([TOOL])} | {
        f"gen_ai.{key.replace('__', '.')}": value for key, value in attributes.items()
    }


def output(*calls: dict[str, Any]) -> str:
    return json.dumps([{"role": "assistant", "parts": [{"type": "tool_call", **call} for call in calls]}])


def tool(**attributes: Any) -> dict[str, Any]:
    return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get"} | attributes


def test_a_model_turn_is_a_selection_with_its_proposals() -> None:
    facts = mapped(chat(output__messages=output({"name": "get", "id": "1", "arguments": {"a": 1}}, {"name": "put"})))
    (selection,) = facts.selections
    assert selection.time == START
    assert [candidate.skill_id for candidate in selection.candidates] == ["get"]
    assert [(call.role, call.ordinal, call.call_id, call.skill_id) for call in facts.calls] == [
        ("propose", 0, "1", "get"),
        ("propose", 1, None, "put"),
    ]
    assert {call.selection_id for call in facts.calls} == {selection.event_id}
    (offer,) = facts.offered_skills
    assert (offer.skill_id, offer.description, offer.parameters_schema) == ("get", "Gets.", {"type": "object"})


def test_structured_attributes_say_the_same_as_json_text() -> None:
    messages = [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]
    text, structured = (
        mapped(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.tool.definitions": form([TOOL]),
                "gen_ai.input.messages": form(messages),
            }
        )
        for form in (json.dumps, lambda value: value)
    )
    assert text == structured
    assert text.selections[0].query == "hi"


def test_the_query_is_the_last_user_text() -> None:
    messages = [
        {"role": "user", "parts": [{"type": "text", "content": "first"}]},
        {"role": "assistant", "parts": [{"type": "text", "content": "ok"}]},
        {"role": "user", "parts": [{"type": "text", "content": "second"}, {"type": "text", "content": "line"}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "get", "arguments": {}}]},
        {"role": "user", "parts": [{"type": "tool_call_response", "id": "1", "response": "r"}]},
    ]
    facts = mapped(chat(input__messages=json.dumps(messages)))
    assert facts.selections[0].query == "second\nline"
    (answer,) = facts.calls
    assert (answer.role, answer.skill_id, answer.call_id, answer.ok) == ("answer", "get", "1", True)  # name by its id


def test_only_fresh_results_are_answers() -> None:
    exchange = [
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "get", "arguments": {}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "name": "get", "response": "old"}]},
    ]
    facts = mapped(chat(input__messages=json.dumps(exchange * 3)))
    assert len(facts.calls) == 1


def test_error_patterns_and_mcp_errors_in_quoted_results() -> None:
    parts = [
        {"type": "tool_call_response", "id": "1", "name": "get", "response": "Error: request timed out"},
        {"type": "tool_call_response", "id": "2", "name": "get", "response": {"isError": True, "content": []}},
        {"type": "tool_call_response", "id": "3", "name": "get", "response": {"isError": False}},
    ]
    settings = Settings(error_patterns=[{"pattern": "^Error", "error_kind": "timeout"}])
    facts = mapped(chat(input__messages=json.dumps([{"role": "tool", "parts": parts}])), settings=settings)
    assert [(call.ok, call.error_kind) for call in facts.calls] == [(False, "timeout"), (False, None), (True, None)]


def test_messages_on_the_details_event() -> None:
    event = SpanEvent(
        "gen_ai.client.inference.operation.details",
        START,
        {"gen_ai.output.messages": output({"name": "get", "id": "1"}), "gen_ai.tool.definitions": json.dumps([TOOL])},
    )
    facts = mapped({"gen_ai.operation.name": "chat"}, events=[event])
    assert [call.skill_id for call in facts.calls] == ["get"]


def test_a_model_span_without_tools_is_no_selection() -> None:
    messages = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hi"}]}])
    facts = mapped({"gen_ai.operation.name": "chat", "gen_ai.input.messages": messages})
    assert len(facts) == 0


def test_a_menu_beyond_the_limit_keeps_what_was_called() -> None:
    menu = [{"name": f"t{i}"} for i in range(500)]
    facts = mapped(chat(tool__definitions=json.dumps(menu), output__messages=output({"name": "t499", "id": "1"})))
    names = [candidate.skill_id for candidate in facts.selections[0].candidates]
    assert len(names) == MAX_CANDIDATES
    assert names[-1] == "t499"
    assert names[:3] == ["t0", "t1", "t2"]
    assert len(facts.offered_skills) == 500


@pytest.mark.parametrize(
    "garbage", ["", "{", "null", "[1, null]", '[{"parts": 5}]', '[{"name": 5}]', 7, [None], {"a": 1}]
)
def test_attributes_of_no_use_are_passed_over(garbage: Any) -> None:
    facts = mapped(chat(input__messages=garbage, output__messages=garbage, tool__definitions=garbage))
    assert facts.calls == []


def test_a_tool_span_is_a_run() -> None:
    call = only_call(
        tool(**{"gen_ai.tool.call.id": "1", "gen_ai.tool.call.arguments": '{"a": 1}'}), parent_span_id="a" * 16
    )
    assert (call.role, call.skill_id, call.call_id, call.ok, call.latency_ms) == ("run", "get", "1", True, 5.0)
    assert (call.arguments, call.parent_span_id) == ({"a": 1}, "a" * 16)


@pytest.mark.parametrize(
    ("attributes", "fields", "kind"),
    [
        ({}, {"status_code": 2, "status_message": "boom"}, "tool_error"),
        ({"error.type": "TimeoutError"}, {}, "timeout"),
        ({"error.type": "-32602"}, {}, "invalid_arguments"),
        ({"error.type": "x", "http.response.status_code": 503}, {}, "http_5xx"),
        ({}, {"events": [SpanEvent("exception", START, {"exception.type": "KeyError"})]}, "exception"),
        ({"gen_ai.tool.call.result": '{"isError": true, "content": [{"text": "rate limit"}]}'}, {}, "rate_limited"),
        ({"gen_ai.tool.call.result": "Error: no such flight"}, {}, "other"),
        (
            {"pydantic_ai.tool.failure_stage": "validation"},
            {"status_code": 2, "status_message": "x"},
            "invalid_arguments",
        ),
    ],
)
def test_signs_of_failure(attributes: dict[str, Any], fields: dict[str, Any], kind: str) -> None:
    settings = Settings(error_patterns=[{"pattern": "^Error", "error_kind": "other"}])
    call = only_call(tool(**attributes), settings=settings, **fields)
    assert (call.ok, call.error_kind) == (False, kind)
    assert call.error_message


def test_a_pattern_for_another_skill_does_not_count() -> None:
    settings = Settings(error_patterns=[{"pattern": "Error", "skill_id": "put"}])
    assert only_call(tool(**{"gen_ai.tool.call.result": "Error"}), settings=settings).ok is True


def test_older_names_and_wrapped_arguments_of_pydantic_ai() -> None:
    old = only_call(tool(tool_arguments='{"a":1}', tool_response="fine"))
    assert (old.arguments, old.ok) == ({"a": 1}, True)
    wrapped = only_call(tool(**{"gen_ai.tool.call.arguments": json.dumps({"INVALID_JSON": '{"a": '})}))
    assert wrapped.arguments == '{"a": '


@pytest.mark.parametrize(
    ("attributes", "name", "skill_id"),
    [
        ({"mcp.method.name": "tools/call", "gen_ai.tool.name": "get"}, "tools/call get", "get"),
        ({"mcp.method.name": "tools/call"}, "MCP send tools/call get", "get"),
        ({"gen_ai.operation.name": "execute_tool"}, "execute_tool get me", "get me"),
    ],
)
def test_where_the_name_of_the_tool_is(attributes: dict[str, Any], name: str, skill_id: str) -> None:
    assert only_call(attributes, name=name).skill_id == skill_id


def test_what_is_no_call() -> None:
    assert len(mapped({"gen_ai.operation.name": "execute_tool"}, name="merged")) == 0
    assert len(mapped(tool(**{"gen_ai.tool.name": "(merged tools)"}))) == 0
    assert only_call(tool(**{"gen_ai.tool.call.id": "<not specified>"})).call_id is None


def test_an_end_before_the_start_is_no_duration() -> None:
    assert only_call(tool(), end_ns=START - 1).latency_ms is None
    assert only_call(tool(), start_ns=0).time is None


def roles(attributes: dict[str, Any], **fields: Any) -> list[str]:
    return [getattr(fact, "role", "turn") for fact in mapped(attributes, **fields).selections]


CONTENT = {
    "definitions": [TOOL],
    "input": [
        {"role": "user", "parts": [{"type": "text", "content": "hi"}]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "1", "name": "get", "arguments": {"a": [1, None]}}],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": {"error": "no"}}]},
    ],
    "output": [
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "2", "name": "get", "arguments": {"a": 2}}]}
    ],
}


@pytest.mark.parametrize("form", [json.dumps, lambda value: value], ids=["json", "structured"])
@pytest.mark.parametrize("provider", ["gen_ai.provider.name", "gen_ai.system"])
@pytest.mark.parametrize("place", ["attributes", "one event", "an event each"])
def test_a_turn_wherever_its_messages_are(form: Any, provider: str, place: str) -> None:
    told = {
        "gen_ai.tool.definitions": form(CONTENT["definitions"]),
        "gen_ai.input.messages": form(CONTENT["input"]),
        "gen_ai.output.messages": form(CONTENT["output"]),
    }
    own = {"gen_ai.operation.name": "chat", provider: "openai"}
    parts = [told] if place == "one event" else [{key: value} for key, value in told.items()]
    events = [SpanEvent("gen_ai.client.inference.operation.details", START, part) for part in parts]
    facts = mapped(own | told) if place == "attributes" else mapped(own, events=events)
    (selection,) = facts.selections
    assert (selection.query, [candidate.skill_id for candidate in selection.candidates]) == ("hi", ["get"])
    proposal, answer = facts.calls
    assert (proposal.role, proposal.call_id, proposal.arguments) == ("propose", "2", {"a": 2})
    assert (answer.role, answer.call_id, answer.ok) == ("answer", "1", False)


@pytest.mark.parametrize(
    "events",
    [
        [
            ("gen_ai.tool.message", {"role": "tool", "content": '{"a": 1}', "id": "1"}),
            ("gen_ai.choice", {"message": '[{"text": "permission denied"}]', "id": "1"}),
        ],
        [
            (
                "gen_ai.client.inference.operation.details",
                {
                    "gen_ai.input.messages": json.dumps(
                        [{"role": "tool", "parts": [{"type": "tool_call", "id": "1", "arguments": {"a": 1}}]}]
                    )
                },
            ),
            (
                "gen_ai.client.inference.operation.details",
                {
                    "gen_ai.output.messages": json.dumps(
                        [{"role": "tool", "parts": [{"type": "tool_call_response", "response": "permission denied"}]}]
                    )
                },
            ),
        ],
    ],
    ids=["older", "newer"],
)
def test_a_tool_span_that_tells_in_events(events: list[tuple[str, dict[str, Any]]]) -> None:
    spans = [SpanEvent(name, START, attributes) for name, attributes in events]
    call = only_call(tool(**{"gen_ai.tool.call.id": "1", "gen_ai.tool.status": "error"}), events=spans)
    assert (call.arguments, call.ok, call.error_kind) == ({"a": 1}, False, "permission_denied")
    assert only_call(tool(**{"gen_ai.tool.status": "success"}), events=spans).ok is True


def test_structured_arguments_and_results_of_a_tool_span() -> None:
    call = only_call(
        tool(
            **{
                "gen_ai.tool.call.arguments": {"a": [1, {"b": 2}]},
                "gen_ai.tool.call.result": {"isError": True, "content": [{"type": "text", "text": "no"}]},
            }
        )
    )
    assert (call.arguments, call.ok) == ({"a": [1, {"b": 2}]}, False)


def test_a_model_span_without_messages_waits_for_its_log_records() -> None:
    """It is no turn by itself; what it knows folds into the turn that log records tell under the same event id."""
    silent = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.conversation.id": "s"}
    (context,) = mapped(silent).selections
    assert roles(silent) == ["run"]
    assert (context.session_id, context.model, context.time) == ("s", "m", START)
    assert context.event_id == mapped(chat(output__messages=output({"name": "get"}))).selections[0].event_id
    assert roles(chat()) == ["turn"]
    messages = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hi"}]}])
    assert roles(silent | {"gen_ai.input.messages": messages}) == []


@pytest.mark.parametrize("operation", ["invoke_agent", "invoke_workflow"])
def test_an_agents_run_says_what_its_turns_leave_out(operation: str) -> None:
    attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.agent.name": "travel",
        "gen_ai.conversation.id": "s",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]),
        "gen_ai.agent.tools": '["get", "put"]',
    }
    (run,) = mapped(attributes).selections
    assert roles(attributes) == ["run"]
    assert (run.agent, run.session_id, run.query) == ("travel", "s", "hi")
    assert [candidate.skill_id for candidate in run.candidates] == ["get", "put"]


def test_a_span_that_another_dialect_knows_better_is_left_to_it() -> None:
    attributes = {
        "gen_ai.operation.name": "chat",
        "openinference.span.kind": "LLM",
        "llm.tools.0.tool.json_schema": json.dumps(TOOL),
    }
    assert [candidate.skill_id for candidate in mapped(attributes).selections[0].candidates] == ["get"]


def test_a_refused_call_failed_although_it_never_ran() -> None:
    """The next prompt quotes the refusal; without a word of why, its menu tells (see the folding)."""
    parts = [{"type": "tool_call_response", "id": "1", "name": "fly", "response": {"error": "Unknown tool: fly"}}]
    (answer,) = mapped(chat(input__messages=json.dumps([{"role": "tool", "parts": parts}]))).calls
    assert (answer.role, answer.skill_id, answer.ok, answer.error_kind) == ("answer", "fly", False, "not_found")


def test_results_with_ids_of_their_own_answer_the_calls_before_them_in_order() -> None:
    """As OpenLLMetry has OpenAI's Responses API: the item's id on the call, the call's id on the result."""
    calls = [{"type": "tool_call", "id": f"fc_{n}", "name": name} for n, name in enumerate(("get", "put"))]
    results = [{"type": "tool_call_response", "id": f"call_{n}", "response": f"{n}"} for n in range(2)]
    said = [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]
    said += [{"role": "assistant", "parts": [call]} for call in calls]
    said += [{"role": "tool", "parts": [result]} for result in results]
    facts = mapped(chat(input__messages=json.dumps(said)))
    assert [(call.role, call.skill_id, call.call_id) for call in facts.calls] == [
        ("answer", "get", "fc_0"),
        ("answer", "put", "fc_1"),
    ]
    one_less = mapped(chat(input__messages=json.dumps(said[:-1])))
    assert [(call.skill_id, call.call_id) for call in one_less.calls] == [("", "call_0")]


def test_the_id_of_a_response_is_no_conversation() -> None:
    """Agent Framework calls that a conversation which a request goes on from; each turn has another."""
    (selection,) = mapped(chat(conversation__id="resp_1") | {"session.id": "s"}).selections
    assert selection.session_id == "s"
    (selection,) = mapped(chat(conversation__id="conv_1")).selections
    assert selection.session_id == "conv_1"


def test_a_result_that_is_an_error_alone_is_a_failure() -> None:
    call = only_call(tool(**{"gen_ai.tool.call.result": '{"error": "no rooms"}'}))
    assert (call.ok, call.error_kind) == (False, "tool_error")
