"""The recorded exports against the truth of their scenario.

How the numbers were counted, by hand, from the recordings: a selection is a model span that lists tool definitions;
it has no pick when its output holds no tool call. A call is one tool call of such an output. It failed when its tool
span says so, when the next prompt quotes an error for its id, or when the framework says that there is no such tool.

- pydantic-ai: the exception of turn 2 ends that turn; a seventh request asks a second question of the first
  conversation. Selections 2 + 1 + 3 + 2 + 2 + 3 + 1 = 14, without a pick one at the end of each but turn 2 = 6.
  Calls call_001 … call_009.
- ai-sdk: five tools; turns 3 and 6 are not retried. Selections 2 + 3 + 2 + 2 + 2 + 2 = 13, one without a pick in
  each = 6. Calls call_001 … call_008; the refused ones have no tool span, the next prompt says `error-text`.
- openai-agents: the unknown tool ends turn 4 (`turn` span: "Tool not found"). Selections 2 + 3 + 3 + 1 + 2 + 3 = 14,
  without a pick 5. Tool spans have no call id.
- langgraph: the exception ends turn 2, the unreadable arguments end turn 6 (only `invalid_tool_calls` in the raw
  output tells of that call). Selections 2 + 1 + 3 + 2 + 2 + 1 = 11, without a pick 4. Calls call_001 … call_008.
- google-adk: the exception ends turn 2. Selections 2 + 1 + 3 + 2 + 2 + 3 = 13, without a pick 5. Nine calls.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.collector.mapping.folding import fold, recorded, turns, without_pick

PYDANTIC = (14, 6, 9, "exception")
AI_SDK = (13, 6, 8, "exception")
OPENAI_AGENTS = "openai-agents-0.24.0+openinference-instrumentation-openai-agents-2.6.0"
LANGGRAPH = "langgraph-1.2.24+openinference-instrumentation-langchain-0.1.80"


@pytest.mark.parametrize(
    ("recording", "selections", "no_pick", "calls", "booking_failed_as"),
    [
        *[(f"pydantic-ai-2.68.0/{version}", *PYDANTIC) for version in ("v2", "v3", "v4", "v5", "v6", "v5-grpc")],
        ("ai-sdk-6.0.326/json-generate", *AI_SDK),
        ("ai-sdk-6.0.326/proto-stream", *AI_SDK),
        (f"{OPENAI_AGENTS}/responses-api", 14, 5, 10, "tool_error"),
        (LANGGRAPH, 11, 4, 8, "exception"),
        ("google-adk-2.13.0/content", 13, 5, 9, "exception"),
    ],
)
def test_a_recording_tells_its_own_truth(
    shared: Path, recording: str, selections: int, no_pick: int, calls: int, booking_failed_as: str
) -> None:
    facts = recorded(shared / "otlp" / recording)
    folded = fold(facts)
    assert len(turns(facts)) == selections
    assert len({selection.event_id for selection in turns(facts)}) == selections
    assert without_pick(facts, folded) == no_pick
    assert len(folded) == calls
    assert Counter((call.skill_id, call.error_kind) for call in folded if call.ok is False) == {
        ("book_hotel", booking_failed_as): 1,
        ("convert_currency", "invalid_arguments"): 1,
        ("launch_rocket", "not_found"): 1,
        ("calculator", "invalid_arguments"): 1,
    }
    assert [call.skill_id for call in folded if call.ok is None] == []
    assert [call.skill_id for call in folded if call.hallucinated] == ["launch_rocket"]


def test_a_recording_without_content_still_tells_names_ids_and_errors(shared: Path) -> None:
    facts = recorded(shared / "otlp/google-adk-2.13.0/default")
    folded = fold(facts)
    assert (len(turns(facts)), len(folded), sum(call.ok is False for call in folded)) == (13, 9, 4)
    assert [call.skill_id for call in folded if call.hallucinated] == ["launch_rocket"]
    assert all(selection.query is None for selection in turns(facts))
    assert all(len(selection.candidates) == 10 for selection in turns(facts))


@pytest.mark.parametrize("variant", ["native", "openinference"])
def test_three_mcp_spans_are_one_call(shared: Path, variant: str) -> None:
    facts = recorded(shared / "otlp/fastmcp-4.2.3+mcp-2.3.0" / variant)
    assert len(facts.calls) == 30
    folded = fold(facts)
    assert len(folded) == 10
    assert sum(call.ok is False for call in folded) == 4


@pytest.mark.parametrize("variant", ["chat-api", "custom-model"])
def test_menus_that_are_not_exported_are_not_made_up(shared: Path, variant: str) -> None:
    facts = recorded(shared / "otlp" / OPENAI_AGENTS / variant)
    folded = fold(facts)
    assert all(not selection.candidates for selection in turns(facts))
    assert [call.skill_id for call in folded if call.error_kind == "not_found"] == ["launch_rocket"]
    # `custom-model` has a seventh request: book_hotel once more, with an error that ends the run.
    assert len(folded) == (11 if variant == "custom-model" else 10)


def test_the_details_of_one_recording(shared: Path) -> None:
    facts = recorded(shared / "otlp/pydantic-ai-2.68.0/v5")
    first, second = sorted(turns(facts), key=lambda selection: int(selection.time or 0))[:2]
    assert first.query == second.query == "What is the weather in Paris and how much is 100 USD in EUR?"
    assert [candidate.skill_id for candidate in first.candidates][:3] == [
        "get_weather",
        "search_flights",
        "convert_currency",
    ]
    assert (first.ranked, first.picks, first.strategy) == (False, None, "llm_direct")
    assert (first.agent, first.model, first.environment, first.release) == (
        "travel_agent",
        "fake-model-1",
        "capture",
        "1.0",
    )
    assert first.session_id == "01a228df-5cc8-7061-8d6c-29b621744c48"
    weather, currency = [fact for fact in facts.calls if fact.selection_id == first.event_id]
    assert (weather.role, weather.ordinal, weather.call_id, weather.ok) == ("propose", 0, "call_001", None)
    assert currency.arguments == {"amount": 100, "from_currency": "USD", "to_currency": "EUR"}
    run = next(fact for fact in facts.calls if fact.role == "run" and fact.call_id == "call_001")
    assert run.latency_ms == pytest.approx(1.122981)
    assert run.session_id == first.session_id
    answers = [fact for fact in facts.calls if fact.role == "answer" and fact.call_id == "call_001"]
    assert len(answers) == 1  # quoted again in request 07, where it is old
    assert {offer.skill_id for offer in facts.offered_skills} == {candidate.skill_id for candidate in first.candidates}
    assert all(offer.description and offer.parameters_schema for offer in facts.offered_skills)


def test_a_failed_langgraph_call_has_the_id_of_its_node(shared: Path) -> None:
    facts = recorded(shared / "otlp" / LANGGRAPH)
    booking = [call for call in fold(facts) if call.skill_id == "book_hotel"]
    assert len(booking) == 1
    assert {fact.role for fact in booking[0].facts} == {"propose", "run"}
    assert {fact.call_id for fact in booking[0].facts} == {"call_003"}
    assert max(fact.latency_ms or 0 for fact in booking[0].facts) == pytest.approx(2.9952)
    assert {selection.session_id for selection in turns(facts)} == {f"thread-{i}" for i in range(6)}
    assert {selection.agent for selection in turns(facts)} == {"travel_agent"}
