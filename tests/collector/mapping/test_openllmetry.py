"""OpenLLMetry: both generations of its conventions, and two recordings against the truth of their scenario.

How the recordings were counted, by hand, from the raw spans. A selection is a `chat` span that lists tool definitions:
11 in each recording (2 + 1 + 3 + 2 + 2 + 1: the exception of turn 2 and the unreadable arguments of turn 6 end these
turns). A call is a `tool_call` part of such a span's `gen_ai.output.messages`: call_001 … call_007. An eighth, call_008
(calculator), is nowhere but in the `invalid_tool_calls` of what turn 6's node `model` returned; `events/` has no such
attribute, so there turn 6 picks nothing. Without a pick are the last turns of 1, 3, 4 and 5, in `events/` also that of
turn 6. Failed: book_hotel and one convert_currency (their `execute_tool` spans have status ERROR), launch_rocket (the
node's tool message says so; in `events/` no span ran it and it was not offered), calculator. Of the scenario's truth
(15, 6, 10, 4) the export lacks what LangGraph did not do: turns 2 and 6 end at their error, so 4 selections, 2 of them
without a pick, and 2 calls are missing.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from collector.facts import SelectionFact
from collector.mapping import map_span
from collector.mapping.facts_of import selection_id
from collector.spans import SpanEvent
from pickwise.settings import Settings
from tests.collector.mapping.folding import fold, recorded, turns, without_pick
from tests.collector.mapping.spans import SPAN, START, TRACE, mapped, only_call, span

RECORDING = "otlp/langgraph-1.2.24+opentelemetry-instrumentation-langchain-0.62.4"
SCOPE = "opentelemetry.instrumentation.langchain"
SCHEMA = {"type": "object", "properties": {"a": {}}}
FAILED = {("book_hotel", "exception"), ("convert_currency", "invalid_arguments"), ("launch_rocket", "not_found")}


@pytest.mark.parametrize(
    ("folder", "no_pick", "calls", "failed"),
    [(RECORDING, 4, 8, FAILED | {("calculator", "invalid_arguments")}), (f"{RECORDING}/events", 5, 7, FAILED)],
)
def test_a_recording_tells_its_own_truth(
    shared: Path, folder: str, no_pick: int, calls: int, failed: set[tuple[str, str]]
) -> None:
    facts = recorded(shared / folder)
    folded = fold(facts)
    assert len({selection.event_id for selection in turns(facts)}) == len(turns(facts)) == 11
    assert (without_pick(facts, folded), len(folded)) == (no_pick, calls)
    assert Counter((call.skill_id, call.error_kind) for call in folded if call.ok is False) == dict.fromkeys(failed, 1)
    assert [call.skill_id for call in folded if call.ok is None] == []
    assert [call.skill_id for call in folded if call.hallucinated] == ["launch_rocket"]
    assert {selection.session_id for selection in turns(facts)} == {f"thread-{i}" for i in range(6)}
    assert {(s.agent, s.model, len(s.candidates)) for s in turns(facts)} == {("travel_agent", "fake-model-1", 10)}


def test_the_spans_of_one_call_agree(shared: Path) -> None:
    facts = recorded(shared / RECORDING)
    assert len({selection.query for selection in turns(facts)}) == 6
    booking = next(call for call in fold(facts) if call.skill_id == "book_hotel")
    assert [(fact.role, fact.call_id) for fact in booking.facts] == [
        ("propose", "call_003"),
        ("run", "call_003"),  # the node
        ("run", "call_003"),  # the tool
    ]
    assert all(fact.arguments == {"city": "上海", "nights": 2} for fact in booking.facts)
    long = next(call for call in fold(facts) if call.skill_id == "query_database")
    assert len({json.dumps(fact.arguments) for fact in long.facts if fact.arguments}) == 1


def flattened(**attributes: Any) -> dict[str, Any]:
    return {
        "llm.request.type": "chat",
        "llm.request.functions.0.name": "get",
        "llm.request.functions.0.description": "Gets.",
        "llm.request.functions.0.parameters": json.dumps(SCHEMA),
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.0.content": "Be brief.",
        "gen_ai.prompt.1.role": "user",
        "gen_ai.prompt.1.content": "What?",
        **attributes,
    }


def test_a_flattened_model_turn() -> None:
    attributes = flattened(
        **{
            "gen_ai.request.model": "unknown",
            "gen_ai.response.model": "m",
            "traceloop.association.properties.session_id": "s",
            "traceloop.association.properties.lc_agent_name": "a",
            "traceloop.workflow.name": "w",
            "gen_ai.completion.0.tool_calls.1.id": "2",
            "gen_ai.completion.0.tool_calls.1.name": "put",
            "gen_ai.completion.0.tool_calls.0.id": "1",
            "gen_ai.completion.0.tool_calls.0.name": "get",
            "gen_ai.completion.0.tool_calls.0.arguments": '{"a": 1}',
        }
    )
    facts = mapped(attributes)
    (selection,) = facts.selections
    assert [candidate.skill_id for candidate in selection.candidates] == ["get"]
    assert (selection.query, selection.model, selection.session_id, selection.agent) == ("What?", "m", "s", "a")
    assert [(c.role, c.ordinal, c.call_id, c.skill_id, c.arguments) for c in facts.calls] == [
        ("propose", 0, "1", "get", '{"a": 1}'),
        ("propose", 1, "2", "put", None),
    ]
    assert (facts.offered_skills[0].description, facts.offered_skills[0].parameters_schema) == ("Gets.", SCHEMA)


def test_a_flattened_result_is_an_answer_with_the_name_of_its_call() -> None:
    attributes = flattened(
        **{
            "gen_ai.prompt.2.role": "assistant",
            "gen_ai.prompt.2.tool_calls.0.id": "1",
            "gen_ai.prompt.2.tool_calls.0.name": "get",
            "gen_ai.prompt.3.role": "tool",
            "gen_ai.prompt.3.tool_call_id": "1",
            "gen_ai.prompt.3.content": "Error: nothing there",
        }
    )
    (answer,) = mapped(attributes, settings=Settings(error_patterns=["^Error"])).calls
    assert (answer.role, answer.call_id, answer.skill_id, answer.ok) == ("answer", "1", "get", False)


def test_content_blocks_of_a_provider_in_flattened_text() -> None:
    """Anthropic: results come in a user's message, with a flag; schemas are called `input_schema`."""
    result = {"type": "tool_result", "tool_use_id": "1", "content": "no rooms", "is_error": True}
    attributes = {
        "llm.request.type": "completion",
        "llm.request.functions.0.name": "get",
        "llm.request.functions.0.input_schema": json.dumps(SCHEMA),
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "What?",
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.1.tool_calls.0.id": "1",
        "gen_ai.prompt.1.tool_calls.0.name": "get",
        "gen_ai.prompt.2.role": "user",
        "gen_ai.prompt.2.content": json.dumps([result]),
    }
    facts = mapped(attributes)
    (answer,) = facts.calls
    assert (answer.role, answer.call_id, answer.ok, answer.error_message) == ("answer", "1", False, "no rooms")
    assert facts.selections[0].query == "What?"
    assert facts.offered_skills[0].parameters_schema == SCHEMA


