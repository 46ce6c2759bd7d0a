"""CrewAI: what its model did is in the messages of its tasks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.facts import Facts, SelectionFact
from tests.collector.mapping.spans import mapped

CREW = {"crew_key": "k", "crew_id": "i"}
TOOL = "name='{0}' description='Does \"{0}\".' env_vars=[] args_schema=<class 'x'> func=<function f at 0x7f>"


def call(call_id: str, name: str, arguments: str = "{}") -> dict[str, Any]:
    listed = [{"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}]
    return {"role": "assistant", "content": "", "tool_calls": listed}


def result(call_id: str, name: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": call_id, "name": name}


def task(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    prompt = {"role": "user", "content": "\nCurrent Task: hi\n\nThis is the expected criteria: an answer"}
    return {"description": "hi", "agent": "guide", "messages": [prompt, *messages]} | fields


def agent_span(output: Any, tools: Any = (TOOL.format("get"), TOOL.format("put")), **fields: Any) -> Facts:
    attributes = {
        "openinference.span.kind": "AGENT",
        "input.value": json.dumps({"agent": {"role": "guide"}, "context": "", "tools": tools}),
        "output.value": json.dumps(output),
        "graph.node.id": "guide",
    }
    return mapped(attributes | CREW, parent_span_id="f" * 16, **fields)


def kickoff(*tasks: dict[str, Any]) -> Facts:
    attributes = {"openinference.span.kind": "CHAIN", "output.value": json.dumps({"tasks_output": tasks})}
    return mapped(attributes | CREW, span_id="2" * 16)


def of_role(facts: Facts, role: str) -> list[SelectionFact]:
    return [fact for fact in facts.selections if isinstance(fact, SelectionFact) and fact.role == role]


def test_a_task_with_its_menu() -> None:
    facts = agent_span(task(call("1", "get"), result("1", "get", "21"), {"role": "assistant", "content": "21"}))
    first, last = of_role(facts, "step")
    assert (first.query, first.agent) == ("hi", "guide")
    assert [candidate.skill_id for candidate in last.candidates] == ["get", "put"]
    assert {(offer.skill_id, offer.description) for offer in facts.offered_skills} == {
        ("get", 'Does "get".'),
        ("put", 'Does "put".'),
    }
    assert [(c.role, c.call_id, c.ok) for c in facts.calls] == [("propose", "1", None), ("answer", "1", True)]


def test_the_crew_repeats_its_tasks() -> None:
    one = task(call("1", "get"), result("1", "get", "21"), {"role": "assistant", "content": "21"})
    two = task(call("2", "put"), description="then that", agent="clerk")
    crew = kickoff(one, two)
    assert [(step.query, step.agent) for step in of_role(crew, "step")] == [("hi", "guide"), ("then that", "clerk")]
    told = {step.event_id for output in (one, two) for step in of_role(agent_span(output), "step")}
    assert {step.event_id for step in of_role(crew, "step")} <= told
    times = [int(step.time or 0) for step in of_role(crew, "step")]
    assert times == sorted(set(times))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Error executing tool: no rooms left", None),
        (
            "Error executing tool: Tool 'get' arguments validation failed: 3 validation errors for Get",
            "invalid_arguments",
        ),
        ("Tool not found", "not_found"),
        ("Error: Failed to parse tool arguments as JSON: Expecting ','", "invalid_arguments"),
    ],
)
def test_results_that_the_framework_says_are_failures(text: str, kind: str | None) -> None:
    (answer,) = [c for c in agent_span(task(call("1", "get"), result("1", "get", text))).calls if c.role == "answer"]
    assert (answer.ok, answer.error_kind) == (False, kind)


def test_failures_that_only_a_list_beside_the_messages_tells() -> None:
    failed = [{"tool_name": "get", "tool_args": {"a": 1}, "failure": {"message": "gone"}}]
    messages = [
        call("1", "get", '{"a": 1}'),
        call("2", "get", '{"a": 2}'),
        result("1", "get", "x"),
        result("2", "get", "x"),
    ]
    facts = agent_span(task(*messages, tool_failures=failed))
    assert {c.call_id: c.ok for c in facts.calls if c.role == "answer"} == {"1": False, "2": True}


def test_a_task_without_messages_is_a_run_with_a_menu() -> None:
    facts = agent_span({"description": "hi", "raw": "21", "agent": "guide"})
    (run,) = facts.selections
    assert isinstance(run, SelectionFact)
    assert (run.role, run.query, run.agent, len(run.candidates)) == ("run", "hi", "guide", 2)
    assert kickoff({"description": "hi", "raw": "21", "agent": "guide"}).selections == []


def test_tools_as_objects() -> None:
    facts = agent_span(task(call("1", "get")), tools=[{"name": "get", "description": "Gets."}])
    assert [candidate.skill_id for candidate in of_role(facts, "step")[0].candidates] == ["get"]


@pytest.mark.parametrize(
    ("calling", "arguments"),
    [
        ({"tool_name": "get", "arguments": {"a": 1}}, {"a": 1}),
        ("tool_name='get' arguments={'a': 1}", {"a": 1}),
        ("ToolCalling(tool_name='get', arguments={'a': 1})", {"a": 1}),
        ("tool_name='get' arguments=None", None),
        (7, None),
    ],
)
def test_calls_of_older_releases(calling: Any, arguments: Any) -> None:
    given = {"tool_string": "Action: get", "tool": "name='get'", "calling": calling}
    attributes = {"openinference.span.kind": "TOOL", "tool.name": "get", "input.value": json.dumps(given)}
    (fact,) = mapped(attributes, name="get._use").calls
    assert (fact.skill_id, fact.arguments, fact.ok) == ("get", arguments, True)
