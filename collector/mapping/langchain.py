"""What LangChain and LangGraph tell only inside the raw values of spans, whichever instrumentation wrote them."""

from __future__ import annotations

import re
from typing import Any

from collector.facts import CallFact, Facts
from collector.mapping import attributes as names
from collector.mapping import failures
from collector.mapping.conversation import ToolCall, ToolResult, as_text, from_json, objects, text_or_none
from collector.mapping.facts_of import ToolRun, run_fact
from collector.mapping.message_forms import chat_message, opened
from collector.mapping.origin import origin_of
from collector.spans import Span
from pickwise.events import derive_event_id
from pickwise.settings import Settings

#: Cheap looks at a raw value before it is decoded.
_INVALID_CALLS = re.compile(r'"invalid_tool_calls":\s?\[\s?\{')
_TOOL_MESSAGE = '"tool_call_id"'
_TOOL_CALL = '"tool_call"'
#: Keys under which instrumentations wrap what a node was given and what it returned.
_WRAPPERS = ("inputs", "input", "outputs", "output")
#: Exceptions by which LangGraph hands control on (to a person, to another agent); nothing has failed.
_CONTROL_FLOW = frozenset({"GraphInterrupt", "NodeInterrupt", "GraphBubbleUp", "ParentCommand"})


def invalid_calls(output: Any) -> list[ToolCall]:
    """Calls whose arguments LangChain could not read; they are nowhere but in the raw output."""
    if not isinstance(output, str) or not _INVALID_CALLS.search(output):
        return []
    found = _find(from_json(output), "invalid_tool_calls")
    raw_calls = [raw for calls in found if isinstance(calls, list) for raw in calls if isinstance(raw, dict)]
    return [
        ToolCall(
            name=name,
            call_id=text_or_none(raw.get("id")),
            arguments=raw.get("args"),
            invalid=text_or_none(raw.get("error")) or "arguments are not valid JSON",
        )
        for raw in raw_calls
        if (name := text_or_none(raw.get("name")))
    ]


def tool_message(value: Any) -> ToolResult | None:
    """The result that a serialised ToolMessage holds, or None where the value is none."""
    if not isinstance(value, dict):
        return None
    data = opened(value)
    if data.get("type") != "tool":
        return None
    return ToolResult(
        call_id=text_or_none(data.get("tool_call_id")),
        name=text_or_none(data.get("name")),
        text=as_text(data.get("content")),
        error=data.get("status") == "error",
    )


def tool_node(span: Span, settings: Settings) -> Facts | None:
    """``node_facts`` of a span with OpenInference's input and output."""
    return node_facts(span, span.attributes.get(names.OI_INPUT), span.attributes.get(names.OI_OUTPUT), settings)


def node_facts(span: Span, given_text: Any, returned_text: Any, settings: Settings) -> Facts | None:
    """The calls that a tools node was given, with the answers it returned; None when the span is no such node.

    A node of one call is the parent of its tool span, and knows the call id that a failed tool span may lack. One of
    several calls tells answers only: as their common parent it would make its tool spans one call.
    """
    given = _given_calls(given_text)
    answers = _returned(returned_text)
    if not given and not answers:
        return None
    if len(given) == 1:
        answer = next((result for result in answers if result.call_id == given[0].call_id), None)
        return Facts(calls=[_node_run(span, given[0], answer, settings)])
    return Facts(calls=[fact for i, result in enumerate(answers) if (fact := _node_answer(span, i, result, settings))])


def unreadable_proposals(span: Span, returned_text: Any, settings: Settings) -> list[CallFact]:
    """Calls whose arguments LangChain could not read, where only the model's node tells of them, not its model span.

    A node that returns more than the model's one message repeats a history. The selection is the newest one before the
    node's end: its model span lies within.
    """
    if not isinstance(returned_text, str) or not _INVALID_CALLS.search(returned_text):
        return []
    returned = _messages(from_json(returned_text))
    message = chat_message(returned[0]) if len(returned) == 1 else None
    calls = [call for call in message.calls if call.invalid and call.call_id] if message else []
    return [_unreadable(span, ordinal, call, settings) for ordinal, call in enumerate(calls)]


def settle(fact: CallFact, span: Span, answer: ToolResult | None, settings: Settings) -> None:
    """Correct how a run ended by the message that it returned, and by exceptions that are no failures."""
    if _is_control_flow(span):
        fact.ok, fact.error_kind, fact.error_message = None, None, None
    failure = failures.of_quoted(answer.text, answer.error, fact.skill_id, settings) if answer else None
    if fact.ok and failure:
        fact.ok, fact.error_kind, fact.error_message = False, failure.kind or "tool_error", failure.message


