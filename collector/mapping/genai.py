"""OpenTelemetry GenAI and MCP conventions, with the older names that Pydantic AI still sends."""

from __future__ import annotations

from typing import Any

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
    tool_definitions,
)
from collector.mapping.facts_of import ToolRun, run_fact, turn_facts
from collector.mapping.failures import is_error_result
from collector.mapping.origin import origin_of
from collector.mapping.rules import Rule
from collector.spans import Attributes, Span
from pickwise.settings import Settings

_MODEL_OPERATIONS = frozenset({"chat", "generate_content", "text_completion", "inference", "responses"})
_TOOL_OPERATION = "execute_tool"
_MCP_CALL = "tools/call"
#: Placeholders that frameworks write where they have no value.
_NO_CALL_ID = frozenset({"", "<not specified>"})
_MERGED_TOOLS = "(merged tools)"


def _model_span(span: Span, settings: Settings) -> Facts | None:
    operation = span.attributes.get(names.OPERATION)
    if not isinstance(operation, str) or operation not in _MODEL_OPERATIONS:
        return None
    return turn_facts(span, origin_of(span), _turn(_model_attributes(span)), settings)


def _model_attributes(span: Span) -> Attributes:
    """The span's attributes, with those of its details event below them."""
    for event in span.events:
        if event.name == names.INFERENCE_DETAILS_EVENT:
            return event.attributes | span.attributes
    return span.attributes


def _turn(attributes: Attributes) -> ModelTurn:
    outputs = [_message(raw) for raw in objects(attributes.get(names.OUTPUT_MESSAGES))]
    return ModelTurn(
        messages=[_message(raw) for raw in objects(attributes.get(names.INPUT_MESSAGES))],
        tools=tool_definitions(attributes.get(names.TOOL_DEFINITIONS)),
        calls=[call for message in outputs for call in message.calls],
    )


def _message(raw: dict[str, Any]) -> Message:
    parts = objects(raw.get("parts"))
    texts = [part["content"] for part in parts if part.get("type") == "text" and isinstance(part.get("content"), str)]
    return Message(
        role=str(raw.get("role", "")),
        text="\n".join(texts) or text_or_none(raw.get("content")),
        calls=[call for part in parts if part.get("type") == "tool_call" and (call := _call(part))],
        results=[_result(part) for part in parts if part.get("type") == "tool_call_response"],
    )


def _call(part: dict[str, Any]) -> ToolCall | None:
    name = text_or_none(part.get("name"))
    if name is None:
        return None
    return ToolCall(name=name, call_id=_call_id(part.get("id")), arguments=part.get("arguments"))


def _result(part: dict[str, Any]) -> ToolResult:
    # `result` is the name of older releases of the conventions, `response` the current one.
    value = part.get("response", part.get("result"))
    return ToolResult(
        call_id=_call_id(part.get("id")),
        name=text_or_none(part.get("name")),
        text=as_text(value),
        error=True if is_error_result(value) else None,
    )


def _tool_span(span: Span, settings: Settings) -> Facts | None:
    operation, method = span.attributes.get(names.OPERATION), span.attributes.get(names.MCP_METHOD)
    if operation != _TOOL_OPERATION and method != _MCP_CALL:
        return None
    skill_id = _tool_name(span)
    if skill_id is None:
        return Facts()
    attributes = span.attributes
    run = ToolRun(
        skill_id=skill_id,
        call_id=_call_id(attributes.get(names.TOOL_CALL_ID)),
        arguments=_arguments(attributes),
        result=attributes.get(names.TOOL_RESULT, attributes.get(names.PYDANTIC_RESULT)),
    )
    fact = run_fact(span, origin_of(span), run, settings)
    if fact.ok is False and attributes.get(names.PYDANTIC_FAILURE_STAGE) == "validation":
        fact.error_kind = "invalid_arguments"
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


def _arguments(attributes: Attributes) -> Any:
    arguments = from_json(attributes.get(names.TOOL_ARGUMENTS, attributes.get(names.PYDANTIC_ARGUMENTS)))
    if isinstance(arguments, dict) and list(arguments) == [names.PYDANTIC_INVALID_JSON]:
        return arguments[names.PYDANTIC_INVALID_JSON]
    return arguments


def _call_id(value: Any) -> str | None:
    return value if isinstance(value, str) and value not in _NO_CALL_ID else None


RULES: tuple[Rule, ...] = (_tool_span, _model_span)
