"""smolagents: a run with a menu, steps without, and an end of the run that is no skill."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.facts import Facts, SelectionFact
from collector.spans import SpanEvent
from tests.collector.mapping.spans import SPAN, START, mapped

SCOPE = {"scope_name": "openinference.instrumentation.smolagents"}
END = {"name": "final_answer", "description": "Provides a final answer to the given problem."}


def told(kind: str, attributes: dict[str, Any], **fields: Any) -> Facts:
    return mapped({"openinference.span.kind": kind} | attributes, **{**SCOPE, **fields})


def model(offered: list[dict[str, Any]], called: list[str], **fields: Any) -> Facts:
    attributes = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.contents.0.message_content.text": "New task:\nhi",
    }
    for number, tool in enumerate(offered):
        attributes[f"llm.tools.{number}.tool.json_schema"] = json.dumps({"type": "function", "function": tool})
    for number, name in enumerate(called):
        prefix = f"llm.output_messages.0.message.tool_calls.{number}.tool_call"
        attributes |= {f"{prefix}.id": str(number), f"{prefix}.function.name": name}
    return told("LLM", attributes, **fields)


def names(facts: Facts) -> list[str]:
    (selection,) = facts.selections
    return [candidate.skill_id for candidate in selection.candidates]


def test_the_end_of_a_run_is_neither_offered_nor_called() -> None:
    facts = model([{"name": "get"}, END], ["final_answer"])
    assert (names(facts), facts.calls) == (["get"], [])
    assert [offer.skill_id for offer in facts.offered_skills] == ["get"]
    assert facts.selections[0].query == "hi"
    tool = {"tool.name": "final_answer", "tool.description": END["description"]}
    assert len(told("TOOL", tool)) == 0
    assert names(told("AGENT", {"smolagents.tools_names": ["get", "final_answer"]})) == ["get"]


def test_it_is_known_by_its_description_where_another_instrumentation_tells_of_it() -> None:
    other = {"scope_name": "openinference.instrumentation.litellm"}
    assert names(model([{"name": "get"}, END], ["get", "final_answer"], **other)) == ["get"]
    assert len(told("TOOL", {"tool.name": "final_answer", "tool.description": END["description"]}, **other)) == 0


def test_a_tool_of_the_users_own_by_that_name_stays_one() -> None:
    other = {"scope_name": "openinference.instrumentation.openai"}
    facts = model([{"name": "final_answer", "description": "Sends it."}], ["final_answer"], **other)
    assert names(facts) == ["final_answer"]
    assert [call.skill_id for call in facts.calls] == ["final_answer"]
    (call,) = told("TOOL", {"tool.name": "final_answer", "tool.description": "Sends it."}, **other).calls
    assert call.skill_id == "final_answer"


def test_a_run_knows_its_task_not_the_one_before() -> None:
    attributes = {
        "input.value": json.dumps({"task": "hi", "stream": False}),
        "smolagents.task": "the task of the run before",
        "smolagents.tools_names": ["get", "final_answer"],
        "smolagents.managed_agents.0.name": "searcher",
    }
    (run,) = told("AGENT", attributes, name="guide.run").selections
    assert isinstance(run, SelectionFact)
    assert (run.role, run.query, run.agent) == ("run", "hi", "guide")
    assert [candidate.skill_id for candidate in run.candidates] == ["get", "searcher"]
    hidden = told("AGENT", attributes | {"input.value": "__REDACTED__"}).selections[0]
    assert hidden.query is None


def test_a_step_is_a_turn_with_the_menu_of_its_run() -> None:
    facts = told("CHAIN", {"output.value": "21"}, name="Step 2", parent_span_id="f" * 16)
    (step,) = facts.selections
    assert isinstance(step, SelectionFact)
    assert (step.role, step.candidates, step.parent_span_id, step.time) == ("step", [], "f" * 16, START)
    assert facts.calls == []


@pytest.mark.parametrize(
    "error",
    [
        "AgentToolExecutionError: Unknown tool rocket, should be one of: get, put.",
        "AgentToolExecutionError: Unknown tool rocket, should be instead one of ['get'].",
        "AgentExecutionError: Code execution failed at line 'rocket()' due to: InterpreterError: Forbidden function "
        "evaluation: 'rocket' is not among the explicitly allowed tools or defined/imported in the preceding code",
    ],
)
def test_a_step_that_names_what_does_not_exist(error: str) -> None:
    (call,) = told("CHAIN", {}, name="Step 1", status_code=2, status_message=error).calls
    assert (call.role, call.skill_id, call.ok, call.error_kind) == ("run", "rocket", False, "not_found")
    assert (call.latency_ms, call.time) == (None, START + 5_000_000)


def test_a_step_whose_arguments_were_refused_does_not_say_whose_they_were() -> None:
    error = "AgentToolCallError: Argument amount has type 'string' but should be 'number'"
    (call,) = told("CHAIN", {}, name="Step 1", status_code=2, status_message=error).calls
    assert (call.role, call.skill_id, call.ok, call.error_kind) == ("answer", "", False, "invalid_arguments")


def test_older_releases_tell_it_in_an_event() -> None:
    event = SpanEvent(
        name="agent.step_recovery", time_ns=START, attributes={"type": "AgentToolCallError", "message": "Argument a"}
    )
    (call,) = told("CHAIN", {}, name="Step 1", status_code=1, events=[event]).calls
    assert (call.role, call.error_kind, call.span_id) == ("answer", "invalid_arguments", SPAN)


@pytest.mark.parametrize(
    "error",
    [
        "AgentToolExecutionError: Error executing tool 'get' with arguments {}: ToolBoom: no rooms left",
        "AgentExecutionError: Code parsing failed on line 1 due to: SyntaxError: '{' was never closed",
    ],
)
def test_what_a_tool_span_tells_or_nothing_does_is_not_told_by_the_step(error: str) -> None:
    assert told("CHAIN", {}, name="Step 1", status_code=2, status_message=error).calls == []


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ({"args": [], "sanitize_inputs_outputs": True, "kwargs": {"city": "Paris"}}, {"city": "Paris"}),
        (
            {"args": ["Paris"], "sanitize_inputs_outputs": False, "kwargs": {"unit": "C"}},
            {"city": "Paris", "unit": "C"},
        ),
        ({"args": ['{"city": "Par'], "sanitize_inputs_outputs": True, "kwargs": {}}, '{"city": "Par'),
    ],
)
def test_arguments_without_their_wrapper(given: dict[str, Any], arguments: Any) -> None:
    attributes = {
        "tool.name": "get",
        "tool.parameters": json.dumps({"city": {"type": "string"}, "unit": {"type": "string"}}),
        "input.value": json.dumps(given),
    }
    (call,) = told("TOOL", attributes, name="SimpleTool").calls
    assert call.arguments == arguments
