"""OpenTelemetry GenAI and MCP conventions, both generations, with the older names that Pydantic AI still sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collector.facts import Facts
from collector.mapping import attributes as names
from collector.mapping.conversation import (
    ModelTurn,
    Said,
    ToolCall,
    ToolDefinition,
    as_text,
    from_json,
    objects,
    text_or_none,
    tool_definitions,
)
from collector.mapping.facts_of import ToolRun, context_facts, run_fact, turn_facts
from collector.mapping.failures import classify
from collector.mapping.genai_events import call_id, held, messages, of_events
from collector.mapping.messages_in_values import definitions
from collector.mapping.origin import origin_of
from collector.mapping.rules import Rule, marked, operating
from collector.spans import Attributes, Span, SpanEvent
from pickwise.settings import Settings

MODEL_OPERATIONS = frozenset({"chat", "generate_content", "text_completion", "inference", "responses"})
AGENT_OPERATIONS = frozenset({"invoke_agent", "invoke_workflow"})
_TOOL_OPERATION = "execute_tool"
#: One of these is on every span that the rules know.
MARKS = (names.OPERATION, names.MCP_METHOD)
#: Where a span has one of these too, its messages may be in attributes of that dialect.
_OTHER_DIALECTS = (names.OI_KIND, names.AI_OPERATION)
_MCP_CALL = "tools/call"
_MERGED_TOOLS = "(merged tools)"
_ARGUMENTS = (names.TOOL_ARGUMENTS, names.PYDANTIC_ARGUMENTS, names.ADK_ARGUMENTS)
_PYDANTIC_TOOLS = ("function_tools", "output_tools")
_RESULTS = (names.TOOL_RESULT, names.PYDANTIC_RESULT, names.ADK_RESULT)


@marked(*operating(*MODEL_OPERATIONS))
def _model_span(span: Span, settings: Settings) -> Facts | None:
    operation = span.attributes.get(names.OPERATION)
    if not isinstance(operation, str) or operation not in MODEL_OPERATIONS:
        return None
    turn = turn_of(span.attributes, span.events)
    if turn.messages or turn.tools or turn.calls:
        return turn_facts(span, origin_of(span), turn, settings)
    if any(mark in span.attributes for mark in _OTHER_DIALECTS):
        return None
    # Its messages may come as log records, which know neither when it began nor whose it was.
    return context_facts(span, origin_of(span), turn, settings)


@marked(*operating(*AGENT_OPERATIONS))
def _agent_span(span: Span, settings: Settings) -> Facts | None:
    operation = span.attributes.get(names.OPERATION)
    if not isinstance(operation, str) or operation not in AGENT_OPERATIONS:
        return None
    return context_facts(span, origin_of(span), turn_of(span.attributes, span.events), settings)


def turn_of(attributes: Attributes, events: Sequence[SpanEvent] = ()) -> ModelTurn:
    """What a model was sent, offered and returned, from the attributes or else from the span's events."""
    if events:
        for event in events:
            if event.name == names.INFERENCE_DETAILS_EVENT:
                attributes = event.attributes | attributes
    sent = messages(attributes.get(names.INPUT_MESSAGES), "user")
    returned = messages(attributes.get(names.OUTPUT_MESSAGES), "assistant")
    if not sent and not returned:
        sent, returned = of_events(events, attributes)
    return ModelTurn(
        messages=sent,
        tools=_offered(attributes),
        calls=_calls_of(returned),
    )


def _calls_of(returned: Sequence[Said]) -> list[ToolCall]:
    if len(returned) == 1:  # as nearly always
        return [*returned[0].calls]
    return [call for message in returned for call in message.calls]


