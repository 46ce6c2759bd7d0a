"""Haystack: messages in values, a menu in the counts of calls."""

from __future__ import annotations

import json
from typing import Any

from collector.facts import Facts, SelectionFact
from tests.collector.mapping.spans import mapped

SCOPE = "openinference.instrumentation.haystack"
ASKED = "ChatMessage(_role=<ChatRole.USER: 'user'>, _content=[TextContent(text='hi')], _name=None, _meta={})"
CALLED = (
    "ChatMessage(_role=<ChatRole.ASSISTANT: 'assistant'>, _content=[ToolCall(tool_name='{0}', arguments={{'a': 1}}, "
    "id='{1}', extra=None)], _name=None, _meta={{'model': 'm'}})"
)
ANSWERED = (
    "ChatMessage(_role=<ChatRole.TOOL: 'tool'>, _content=[ToolCallResult(result={2!r}, origin=ToolCall("
    "tool_name='{0}', arguments={{'a': 1}}, id='{1}', extra=None), error={3})], _name=None, _meta={{}})"
)


def state(*messages: str, **counts: int) -> dict[str, Any]:
    return {"messages": list(messages), "step_count": 2, "tool_call_counts": counts}


def told(returned: Any, *, kind: str = "CHAIN", parent: str | None = "f" * 16, **fields: Any) -> Facts:
    attributes = {
        "openinference.span.kind": kind,
        "input.value": json.dumps({"messages": [ASKED], "tools": None}),
        "output.value": json.dumps(returned),
    }
    return mapped(attributes, parent_span_id=parent, scope_name=SCOPE, **fields)


def steps(facts: Facts) -> list[SelectionFact]:
    return [fact for fact in facts.selections if isinstance(fact, SelectionFact) and fact.role == "step"]


def menu(step: SelectionFact) -> list[str]:
    return [candidate.skill_id for candidate in step.candidates]


def test_an_agents_messages_and_menu() -> None:
    facts = told(state(ASKED, CALLED.format("get", "1"), ANSWERED.format("get", "1", "21", False), get=1, put=0))
    (step,) = steps(facts)
    assert (step.query, step.model, menu(step)) == ("hi", "m", ["get", "put"])
    assert [(call.role, call.call_id, call.ok, call.arguments) for call in facts.calls] == [
        ("propose", "1", None, {"a": 1}),
        ("answer", "1", True, None),
    ]


def test_a_tool_that_the_model_made_up_is_counted_but_not_offered() -> None:
    answer = ANSWERED.format("rocket", "1", "Tool 'rocket' not found. Available tools: get", True)
    facts = told(state(ASKED, CALLED.format("rocket", "1"), answer, get=0, rocket=1))
    assert menu(steps(facts)[0]) == ["get"]
    (failed,) = [call for call in facts.calls if call.role == "answer"]
    assert (failed.ok, failed.error_kind) == (False, "not_found")


def test_a_failure_does_not_repeat_its_arguments() -> None:
    text = "Failed to invoke Tool `get` with parameters {'a': 'secret'}. Error: it timed out"
    facts = told(state(ASKED, CALLED.format("get", "1"), ANSWERED.format("get", "1", text, True), get=1))
    (failed,) = [call for call in facts.calls if call.role == "answer"]
    assert (failed.error_kind, failed.error_message) == ("timeout", "it timed out")


def test_a_pipeline_repeats_its_agent_and_knows_its_name() -> None:
    inner = state(ASKED, CALLED.format("get", "1"), get=1)
    agent = told(inner)
    pipeline = told({"travel": inner}, parent=None, span_id="2" * 16)
    assert steps(pipeline)[0].event_id == steps(agent)[0].event_id
    assert {call.event_id for call in pipeline.calls} == {call.event_id for call in agent.calls}
    assert (steps(agent)[0].agent, steps(pipeline)[0].agent) == (None, "travel")


def test_messages_as_haystack_serialises_them() -> None:
    call = {"tool_call": {"tool_name": "get", "arguments": {}, "id": "1"}}
    messages = [
        {"role": "user", "content": [{"text": "hi"}], "meta": {}, "name": None},
        {"role": "assistant", "content": [call], "meta": {"model": "m"}, "name": None},
    ]
    facts = told({"messages": messages, "tool_call_counts": {"get": 1}})
    assert (menu(steps(facts)[0]), steps(facts)[0].model) == (["get"], "m")


def test_an_agent_that_is_called_a_model() -> None:
    facts = told(state(ASKED, CALLED.format("get", "1"), get=1), kind="LLM")
    assert len(steps(facts)) == len(facts.selections) == 1
    # A model that is one stays one.
    generator = told({"replies": [CALLED.format("get", "1")]}, kind="LLM")
    assert [fact.role for fact in generator.selections if isinstance(fact, SelectionFact)] == ["turn"]
    assert [call.call_id for call in generator.calls] == ["1"]


def test_a_step_that_invokes_tools_answers_the_calls_it_was_given() -> None:
    attributes = {
        "openinference.span.kind": "CHAIN",
        "input.value": json.dumps({"messages": [ASKED, CALLED.format("get", "1")]}),
        "output.value": json.dumps({"tool_messages": [ANSWERED.format("get", "1", "21", False)]}),
    }
    facts = mapped(attributes, scope_name=SCOPE, parent_span_id="f" * 16)
    assert [(call.role, call.call_id, call.ok) for call in facts.calls] == [("answer", "1", True)]
    assert facts.selections == []