def test_the_oldest_names_of_a_call() -> None:
    attributes = flattened(
        **{"gen_ai.completion.0.function_call.name": "get", "gen_ai.completion.0.function_call.arguments": "{}"}
    )
    (call,) = mapped(attributes).calls
    assert (call.skill_id, call.arguments) == ("get", "{}")


@pytest.mark.parametrize("kind", ["embedding", "rerank"])
def test_other_requests_are_no_turns(kind: str) -> None:
    assert map_span(span(attributes={"llm.request.type": kind}), Settings()) is None


def test_a_turn_without_messages_still_knows_its_session() -> None:
    attributes = {"llm.request.type": "chat", "traceloop.association.properties.chat_id": "c"}
    (fact,) = mapped(attributes).selections
    assert isinstance(fact, SelectionFact)
    assert (fact.role, fact.session_id, fact.event_id) == ("run", "c", selection_id(TRACE, SPAN))


def chat(**attributes: Any) -> dict[str, Any]:
    calls = [{"type": "tool_call", "id": "1", "name": "get", "arguments": {"_raw": '{"a": '}}]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.tool.definitions": json.dumps([{"name": "get"}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": calls}]),
        **attributes,
    }


def test_arguments_that_were_no_json_come_out_of_their_wrapper() -> None:
    facts = mapped(chat(), scope_name="opentelemetry.instrumentation.openai_agents")
    assert facts.calls[0].arguments == '{"a": '
    assert facts.selections[0].event_id == selection_id(TRACE, SPAN)


