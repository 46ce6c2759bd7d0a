"""Runs that are told as one: turns with ids of their own, which repeats of the run share."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.facts import CallFact, Facts, SelectionFact
from collector.mapping import map_span
from collector.redact import Redactor
from pickwise.settings import Settings
from tests.collector.frames_of import to_frames
from tests.collector.mapping.spans import SPAN, START, mapped, span
from tests.collector.mapping.test_message_forms import json_values, near_messages

ASKED = {"role": "user", "content": "hi"}
FINAL = {"role": "assistant", "content": "done"}


def called(*calls: tuple[str | None, str], arguments: str = "{}") -> dict[str, Any]:
    listed = [{"id": call_id, "function": {"name": name, "arguments": arguments}} for call_id, name in calls]
    return {"role": "assistant", "content": "", "tool_calls": listed}


def answered(call_id: str | None, text: str = "21", name: str | None = None) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text, "name": name}


WHOLE = [ASKED, called(("1", "get"), ("2", "put")), answered("1"), answered("2"), called(("3", "get")), FINAL]


def told(
    returned: Any, given: Any = None, *, kind: str = "CHAIN", parent: str | None = "f" * 16, **fields: Any
) -> Facts:
    attributes = {"openinference.span.kind": kind, "output.value": json.dumps(returned)}
    if given is not None:
        attributes["input.value"] = given if isinstance(given, str) else json.dumps(given)
    return mapped(attributes, parent_span_id=parent, **fields)


def steps(facts: Facts) -> list[SelectionFact]:
    found = [fact for fact in facts.selections if isinstance(fact, SelectionFact) and fact.role == "step"]
    return sorted(found, key=lambda step: int(step.time or 0))


def by_role(facts: Facts, role: str) -> list[CallFact]:
    return [call for call in facts.calls if call.role == role]


def ids(facts: Facts) -> set[str | None]:
    return {fact.event_id for fact in (*facts.selections, *facts.calls)}


def test_each_answer_of_the_model_is_a_turn() -> None:
    facts = told({"messages": WHOLE, "tools": ["get", "put"]})
    first, second, last = steps(facts)
    assert [step.query for step in (first, second, last)] == ["hi"] * 3
    assert [[c.skill_id for c in step.candidates] for step in (first, second, last)] == [["get", "put"]] * 3
    proposals = by_role(facts, "propose")
    assert [(call.call_id, call.selection_id, call.ordinal) for call in proposals] == [
        ("1", first.event_id, 0),
        ("2", first.event_id, 1),
        ("3", second.event_id, 0),
    ]
    answers = by_role(facts, "answer")
    assert [(call.call_id, call.selection_id, call.ok, call.skill_id) for call in answers] == [
        ("1", first.event_id, True, "get"),
        ("2", first.event_id, True, "put"),
    ]
    assert {fact.span_id for fact in (*facts.selections, *facts.calls)} == {SPAN}
    assert {offer.skill_id for offer in facts.offered_skills} == {"get", "put"}


def test_turns_keep_their_order_and_the_last_words_come_last() -> None:
    times = [int(step.time or 0) - START for step in steps(told({"messages": WHOLE, "tools": ["get"]}))]
    assert times == [0, 1_000, 5_000_000]  # a microsecond, as stored times are cut to it


def test_words_alone_are_a_turn_only_where_something_was_offered() -> None:
    assert len(steps(told({"messages": WHOLE}))) == 2
    assert len(steps(told({"messages": [ASKED, called(("1", "get")), answered("1"), FINAL], "tools": ["get"]}))) == 2


def test_a_span_around_the_run_repeats_its_turns() -> None:
    inner = told({"messages": WHOLE}, span_id="1" * 16)
    outer = told({"agent": {"messages": [{"role": "system", "content": "be kind"}, *WHOLE]}}, span_id="2" * 16)
    assert ids(inner) == ids(outer)


def test_nodes_tell_their_part_of_the_run() -> None:
    """What a node was given was told by those before it; what it answers to is news."""
    whole = told({"messages": WHOLE})
    first = told({"messages": WHOLE[1:2]}, {"messages": WHOLE[:1]})
    tools = told({"messages": WHOLE[2:4]}, {"messages": WHOLE[:2]})
    second = told({"messages": WHOLE[4:5]}, {"messages": WHOLE[:4]})
    assert [len(steps(part)) for part in (first, tools, second)] == [1, 0, 1]
    assert ids(first) | ids(second) == ids(whole)
    assert [(call.call_id, call.ok) for call in by_role(tools, "answer")] == [("1", True), ("2", True)]
    assert {call.selection_id for call in by_role(tools, "answer")} == {steps(first)[0].event_id}


def test_earlier_turns_of_the_conversation_are_not_told_again() -> None:
    facts = told({"messages": [*WHOLE, {"role": "user", "content": "and now?"}, called(("4", "put"))]})
    (step,) = steps(facts)
    assert step.query == "and now?"
    assert [call.call_id for call in facts.calls] == ["4"]


def test_where_nothing_was_returned_what_was_given_is_told() -> None:
    facts = told("plain words", {"messages": WHOLE})
    assert len(steps(facts)) == 2


def test_the_words_of_the_user_may_stand_outside_the_messages() -> None:
    assert steps(told(WHOLE[1:], "hi"))[0].query == "hi"
    assert steps(told(WHOLE[1:], {"task": "hi"}))[0].query == "hi"
    assert ids(told(WHOLE[1:], {"task": "hi"})) == ids(told(WHOLE))


def test_the_same_answer_to_another_question_is_another_turn() -> None:
    other = [{"role": "user", "content": "again"}, *WHOLE[1:]]
    assert ids(told(other)).isdisjoint(ids(told(WHOLE)))


def test_calls_without_ids_are_answered_by_name_and_in_order() -> None:
    messages = [
        ASKED,
        called((None, "get"), (None, "put"), (None, "get")),
        answered(None, "timed out", "put"),
        answered(None, "1", "get"),
        answered(None, "2", "get"),
    ]
    (step,) = steps(told(messages))
    answers = by_role(told(messages, settings=Settings(error_patterns=["^timed out"])), "answer")
    assert [(call.skill_id, call.ordinal, call.selection_id, call.ok) for call in answers] == [
        ("put", 1, step.event_id, False),
        ("get", 0, step.event_id, True),
        ("get", 2, step.event_id, True),
    ]


def test_a_result_that_is_flagged_failed() -> None:
    block = {"type": "tool_result", "tool_use_id": "1", "content": "Error: timed out", "is_error": True}
    messages = [
        ASKED,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "get", "input": {}}]},
        {"role": "user", "content": [block]},
    ]
    (answer,) = by_role(told(messages), "answer")
    assert (answer.ok, answer.error_kind, answer.error_message) == (False, "timeout", "Error: timed out")


@pytest.mark.parametrize("kind", ["AGENT", "CHAIN"])
def test_what_a_run_knows_for_the_turns_of_its_trace(kind: str) -> None:
    attributes = {"openinference.span.kind": kind, "session.id": "s", "input.value": "hi", "agent.name": "a"}
    (run,) = mapped(attributes).selections
    assert isinstance(run, SelectionFact)
    assert (run.role, run.session_id, run.query, run.agent, run.candidates) == ("run", "s", "hi", "a", [])
    assert run.ended_at == START + 5_000_000


def test_a_run_that_called_nothing_of_what_it_was_offered() -> None:
    given = {"messages": [ASKED], "tools": [{"type": "function", "function": {"name": "get"}}]}
    facts = told({"messages": [ASKED, FINAL]}, given, kind="AGENT")
    (step,) = steps(facts)
    assert ([c.skill_id for c in step.candidates], step.query, facts.calls) == (["get"], "hi", [])


def test_an_agent_that_was_offered_nothing_still_knows_what_it_was_asked() -> None:
    facts = told("done", {"messages": [ASKED]}, kind="AGENT")
    assert [fact.query for fact in facts.selections] == ["hi"]


def test_a_long_run_is_told_turn_by_turn() -> None:
    messages = [ASKED]
    for number in range(2_000):
        messages += [called((str(number), "get")), answered(str(number))]
    facts = told({"messages": messages})
    assert len(steps(facts)) == 2_000
    assert len(by_role(facts, "answer")) == 2_000
    assert len(ids(facts)) == 6_000


def test_a_link_in_the_middle_of_a_trace_knows_nothing_that_its_root_does_not() -> None:
    facts = told({"messages": WHOLE}, "hi", parent="f" * 16)
    assert {fact.role for fact in facts.selections if isinstance(fact, SelectionFact)} == {"step"}


def test_an_agents_run_beside_its_turns_has_an_id_of_its_own() -> None:
    facts = told({"messages": WHOLE, "tools": ["get"]}, kind="AGENT")
    (run,) = [fact for fact in facts.selections if isinstance(fact, SelectionFact) and fact.role == "run"]
    assert run.event_id not in {step.event_id for step in steps(facts)}
    assert [candidate.skill_id for candidate in run.candidates] == ["get"]


@pytest.mark.parametrize(("start", "end"), [(0, 0), (START, 0), (START, START - 5)])
def test_times_that_are_missing_or_turned_round(start: int, end: int) -> None:
    facts = told({"messages": WHOLE, "tools": ["get"]}, start_ns=start, end_ns=end)
    assert len(steps(facts)) == 3
    assert all(fact.time is None or int(fact.time) >= start for fact in (*facts.selections, *facts.calls))


@given(
    kind=st.sampled_from(["AGENT", "CHAIN", "LLM", "TOOL"]),
    scope=st.sampled_from(["", "haystack", "smolagents", "crewai"]),
    values=st.lists(st.lists(near_messages, max_size=4) | json_values, min_size=2, max_size=2),
    holder=st.dictionaries(st.sampled_from(["tools", "tool_call_counts", "description", "agent"]), json_values),
)
@settings(max_examples=200, deadline=None)
def test_no_value_stops_a_mapper(kind: str, scope: str, values: list[Any], holder: dict[str, Any]) -> None:
    attributes = {
        "openinference.span.kind": kind,
        "input.value": json.dumps(values[0]),
        "output.value": json.dumps(holder | {"messages": values[1]}),
        "crew_key" if scope == "crewai" else "key": "k",
    }
    facts = map_span(span(attributes=attributes, scope_name=f"openinference.instrumentation.{scope}"), Settings())
    for part in (facts or Facts()).calls:
        assert part.event_id
    if facts is not None:
        to_frames("p", facts, received_at=START, source_request="1", redactor=Redactor(Settings(), b"key"))
