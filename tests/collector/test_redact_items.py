"""What the archive keeps of single values: how things hang together, and none of what they say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.facts import CallFact, Facts, SelectionFact
from collector.mapping import attributes as names
from collector.read_attributes import NAMES, place_of
from collector.redact import Redactor
from collector.redact_items import ItemRedactor
from collector.spans import LogRecord, SpanEvent
from pickwise.settings import Settings
from tests.collector.spans_of import span

#: Of no form that a pattern knows: it must go for where it stands.
SECRET = "Kryptonopolis"


def redactor(**changes: Any) -> ItemRedactor:
    return ItemRedactor(Redactor(Settings(**changes), b"k" * 32))


def kept(name: str, value: Any, facts: Facts | None = None, **more: Any) -> Any:
    """What is kept of an attribute; JSON text decoded."""
    found = redactor().span(span(attributes={name: value} | more), facts or Facts())
    assert found is not None
    text = found.attributes[name]
    return json.loads(text) if isinstance(text, str) and text[:1] in ("{", "[") else text


@pytest.mark.parametrize("as_json", [True, False])
def test_messages_keep_their_frame_and_the_users_last_text(as_json: bool) -> None:
    messages = [
        {"role": "system", "parts": [{"type": "text", "content": f"You are {SECRET}"}]},
        {"role": "user", "parts": [{"type": "text", "content": f"first about {SECRET}"}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "f", "arguments": {"a": SECRET}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"x": SECRET}}]},
        {"role": "user", "parts": [{"type": "text", "content": "mail bob@example.com"}]},
        {"role": "assistant", "parts": [{"type": "text", "content": SECRET}]},
    ]
    assert kept(names.INPUT_MESSAGES, json.dumps(messages) if as_json else messages) == [
        {"role": "system", "parts": [{"type": "text", "content": "string(21)"}]},
        {"role": "user", "parts": [{"type": "text", "content": "string(25)"}]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "f", "arguments": {"a": "string(13)"}}],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "object(1)"}]},
        {"role": "user", "parts": [{"type": "text", "content": "mail [email]"}]},
        {"role": "assistant", "parts": [{"type": "text", "content": "string(13)"}]},
    ]


def test_a_text_that_is_the_query_of_a_fact_stays_wherever_it_stands() -> None:
    facts = Facts(selections=[SelectionFact(query="what is it?")])
    assert kept(names.OI_INPUT, "what is it?", facts) == "what is it?"
    assert kept(names.OI_INPUT, json.dumps({"task": "what is it?", "x": "other"}), facts) == {
        "task": "what is it?",
        "x": "string(5)",
    }


def test_queries_are_hashed_where_they_are_hashed_in_the_tables() -> None:
    messages = json.dumps([{"role": "user", "content": SECRET}])
    found = redactor(store_queries="hash").span(span(attributes={names.INPUT_MESSAGES: messages}), Facts())
    assert found is not None
    assert json.loads(found.attributes[names.INPUT_MESSAGES])[0]["content"].startswith("hash:")


#: Results and arguments as libraries write them; none may show through.
SHAPES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "result text": (names.TOOL_RESULT, SECRET, {}),
    "result object": (names.TOOL_RESULT, {"name": SECRET, "type": "message", "id": SECRET, "role": SECRET}, {}),
    "result that looks like a message": (names.TOOL_RESULT, json.dumps({"role": "user", "content": SECRET}), {}),
    "result list": (names.TOOL_RESULT, json.dumps([{"name": SECRET}, SECRET, 5]), {}),
    "arguments text": (names.TOOL_ARGUMENTS, SECRET, {}),
    "arguments deep": (names.TOOL_ARGUMENTS, json.dumps({"a": {"name": SECRET, "type": "text"}}), {}),
    "arguments list": (names.TOOL_ARGUMENTS, json.dumps([SECRET]), {}),
    "argument called type": (names.TOOL_ARGUMENTS, json.dumps({"type": "function", "function": {"name": SECRET}}), {}),
    "tool span input": (names.OI_INPUT, json.dumps({"role": "user", "content": SECRET}), {names.OI_KIND: "TOOL"}),
    "tool span output": (names.OI_OUTPUT, json.dumps({"type": "text", "name": SECRET}), {names.OI_KIND: "TOOL"}),
    "chain text": (names.OI_INPUT, SECRET, {names.OI_KIND: "CHAIN"}),
    "chain object": (
        names.OI_OUTPUT,
        json.dumps({"name": SECRET, "id": SECRET, "n": [SECRET]}),
        {names.OI_KIND: "CHAIN"},
    ),
    "langchain tool message": (
        names.OI_OUTPUT,
        json.dumps({"type": "tool", "data": {"content": SECRET, "tool_call_id": "c", "artifact": {"a": SECRET}}}),
        {names.OI_KIND: "TOOL"},
    ),
    "anthropic": (
        names.INPUT_MESSAGES,
        json.dumps([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": SECRET}]}]),
        {},
    ),
    "openai": (names.INPUT_MESSAGES, json.dumps([{"role": "tool", "tool_call_id": "c", "content": SECRET}]), {}),
    "openai call": (
        names.OUTPUT_MESSAGES,
        json.dumps([{"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": json.dumps({"a": SECRET})}}]}]),
        {},
    ),
    "vercel": (
        names.AI_MESSAGES,
        json.dumps(
            [{"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c", "output": {"value": SECRET}}]}]
        ),
        {},
    ),
    "google": (
        names.ADK_REQUEST,
        json.dumps(
            {"contents": [{"role": "user", "parts": [{"function_response": {"name": "f", "response": {"r": SECRET}}}]}]}
        ),
        {},
    ),
    "autogen": (
        names.AUTOGEN_MESSAGE,
        json.dumps(
            {
                "type": "ToolCallExecutionEvent",
                "source": "agent",
                "content": [{"content": SECRET, "name": "f", "call_id": "c", "is_error": False}],
            }
        ),
        {},
    ),
    "free text of the model": (names.OUTPUT_MESSAGES, json.dumps([{"role": "assistant", "content": SECRET}]), {}),
    "beside the user's text": (
        names.INPUT_MESSAGES,
        json.dumps([{"role": "user", "content": "hi", "metadata": {"note": SECRET}, "signature": SECRET}]),
        {},
    ),
    "not quite JSON": (names.INPUT_MESSAGES, "[{'role': 'tool', 'content': '" + SECRET + "'}]", {}),
    "printed object": (names.OI_OUTPUT, f"ChatMessage(_content=[ToolCallResult(result='{SECRET}')])", {}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_results_arguments_and_texts_do_not_show(shape: str) -> None:
    name, value, more = SHAPES[shape]
    assert SECRET not in json.dumps(kept(name, value, **more))


def test_answers_keep_whose_they_are() -> None:
    messages = [
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "f", "output": {}}]}
    ]
    assert kept(names.AI_MESSAGES, json.dumps(messages)) == [
        {
            "role": "tool",
            "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "f", "output": "object(0)"}],
        }
    ]
    google = {"parts": [{"function_response": {"id": "c1", "name": "f", "response": {"a": 1}}}], "role": "user"}
    assert kept(names.ADK_RESPONSE, json.dumps({"content": google})) == {
        "content": {
            "parts": [{"function_response": {"id": "c1", "name": "f", "response": "object(1)"}}],
            "role": "user",
        }
    }


def test_definitions_stay_with_their_secrets_masked() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string", "default": "bob@example.com"}}}
    tools = [
        {"type": "function", "function": {"name": "f", "description": "key sk-abcdef0123456789", "parameters": schema}}
    ]
    masked = json.loads(
        json.dumps(tools).replace("bob@example.com", "[email]").replace("sk-abcdef0123456789", "[api_key]")
    )
    assert kept(names.TOOL_DEFINITIONS, json.dumps(tools)) == masked
    assert kept(names.TOOL_DEFINITIONS, tools) == masked
    assert json.loads(kept(names.AI_TOOLS, [json.dumps(tools[0])])[0]) == masked[0]
    assert kept("llm.tools.0.tool.json_schema", json.dumps(tools[0])) == masked[0]
    assert kept(names.OI_TOOL_PARAMETERS, json.dumps(schema)) == masked[0]["function"]["parameters"]
    assert kept(names.PYDANTIC_REQUEST, json.dumps({"function_tools": tools, "secret": SECRET})) == {
        "function_tools": masked,
        "secret": "string(13)",
    }


def test_what_looks_like_a_definition_but_holds_more_is_none() -> None:
    fake = [{"name": "f", "parameters": {"properties": {}, "answer": SECRET}}, {"note": SECRET}]
    assert SECRET not in json.dumps(kept(names.TOOL_DEFINITIONS, json.dumps(fake)))


def test_flattened_messages_are_known_by_the_role_of_their_group() -> None:
    flat = {
        "llm.input_messages.0.message.role": "tool",
        "llm.input_messages.0.message.content": SECRET,
        "llm.input_messages.1.message.role": "user",
        "llm.input_messages.1.message.content": "old question",
        "llm.input_messages.2.message.role": "user",
        "llm.input_messages.2.message.contents.0.message_content.text": "new question",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": json.dumps({"a": SECRET}),
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "f",
    }
    found = redactor().span(span(attributes=flat), Facts())
    assert found is not None
    assert list(found.attributes.values()) == [
        "tool",
        "string(13)",
        "user",
        "string(12)",
        "user",
        "new question",
        "assistant",
        '{"a":"string(13)"}',
        "f",
    ]


def test_error_texts_lose_arguments_of_their_trace_and_secrets() -> None:
    exception = SpanEvent(
        "exception",
        1,
        {
            "exception.type": "E",
            "exception.message": f"no {SECRET} for bob@example.com",
            "exception.stacktrace": SECRET,
        },
    )
    facts = Facts(calls=[CallFact(skill_id="s", arguments={"city": SECRET})])
    found = redactor().span(
        span(attributes={names.OPERATION: "chat"}, status=(2, f"failed: {SECRET}"), events=[exception]),
        facts,
        arguments=lambda _: [{"city": SECRET}],
    )
    assert found is not None
    assert found.status_message == "failed: [argument]"
    assert found.events[0].attributes == {
        "exception.type": "E",
        "exception.message": "no [argument] for [email]",
    }


def test_log_records_are_known_by_their_event() -> None:
    def body(event: str, content: Any) -> Any:
        given = LogRecord(
            trace_id="t", span_id="s", time_ns=1, event_name=event, body=content, attributes={"x": SECRET}, resource={}
        )
        found = redactor().log(given, None)
        return found and found.body

    assert body("gen_ai.user.message", {"content": "the question"}) == {"content": "the question"}
    assert body("gen_ai.user.message", "the question") == "the question"
    assert body("gen_ai.tool.message", {"id": "c", "content": SECRET}) == {"id": "string(1)", "content": "string(13)"}
    assert body("gen_ai.choice", {"message": {"role": "assistant", "content": SECRET}, "index": 0}) == {
        "message": {"role": "assistant", "content": "string(13)"},
        "index": "number",
    }
    assert body("app.log", SECRET) is None


def test_every_name_that_a_mapper_reads_is_kept_and_no_other() -> None:
    assert {names.TOOL_RESULT, names.OI_INPUT, *names.AI_SESSIONS} <= NAMES
    for name in NAMES:
        assert place_of(name) is not None
    assert place_of("pickwise.query") is not None
    assert place_of("llm.input_messages.7.message.content") is not None
    for name in ("http.request.header.authorization", "url.full", "user.name", "db.statement", "events.secret"):
        assert place_of(name) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.just(SECRET) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "content",
                    "parts",
                    "text",
                    "arguments",
                    "result",
                    "data",
                    "kwargs",
                    "a",
                    "output",
                    "function",
                    "messages",
                ]
            ),
            inner,
            max_size=5,
        )
        | st.fixed_dictionaries(
            {"role": st.sampled_from(["tool", "assistant", "system"]), "content": inner, "metadata": inner}
        )
        | st.fixed_dictionaries({"type": st.sampled_from(["tool_call", "tool_result", "text", "x"]), "input": inner})
    ),
    max_leaves=30,
)


@settings(max_examples=300, deadline=None)
@given(
    _JSON, st.booleans(), st.sampled_from([names.INPUT_MESSAGES, names.OI_INPUT, names.TOOL_RESULT, names.TL_OUTPUT])
)
def test_no_text_shows_that_is_neither_a_label_nor_the_users(value: Any, as_json: bool, name: str) -> None:
    found = redactor().span(span(attributes={name: json.dumps(value) if as_json else value}), Facts())
    assert found is not None
    assert SECRET not in json.dumps(found.attributes)


@pytest.mark.parametrize("depth", [70, 2_000])
def test_deep_values_end_somewhere(depth: int) -> None:
    deep: Any = SECRET
    for _ in range(depth):
        deep = [deep]
    found = redactor().span(
        span(attributes={names.INPUT_MESSAGES: deep, names.OI_INPUT: "[" * depth + "]" * depth}), Facts()
    )
    assert found is not None
    json.dumps(found.attributes)
