"""Log records of the GenAI conventions: a model's messages, all in one record or one record a message.

A record with ids speaks of the span that it names, so its facts bear the ids that the span's own facts bear and fold
with them, whichever comes first; its own time, which lies after the span's start, gives way to that when both are
folded. A record that names no span is a turn by itself where it holds calls or definitions; a message alone says
nothing there, as nothing tells which turn it belongs to.
"""

from __future__ import annotations

from typing import Any

import msgspec

from collector.facts import CallFact, Facts
from collector.mapping import attributes as names
from collector.mapping.conversation import (
    Message,
    ModelTurn,
    ToolDefinition,
    ToolResult,
    from_json,
    tool_definitions,
)
from collector.mapping.facts_of import context_facts, turn_facts
from collector.mapping.genai import AGENT_OPERATIONS, MODEL_OPERATIONS, turn_of
from collector.mapping.genai_events import ROLES, event_message, held
from collector.mapping.origin import origin_of
from collector.mapping.rules import LogRule
from collector.spans import Attributes, LogRecord, Span
from pickwise.events import derive_event_id
from pickwise.settings import Settings

#: Places among the calls of a turn that each of its choices has.
_CHOICE_CALLS = 1_000


def _details(record: LogRecord, settings: Settings) -> Facts | None:
    """All messages of one model call, and the tools it was offered."""
    if _event_name(record) != names.INFERENCE_DETAILS_EVENT:
        return None
    body = from_json(record.body)
    attributes = record.attributes | body if isinstance(body, dict) else record.attributes
    return _told(record, attributes, turn_of(attributes), settings)


def _message(record: LogRecord, settings: Settings) -> Facts | None:
    """One message of the older generation."""
    name = _event_name(record)
    if name not in ROLES:
        return None
    content = held(record.body, record.attributes)
    if name == names.USER_EVENT and (tools := _menu(content)):
        return _told(record, record.attributes, ModelTurn(messages=[], tools=tools, calls=[]), settings)
    message = event_message(name, content)
    if message is None:
        return Facts()
    if name == names.CHOICE_EVENT:
        return _choice(record, message, content.get("index"), settings)
    facts = Facts(calls=[fact for result in message.results for fact in _answer(record, result, settings)])
    if message.role == "user" and message.text and record.span_id:
        turn = ModelTurn(messages=[message], tools=[], calls=[])
        facts.extend(_told(record, record.attributes, turn, settings))
    return facts


def _choice(record: LogRecord, message: Message, index: Any, settings: Settings) -> Facts:
    if not message.calls:
        return Facts()
    facts = _told(record, record.attributes, ModelTurn(messages=[], tools=[], calls=message.calls), settings)
    place = index if isinstance(index, int) and index > 0 else 0
    for call in facts.calls:
        call.ordinal = place * _CHOICE_CALLS + (call.ordinal or 0)
        # Records of several turns may name one span: that around the model's.
        call.event_id = derive_event_id(record.trace_id, record.span_id, "call", "propose", call.ordinal, call.call_id)
    return facts


def _menu(content: dict[str, Any]) -> list[ToolDefinition]:
    """The tools that were offered, where a record like that of a message holds them (OpenLLMetry for Anthropic)."""
    held_there = from_json(content.get("content"))
    return tool_definitions(held_there.get("tools")) if isinstance(held_there, dict) else []


def _answer(record: LogRecord, result: ToolResult, settings: Settings) -> list[CallFact]:
    """The answer that a message quotes.

    Every later turn quotes it again, in records that do not show which of them are old. What it says is its identity,
    so that only the first counts: a later one could meet another call that reuses the id.
    """
    turn = ModelTurn(messages=[Message(role="tool", results=[result])], tools=[], calls=[])
    facts = _told(record, record.attributes, turn, settings)
    for call in facts.calls:
        call.event_id = derive_event_id(record.trace_id, "answer", call.call_id, call.skill_id, result.text)
    return facts.calls


def _told(record: LogRecord, attributes: Attributes, turn: ModelTurn, settings: Settings) -> Facts:
    """What the record says of the span that it names."""
    span = _spoken_of(record, attributes)
    origin = origin_of(span)
    operation = str(attributes.get(names.OPERATION, "chat"))
    if operation in AGENT_OPERATIONS and record.span_id:
        return context_facts(span, origin, turn, settings)
    if operation not in MODEL_OPERATIONS:
        return Facts()
    facts = turn_facts(span, origin, turn, settings)
    if turn.query and not (turn.tools or turn.calls):
        facts.extend(context_facts(span, origin, turn, settings))
    if not (record.trace_id and record.span_id):
        _forget_span(facts, record)
    return facts


def _spoken_of(record: LogRecord, attributes: Attributes) -> Span:
    """The span that the record names, as far as the record knows it; one of its own where it names none."""
    named = record.trace_id and record.span_id
    content = msgspec.json.encode([record.event_name, record.time_ns, record.body, attributes], order="sorted")
    return Span(
        trace_id=record.trace_id or "",
        span_id=(record.span_id or "") if named else derive_event_id(content.decode()),
        parent_span_id=None,
        name=_event_name(record),
        kind=0,
        start_ns=record.time_ns,
        end_ns=0,
        status_code=0,
        status_message="",
        attributes=attributes,
        events=[],
        resource=record.resource,
        scope_name="",
        scope_version="",
    )


def _forget_span(facts: Facts, record: LogRecord) -> None:
    """Leave only the ids that the record has itself; the facts keep the event ids that tie them together."""
    facts.selections = [fact for fact in facts.selections if getattr(fact, "role", "turn") == "turn"]
    for fact in (*facts.selections, *facts.calls):
        fact.trace_id, fact.span_id = record.trace_id, record.span_id


def _event_name(record: LogRecord) -> str:
    return record.event_name or str(record.attributes.get(names.EVENT_NAME, ""))


LOG_RULES: tuple[LogRule, ...] = (_details, _message)
