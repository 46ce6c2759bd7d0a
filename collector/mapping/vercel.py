"""The Vercel AI SDK's own attributes (``ai.*``)."""

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
    objects,
    text_or_none,
    tool_definitions,
)
from collector.mapping.facts_of import ToolRun, run_fact, turn_facts
from collector.mapping.origin import origin_of
from collector.mapping.rules import Rule, marked
from collector.spans import Attributes, Span
from pickwise.settings import Settings

_MODEL_OPERATIONS = (".doGenerate", ".doStream")
_TOOL_OPERATION = "ai.toolCall"
_ERROR_OUTPUTS = ("error-text", "error-json", "execution-denied")


@marked(names.AI_OPERATION)
def _model_span(span: Span, settings: Settings) -> Facts | None:
    operation = span.attributes.get(names.AI_OPERATION)
    if not isinstance(operation, str) or not operation.endswith(_MODEL_OPERATIONS):
        return None
    return turn_facts(span, origin_of(span), _turn(span.attributes), settings)


def _turn(attributes: Attributes) -> ModelTurn:
    return ModelTurn(
        messages=[_message(raw) for raw in objects(attributes.get(names.AI_MESSAGES))],
        tools=tool_definitions(attributes.get(names.AI_TOOLS)),
        calls=_calls(objects(attributes.get(names.AI_TOOL_CALLS))),
    )


def _message(raw: dict[str, Any]) -> Message:
    content = raw.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    texts = [part["text"] for part in parts if part.get("type") == "text" and isinstance(part.get("text"), str)]
    return Message(
        role=str(raw.get("role", "")),
        text="\n".join(texts) or text_or_none(content),
        calls=_calls([part for part in parts if part.get("type") == "tool-call"]),
        results=[_result(part) for part in parts if part.get("type") == "tool-result"],
    )


def _calls(parts: list[dict[str, Any]]) -> list[ToolCall]:
    return [
        ToolCall(name=name, call_id=text_or_none(part.get("toolCallId")), arguments=part.get("input", part.get("args")))
        for part in parts
        if (name := text_or_none(part.get("toolName")))
    ]


def _result(part: dict[str, Any]) -> ToolResult:
    output = part.get("output", part.get("result"))
    told = output if isinstance(output, dict) else {}
    return ToolResult(
        call_id=text_or_none(part.get("toolCallId")),
        name=text_or_none(part.get("toolName")),
        text=as_text(told.get("value", output)),
        error=part.get("isError") is True or told.get("type") in _ERROR_OUTPUTS,
    )


@marked(names.AI_OPERATION)
def _tool_span(span: Span, settings: Settings) -> Facts | None:
    attributes = span.attributes
    if attributes.get(names.AI_OPERATION) != _TOOL_OPERATION:
        return None
    skill_id = text_or_none(attributes.get(names.AI_CALL_NAME))
    if skill_id is None:
        return Facts()
    run = ToolRun(
        skill_id=skill_id,
        call_id=text_or_none(attributes.get(names.AI_CALL_ID)),
        arguments=attributes.get(names.AI_CALL_ARGUMENTS),
        result=attributes.get(names.AI_CALL_RESULT),
    )
    return Facts(calls=[run_fact(span, origin_of(span), run, settings)])


@marked(names.AI_OPERATION)
def _other_span(span: Span, _settings: Settings) -> Facts | None:
    """The SDK's other spans repeat what these tell."""
    return Facts() if isinstance(span.attributes.get(names.AI_OPERATION), str) else None


RULES: tuple[Rule, ...] = (_model_span, _tool_span, _other_span)
