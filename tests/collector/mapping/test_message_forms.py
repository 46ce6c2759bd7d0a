"""One conversation in the forms of each provider and framework: they all read the same."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.mapping.conversation import from_json
from collector.mapping.message_forms import ChatMessage, chat_message

ARGUMENTS = {"city": "Paris"}
TEXT = json.dumps(ARGUMENTS)

#: (form, what the user says, the model's call, its result)
FORMS: dict[str, tuple[Any, Any, Any]] = {
    "openai": (
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "get", "arguments": TEXT}}],
        },
        {"role": "tool", "tool_call_id": "c", "name": "get", "content": "boom"},
    ),
    "openai responses": (
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "get", "arguments": TEXT},
        {"type": "function_call_output", "call_id": "c", "output": "boom"},
    ),
    "anthropic": (
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "get", "input": ARGUMENTS}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c",
                    "content": [{"type": "text", "text": "boom"}],
                    "is_error": True,
                }
            ],
        },
    ),
    "bedrock": (
        {"role": "user", "content": [{"text": "hi"}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "get", "input": ARGUMENTS}}]},
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "boom"}], "status": "error"}}],
        },
    ),
    "gemini": (
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "get", "args": ARGUMENTS}}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": "get", "response": "boom"}}]},
    ),
    "langchain data": (
        {"type": "human", "data": {"content": "hi", "type": "human"}},
        {"type": "ai", "data": {"content": "", "tool_calls": [{"name": "get", "args": ARGUMENTS, "id": "c"}]}},
        {
            "type": "tool",
            "data": {"content": "boom", "type": "tool", "name": "get", "tool_call_id": "c", "status": "error"},
        },
    ),
    "langchain constructor": (
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "HumanMessage"], "kwargs": {"content": "hi"}},
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "AIMessage"],
            "kwargs": {"content": "", "type": "ai", "tool_calls": [{"name": "get", "args": ARGUMENTS, "id": "c"}]},
        },
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "ToolMessage"],
            "kwargs": {"content": "boom", "tool_call_id": "c", "status": "error"},
        },
    ),
    "vercel": (
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [{"type": "tool-call", "toolCallId": "c", "toolName": "get", "input": ARGUMENTS}],
        },
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": "c",
                    "toolName": "get",
                    "output": {"type": "error-text", "value": "boom"},
                }
            ],
        },
    ),
    "opentelemetry": (
        {"role": "user", "parts": [{"type": "text", "content": "hi"}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "get", "arguments": ARGUMENTS}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "boom"}]},
    ),
    "haystack": (
        {"role": "user", "content": [{"text": "hi"}]},
        {"role": "assistant", "content": [{"tool_call": {"tool_name": "get", "arguments": ARGUMENTS, "id": "c"}}]},
        {
            "role": "tool",
            "content": [
                {
                    "tool_call_result": {
                        "result": "boom",
                        "origin": {"tool_name": "get", "arguments": ARGUMENTS, "id": "c"},
                        "error": True,
                    }
                }
            ],
        },
    ),
    "haystack, printed": (
        "ChatMessage(_role=<ChatRole.USER: 'user'>, _content=[TextContent(text='hi')], _name=None, _meta={})",
        "ChatMessage(_role=<ChatRole.ASSISTANT: 'assistant'>, _content=[ToolCall(tool_name='get', "
        "arguments={'city': 'Paris'}, id='c', extra=None)], _name=None, _meta={'model': 'm'})",
        "ChatMessage(_role=<ChatRole.TOOL: 'tool'>, _content=[ToolCallResult(result='boom', origin=ToolCall("
        "tool_name='get', arguments={'city': 'Paris'}, id='c', extra=None), error=True)], _name=None, _meta={})",
    ),
}
#: Forms whose results carry a flag, and those whose results name their tool.
FLAGGED = {name for name in FORMS if name not in ("openai", "openai responses", "gemini", "opentelemetry")}
NAMING = {"openai", "gemini", "langchain data", "vercel", "haystack", "haystack, printed"}


def read(raw: Any) -> ChatMessage:
    message = chat_message(raw)
    assert message is not None
    return message


@pytest.mark.parametrize("form", FORMS)
def test_a_conversation_reads_the_same_in_every_form(form: str) -> None:
    asked, called, answered = (read(raw) for raw in FORMS[form])
    assert (asked.role, asked.text, asked.calls, asked.results) == ("user", "hi", [], [])
    (call,) = called.calls
    assert (called.role, call.name, call.call_id, from_json(call.arguments)) == ("assistant", "get", "c", ARGUMENTS)
    (result,) = answered.results
    assert (answered.role, result.call_id, result.text) == ("tool", "c", "boom")
    assert result.error is (True if form in FLAGGED else None)
    assert result.name == ("get" if form in NAMING else None)


def test_the_only_function_call_of_old() -> None:
    old = read({"role": "assistant", "content": None, "function_call": {"name": "get", "arguments": TEXT}})
    assert [(call.name, call.call_id) for call in old.calls] == [("get", None)]
    answer = read({"role": "function", "name": "get", "content": "21"})
    assert [(result.name, result.call_id, result.text) for result in answer.results] == [("get", None, "21")]


def test_calls_that_a_message_lists_twice_are_the_same_ones() -> None:
    block = {"type": "tool_use", "id": "c", "name": "get", "input": {}}
    raw = {"content": [block], "tool_calls": [{"name": "get", "args": {}, "id": "c"}], "type": "ai"}
    assert len(read({"type": "ai", "data": raw}).calls) == 1
    more = {"tool_calls": [{"id": "c", "function": {"name": "get", "arguments": "{}"}}]}
    assert len(read({"type": "ai", "data": {"content": "", "additional_kwargs": more}}).calls) == 1


def test_calls_that_langchain_could_not_read() -> None:
    invalid = {"name": "get", "args": '{"a": ', "id": "c", "error": "Expecting value"}
    (call,) = read({"type": "ai", "data": {"content": "", "invalid_tool_calls": [invalid]}}).calls
    assert (call.name, call.call_id, call.arguments, call.invalid) == ("get", "c", '{"a": ', "Expecting value")


def test_the_model_of_a_message() -> None:
    assert read({"role": "assistant", "content": "x", "meta": {"model": "m"}}).model == "m"
    assert read({"type": "ai", "data": {"content": "", "response_metadata": {"model_name": "m"}}}).model == "m"


def test_words_beside_results_are_the_users() -> None:
    result = {"type": "tool_result", "tool_use_id": "c", "content": "21"}
    message = read({"role": "user", "content": [result, {"type": "text", "text": "and Rome?"}]})
    assert (message.role, message.text, len(message.results)) == ("user", "and Rome?", 1)


@pytest.mark.parametrize("raw", [["user", "hi"], {"role": "MessageRole.USER", "content": "hi"}])
def test_other_ways_to_say_who_speaks(raw: Any) -> None:
    assert (read(raw).role, read(raw).text) == ("user", "hi")


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "function", "function": {"name": "get", "parameters": {}}},
        {"role": "travel_agent", "goal": "help"},
        {"role": "user"},
        {"content": "x"},
        ["user", "hi", "there"],
        ["city", "Paris"],
        "user",
        7,
        None,
    ],
)
def test_what_is_no_message(raw: Any) -> None:
    assert chat_message(raw) is None


WORDS = ["user", "assistant", "ai", "tool", "tool_use", "tool_result", "function_call", "text", "name", "x"]
KEYS = """role type content parts tool_calls function name id arguments data kwargs lc input output status error meta
    function_call additional_kwargs invalid_tool_calls toolUse toolResult tool_call tool_call_result origin messages
    text"""
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(sorted(set(re.findall(r"\w+", KEYS)))), inner, max_size=6)
    ),
    max_leaves=12,
)
#: Messages that begin as one should and go on in any way.
near_messages = st.builds(
    lambda role, content, more: more | {"role": role, "content": content},
    st.sampled_from(["user", "assistant", "tool"]),
    scalars | st.lists(json_values, max_size=3),
    st.dictionaries(st.sampled_from(["tool_calls", "function_call", "name", "id", "type", "error"]), json_values),
)


def test_a_call_that_could_not_be_read_is_one_call() -> None:
    """LangChain for JavaScript keeps it in two places: as the provider sent it, and among those it could not read."""
    sent = {"id": "c", "type": "function", "function": {"name": "get", "arguments": "{"}}
    refused = {"id": "c", "name": "get", "args": "{", "error": "no JSON", "type": "invalid_tool_call"}
    more = {"tool_calls": [sent]}
    message = chat_message({"role": "ai", "content": "", "additional_kwargs": more, "invalid_tool_calls": [refused]})
    assert message is not None
    assert [(call.name, call.call_id, call.invalid) for call in message.calls] == [("get", "c", "no JSON")]


@given(near_messages | json_values)
@settings(max_examples=200, deadline=None)
def test_any_json_is_a_message_or_none(raw: Any) -> None:
    message = chat_message(raw)
    for call in message.calls if message else []:
        assert call.name