def _offered(attributes: Attributes) -> list[ToolDefinition]:
    """The tool definitions, or the bare names of an agent's tools."""
    defined = attributes.get(names.TOOL_DEFINITIONS)
    if defined is not None and (tools := tool_definitions(defined) or definitions(defined)):
        return tools
    if names.PYDANTIC_REQUEST in attributes:
        request = from_json(attributes[names.PYDANTIC_REQUEST])
        if isinstance(request, dict):
            return tool_definitions([tool for kind in _PYDANTIC_TOOLS for tool in objects(request.get(kind))])
    if names.AGENT_TOOLS not in attributes:
        return []
    listed = from_json(attributes[names.AGENT_TOOLS])
    found = listed if isinstance(listed, list) else []
    return [ToolDefinition(name=name) for name in found if isinstance(name, str) and name]


@marked(names.MCP_METHOD, *operating(_TOOL_OPERATION))
def _tool_span(span: Span, settings: Settings) -> Facts | None:
    attributes = span.attributes
    if attributes.get(names.OPERATION) != _TOOL_OPERATION and attributes.get(names.MCP_METHOD) != _MCP_CALL:
        return None
    skill_id = _tool_name(span)
    if skill_id is None:
        return Facts()
    arguments, result = _told(span)
    run = ToolRun(
        skill_id=skill_id,
        call_id=call_id(attributes.get(names.TOOL_CALL_ID)),
        arguments=arguments,
        result=result,
    )
    fact = run_fact(span, origin_of(span), run, settings)
    if fact.ok and attributes.get(names.TOOL_STATUS) == "error":
        text = as_text(result)
        fact.ok, fact.error_kind, fact.error_message = False, classify("", text) or "tool_error", text or None
    if fact.ok is False and attributes.get(names.PYDANTIC_FAILURE_STAGE) == "validation":
        fact.error_kind = "invalid_arguments"
    if fact.ok is False and attributes.get(names.TOOL_DESCRIPTION) == names.ADK_NO_TOOL:
        fact.error_kind = "not_found"
    return Facts(calls=[fact])


def _tool_name(span: Span) -> str | None:
    """The tool; MCP client libraries tell it in the span name only. A span that merges parallel calls is none."""
    name = text_or_none(span.attributes.get(names.TOOL_NAME))
    if name is not None:
        return None if name == _MERGED_TOOLS else name
    for verb in (f"{_MCP_CALL} ", f"{_TOOL_OPERATION} "):
        if verb in span.name:
            return span.name.partition(verb)[2] or None
    return None


def _told(span: Span) -> tuple[Any, Any]:
    """Arguments and result: of the attributes, else of the span's events."""
    arguments, result = _first(span.attributes, _ARGUMENTS), _first(span.attributes, _RESULTS)
    for event in span.events if arguments is None or result is None else ():
        more_arguments, more_result = _told_in_event(event)
        arguments = more_arguments if arguments is None else arguments
        result = more_result if result is None else result
    return _unwrapped(arguments), result


def _first(attributes: Attributes, keys: tuple[str, ...]) -> Any:
    """The value of the first of the keys that is there."""
    for key in keys:
        if key in attributes:
            return attributes[key]
    return None


def _told_in_event(event: SpanEvent) -> tuple[Any, Any]:
    content = held(None, event.attributes)
    if event.name == names.TOOL_EVENT:
        return content.get("content"), None
    if event.name == names.CHOICE_EVENT:
        return None, content.get("message")
    if event.name == names.INFERENCE_DETAILS_EVENT:
        called = _part(event.attributes.get(names.INPUT_MESSAGES), "tool_call")
        answered = _part(event.attributes.get(names.OUTPUT_MESSAGES), "tool_call_response")
        return called.get("arguments"), answered.get("response")
    return None, None


def _part(value: Any, kind: str) -> dict[str, Any]:
    """The first part of a kind in a list of messages."""
    parts = (part for message in objects(value) for part in objects(message.get("parts")) if part.get("type") == kind)
    return next(parts, {})


def _unwrapped(value: Any) -> Any:
    arguments = from_json(value)
    if isinstance(arguments, dict) and list(arguments) == [names.PYDANTIC_INVALID_JSON]:
        return arguments[names.PYDANTIC_INVALID_JSON]
    return arguments


RULES: tuple[Rule, ...] = (_tool_span, _model_span, _agent_span)
