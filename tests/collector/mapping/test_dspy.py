"""DSPy's prompts: the menu, the question and the call stand in texts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.collector.mapping.spans import mapped, only_call

SYSTEM = """Your output fields are: next_tool_name …
(1) get, whose description is <desc>Gets a thing.
In two lines.</desc>. It takes arguments {'name': {'type': 'string'}}.
(2) put, whose description is <desc></desc>. It takes arguments {…broken.
(3) finish, whose description is <desc>Ends it.</desc>. It takes arguments {}.
"""
USER = "[[ ## question ## ]]\nWhat is it?\n\n[[ ## trajectory ## ]]\n[[ ## thought_0 ## ]]\nhm"
STEP = (
    '[[ ## next_thought ## ]]\nI look.\n\n[[ ## next_tool_name ## ]]\n{}\n\n[[ ## next_tool_args ## ]]\n{{"name": "x"}}'
)


def model_span(answer: str, system: str = SYSTEM) -> dict[str, Any]:
    return {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "system",
        "llm.input_messages.0.message.content": system,
        "llm.input_messages.1.message.role": "user",
        "llm.input_messages.1.message.content": USER,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": answer,
    }


@pytest.mark.parametrize("answer", [STEP.format("get"), '{"next_tool_name": "get", "next_tool_args": {"name": "x"}}'])
def test_a_step(answer: str) -> None:
    facts = mapped(model_span(answer))
    (selection,) = facts.selections
    assert selection.query == "What is it?"
    assert [candidate.skill_id for candidate in selection.candidates] == ["get", "put"]
    get, put = facts.offered_skills
    assert (get.description, get.parameters_schema) == (
        "Gets a thing.\nIn two lines.",
        {"type": "object", "properties": {"name": {"type": "string"}}},
    )
    assert (put.description, put.parameters_schema) == (None, None)
    (call,) = facts.calls
    assert (call.skill_id, call.selection_id) == ("get", selection.event_id)
    assert call.arguments in ('{"name": "x"}', {"name": "x"})


@pytest.mark.parametrize("answer", [STEP.format("finish"), "I give up.", ""])
def test_an_answer_without_a_call(answer: str) -> None:
    facts = mapped(model_span(answer))
    assert (len(facts.selections), facts.calls) == (1, [])


def test_a_prompt_that_offers_nothing_is_no_choice() -> None:
    assert mapped(model_span(STEP.format("get"), "You answer.")).selections == []


def test_native_calls_are_in_what_the_model_returned() -> None:
    answer = '[{"text": null, "tool_calls": [{"id": "1", "function": {"name": "get", "arguments": "{}"}}]}]'
    attributes = {k: v for k, v in model_span("").items() if "output" not in k} | {"output.value": answer}
    (call,) = mapped(attributes).calls
    assert (call.skill_id, call.call_id) == ("get", "1")


def test_the_span_of_a_tool_is_named_for_the_method_that_runs_it() -> None:
    assert only_call({"openinference.span.kind": "TOOL"}, name="get.__call__").skill_id == "get"
    assert mapped({"openinference.span.kind": "TOOL"}, name="finish.__call__").calls == []
