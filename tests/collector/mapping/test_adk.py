"""Google ADK's own attributes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.collector.mapping.folding import fold, recorded, turns
from tests.collector.mapping.spans import mapped, only_call

DECLARED = {"name": "get", "description": "Gets.", "parameters_json_schema": {"type": "object"}}
CONTENTS = [
    {"role": "user", "parts": [{"text": "hi"}]},
    {"role": "model", "parts": [{"function_call": {"id": "1", "name": "get", "args": {"a": 1}}}]},
    {"role": "user", "parts": [{"function_response": {"id": "1", "name": "get", "response": {"error": "no city"}}}]},
]
RESPONSE = {"content": {"role": "model", "parts": [{"function_call": {"id": "2", "name": "get", "args": {"a": 2}}}]}}


def call_llm(request: Any, response: Any = None) -> dict[str, Any]:
    return {
        "gen_ai.system": "gcp.vertex.agent",
        "gen_ai.request.model": "m",
        "gcp.vertex.agent.session_id": "s",
        "gcp.vertex.agent.llm_request": request if isinstance(request, str) else json.dumps(request),
        "gcp.vertex.agent.llm_response": json.dumps(response or {}),
    }


@pytest.mark.parametrize("declarations", ["function_declarations", "functionDeclarations"])
def test_request_and_response_are_a_turn(declarations: str) -> None:
    request = {"model": "m", "config": {"tools": [{declarations: [DECLARED]}]}, "contents": CONTENTS}
    facts = mapped(call_llm(request, RESPONSE))
    (selection,) = facts.selections
    assert (selection.query, selection.session_id, selection.model) == ("hi", "s", "m")
    assert [candidate.skill_id for candidate in selection.candidates] == ["get"]
    proposal, answer = facts.calls
    assert (proposal.role, proposal.call_id, proposal.arguments) == ("propose", "2", {"a": 2})
    assert (answer.role, answer.call_id, answer.ok, answer.error_message) == (
        "answer",
        "1",
        False,
        '{"error":"no city"}',
    )
    assert [(offer.description, offer.parameters_schema) for offer in facts.offered_skills] == [
        ("Gets.", {"type": "object"})
    ]


@pytest.mark.parametrize("request_text", ["{}", "", "N/A", "[]", '{"config": 5, "contents": 5}', '{"contents": [5]}'])
def test_a_request_without_content_is_no_turn(request_text: str) -> None:
    attributes = call_llm(request_text) | {"gen_ai.operation.name": "generate_content"}
    assert all(getattr(fact, "role", "turn") == "run" for fact in mapped(attributes).selections)


def test_its_tool_spans() -> None:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get",
        "gen_ai.tool.call.id": "<not specified>",
        "gcp.vertex.agent.llm_request": "{}",
        "gcp.vertex.agent.tool_call_args": '{"a": 1}',
        "gcp.vertex.agent.tool_response": '{"result": "fine"}',
    }
    call = only_call(attributes)
    assert (call.skill_id, call.call_id, call.arguments, call.ok) == ("get", None, {"a": 1}, True)
    merged = attributes | {"gen_ai.tool.name": "(merged tools)", "gcp.vertex.agent.tool_call_args": "N/A"}
    assert len(mapped(merged)) == 0


def test_a_tool_that_does_not_exist() -> None:
    """Without content only the description tells it: the error is a ValueError."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "fly",
        "gen_ai.tool.description": "Tool not found",
        "error.type": "ValueError",
    }
    assert only_call(attributes, status_code=2).error_kind == "not_found"


@pytest.mark.parametrize("variant", ["default", "content", "schema1"])
def test_what_its_spans_record(shared: Path, variant: str) -> None:
    """Counted by hand from the spans, in each of the three variants alike.

    Turn 1 calls two tools at once, and a span `execute_tool (merged)` repeats both: no call. The exception of turn 2
    ends that run, and its workflow and agent spans repeat the error: no more failures. Model spans (`generate_content`;
    in schema1 the `call_llm` around it, which alone has the menu) 2 + 1 + 3 + 2 + 2 + 3 = 13, all with ten tools. Tool
    spans that are not merged: 2 + 1 + 2 + 1 + 1 + 2 = 9, of them with status ERROR book_hotel, convert_currency,
    launch_rocket and calculator. The scenario's tenth call would follow the exception that ended the run.
    """
    facts = recorded(shared / "otlp/google-adk-2.13.0" / variant)
    folded = fold(facts)
    assert len(turns(facts)) == 13
    assert all(len(selection.candidates) == 10 for selection in turns(facts))
    assert len(folded) == 9
    assert [call.skill_id for call in folded if call.ok is False] == [
        "book_hotel",
        "convert_currency",
        "launch_rocket",
        "calculator",
    ]
    assert [call.skill_id for call in folded if call.hallucinated] == ["launch_rocket"]
    assert all(selection.session_id for selection in turns(facts))
    has_content = variant != "default"
    assert all((selection.query is not None) == has_content for selection in turns(facts))
    assert all(any(fact.arguments for fact in call.facts) == has_content for call in folded)
