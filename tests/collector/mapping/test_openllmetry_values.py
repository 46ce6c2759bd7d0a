"""Wrappers of arguments and results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.mapping.openllmetry_values import read_given, read_returned

LANGCHAIN = {"tags": [], "metadata": {"thread_id": "t"}, "kwargs": {"color": "green"}}


@pytest.mark.parametrize(
    ("wrapped", "arguments"),
    [
        (LANGCHAIN | {"input_str": "{'a': 'x'}", "inputs": {"a": "y"}}, {"a": "y"}),
        (LANGCHAIN | {"input_str": "{'a': ('x', None)}", "inputs": None}, {"a": ["x", None]}),
        (LANGCHAIN | {"input_str": '{"a": null}'}, {"a": None}),
        (LANGCHAIN | {"input_str": "plain text"}, "plain text"),
        (LANGCHAIN | {"input_str": "{'a': object()}"}, "{'a': object()}"),
        ({"input_str": "an argument of that name"}, {"input_str": "an argument of that name"}),
        ({"tool_name": "get", "arguments": {"a": 1}}, {"a": 1}),
        ({"arguments": '{"a": 1}'}, {"a": 1}),
        ({"arguments": 1, "other": 2}, {"arguments": 1, "other": 2}),
        ({"args": [], "kwargs": {"a": 1}}, {"a": 1}),
        ({"kwargs": {"a": 1}}, {"a": 1}),
        ({"args": [{"a": 1}], "kwargs": {}}, {"a": 1}),
        ({"args": ["Paris"], "kwargs": {}}, ["Paris"]),
        ({"args": ["Paris"], "kwargs": {"unit": "c"}}, ["Paris", {"unit": "c"}]),
        ({"args": "text", "kwargs": {}}, {"args": "text", "kwargs": {}}),
        ({"_raw": '{"a": '}, '{"a": '),
        ({"a": 1}, {"a": 1}),
        ([1], [1]),
    ],
)
def test_arguments(wrapped: Any, arguments: Any) -> None:
    assert read_given(json.dumps(wrapped)).arguments == arguments
    assert read_given(wrapped).arguments == arguments


def test_arguments_as_text() -> None:
    assert read_given("{'a': 1}").arguments == {"a": 1}
    assert read_given("no JSON").arguments == "no JSON"
    assert read_given(None).arguments is None


def test_the_id_of_the_call_is_known_before_its_result() -> None:
    assert read_given(LANGCHAIN | {"input_str": "{}", "kwargs": {"tool_call_id": "1"}}).call_id == "1"
    assert read_given(LANGCHAIN | {"input_str": "{}"}).call_id is None


@pytest.mark.parametrize(
    ("value", "text", "error"),
    [
        ({"output": "fine", "kwargs": {}}, "fine", None),
        ({"output": {"a": 1}, "kwargs": {}}, '{"a":1}', None),
        ({"output": "own", "more": 1}, '{"output":"own","more":1}', None),
        ({"result": "no", "is_error": True}, "no", True),
        ({"result": "fine"}, "fine", None),
        ({"content": "fine", "tool_name": "get", "raw_output": 1, "is_error": False}, "fine", False),
        ([{"type": "text", "content": "a"}], '[{"type":"text","content":"a"}]', None),
        ("plain", "plain", None),
        (None, "", None),
    ],
)
def test_results(value: Any, text: str, error: bool | None) -> None:
    found = read_returned(json.dumps(value) if not isinstance(value, str) and value is not None else value)
    assert (found.text, found.error) == (text, error)


FIELDS = {"content": "no", "tool_call_id": "c", "name": "get", "status": "error"}


@pytest.mark.parametrize(
    "message",
    [
        {"type": "tool", **FIELDS},
        {"type": "tool", "data": FIELDS},
        {"type": "tool", "data": {"type": "tool", **FIELDS}},
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "ToolMessage"], "kwargs": FIELDS},
        {"lc": 1, "type": "constructor", "id": [], "kwargs": {"type": "tool", **FIELDS}},
    ],
)
def test_a_message_of_langchain_in_each_of_its_envelopes(message: dict[str, Any]) -> None:
    for value in (message, {"output": message}):
        found = read_returned(json.dumps(value))
        assert (found.call_id, found.name, found.text, found.error) == ("c", "get", "no", True)
