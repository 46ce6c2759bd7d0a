"""Log records of the GenAI conventions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.facts import Facts
from collector.mapping import map_log
from collector.spans import LogRecord
from pickwise.settings import Settings
from tests.collector.mapping.spans import SPAN, START, TRACE, mapped

DETAILS = "gen_ai.client.inference.operation.details"
TOOL = {"type": "function", "name": "get", "description": "Gets.", "parameters": {"type": "object"}}
ASKED = {"role": "user", "parts": [{"type": "text", "content": "hi"}]}
CALLED = {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "get", "arguments": {"a": 1}}]}
ANSWERED = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "0", "response": "boom"}]}
MESSAGES = {"gen_ai.input.messages": [ASKED, ANSWERED], "gen_ai.output.messages": [CALLED]}
TURN = MESSAGES | {"gen_ai.tool.definitions": [TOOL]}
OLD_CALL = {"id": "1", "type": "function", "function": {"name": "get", "arguments": '{"a": 1}'}}


def record(name: str, **fields: Any) -> LogRecord:
    given: dict[str, Any] = {
        "trace_id": TRACE,
        "span_id": SPAN,
        "time_ns": START + 4_000_000,
        "event_name": name,
        "body": None,
        "attributes": {},
        "resource": {},
    }
    return LogRecord(**{**given, **fields})


def told(name: str, **fields: Any) -> Facts:
    facts = map_log(record(name, **fields), Settings())
    assert facts is not None
    return facts


def roles(facts: Facts) -> list[str]:
    return [getattr(fact, "role", "turn") for fact in facts.selections]


def as_json(attributes: dict[str, Any]) -> dict[str, Any]:
    return {key: json.dumps(value) for key, value in attributes.items()}


@pytest.mark.parametrize(
    "fields",
    [{"attributes": TURN}, {"attributes": as_json(TURN)}, {"body": TURN}, {"body": json.dumps(TURN)}],
    ids=["structured", "json", "body", "body as json"],
)
def test_the_details_of_a_model_call_are_its_span_told_again(fields: dict[str, Any]) -> None:
    """All ids are those of the span's own facts, so that both fold into one, whichever comes first."""
    logged = told(DETAILS, **fields)
    own = mapped({"gen_ai.operation.name": "chat"} | TURN)
    assert roles(logged) == ["turn"]
    again, known = [*logged.selections, *logged.calls], [*own.selections, *own.calls]
    assert [fact.event_id for fact in again] == [fact.event_id for fact in known]
    assert {(fact.trace_id, fact.span_id) for fact in again} == {(TRACE, SPAN)}
    assert ({fact.time for fact in again}, {fact.time for fact in known}) == ({START + 4_000_000}, {START})
    assert [call.role for call in logged.calls] == ["propose", "answer"]
    assert logged.selections[0].query == "hi"
    assert [offer.description for offer in logged.offered_skills] == ["Gets."]


def test_the_event_name_may_be_an_attribute() -> None:
    named = told("", attributes=TURN | {"event.name": DETAILS})
    assert (roles(named), len(named.calls)) == (["turn"], 2)


def test_details_without_tools_only_add_to_what_the_span_tells() -> None:
    silent = told(DETAILS, attributes={"gen_ai.input.messages": [ASKED], "gen_ai.conversation.id": "s"})
    assert roles(silent) == ["run"]
    assert (silent.selections[0].query, silent.selections[0].session_id) == ("hi", "s")
    assert len(told(DETAILS)) == 0


@pytest.mark.parametrize(("operation", "expected"), [("invoke_agent", ["run"]), ("execute_tool", [])])
def test_details_of_what_is_no_model_call(operation: str, expected: list[str]) -> None:
    facts = told(DETAILS, attributes=TURN | {"gen_ai.operation.name": operation})
    assert (roles(facts), facts.calls) == (expected, [])


@pytest.mark.parametrize("ids", [{"trace_id": None, "span_id": None}, {"span_id": None}], ids=["none", "trace only"])
def test_a_record_that_names_no_span_is_a_turn_by_itself(ids: dict[str, Any]) -> None:
    """Its ids come from its content: a retried record is the same turn, another one another."""
    first, again, other = (told(DETAILS, attributes=TURN, **ids, time_ns=START + i) for i in (0, 0, 1))
    assert first == again
    (selection,), (elsewhere,) = first.selections, other.selections
    assert selection.event_id != elsewhere.event_id
    assert (selection.trace_id, selection.span_id) == (ids.get("trace_id", TRACE), None)
    proposal = first.calls[0]
    assert (proposal.selection_id, proposal.trace_id) == (selection.event_id, selection.trace_id)
    only_message = told("gen_ai.user.message", body={"content": "hi"}, **ids)
    assert len(only_message) == 0


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("gen_ai.choice", {"index": 0, "message": {"content": "", "tool_calls": [OLD_CALL]}}),
        ("gen_ai.choice", {"index": 0, "message": {"content": ""}, "tool_calls": [OLD_CALL]}),
        (
            "gen_ai.choice",
            {"content": {"role": "model", "parts": [{"function_call": {"id": "1", "name": "get", "args": {"a": 1}}}]}},
        ),
    ],
    ids=["in the message", "beside it", "gemini"],
)
def test_the_choice_that_calls_is_the_turn(name: str, body: dict[str, Any]) -> None:
    for facts in (told(name, body=body), told(name, body=json.dumps(body)), told(name, attributes=body)):
        (selection,) = facts.selections
        (proposal,) = facts.calls
        assert (roles(facts), selection.candidates, selection.query) == (["turn"], [], None)
        assert (proposal.role, proposal.skill_id, proposal.call_id) == ("propose", "get", "1")
        assert proposal.selection_id == selection.event_id


