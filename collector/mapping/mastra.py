"""Mastra: agents, the generations of their models, and the steps of those.

A step is a model turn: what the model was sent is its input, what it called its output. (A generation repeats all
steps; a span of the inference within a step has the model's name, but no call.) Up to 0.24 the input of a step is the
request as it was sent, since then its messages, with results cut out; the menu is then on the agent's run only.
"""

from __future__ import annotations

from typing import Any

from collector.facts import Facts
from collector.mapping import attributes as names
from collector.mapping.conversation import (
    Message,
    ModelTurn,
    ToolDefinition,
    ToolResult,
    as_text,
    from_json,
    text_or_none,
)
from collector.mapping.facts_of import Origin, ToolRun, context_facts, run_fact, turn_facts
from collector.mapping.message_forms import chat_message
from collector.mapping.messages_in_values import conversations, definitions, menu, query_in
from collector.mapping.origin import origin_of
from collector.mapping.rules import Rule, marked
from collector.spans import Attributes, Span
from pickwise.settings import Settings

_STEP = "model_step"
#: Spans around steps and within them, which know what the steps leave out.
_AROUND = ("agent_run", "model_generation", "model_inference")
_CHUNK = "model_chunk"
_TOOLS = ("tool_call", "mcp_tool_call")
_NEW_TOOL_OPERATION = "execute_tool"


@marked(names.MASTRA_KIND)
def _step(span: Span, settings: Settings) -> Facts | None:
    if span.attributes.get(names.MASTRA_KIND) != _STEP:
        return None
    given, returned = _values(span.attributes)
    called = returned.get("toolCalls") if isinstance(returned, dict) else None
    message = chat_message({"role": "assistant", "content": "", "tool_calls": called})
    turn = ModelTurn(messages=_messages(given), tools=_menu(given), calls=message.calls if message else [])
    return turn_facts(span, _origin(span), turn, settings) if turn.calls or turn.messages else Facts()


def _messages(given: Any) -> list[Message]:
    """The messages sent. A result without an id is cut down to the name of its tool, so it tells nothing."""
    found = conversations(given)
    messages: list[Message] = [*found[0].messages] if found else []
    for message in messages:
        message.results = [result for result in message.results if result.call_id]
    return messages


def _menu(given: Any) -> list[ToolDefinition]:
    return menu(from_json(given["body"])) if isinstance(given, dict) and "body" in given else []


@marked(names.MASTRA_KIND)
def _around(span: Span, settings: Settings) -> Facts | None:
    attributes = span.attributes
    kind = attributes.get(names.MASTRA_KIND)
    if kind not in _AROUND:
        return None
    given, _ = _values(attributes)
    asked = [message.text for message in _messages(given) if message.role == "user" and message.text]
    query = asked[-1] if asked else query_in(given)
    turn = ModelTurn(
        messages=[Message(role="user", text=query)], tools=definitions(attributes.get(names.TOOL_DEFINITIONS)), calls=[]
    )
    return context_facts(span, _origin(span), turn, settings)


@marked(names.MASTRA_KIND)
def _chunk(span: Span, settings: Settings) -> Facts | None:
    """A part of the answer's stream; up to 0.24 what came of a call is one too, also of one that no tool ran."""
    if span.attributes.get(names.MASTRA_KIND) != _CHUNK:
        return None
    _, told = _values(span.attributes)
    outcome = [key for key in ("error", "result") if key in told] if isinstance(told, dict) else []
    if not outcome:
        return Facts()
    result = ToolResult(
        call_id=text_or_none(told.get("toolCallId")),
        name=text_or_none(told.get("toolName")),
        text=as_text(told[outcome[0]]),
        error=True if outcome[0] == "error" else None,
    )
    turn = ModelTurn(messages=[Message(role="tool", results=[result])], tools=[], calls=[])
    return turn_facts(span, _origin(span), turn, settings)


@marked(names.MASTRA_KIND)
def _tool(span: Span, settings: Settings) -> Facts | None:
    """A tool's span up to 0.24; those since then have OpenTelemetry's attributes."""
    attributes = span.attributes
    name = text_or_none(attributes.get(names.TOOL_NAME))
    if attributes.get(names.MASTRA_KIND) not in _TOOLS or name is None:
        return None
    if attributes.get(names.OPERATION) == _NEW_TOOL_OPERATION:
        return None
    given, returned = _values(attributes)
    run = ToolRun(skill_id=name, arguments=given, result=returned)
    return Facts(calls=[run_fact(span, _origin(span), run, settings)])


def _values(attributes: Attributes) -> tuple[Any, Any]:
    """What the span was given and what it returned."""
    given, returned = (
        next((attributes[key] for key in keys if key in attributes), None)
        for keys in (names.MASTRA_INPUTS, names.MASTRA_OUTPUTS)
    )
    return from_json(given), from_json(returned)


def _origin(span: Span) -> Origin:
    """``origin_of``, with the older names."""
    told = origin_of(span)
    sessions = (text_or_none(span.attributes.get(key)) for key in names.MASTRA_OLD_SESSIONS)
    told.session_id = told.session_id or next((session for session in sessions if session), None)
    told.agent = told.agent or text_or_none(span.attributes.get(names.MASTRA_AGENT_ID))
    return told


RULES: tuple[Rule, ...] = (_step, _around, _chunk, _tool)
