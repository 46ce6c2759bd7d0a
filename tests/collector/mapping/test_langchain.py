"""What LangGraph's nodes tell, in each of the wrappers that instrumentations put it in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.mapping.langchain import node_facts, unreadable_proposals
from collector.mapping.openllmetry_values import read_given, read_returned
from collector.spans import SpanEvent
from pickwise.settings import Settings
from tests.collector.mapping.spans import START, span

CALL = {"name": "get", "args": {"a": 1}, "id": "1", "type": "tool_call"}
FLAT = {
    "type": "tool",
    "content": "Error: get is not a valid tool",
    "name": "get",
    "tool_call_id": "1",
    "status": "error",
}
DUMPED = {"type": "tool", "data": FLAT}
CONSTRUCTED = {"lc": 1, "type": "constructor", "id": ["langchain", "ToolMessage"], "kwargs": FLAT}
OTHER = FLAT | {"tool_call_id": "2", "status": "success", "content": "fine", "name": "put"}


@pytest.mark.parametrize("sent", [[CALL], {"tool_call": CALL, "state": {}}, {"inputs": [CALL]}, {"input": [CALL]}])
@pytest.mark.parametrize("message", [FLAT, DUMPED, CONSTRUCTED])
@pytest.mark.parametrize("key", [None, "output", "outputs"])
@pytest.mark.parametrize("form", ["bare", "state", "command"])
def test_a_node_of_one_call(sent: Any, message: dict[str, Any], key: str | None, form: str) -> None:
    returned: Any = {
        "bare": [message],
        "state": {"messages": [message]},
        "command": [{"graph": None, "update": {"messages": [message]}, "goto": []}],
    }[form]
    facts = node_facts(span(), json.dumps(sent), json.dumps({key: returned} if key else returned), Settings())
    assert facts is not None
    (call,) = facts.calls
    assert (call.role, call.call_id, call.skill_id, call.arguments) == ("run", "1", "get", {"a": 1})
    assert (call.ok, call.error_kind, call.latency_ms) == (False, "not_found", None)


def test_a_node_of_several_calls_only_answers() -> None:
    facts = node_facts(span(), json.dumps([CALL, CALL | {"id": "2"}]), json.dumps([FLAT, OTHER]), Settings())
    assert facts is not None
    assert [(call.role, call.call_id, call.ok) for call in facts.calls] == [
        ("answer", "1", False),
        ("answer", "2", True),
    ]


def test_a_node_that_hands_over_to_another_agent_has_not_failed() -> None:
    raised = SpanEvent("exception", START, {"exception.type": "langgraph.errors.ParentCommand"})
    facts = node_facts(span(status_code=2, events=[raised]), json.dumps([CALL]), None, Settings())
    assert facts is not None
    assert [(call.ok, call.error_kind) for call in facts.calls] == [(None, None)]


@pytest.mark.parametrize(
    "returned", [None, "", "text", 5, "{", '{"messages": []}', json.dumps({"messages": [DUMPED, 5]})]
)
def test_what_is_no_tools_node(returned: Any) -> None:
    assert node_facts(span(), "no calls", returned, Settings()) is None
    assert unreadable_proposals(span(), returned, Settings()) == []


KEYS = st.sampled_from(
    [
        *("type", "id", "name", "args", "messages", "update", "output", "outputs", "input", "inputs", "tool_call"),
        *("kwargs", "tool_call_id", "tool_calls", "invalid_tool_calls", "content", "data", "lc", "status"),
        *("input_str", "tool_name"),
    ]
)
WORDS = st.sampled_from(["ai", "tool", "tool_call", "invalid_tool_call", "error", "get", "1", "{'a': 1}"])
DOCUMENTS = st.recursive(
    WORDS | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_no_document_stops_the_reading(sent: Any, returned: Any) -> None:
    marked = json.dumps([returned, {"tool_call_id": 1, "invalid_tool_calls": [{}]}])
    node_facts(span(), json.dumps(sent), json.dumps(returned), Settings())
    unreadable_proposals(span(), marked, Settings())
    unreadable_proposals(span(), json.dumps(returned), Settings())
    read_given(sent)
    read_returned(returned)