def test_a_choice_without_calls_says_nothing_of_tools() -> None:
    assert len(told("gen_ai.choice", body={"index": 0, "message": {"content": "Done."}})) == 0


def test_calls_of_several_choices_are_kept_apart() -> None:
    first, second = (
        told("gen_ai.choice", body={"index": index, "message": {"tool_calls": [OLD_CALL]}}).calls[0] for index in (0, 1)
    )
    assert first.event_id != second.event_id
    assert (first.ordinal or 0) < (second.ordinal or 0)
    assert first.selection_id == second.selection_id


def test_the_query_is_of_the_turn_that_has_the_calls() -> None:
    asked = told("gen_ai.user.message", body={"content": "hi"})
    chosen = told("gen_ai.choice", body={"message": {"tool_calls": [OLD_CALL]}})
    assert (roles(asked), asked.selections[0].query) == (["run"], "hi")
    assert asked.selections[0].event_id == chosen.selections[0].event_id


def test_an_answer_is_known_by_its_calls_id() -> None:
    """The older events name no tool; what they answer is found by the id."""
    (answer,) = told("gen_ai.tool.message", body={"id": "1", "content": "fine"}).calls
    assert (answer.role, answer.call_id, answer.skill_id, answer.ok) == ("answer", "1", "", True)
    (failed,) = told("gen_ai.tool.message", body={"id": "1", "content": '{"error": "rate limit"}'}).calls
    assert (failed.ok, failed.error_kind) == (False, "rate_limited")
    pattern = Settings(error_patterns=[{"pattern": "^Error"}])
    found = map_log(record("gen_ai.tool.message", body={"id": "1", "content": "Error: x"}), pattern)
    assert found is not None
    assert found.calls[0].ok is False
    assert len(told("gen_ai.tool.message", body={"content": "fine"})) == 0


def test_an_answer_that_later_turns_quote_again_is_one() -> None:
    body = {"id": "1", "content": "fine"}
    first, again = (told("gen_ai.tool.message", body=body, span_id=span).calls[0] for span in (SPAN, "a" * 16))
    assert first.event_id == again.event_id
    other = told("gen_ai.tool.message", body=body | {"content": "not the same"}).calls[0]
    assert first.event_id != other.event_id


def test_quoted_calls_and_instructions_say_nothing() -> None:
    assert len(told("gen_ai.assistant.message", body={"tool_calls": [OLD_CALL]})) == 0
    assert len(told("gen_ai.system.message", body={"content": "Be kind."})) == 0


def test_records_of_other_events_are_not_ours() -> None:
    assert map_log(record("app.started", body={"content": "hi"}), Settings()) is None
    assert map_log(record("", body="plain text"), Settings()) is None


@pytest.mark.parametrize("garbage", ["", "{", "null", 7, [None], {"a": 1}, {"content": {"parts": 5}}, "\ufffd", None])
@pytest.mark.parametrize("name", [DETAILS, "gen_ai.choice", "gen_ai.user.message", "gen_ai.tool.message"])
def test_garbage_is_passed_over(name: str, garbage: Any) -> None:
    assert told(name, body=garbage).calls == []
    assert told(name, attributes=dict.fromkeys((*TURN, "content", "message", "tool_calls"), garbage)).calls == []


def test_choices_of_several_turns_may_name_the_span_around_them() -> None:
    """As OpenLLMetry's for Anthropic do: a call of a later turn is another one, also at the same place."""
    first, second = (
        told("gen_ai.choice", body={"index": 0, "message": {}, "tool_calls": [OLD_CALL | {"id": call_id}]}).calls[0]
        for call_id in ("1", "2")
    )
    assert first.event_id != second.event_id
    assert first.selection_id == second.selection_id


def test_the_menu_may_stand_where_a_message_of_the_user_belongs() -> None:
    facts = told("gen_ai.user.message", body={"content": {"tools": [TOOL]}})
    (selection,) = facts.selections
    assert ([candidate.skill_id for candidate in selection.candidates], selection.query) == (["get"], None)
