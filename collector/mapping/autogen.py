"""AutoGen's runtime: spans that handle a message hold it as JSON; nothing else tells what was asked and chosen.

Many spans handle one message, each in a trace of its own, so its facts take their ids from the message. Their trace is
the one that the span is linked to: there the message was made, and there its calls run. No span names a session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from collector.facts import Facts
from collector.mapping import attributes as names
from collector.mapping.conversation import (
    Message,
    ModelTurn,
    ToolCall,
    ToolResult,
    as_text,
    from_json,
    objects,
    text_or_none,
)
from collector.mapping.facts_of import context_facts, turn_facts
from collector.mapping.origin import origin_of
from collector.mapping.rules import Rule, marked
from collector.spans import Span
from pickwise.events import EventError, derive_event_id, parse_time
from pickwise.settings import Settings

_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
_REQUESTS = frozenset({"ToolCallRequestEvent", "AssistantMessage"})
_RESULTS = frozenset({"ToolCallExecutionEvent", "FunctionExecutionResultMessage"})
_TEXTS = frozenset({"TextMessage", "MultiModalMessage", "UserMessage"})
_USERS = frozenset({"user", "user_proxy"})
#: What AutoGen answers where it cannot read the arguments: the words of Python's JSON decoder.
_NOT_JSON = re.compile(r"^Error: .+: line \d+ column \d+ \(char \d+\)$")
#: Messages lie in messages of a group chat, those in the messages of an outer one.
_MAX_DEPTH = 8


@marked(names.AUTOGEN_OPERATION)
def _message_span(span: Span, settings: Settings) -> Facts | None:
    value = span.attributes.get(names.AUTOGEN_MESSAGE)
    if names.AUTOGEN_OPERATION not in span.attributes or not span.scope_name.startswith("autogen"):
        return None
    told = from_json(value)
    if told == {}:
        return _going_on(span, settings)
    facts = Facts()
    for message in _messages(told):
        facts.extend(_facts(span, message, settings))
    return facts


def _messages(value: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """The messages with a type of their own, in their order, however deep they lie in others."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            yield from _messages(item, depth + 1)
    elif isinstance(value, dict):
        if isinstance(value.get("type"), str) and "content" in value:
            yield value
            return
        for item in value.values():
            yield from _messages(item, depth + 1)


def _facts(span: Span, message: dict[str, Any], settings: Settings) -> Facts:
    kind, content = message["type"], message["content"]
    if kind in _REQUESTS and (calls := _calls(content)):
        return _turn(span, message, ModelTurn(messages=[], tools=[], calls=calls), settings)
    if kind in _RESULTS:
        results = Message(role="tool", results=_results(content))
        return _turn(span, message, ModelTurn(messages=[results], tools=[], calls=[]), settings)
    if kind in _TEXTS and message.get("source") in _USERS and (text := _text(content)):
        return _query(span, message, text, settings)
    return Facts()


def _turn(span: Span, message: dict[str, Any], turn: ModelTurn, settings: Settings) -> Facts:
    """What a message says of the turn that it is of, or that made its calls."""
    trace_id = _linked_trace(span)
    made = msgspec.structs.replace(
        span, trace_id="autogen", span_id=_key(message, trace_id), start_ns=_time(span, message)
    )
    origin = origin_of(span)
    origin.agent = text_or_none(message.get("source"))
    facts = turn_facts(made, origin, turn, settings)
    for fact in (*facts.selections, *facts.calls):
        fact.trace_id, fact.span_id = trace_id, None
    for call in facts.calls:
        if call.ok is False and call.error_kind is None and _NOT_JSON.match(call.error_message or ""):
            call.error_kind = "invalid_arguments"
    return facts


def _query(span: Span, message: dict[str, Any], text: str, settings: Settings) -> Facts:
    """What the user asked, in the run that this trace begins. In which trace it goes on, a span linked to it says."""
    turn = ModelTurn(messages=[Message(role="user", text=text)], tools=[], calls=[])
    return _run(span, span.trace_id, None, _time(span, message), turn, settings)


def _going_on(span: Span, settings: Settings) -> Facts:
    """An agent is asked to go on with what the linked trace began."""
    if not span.links:
        return Facts()
    turn = ModelTurn(messages=[], tools=[], calls=[])
    return _run(span, _linked_trace(span), span.trace_id, span.start_ns, turn, settings)


def _run(span: Span, begun_in: str, trace_id: str | None, time: int, turn: ModelTurn, settings: Settings) -> Facts:
    facts = context_facts(msgspec.structs.replace(span, start_ns=time), origin_of(span), turn, settings)
    for fact in facts.selections:
        fact.event_id = derive_event_id("autogen", begun_in, "run")
        fact.trace_id, fact.span_id = trace_id, None
    return facts


def _linked_trace(span: Span) -> str:
    linked = (link.trace_id for link in span.links if _TRACE_ID.fullmatch(link.trace_id))
    return next(linked, span.trace_id)


def _key(message: dict[str, Any], trace_id: str) -> str:
    """What is the same wherever the message is handled."""
    return text_or_none(message.get("id")) or derive_event_id(trace_id, as_text(message))


def _time(span: Span, message: dict[str, Any]) -> int:
    """When the message was made; versions that do not say: when it was handled, of which the first counts."""
    try:
        return parse_time(text_or_none(message.get("created_at"))) or span.start_ns
    except EventError:
        return span.start_ns


def _calls(content: Any) -> list[ToolCall]:
    return [
        ToolCall(name=name, call_id=text_or_none(raw.get("id")), arguments=raw.get("arguments"))
        for raw in objects(content)
        if (name := text_or_none(raw.get("name")))
    ]


def _results(content: Any) -> list[ToolResult]:
    return [
        ToolResult(
            call_id=text_or_none(raw.get("call_id")),
            name=text_or_none(raw.get("name")),
            text=as_text(raw.get("content")),
            error=raw.get("is_error") is True,
        )
        for raw in objects(content)
    ]


def _text(content: Any) -> str:
    """The text of a message; of one with images, its texts."""
    parts = content if isinstance(content, list) else [content]
    return "\n".join(part for part in parts if isinstance(part, str))


RULES: tuple[Rule, ...] = (_message_span,)