OUTER = "aaaaaaaaaaaaaaaa"


def test_a_turn_whose_messages_are_log_records_has_the_id_that_these_tell() -> None:
    """LangChain's handler writes the records while the span around the model's is current."""
    facts = mapped(chat(), scope_name=SCOPE, scope_version="0.62.4", parent_span_id=OUTER)
    outer = selection_id(TRACE, OUTER)
    assert (facts.selections[0].event_id, facts.selections[0].span_id) == (outer, SPAN)
    assert facts.calls[0].selection_id == outer


@pytest.mark.parametrize(
    "fields",
    [
        {"scope_name": SCOPE, "scope_version": "0.62.4", "parent_span_id": None},
        {"scope_name": SCOPE, "scope_version": "0.59.0"},
        {"scope_name": SCOPE, "scope_version": ""},
        {"scope_name": "opentelemetry.instrumentation.openai.v1", "scope_version": "0.62.4"},
    ],
)
def test_other_turns_keep_their_own_id(fields: dict[str, Any]) -> None:
    assert mapped(chat(), **{"parent_span_id": OUTER, **fields}).selections[0].event_id == selection_id(TRACE, SPAN)


def test_a_turn_that_tells_its_messages_itself_keeps_its_own_id() -> None:
    told = chat(**{"gen_ai.input.messages": "[]"})
    facts = mapped(told, scope_name=SCOPE, scope_version="0.62.4", parent_span_id=OUTER)
    assert facts.selections[0].event_id == selection_id(TRACE, SPAN)


def tool(**attributes: Any) -> dict[str, Any]:
    return {"traceloop.span.kind": "tool", "traceloop.entity.name": "get", **attributes}


def test_langchains_tool_span() -> None:
    given = {"input_str": "{'a': 1}", "tags": [], "inputs": {"a": 1}, "kwargs": {"tool_call_id": "1"}}
    message = {"lc": 1, "kwargs": {"type": "tool", "content": "ok", "name": "get", "tool_call_id": "1"}}
    attributes = tool(
        **{
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "get",
            "gen_ai.tool.call.arguments": json.dumps(given),
            "gen_ai.tool.call.result": json.dumps({"output": message, "kwargs": {}}),
        }
    )
    call = only_call(attributes)
    assert (call.role, call.skill_id, call.call_id, call.arguments, call.ok) == ("run", "get", "1", {"a": 1}, True)


def test_a_tool_that_returned_an_error_message_failed() -> None:
    data = {"type": "tool", "content": "Error: nothing there", "name": "get", "tool_call_id": "1", "status": "error"}
    output = json.dumps({"output": {"lc": 1, "kwargs": data}, "kwargs": {}})
    call = only_call(tool(**{"traceloop.entity.output": output}))
    assert (call.ok, call.error_kind, call.error_message) == (False, "tool_error", "Error: nothing there")


