"""Gemini CLI's spans and log records; the recording tells the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.mapping import map_log
from collector.spans import LogRecord
from pickwise.settings import Settings
from tests.collector.mapping.spans import mapped, only_call


def model_span(**more: Any) -> dict[str, Any]:
    tools = [{"functionDeclarations": [{"name": "get", "parametersJsonSchema": {"type": "object"}}]}]
    called = [{"role": "model", "parts": [{"functionCall": {"name": "get", "args": {"a": 1}, "id": "c"}}]}]
    return {
        "gen_ai.operation.name": "llm_call",
        "gen_ai.conversation.id": "s",
        "gen_ai.tool.definitions": json.dumps(tools),
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"text": "hi"}]}]),
        "gen_ai.output.messages": json.dumps(called),
        **more,
    }


def finished(status: str, response: dict[str, Any]) -> dict[str, Any]:
    return {"status": status, "request": {"callId": "c", "name": "get", "args": {"a": 1}}, "response": response}


REFUSED = {"responseParts": [{"functionResponse": {"response": {"error": "no"}}}], "errorType": "tool_not_registered"}


def test_a_call_of_the_model_is_a_turn_with_its_menu() -> None:
    facts = mapped(model_span())
    (selection,) = facts.selections
    assert (selection.query, selection.session_id) == ("hi", "s")
    assert [candidate.skill_id for candidate in selection.candidates] == ["get"]
    (skill,) = facts.offered_skills
    assert skill.parameters_schema == {"type": "object"}
    (call,) = facts.calls
    assert (call.role, call.skill_id, call.call_id, call.arguments) == ("propose", "get", "c", {"a": 1})


CONTEXT = "<session_context>\n/home\n</session_context>"
REMINDERS = "<system-reminder>\na\n</system-reminder>\n" * 2


@pytest.mark.parametrize(
    ("texts", "query"),
    [
        ([CONTEXT, "hi"], "hi"),
        ([REMINDERS + "hi"], "hi"),
        (["hi " + CONTEXT], "hi " + CONTEXT),
        (["<b>hi</b>"], "<b>hi</b>"),
        (["<session_context>hi"], "<session_context>hi"),
        ([CONTEXT], None),
    ],
)
def test_what_an_agent_puts_before_the_words_of_the_user_is_no_query(texts: list[str], query: str | None) -> None:
    sent = [{"role": "user", "parts": [{"text": text} for text in texts]}]
    (selection,) = mapped(model_span(**{"gen_ai.input.messages": json.dumps(sent)})).selections
    assert selection.query == query


@pytest.mark.parametrize(
    ("status", "response", "kind", "message"),
    [
        ("success", {}, None, None),
        ("error", REFUSED, "not_found", "no"),
        ("error", {"resultDisplay": "down"}, "tool_error", "down"),
        ("error", {}, "tool_error", None),
        ("cancelled", {}, "cancelled", None),
    ],
)
def test_a_run_says_in_its_output_how_it_ended(
    status: str, response: dict[str, Any], kind: str | None, message: str | None
) -> None:
    attributes = {
        "gen_ai.operation.name": "tool_call",
        "gen_ai.tool.name": "get",
        "gen_ai.tool.call_id": "c",
        "gen_ai.input.messages": json.dumps({"callId": "c", "args": {"a": 1}}),
        "gen_ai.output.messages": json.dumps(finished(status, response)),
    }
    call = only_call(attributes)
    assert (call.role, call.skill_id, call.call_id, call.arguments) == ("run", "get", "c", {"a": 1})
    assert (call.ok, call.error_kind, call.error_message) == (kind is None, kind, message)


def test_a_schedule_answers_also_the_calls_that_no_tool_ran() -> None:
    attributes = {
        "gen_ai.operation.name": "schedule_tool_calls",
        "gen_ai.output.messages": json.dumps([finished("error", REFUSED), {"status": "error"}, 5]),
    }
    facts = mapped(attributes)
    assert facts.selections == []
    (answer,) = facts.calls
    assert (answer.role, answer.call_id, answer.ok, answer.error_message) == ("answer", "c", False, "no")


@pytest.mark.parametrize("told", ["", "{", "[]", "5", '{"status": "error", "response": 5}', '{"response": {}}'])
def test_an_output_that_cannot_be_read_is_no_failure_by_itself(told: str) -> None:
    attributes = {"gen_ai.operation.name": "tool_call", "gen_ai.tool.name": "get", "gen_ai.output.messages": told}
    assert only_call(attributes).ok is ("error" not in told)


def test_its_log_records_repeat_its_spans() -> None:
    record = LogRecord(
        trace_id=None,
        span_id=None,
        time_ns=1,
        event_name="gen_ai.client.inference.operation.details",
        body=None,
        attributes={"installation.id": "i", **model_span()},
        resource={},
    )
    facts = map_log(record, Settings())
    assert facts is not None
    assert not len(facts)
