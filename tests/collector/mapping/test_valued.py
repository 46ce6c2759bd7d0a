"""Langfuse and MLflow: spans of a kind, with one input and one output."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.facts import SelectionFact
from collector.mapping import map_span
from pickwise.settings import Settings
from tests.collector.mapping.spans import mapped, only_call, span

CALL = {"id": "c2", "type": "function", "function": {"name": "get", "arguments": '{"a": 1}'}}
REQUEST = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [CALL | {"id": "c1"}]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"error": "no"}'},
    ],
    "tools": [{"type": "function", "function": {"name": "get", "parameters": {"type": "object"}}}],
}
ANSWER = {"role": "assistant", "content": None, "tool_calls": [CALL]}


def langfuse(kind: str, given: Any, returned: Any = None) -> dict[str, Any]:
    told = {"langfuse.observation.type": kind, "langfuse.observation.input": given, "session.id": "s"}
    model = {"langfuse.observation.model.name": "m"} if kind == "generation" else {}
    return told | model | ({} if returned is None else {"langfuse.observation.output": returned})


def mlflow(kind: str, given: Any, returned: Any = None) -> dict[str, Any]:
    told = {"mlflow.spanType": json.dumps(kind), "mlflow.spanInputs": json.dumps(given), "mlflow.llm.model": '"m"'}
    return told if returned is None else told | {"mlflow.spanOutputs": json.dumps(returned)}


@pytest.mark.parametrize(
    "attributes",
    [
        langfuse("generation", json.dumps(REQUEST), json.dumps(ANSWER)),
        mlflow("CHAT_MODEL", REQUEST, {"choices": [{"index": 0, "message": ANSWER}]}),
        mlflow("LLM", {"messages": REQUEST["messages"]}, ANSWER) | {"mlflow.chat.tools": json.dumps(REQUEST["tools"])},
    ],
    ids=["langfuse", "mlflow", "mlflow, menu apart"],
)
def test_a_model_turn(attributes: dict[str, Any]) -> None:
    facts = mapped(attributes)
    (selection,) = facts.selections
    assert (selection.query, selection.model) == ("hi", "m")
    assert [candidate.skill_id for candidate in selection.candidates] == ["get"]
    assert [(call.role, call.skill_id, call.call_id, call.ok) for call in facts.calls] == [
        ("propose", "get", "c2", None),
        ("answer", "get", "c1", False),
    ]


@pytest.mark.parametrize(
    "attributes", [langfuse("tool", '{"a": 1}', "done"), mlflow("TOOL", {"a": 1}, "done")], ids=["langfuse", "mlflow"]
)
def test_a_tool(attributes: dict[str, Any]) -> None:
    call = only_call(attributes, name="get")
    assert (call.role, call.skill_id, call.arguments, call.ok) == ("run", "get", '{"a": 1}', True)


def test_a_tool_that_failed() -> None:
    attributes = langfuse("tool", "{}", "no") | {"langfuse.observation.level": "ERROR"}
    call = only_call(attributes, name="get", status_code=2, status_message="no rooms")
    assert (call.ok, call.error_kind, call.error_message) == (False, "tool_error", "no rooms")


@pytest.mark.parametrize(
    "attributes", [langfuse("agent", "hi"), mlflow("AGENT", {"question": "hi"})], ids=["langfuse", "mlflow"]
)
def test_an_agent_s_run_knows_the_question(attributes: dict[str, Any]) -> None:
    (run,) = mapped(attributes, name="travel").selections
    assert isinstance(run, SelectionFact)
    assert (run.role, run.query, run.agent) == ("run", "hi", "travel")


def test_spans_of_other_kinds_within_a_run_tell_nothing() -> None:
    attributes = langfuse("span", "hi")
    assert map_span(span(attributes=attributes, parent_span_id="00f067aa0ba902b7"), Settings()) is None
