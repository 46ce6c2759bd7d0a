"""Mastra's spans, of version 1 and of 0.24; the recordings tell the rest."""

from __future__ import annotations

import json
from typing import Any

from collector.facts import SelectionFact
from tests.collector.mapping.spans import mapped, only_call

CALL = {"toolCallId": "1", "toolName": "get", "args": {"city": "Rome"}}


def step(given: Any, **more: Any) -> dict[str, Any]:
    return {
        "mastra.span.type": "model_step",
        "mastra.model_step.input": json.dumps(given),
        "mastra.model_step.output": json.dumps({"text": "", "toolCalls": [CALL]}),
        **more,
    }


def test_a_step_is_a_turn_and_results_that_are_cut_out_tell_nothing() -> None:
    cut = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "[tool: put]"},
        {"role": "tool", "content": "[tool-result: put]"},
    ]
    facts = mapped(step(cut, **{"mastra.metadata.sessionId": "s"}))
    (selection,) = facts.selections
    assert (selection.query, selection.session_id, selection.candidates) == ("hi", "s", [])
    (call,) = facts.calls
    assert (call.role, call.skill_id, call.call_id, call.arguments) == ("propose", "get", "1", {"city": "Rome"})


def test_an_old_step_was_given_the_request() -> None:
    request = {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "get", "parameters": {}}}],
    }
    old = {
        "mastra.span.type": "model_step",
        "input": json.dumps({"body": json.dumps(request)}),
        "output": json.dumps({"toolCalls": [CALL]}),
    }
    facts = mapped(old)
    (selection,) = facts.selections
    assert (selection.query, [candidate.skill_id for candidate in selection.candidates]) == ("hi", ["get"])
    assert [call.skill_id for call in facts.calls] == ["get"]


def test_an_agent_knows_its_menu_for_its_steps() -> None:
    agent = {
        "gen_ai.operation.name": "invoke_agent",
        "mastra.span.type": "agent_run",
        "mastra.agent_run.input": "hi",
        "gen_ai.agent.id": "a",
        "gen_ai.tool.definitions": '["get","put"]',
    }
    (run,) = mapped(agent).selections
    assert isinstance(run, SelectionFact)
    assert (run.role, run.query, run.agent) == ("run", "hi", "a")
    assert [candidate.skill_id for candidate in run.candidates] == ["get", "put"]


def test_what_an_old_chunk_tells_of_a_call() -> None:
    refused = {"toolCallId": "1", "toolName": "get", "result": {"error": True, "message": "Tool validation failed"}}
    answer = only_call({"mastra.span.type": "model_chunk", "output": json.dumps(refused)})
    assert (answer.role, answer.call_id, answer.ok) == ("answer", "1", False)
    text = {"mastra.span.type": "model_chunk", "output": json.dumps({"text": "bye"})}
    assert len(mapped(text)) == 0


def test_an_old_tool() -> None:
    tool = {"mastra.span.type": "tool_call", "gen_ai.tool.name": "get", "input": '{"city": "Rome"}', "output": "sunny"}
    call = only_call(tool)
    assert (call.role, call.skill_id, call.arguments, call.ok) == ("run", "get", {"city": "Rome"}, True)
