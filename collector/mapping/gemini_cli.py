"""Gemini CLI's spans: calls of the model as Gemini's JSON, and the runs of the tools that it asked for.

Each is a trace of its own; the conversation ties them. What its log records say, the spans say too, except whose turn
it was, so that they would count it once more.
"""

from __future__ import annotations

from typing import Any

from collector.facts import Facts
from collector.mapping import attributes as names
from collector.mapping.conversation import Message, ModelTurn, ToolResult, as_text, from_json, objects, text_or_none
from collector.mapping.facts_of import ToolRun, run_fact, turn_facts
from collector.mapping.failures import Failure, classify
from collector.mapping.genai import turn_of
from collector.mapping.origin import origin_of
from collector.mapping.rules import LogRule, Rule, marked, operating
from collector.spans import LogRecord, Span
from pickwise.events import ErrorKind
from pickwise.settings import Settings

_MODEL, _TOOL, _SCHEDULE = "llm_call", "tool_call", "schedule_tool_calls"
_FAILED = ("error", "cancelled")


@marked(*operating(_MODEL))
def _model_span(span: Span, settings: Settings) -> Facts | None:
    if span.attributes.get(names.OPERATION) != _MODEL:
        return None
    return turn_facts(span, origin_of(span), turn_of(span.attributes), settings)


@marked(*operating(_TOOL))
def _tool_span(span: Span, settings: Settings) -> Facts | None:
    """The run of a tool. Its status says nothing of a failure, what it returned does."""
    attributes = span.attributes
    skill_id = text_or_none(attributes.get(names.TOOL_NAME))
    if attributes.get(names.OPERATION) != _TOOL or skill_id is None:
        return None
    asked = from_json(attributes.get(names.INPUT_MESSAGES))
    run = ToolRun(
        skill_id=skill_id,
        call_id=text_or_none(attributes.get(names.GEMINI_CALL_ID)),
        arguments=asked.get("args") if isinstance(asked, dict) else None,
    )
    fact = run_fact(span, origin_of(span), run, settings)
    told = from_json(attributes.get(names.OUTPUT_MESSAGES))
    failure = _failure(told) if isinstance(told, dict) and fact.ok else None
    if failure is not None:
        fact.ok, fact.error_kind, fact.error_message = False, failure.kind or "tool_error", failure.message
    return Facts(calls=[fact])


@marked(*operating(_SCHEDULE))
def _schedule(span: Span, settings: Settings) -> Facts | None:
    """All calls of a turn with what came of them, also of those that no tool ran."""
    if span.attributes.get(names.OPERATION) != _SCHEDULE:
        return None
    results = [
        result
        for told in objects(from_json(span.attributes.get(names.OUTPUT_MESSAGES)))
        if (result := _result(told)) is not None
    ]
    turn = ModelTurn(messages=[Message(role="tool", results=results)], tools=[], calls=[])
    return turn_facts(span, origin_of(span), turn, settings)


def _result(told: dict[str, Any]) -> ToolResult | None:
    request = told.get("request")
    if not isinstance(request, dict):
        return None
    failure = _failure(told)
    return ToolResult(
        call_id=text_or_none(request.get("callId")),
        name=text_or_none(request.get("name")),
        text=(failure.message or "") if failure is not None else "",
        error=failure is not None,
    )


def _failure(told: dict[str, Any]) -> Failure | None:
    """The failure that a finished call tells; None where it succeeded."""
    if told.get("status") not in _FAILED:
        return None
    response = told.get("response")
    held = response if isinstance(response, dict) else {}
    parts = [part.get("functionResponse") for part in objects(held.get("responseParts"))]
    answers = [part.get("response") for part in parts if isinstance(part, dict)]
    errors = [answer.get("error") for answer in answers if isinstance(answer, dict)]
    text = next((as_text(error) for error in (*errors, held.get("resultDisplay")) if error), "")
    kind: ErrorKind | None = "cancelled" if told.get("status") == "cancelled" else None
    return Failure(kind or classify(str(held.get("errorType") or ""), text), text)


def _log(record: LogRecord, _settings: Settings) -> Facts | None:
    return Facts() if names.GEMINI_INSTALLATION in record.attributes else None


RULES: tuple[Rule, ...] = (_model_span, _tool_span, _schedule)
LOG_RULES: tuple[LogRule, ...] = (_log,)