def test_an_mcp_result_that_says_so_failed() -> None:
    output = json.dumps({"result": "Unknown tool: get", "is_error": True})
    attributes = tool(**{"traceloop.entity.output": output, "error.type": "tool_error"})
    call = only_call(attributes, status_code=2, status_message="Unknown tool: get")
    assert (call.ok, call.error_kind, call.error_message) == (False, "not_found", "Unknown tool: get")
    silent = only_call(tool(**{"traceloop.entity.output": output}))
    assert (silent.ok, silent.error_kind) == (False, "not_found")


def test_an_agent_that_waits_for_a_person_has_not_failed() -> None:
    raised = SpanEvent("exception", START, {"exception.type": "langgraph.errors.GraphInterrupt"})
    call = only_call(tool(**{"error.type": "GraphInterrupt"}), status_code=2, events=[raised])
    assert (call.ok, call.error_kind, call.error_message) == (None, None, None)


def test_a_local_function_is_called_by_its_own_name() -> None:
    assert only_call(tool(**{"gen_ai.tool.name": "main.<locals>.get"})).skill_id == "get"


def test_llamaindex_names_its_tool_in_the_result_only() -> None:
    returned = {
        "blocks": [{"block_type": "text", "text": "no rooms"}],
        "tool_name": "book",
        "raw_output": "no rooms",
        "is_error": True,
    }
    attributes = {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": "FunctionTool",
        "traceloop.entity.input": '{"args": [], "kwargs": {"a": 1}}',
    }
    call = only_call(attributes | {"traceloop.entity.output": json.dumps(returned)})
    assert (call.skill_id, call.arguments, call.ok, call.error_message) == ("book", {"a": 1}, False, "no rooms")
    assert len(mapped(attributes)) == 0  # a class is no tool
    step = {
        "traceloop.span.kind": "task",
        "traceloop.entity.name": "BaseWorkflowAgent.task",
        "tool.name": "book",
        "tool.arguments": '{"a": 1}',
        "traceloop.entity.output": json.dumps({"tool_name": "book", "tool_id": "1", "tool_output": returned}),
    }
    call = only_call(step)
    assert (call.role, call.skill_id, call.call_id, call.arguments, call.ok) == ("run", "book", "1", {"a": 1}, False)
    assert map_span(span(attributes=step | {"traceloop.entity.output": "{}"}), Settings()) is None


def test_a_node_tells_of_a_call_that_never_ran() -> None:
    given = [{"name": "x", "args": {"a": 1}, "id": "1", "type": "tool_call"}]
    message = {"type": "tool", "content": "Error: x is not a valid tool", "tool_call_id": "1", "name": "x"}
    answered = {"messages": [{"lc": 1, "kwargs": {**message, "status": "error"}}]}
    attributes = {
        "traceloop.span.kind": "task",
        "traceloop.entity.input": json.dumps({"inputs": given, "tags": []}),
        "traceloop.entity.output": json.dumps({"outputs": answered, "kwargs": {}}),
    }
    call = only_call(attributes)
    assert (call.role, call.call_id, call.arguments, call.error_kind) == ("run", "1", {"a": 1}, "not_found")


def node(*messages: dict[str, Any]) -> dict[str, Any]:
    listed = [{"lc": 1, "kwargs": message} for message in messages]
    outputs = json.dumps({"outputs": [{"graph": None, "update": {"messages": listed}}], "kwargs": {}})
    return {"traceloop.span.kind": "task", "traceloop.entity.output": outputs}


UNREADABLE = {"type": "invalid_tool_call", "id": "1", "name": "get", "args": '{"a": ', "error": "JSONDecodeError"}


def test_a_models_node_tells_of_the_call_that_could_not_be_read() -> None:
    call = only_call(node({"type": "ai", "content": "", "invalid_tool_calls": [UNREADABLE], "tool_calls": []}))
    assert (call.role, call.selection_id, call.call_id, call.skill_id) == ("propose", None, "1", "get")
    assert (call.ok, call.error_kind, call.arguments) == (False, "invalid_arguments", '{"a": ')
    assert call.time == START + 5_000_000  # its model span, which is its selection, lies within


