"""LangSmith's export of its runs as spans: inputs and outputs are JSON text in ``gen_ai.prompt`` and ``.completion``.

What that JSON looks like is up to what was traced: LangChain's messages, or what went into and came out of the SDK of
a model's provider, or the arguments of a Python function.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

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
    tool_definitions,
)
from collector.mapping.facts_of import ToolRun, run_fact, turn_facts
from collector.mapping.langchain import node_facts, settle, tool_message
from collector.mapping.literals import from_literal
from collector.mapping.message_forms import chat_message
from collector.mapping.origin import origin_of
from collector.mapping.rules import Rule, marked
from collector.spans import Attributes, Span, SpanEvent
from pickwise.settings import Settings

#: LangSmith records what Python printed of an error, with its traceback, as the text of a plain ``Exception``.
_TRACEBACK = "Traceback (most recent call last)"
_PRINTED_ERROR = re.compile(r"(?P<type>[A-Za-z_]\w*)\((?P<arguments>.*)\)", re.DOTALL)
#: Keys of a run's outputs below which its messages are, from the outside in.
_OUTPUTS = ("generations", "choices", "messages", "output", "message")
_DECLARATIONS = ("function_declarations", "functionDeclarations")


@marked(names.LS_KIND)
def _model_run(span: Span, settings: Settings) -> Facts | None:
    if _kind(span) != "llm" or names.PROMPTS not in span.attributes:
        return None
    return turn_facts(span, origin_of(span), _turn(span.attributes), settings)


@marked(names.LS_KIND)
def _tool_run(span: Span, settings: Settings) -> Facts | None:
    attributes = span.attributes
    if _kind(span) != "tool" or names.PROMPTS not in attributes:
        return None
    skill_id = text_or_none(attributes.get(names.TOOL_NAME)) or text_or_none(attributes.get(names.LS_NAME)) or span.name
    if not skill_id:
        return Facts()
    returned = _returned(attributes.get(names.COMPLETIONS))
    run = ToolRun(
        skill_id=skill_id,
        call_id=text_or_none(attributes.get(names.TOOL_CALL_ID)) or returned.call_id,
        arguments=_arguments(attributes.get(names.PROMPTS)),
        result=returned.text,
    )
    told = _with_real_error(span)
    fact = run_fact(told, origin_of(span), run, settings)
    settle(fact, told, returned, settings)
    return Facts(calls=[fact])


@marked(names.LS_KIND)
def _other_run(span: Span, settings: Settings) -> Facts | None:
    """A node of a LangGraph that runs tools tells what became of calls that never ran; other runs repeat these."""
    if _kind(span) is None or names.PROMPTS not in span.attributes:
        return None
    told = _with_real_error(span)
    return node_facts(told, span.attributes[names.PROMPTS], span.attributes.get(names.COMPLETIONS), settings) or Facts()


def _kind(span: Span) -> str | None:
    kind = span.attributes.get(names.LS_KIND)
    return kind.lower() if isinstance(kind, str) else None


# --- model runs ------------------------------------------------------------------------------------------------------


def _turn(attributes: Attributes) -> ModelTurn:
    given = from_json(attributes.get(names.PROMPTS))
    returned = _messages(_inner(from_json(attributes.get(names.COMPLETIONS))), "assistant")
    return ModelTurn(
        messages=_messages(_asked(given), "user"),
        tools=_offered(attributes.get(names.TOOL_DEFINITIONS)) or _offered(_key(given, "tools")),
        calls=[call for message in returned for call in message.calls],
    )


def _asked(given: Any) -> Any:
    """What a model was asked: messages, the items or the text of OpenAI's Responses API, or plain prompts."""
    found = (_key(given, key) for key in ("messages", "input", "contents", "prompts"))
    return next((value for value in found if value), given)


def _inner(returned: Any) -> Any:
    """The messages of a run's outputs."""
    for key in _OUTPUTS:
        returned = _key(returned, key) or returned
    return returned


def _messages(value: Any, role: str) -> list[Message]:
    """The messages of a list; LangChain sends lists of lists, and wraps each answer with its text."""
    if isinstance(value, str):
        return [Message(role=role, text=value)]
    listed = value if isinstance(value, list) else [value]
    if listed and isinstance(listed[0], list) and chat_message(listed[0]) is None:
        listed = listed[0]
    found = (chat_message(_key(item, "message") or item) for item in listed)
    return [message for message in found if message is not None]


def _offered(value: Any) -> list[ToolDefinition]:
    """Tool definitions; Gemini's are grouped in lists of declarations."""
    listed = from_json(value)
    if not isinstance(listed, list):
        return []
    groups = (next((_key(tool, key) for key in _DECLARATIONS if _key(tool, key)), [tool]) for tool in listed)
    return tool_definitions([tool for group in groups if isinstance(group, list) for tool in group])


def _key(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


# --- tool runs -------------------------------------------------------------------------------------------------------


def _arguments(value: Any) -> Any:
    """The arguments; older releases of LangChain give them as one text, as Python prints them."""
    given = from_json(value)
    if isinstance(given, str):
        return from_literal(given)
    text = _key(given, "input")
    if not isinstance(text, str) or len(given) > 1:
        return given
    decoded = from_json(text)
    decoded = from_literal(decoded) if isinstance(decoded, str) else decoded
    return decoded if isinstance(decoded, dict) else given


def _returned(value: Any) -> ToolResult:
    raw = from_json(value)
    inner = raw["output"] if isinstance(raw, dict) and list(raw) == ["output"] else raw
    return tool_message(inner) or ToolResult(call_id=None, name=None, text=as_text(inner))


def _with_real_error(span: Span) -> Span:
    """The span with the exception that was raised, instead of the one that LangSmith made of its text."""
    if not any(event.name == names.EXCEPTION_EVENT for event in span.events):
        return span
    return msgspec.structs.replace(span, events=[_real(event) for event in span.events])


def _real(event: SpanEvent) -> SpanEvent:
    message = event.attributes.get(names.EXCEPTION_MESSAGE)
    if event.name != names.EXCEPTION_EVENT or not isinstance(message, str):
        return event
    text = message.partition(_TRACEBACK)[0].strip()
    printed = _PRINTED_ERROR.fullmatch(text)
    if printed is None:
        return _with(event, {names.EXCEPTION_MESSAGE: text})
    arguments = from_literal(f"({printed['arguments']},)")
    texts = (argument for argument in arguments if isinstance(argument, str)) if isinstance(arguments, list) else ()
    said = next(iter(texts), printed["arguments"])
    return _with(event, {names.EXCEPTION_TYPE: printed["type"], names.EXCEPTION_MESSAGE: said})


def _with(event: SpanEvent, told: Attributes) -> SpanEvent:
    return SpanEvent(name=event.name, time_ns=event.time_ns, attributes=event.attributes | told)


RULES: tuple[Rule, ...] = (_model_run, _tool_run, _other_run)
