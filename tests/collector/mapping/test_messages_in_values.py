"""Conversations, menus and questions, wherever the JSON of a value has them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.mapping.messages_in_values import conversations, definitions, may_tell_calls, menu, query_in

ASKED = {"role": "user", "content": "hi"}
CALLED = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "get", "arguments": "{}"}}]}
ANSWERED = {"role": "tool", "tool_call_id": "c", "content": "21"}
MESSAGES = [ASKED, CALLED, ANSWERED]


@pytest.mark.parametrize(
    ("value", "path", "held"),
    [
        (MESSAGES, (), None),
        ({"messages": MESSAGES, "n": 1}, (), "n"),
        ({"agent": {"messages": MESSAGES, "n": 1}}, ("agent",), "n"),
        ({"result": {"agent": {"messages": MESSAGES, "n": 1}}}, ("result", "agent"), "n"),
        ({"tasks": [{"messages": MESSAGES, "n": 1}]}, (), "n"),
        ([{"update": {"messages": MESSAGES, "n": 1}}], ("update",), "n"),
        ({"messages": [MESSAGES], "n": 1}, (), "n"),
        ({"messages": json.dumps(MESSAGES), "n": 1}, (), "n"),
    ],
)
def test_a_conversation_is_found_with_what_holds_it(value: Any, path: tuple[str, ...], held: str | None) -> None:
    for form in (value, json.dumps(value)):
        (found,) = conversations(form)
        assert [message.role for message in found.messages] == ["user", "assistant", "tool"]
        assert found.path == path
        assert held is None or held in found.holder
        assert found.tells_calls


@pytest.mark.parametrize(
    "value",
    [
        CALLED,
        {"message": CALLED},
        {"choices": [{"message": CALLED, "index": 0}]},
        {"generations": [[{"text": "", "message": CALLED}]]},
    ],
)
def test_a_message_that_is_no_item_of_a_list_is_a_conversation_of_one(value: Any) -> None:
    (found,) = conversations(json.dumps(value))
    assert [call.name for message in found.messages for call in message.calls] == ["get"]


def test_calls_that_stand_beside_each_other_are_of_one_turn() -> None:
    items = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "1", "name": "get", "arguments": "{}"},
        {"type": "function_call", "call_id": "2", "name": "put", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "21"},
        {"type": "function_call", "call_id": "3", "name": "get", "arguments": "{}"},
    ]
    (found,) = conversations({"output": items})
    turns = [[call.call_id for call in message.calls] for message in found.messages if message.role == "assistant"]
    assert turns == [["1", "2"], ["3"]]


@pytest.mark.parametrize(
    "value",
    [
        "plain words",
        '{"broken": ',
        {"documents": [{"content": "x"}]},
        [{"type": "function", "function": {"name": "get"}}],
        [*MESSAGES, {"unlike": "them"}],
        ["user", "hi"],
        {"role": "travel_agent", "tools": []},
        None,
    ],
)
def test_what_holds_none(value: Any) -> None:
    assert conversations(value) == []


def test_wide_and_deep_values_are_not_looked_through_for_ever() -> None:
    deep: Any = {"messages": MESSAGES}
    for _ in range(50):
        deep = {"state": deep}
    assert conversations(deep) == []
    wide = {str(number): {"x": [[number]]} for number in range(100_000)}
    assert conversations(wide) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from([ASKED, CALLED, ANSWERED]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_any_json_is_read(value: Any) -> None:
    for found in conversations(json.dumps(value)):
        assert found.messages


def test_a_cheap_look_passes_over_no_call() -> None:
    assert all(may_tell_calls(json.dumps(message)) for message in (CALLED, ANSWERED))
    assert may_tell_calls("ChatMessage(_content=[ToolCall(tool_name='get')])")
    assert may_tell_calls({"structured": 1})
    assert not may_tell_calls(json.dumps({"messages": [ASKED]}))
    assert not may_tell_calls(None)


SCHEMA = {"type": "object", "properties": {"city": {}}}


@pytest.mark.parametrize(
    "item",
    [
        {"type": "function", "function": {"name": "get", "description": "Gets.", "parameters": SCHEMA}},
        {"type": "function", "name": "get", "description": "Gets.", "parameters": SCHEMA},
        {"name": "get", "description": "Gets.", "input_schema": SCHEMA},
        {"toolSpec": {"name": "get", "description": "Gets.", "inputSchema": {"json": SCHEMA}}},
        {"functionDeclarations": [{"name": "get", "description": "Gets.", "parameters": SCHEMA}]},
        {"function_declarations": [{"name": "get", "description": "Gets.", "parameters_json_schema": SCHEMA}]},
    ],
)
def test_definitions_in_the_form_of_each_provider(item: Any) -> None:
    for form in ([item], json.dumps([item]), [json.dumps(item)]):
        (tool,) = definitions(form)
        assert (tool.name, tool.description, tool.parameters) == ("get", "Gets.", SCHEMA)


def test_menus_without_definitions() -> None:
    assert [tool.name for tool in definitions(["get", "server/put"])] == ["get", "server/put"]
    printed = ["name='get' description='Gets.' env_vars=[]", "name='put' description='Puts.' env_vars=[]"]
    assert [(tool.name, tool.description) for tool in definitions(printed)] == [("get", "Gets."), ("put", "Puts.")]
    assert definitions(["any words", "that are no name"]) == []
    assert definitions("no list") == definitions(None) == []


def test_the_first_menu_of_several_objects() -> None:
    assert menu(None, {"tools": None}, {"tools": [], "functions": [{"name": "get"}]})[0].name == "get"
    assert menu({"available_tools": ["get"]}, {"tools": ["put"]})[0].name == "get"
    assert menu("text", {}) == []


@pytest.mark.parametrize(
    ("value", "query"),
    [
        ("What now?", "What now?"),
        ('{"task": "What now?", "stream": false}', "What now?"),
        ({"input": "What now?"}, "What now?"),
        ('{"stream": false}', None),
        ('{"broken": ', None),
        ("[1, 2]", None),
        ("", None),
        (None, None),
    ],
)
def test_the_words_of_the_user(value: Any, query: str | None) -> None:
    assert query_in(value) == query