def test_a_node_that_repeats_a_history_tells_nothing_new() -> None:
    asked = {"type": "human", "content": "hi"}
    answered = {"type": "ai", "content": "", "invalid_tool_calls": [UNREADABLE]}
    assert map_span(span(attributes=node(asked, answered)), Settings()) is None


def test_a_workflow_knows_the_session_that_older_spans_lack() -> None:
    given = {"inputs": {"messages": [["user", "What?"]]}, "metadata": {"thread_id": "t", "lc_agent_name": "a"}}
    attributes = {"traceloop.span.kind": "workflow", "traceloop.entity.input": json.dumps(given)}
    (fact,) = mapped(attributes).selections
    assert isinstance(fact, SelectionFact)
    assert (fact.role, fact.query, fact.session_id, fact.agent, fact.candidates) == ("run", "What?", "t", "a", [])


def test_the_name_of_an_mcp_server_is_no_agent() -> None:
    assert only_call(tool(**{"traceloop.workflow.name": "travel.mcp"})).agent is None
    assert only_call(tool(**{"traceloop.workflow.name": "travel"})).agent == "travel"


@pytest.mark.parametrize(
    "attributes",
    [
        tool(**{"traceloop.entity.input": "{", "traceloop.entity.output": "}"}),
        tool(**{"traceloop.entity.input": 5, "traceloop.entity.output": ["a"]}),
        tool(**{"traceloop.entity.input": '{"input_str": 5, "kwargs": 5}', "traceloop.entity.output": '{"output": 5}'}),
        {"traceloop.span.kind": "tool", "traceloop.entity.name": 5},
        {"traceloop.span.kind": "task", "traceloop.entity.output": '{"invalid_tool_calls": [{"'},
        {"traceloop.span.kind": "task", "traceloop.entity.output": '{"outputs": {"messages": 5, "tool_call_id": 1}}'},
        {"traceloop.span.kind": "workflow", "traceloop.entity.input": '{"inputs": {"messages": [5, [1], null]}}'},
        {"traceloop.span.kind": ["tool"]},
        flattened(**{"gen_ai.prompt.1.content": '[{"type": 5}]', "gen_ai.completion.0.tool_calls.0.name": 5}),
        flattened(**{"gen_ai.prompt.1.role": 5, "llm.request.functions.0.name": 5}),
    ],
)
def test_values_of_other_forms_break_nothing(attributes: dict[str, Any]) -> None:
    map_span(span(attributes=attributes), Settings())


def test_both_generations_on_one_span() -> None:
    """As LiteLLM has them: messages of the newer one, menu and calls of the older one, empty parts in the answer."""
    attributes = {
        "llm.request.type": "completion",
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": []}]),
        "llm.request.functions.0.name": "get",
        "gen_ai.completion.0.function_call.name": "get",
        "gen_ai.completion.0.function_call.arguments": '{"a": 1}',
        "gen_ai.completion.1.function_call.name": "put",
    }
    facts = mapped(attributes)
    (selection,) = facts.selections
    assert (selection.query, [candidate.skill_id for candidate in selection.candidates]) == ("hi", ["get"])
    assert [(call.skill_id, call.arguments) for call in facts.calls] == [("get", '{"a": 1}'), ("put", None)]


def test_a_tool_of_langchain_for_javascript_is_named_in_what_it_returned() -> None:
    message = {"lc": 1, "id": ["langchain_core", "messages", "ToolMessage"], "type": "constructor"}
    held = {"type": "tool", "content": "sunny", "tool_call_id": "1", "name": "get", "status": "success"}
    attributes = {
        "traceloop.span.kind": "task",
        "traceloop.entity.name": "DynamicStructuredTool",
        "traceloop.entity.input": json.dumps({"args": ['{"city": "Rome"}']}),
    }
    (call,) = mapped(attributes | {"traceloop.entity.output": json.dumps(message | {"kwargs": held})}).calls
    assert (call.skill_id, call.call_id, call.arguments, call.ok) == ("get", "1", {"city": "Rome"}, True)
    assert mapped(attributes).calls == []
