"""Log events and spans of coding agents; the recordings tell the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.facts import CallFact, Facts, SelectionFact
from collector.mapping import map_log
from collector.spans import LogRecord
from pickwise.settings import Settings
from tests.collector.mapping.spans import SPAN, START, TRACE, mapped, only_call

SESSION = {"session.id": "s", "prompt.id": "p"}


def told(name: str, attributes: dict[str, Any], **fields: Any) -> Facts:
    """The facts of Claude Code's event, with its name in the body."""
    given: dict[str, Any] = {
        "trace_id": None,
        "span_id": None,
        "time_ns": START,
        "event_name": "",
        "body": f"claude_code.{name}",
        "attributes": {"event.name": name, **SESSION, **attributes},
        "resource": {"service.name": "claude-code", "service.version": "2"},
    }
    facts = map_log(LogRecord(**{**given, **fields}), Settings())
    assert facts is not None
    return facts


def call_of(attributes: dict[str, Any], **fields: Any) -> CallFact:
    (call,) = told("tool_result", {"tool_name": "Bash", "success": "true", **attributes}, **fields).calls
    return call


def test_a_prompt_is_a_selection_and_its_request_tells_the_model() -> None:
    (asked,) = told("user_prompt", {"prompt": "hi"}).selections
    assert (asked.query, asked.session_id, asked.agent, asked.release) == ("hi", "s", "claude-code", "2")
    assert (asked.candidates, asked.ranked) == ([], False)
    (request,) = told("api_request", {"model": "m", "query_source": "repl_main_thread"}, time_ns=START + 1).selections
    assert isinstance(request, SelectionFact)
    assert (request.event_id, request.role, request.model) == (asked.event_id, "run", "m")


def test_a_request_for_a_title_tells_nothing_of_the_prompt() -> None:
    assert not len(told("api_request", {"model": "m", "query_source": "generate_session_title"}))


@pytest.mark.parametrize("hidden", ["<REDACTED>", "[REDACTED]"])
def test_words_that_are_hidden_are_none(hidden: str) -> None:
    assert told("user_prompt", {"prompt": hidden}).selections[0].query is None


def test_prompts_of_a_session_are_told_apart_also_without_ids() -> None:
    ids = {
        told("user_prompt", {"prompt.id": prompt}, time_ns=time).selections[0].event_id
        for prompt, time in (("p", START), ("q", START), ("", START), ("", START + 1))
    }
    assert len(ids) == 4


def test_a_result_is_a_call_that_began_when_it_was_asked_for() -> None:
    parameters = json.dumps({"mcp_server_name": "travel", "mcp_tool_name": "book"})
    call = call_of(
        {
            "tool_name": "mcp_tool",
            "tool_parameters": parameters,
            "tool_use_id": "c",
            "tool_input": '{"city": "Rome"}',
            "duration_ms": "20",
        }
    )
    assert (call.role, call.skill_id, call.call_id, call.arguments) == (
        "run",
        "mcp__travel__book",
        "c",
        {"city": "Rome"},
    )
    assert (call.ok, call.latency_ms, call.time) == (True, 20.0, START - 20_000_000)


def test_a_result_that_is_sent_again_is_the_same_and_another_without_an_id_is_not() -> None:
    first, again, other = (call_of({"tool_input": text}).event_id for text in ('{"a":1}', '{"a":1}', '{"a":2}'))
    assert first == again != other


@pytest.mark.parametrize(
    ("attributes", "kind", "message"),
    [
        ({"error_type": "McpToolCallError", "error": "down"}, "tool_error", "down"),
        ({"error_type": "McpToolCallError"}, "tool_error", "McpToolCallError"),
        ({"output": "unsupported call: fly"}, "not_found", "unsupported call: fly"),
        ({"error_type": "tool_not_registered", "error": "?"}, "not_found", "?"),
        ({"error_type": "invalid_tool_params", "error": "?"}, "invalid_arguments", "?"),
        ({}, "tool_error", None),
    ],
)
def test_a_failed_result_says_why(attributes: dict[str, Any], kind: str, message: str | None) -> None:
    call = call_of({"success": False, **attributes})
    assert (call.ok, call.error_kind, call.error_message) == (False, kind, message)


@pytest.mark.parametrize("duration", ["", "soon", "nan", "inf", -1, [], {}, 1e300, True])
def test_a_time_that_is_none_is_left_out(duration: Any) -> None:
    call = call_of({"duration_ms": duration})
    assert call.latency_ms in (None, 1.0)
    assert call.time == START - int((call.latency_ms or 0) * 1e6)


@pytest.mark.parametrize("parameters", [None, "", "{", "[]", '{"mcp_server_name": "travel"}', 5])
def test_an_mcp_tool_without_its_name_stays_one(parameters: Any) -> None:
    assert call_of({"tool_name": "mcp_tool", "tool_parameters": parameters}).skill_id == "mcp_tool"


@pytest.mark.parametrize(
    ("namespace", "skill"), [("functions", "get"), ("", "get"), ("mcp__travel", "mcp__travel__get")]
)
def test_codex_has_its_name_beside_a_place_in_its_source(namespace: str, skill: str) -> None:
    call = call_of(
        {"event.name": "codex.tool_result", "tool_name": "get", "tool_namespace": namespace, "conversation.id": "x"},
        event_name="event otel/src/tool_result.rs:54",
        body=None,
    )
    assert call.skill_id == skill


def test_a_result_without_a_tool_tells_nothing() -> None:
    assert not len(told("tool_result", {"success": "true"}))


def test_spans_and_events_of_one_interaction_tell_of_the_same_things() -> None:
    (span,) = mapped({"span.type": "interaction", "user_prompt": "hi", "session.id": "s"}).selections
    (event,) = told("user_prompt", {"prompt": "hi"}, trace_id=TRACE, span_id=SPAN).selections
    assert (span.event_id, span.query, span.session_id) == (event.event_id, "hi", "s")
    run = only_call({"span.type": "tool", "tool_name": "Bash", "gen_ai.tool.call.id": "c"})
    result = call_of({"tool_use_id": "c"}, trace_id=TRACE, span_id=SPAN)
    assert (run.skill_id, run.call_id, run.trace_id) == (result.skill_id, result.call_id, result.trace_id)
    # The span of the event is that around all calls: as its own it would make them one.
    assert result.span_id is None


def test_what_runs_in_a_tools_span_says_how_it_ended() -> None:
    ended = only_call(
        {"span.type": "tool.execution", "gen_ai.tool.call.id": "c", "success": False},
        status_code=2,
        status_message="down",
    )
    assert (ended.role, ended.call_id, ended.ok, ended.error_message) == ("answer", "c", False, "down")
    assert not len(mapped({"span.type": "llm_request", "gen_ai.system": "anthropic"}))