def _is_control_flow(span: Span) -> bool:
    kinds = [event.attributes.get(names.EXCEPTION_TYPE) for event in span.events if event.name == names.EXCEPTION_EVENT]
    return any(isinstance(kind, str) and kind.rpartition(".")[2] in _CONTROL_FLOW for kind in kinds)


def _unreadable(span: Span, ordinal: int, call: ToolCall, settings: Settings) -> CallFact:
    run = ToolRun(skill_id=call.name, call_id=call.call_id, arguments=call.arguments)
    fact = run_fact(span, origin_of(span), run, settings)
    fact.role, fact.ordinal, fact.latency_ms, fact.parent_span_id = "propose", ordinal, None, None
    fact.event_id = derive_event_id(span.trace_id, span.span_id, "call", "propose", ordinal)
    fact.time = span.end_ns or None
    fact.ok, fact.error_kind, fact.error_message = False, "invalid_arguments", call.invalid
    return fact


def _node_run(span: Span, call: ToolCall, answer: ToolResult | None, settings: Settings) -> CallFact:
    run = ToolRun(skill_id=call.name, call_id=call.call_id, arguments=call.arguments)
    fact = run_fact(span, origin_of(span), run, settings)
    fact.latency_ms = None  # the node's own work comes on top; the tool span tells the call's
    settle(fact, span, answer, settings)
    return fact


def _node_answer(span: Span, ordinal: int, result: ToolResult, settings: Settings) -> CallFact | None:
    if not result.name or not result.call_id:
        return None
    fact = run_fact(span, origin_of(span), ToolRun(skill_id=result.name, call_id=result.call_id), settings)
    failure = failures.of_quoted(result.text, result.error, result.name, settings)
    fact.role, fact.ordinal, fact.latency_ms, fact.parent_span_id = "answer", ordinal, None, None
    fact.event_id = derive_event_id(span.trace_id, span.span_id, "call", "answer", ordinal)
    fact.ok = failure is None
    fact.error_kind, fact.error_message = (failure.kind, failure.message) if failure else (None, None)
    return fact


def _given_calls(value: Any) -> list[ToolCall]:
    """The tool calls that a node's input lists: a bare list, or below ``tool_call`` of one sent apart."""
    if not isinstance(value, str) or _TOOL_CALL not in value:
        return []
    decoded = _unwrapped(from_json(value))
    listed = objects(decoded)
    if isinstance(decoded, dict) and isinstance(decoded.get("tool_call"), dict):
        listed = [decoded["tool_call"]]
    return [
        ToolCall(name=name, call_id=text_or_none(raw.get("id")), arguments=raw.get("args"))
        for raw in listed
        if raw.get("type") == "tool_call" and (name := text_or_none(raw.get("name")))
    ]


def _returned(value: Any) -> list[ToolResult]:
    """The tool messages that a node's output consists of; a graph's state, which holds other messages too, is none."""
    if not isinstance(value, str) or _TOOL_MESSAGE not in value:
        return []
    results = [tool_message(message) for message in _messages(from_json(value))]
    return [result for result in results if result] if all(results) else []


def _unwrapped(decoded: Any) -> Any:
    """What an instrumentation's wrapper holds, or the value itself."""
    if not isinstance(decoded, dict) or "messages" in decoded or "tool_call" in decoded:
        return decoded
    return next((decoded[key] for key in _WRAPPERS if isinstance(decoded.get(key), dict | list)), decoded)


def _messages(decoded: Any) -> list[Any]:
    """The messages that a node returned: bare, as an update of the graph's state, or in commands that update it."""
    value = _unwrapped(decoded)
    listed = value if isinstance(value, list) else [value]
    return [message for item in listed for message in _updated(item)]


def _updated(item: Any) -> list[Any]:
    update = item.get("update") if isinstance(item, dict) else None
    state = update if isinstance(update, dict) else item
    if not isinstance(state, dict) or "messages" not in state:
        return [item]
    messages = state["messages"]
    return messages if isinstance(messages, list) else [messages]


def _find(document: Any, key: str) -> list[Any]:
    """All values under a key, anywhere in a decoded JSON document, in its order."""
    found: list[Any] = []
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if key in value:
                found.append(value[key])
            waiting += reversed([item for name, item in value.items() if name != key])
        elif isinstance(value, list):
            waiting += reversed(value)
    return found
