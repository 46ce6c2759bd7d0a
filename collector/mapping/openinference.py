"""OpenInference conventions: LLM, TOOL and the CHAIN spans in which frameworks hide refused calls."""

from __future__ import annotations

import re

from collector.facts import CallFact, Facts
from collector.mapping import attributes as names
from collector.mapping.conversation import (
    Message,
    ModelTurn,
    ToolCall,
    ToolResult,
    from_json,
    text_or_none,
    tool_definitions,
)
from collector.mapping.facts_of import ToolRun, run_fact, turn_facts
from collector.mapping.flattened import Group, grouped
from collector.mapping.langchain import invalid_calls, tool_message, tool_node
from collector.mapping.origin import origin_of
from collector.mapping.rules import Rule
from collector.spans import Attributes, Span
from pickwise.settings import Settings

#: OpenAI Agents end a turn so when the model names a tool that does not exist; no tool span follows.
_NOT_FOUND = re.compile(r"^Tool not found: \{'tool_name': '(?P<name>[^']+)'\}")


def _model_span(span: Span, settings: Settings) -> Facts | None:
    if span.attributes.get(names.OI_KIND) != "LLM":
        return None
    return turn_facts(span, origin_of(span), _turn(span.attributes), settings)


def _turn(attributes: Attributes) -> ModelTurn:
    outputs = [_message(group) for group in grouped(attributes, names.OI_OUTPUT_MESSAGES)]
    calls = [call for message in outputs for call in message.calls]
    return ModelTurn(
        messages=[_message(group) for group in grouped(attributes, names.OI_INPUT_MESSAGES)],
        tools=tool_definitions([group.get(names.OI_TOOL_SCHEMA) for group in grouped(attributes, names.OI_TOOLS)]),
        calls=calls + invalid_calls(attributes.get(names.OI_OUTPUT)),
    )


def _message(group: Group) -> Message:
    role = str(group.get(names.OI_ROLE, ""))
    text = text_or_none(group.get(names.OI_CONTENT))
    if text is None:
        parts = (part.get(names.OI_PART_TEXT) for part in grouped(group, names.OI_PARTS))
        text = "\n".join(part for part in parts if isinstance(part, str)) or None
    calls = [call for raw in grouped(group, names.OI_CALLS) if (call := _call(raw))]
    return Message(role=role, text=text, calls=calls, results=_results(group, text))


def _call(group: Group) -> ToolCall | None:
    name = text_or_none(group.get(names.OI_CALL_NAME))
    if name is None:
        return None
    call_id = text_or_none(group.get(names.OI_CALL_ID))
    return ToolCall(name=name, call_id=call_id, arguments=group.get(names.OI_CALL_ARGUMENTS))


def _results(group: Group, text: str | None) -> list[ToolResult]:
    call_id = text_or_none(group.get(names.OI_RESULT_ID))
    if call_id is None:
        return []
    return [ToolResult(call_id=call_id, name=text_or_none(group.get(names.OI_RESULT_NAME)), text=text or "")]


def _tool_span(span: Span, settings: Settings) -> Facts | None:
    attributes = span.attributes
    if attributes.get(names.OI_KIND) != "TOOL":
        return None
    output = attributes.get(names.OI_OUTPUT)
    quoted = tool_message(from_json(output))
    run = ToolRun(
        skill_id=text_or_none(attributes.get(names.OI_TOOL_NAME)) or span.name,
        call_id=text_or_none(attributes.get(names.OI_TOOL_CALL_ID)) or (quoted.call_id if quoted else None),
        arguments=attributes.get(names.OI_INPUT),
        result=quoted.text if quoted else output,
    )
    fact = run_fact(span, origin_of(span), run, settings)
    if quoted and quoted.error:
        fact.ok, fact.error_message = False, fact.error_message or quoted.text
    if fact.ok is False and fact.error_kind in (None, "tool_error") and _breaks_schema(attributes):
        fact.error_kind = "invalid_arguments"
    return Facts(calls=[fact])


def _breaks_schema(attributes: Attributes) -> bool:
    """Whether the arguments break the tool's own schema: some frameworks redact why a call failed.

    Looks at the names only, which needs no foreign schema to be run.
    """
    schema, arguments = from_json(attributes.get(names.OI_TOOL_PARAMETERS)), from_json(attributes.get(names.OI_INPUT))
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False
    if not isinstance(arguments, dict):
        return True
    required, properties = schema.get("required", []), schema.get("properties", {})
    missing = isinstance(required, list) and any(name not in arguments for name in required)
    closed = schema.get("additionalProperties") is False and isinstance(properties, dict)
    return missing or (closed and any(name not in properties for name in arguments))


def _tool_node(span: Span, settings: Settings) -> Facts | None:
    return tool_node(span, settings) if span.attributes.get(names.OI_KIND) == "CHAIN" else None


def _unknown_tool(span: Span, settings: Settings) -> Facts | None:
    if span.attributes.get(names.OI_KIND) != "CHAIN":
        return None
    found = _NOT_FOUND.match(span.status_message) if span.failed else None
    if found is None:
        return None
    fact: CallFact = run_fact(span, origin_of(span), ToolRun(skill_id=found["name"]), settings)
    # The turn starts before its model span; the call is known at its end. How long the turn took is not its latency.
    fact.time, fact.latency_ms, fact.error_kind = span.end_ns or None, None, "not_found"
    return Facts(calls=[fact])


RULES: tuple[Rule, ...] = (_model_span, _tool_span, _tool_node, _unknown_tool)
