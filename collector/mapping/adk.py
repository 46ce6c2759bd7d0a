"""Google ADK's own attributes: the request to the model and its response as Gemini's JSON.

Its tool spans and the rest follow the GenAI conventions and are mapped with them. A span of the conventions inside the
one mapped here may tell of the same model call, without its messages.
"""

from __future__ import annotations

from typing import Any

from collector.facts import Facts
from collector.mapping import attributes as names
from collector.mapping.conversation import ModelTurn, ToolDefinition, from_json, objects, text_or_none, tool_definitions
from collector.mapping.facts_of import turn_facts
from collector.mapping.genai_events import messages
from collector.mapping.origin import origin_of
from collector.mapping.rules import Rule, marked
from collector.spans import Span
from pickwise.settings import Settings

_DECLARATIONS = ("function_declarations", "functionDeclarations")


@marked(names.ADK_REQUEST)
def _model_span(span: Span, settings: Settings) -> Facts | None:
    request = from_json(span.attributes.get(names.ADK_REQUEST))
    # Without content it is empty, as it is on every tool span.
    if not isinstance(request, dict) or not request:
        return None
    response = from_json(span.attributes.get(names.ADK_RESPONSE))
    returned = messages([response] if isinstance(response, dict) else [], "assistant")
    turn = ModelTurn(
        messages=messages(request.get("contents"), "user"),
        tools=_tools(request.get("config")),
        calls=[call for message in returned for call in message.calls],
    )
    origin = origin_of(span)
    origin.session_id = origin.session_id or text_or_none(span.attributes.get(names.ADK_SESSION))
    return turn_facts(span, origin, turn, settings)


def _tools(config: Any) -> list[ToolDefinition]:
    listed = objects(config.get("tools")) if isinstance(config, dict) else []
    declared = [item for tool in listed for key in _DECLARATIONS for item in objects(tool.get(key))]
    return tool_definitions(declared)


RULES: tuple[Rule, ...] = (_model_span,)
