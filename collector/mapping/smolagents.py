"""smolagents, as OpenInference sees it: a run is an AGENT span, each step of it a CHAIN span, each call a TOOL span.

Model spans are there only where the model's client is instrumented, so the steps tell the turns where it is not; their
menu is told by the run around them. ``final_answer`` is how a run ends, not a skill: it is in no menu and is no call.
"""

from __future__ import annotations

import re
from typing import Any

from collector.facts import CallFact, Facts, SelectionFact
from collector.mapping import attributes as names
from collector.mapping.agent_runs import context_of_run
from collector.mapping.conversation import Message, ModelTurn, Said, ToolDefinition, text_or_none
from collector.mapping.facts_of import STRATEGY, selection_id, turn_facts
from collector.mapping.flattened import grouped
from collector.mapping.messages_in_values import query_in
from collector.mapping.openinference import kind_of, origin, run_origin, unknown_tool
from collector.mapping.openinference_turns import model_turn
from collector.mapping.rules import Rule, marked
from collector.spans import Span
from pickwise.events import derive_event_id
from pickwise.settings import Settings

_SCOPE = "openinference.instrumentation.smolagents"
_FINAL_ANSWER = "final_answer"
#: By its description it is known in the spans of other instrumentations too.
_FINAL_DESCRIPTION = "Provides a final answer to the given problem"
#: What the framework puts before the words of the user.
_TASK = "New task:\n"
_STEP = re.compile(r"Step \d+")
_UNKNOWN_TOOL = re.compile(r"Unknown tool (?P<name>\S+?), should be (?:instead )?one of")
#: Code that calls a function which is neither a tool nor its own.
_UNKNOWN_FUNCTION = re.compile(r"Forbidden function evaluation: '(?P<name>[^']+)' is not among")
_REFUSED = "AgentToolCallError"


@marked(names.OI_KIND)
def _final_answer(span: Span, _settings: Settings) -> Facts | None:
    attributes = span.attributes
    if kind_of(span) != "TOOL" or attributes.get(names.OI_TOOL_NAME) != _FINAL_ANSWER:
        return None
    return Facts() if _is_smolagents(span) or _is_final(attributes.get(names.OI_TOOL_DESCRIPTION)) else None


@marked(names.OI_KIND)
def _model_span(span: Span, settings: Settings) -> Facts | None:
    """A model span of the framework, or one whose menu has its end of a run."""
    if kind_of(span) != "LLM":
        return None
    turn = model_turn(span.attributes) if _is_smolagents(span) or _offers_end(span) else None
    return turn_facts(span, origin(span), _without_end(turn), settings) if turn else None


@marked(names.OI_KIND)
def _run_span(span: Span, settings: Settings) -> Facts | None:
    """What the run knows. Not ``smolagents.task``: it is read before the run, and holds the task of the one before."""
    tools = span.attributes.get(names.SMOL_TOOLS)
    if kind_of(span) != "AGENT" or not (_is_smolagents(span) or isinstance(tools, list)):
        return None
    offered = [name for name in tools if isinstance(name, str)] if isinstance(tools, list) else []
    agents = [text_or_none(group.get("name")) for group in grouped(span.attributes, names.SMOL_MANAGED)]
    menu = [ToolDefinition(name=name) for name in (*offered, *agents) if name and name != _FINAL_ANSWER]
    told = run_origin(span)
    told.agent = told.agent or span.name.removesuffix(".run") or None
    return context_of_run(span, told, query_in(span.attributes.get(names.OI_INPUT)), menu, settings)


@marked(names.OI_KIND)
def _step(span: Span, settings: Settings) -> Facts | None:
    """One turn, and the call in it that the framework refused, as no TOOL span tells of that."""
    if kind_of(span) != "CHAIN" or not (_is_smolagents(span) and _STEP.fullmatch(span.name)):
        return None
    step = SelectionFact(
        role="step",
        event_id=selection_id(span.trace_id, span.span_id),
        time=span.start_ns or None,
        trace_id=span.trace_id,
        span_id=span.span_id,
        ranked=False,
        strategy=STRATEGY,
    )
    facts = Facts(selections=[origin(span).given(step)])
    error = _error(span)
    unknown = _UNKNOWN_TOOL.search(error) or _UNKNOWN_FUNCTION.search(error)
    if unknown:
        facts.calls = [unknown_tool(span, unknown["name"], settings)]
    elif _REFUSED in error:
        facts.calls = [_refused(span, error)]
    return facts


def _refused(span: Span, error: str) -> CallFact:
    """The answer to a call with arguments that the framework refused. It does not say which tool's they are."""
    fact = CallFact(
        role="answer",
        event_id=derive_event_id(span.trace_id, span.span_id, "call", "answer"),
        time=span.end_ns or span.start_ns or None,
        trace_id=span.trace_id,
        span_id=span.span_id,
        skill_id="",
        ok=False,
        error_kind="invalid_arguments",
        error_message=error,
    )
    return origin(span).given(fact)


def _error(span: Span) -> str:
    """Why a step failed: its status, or the event by which older releases told what a run recovers from."""
    if span.failed:
        return span.status_message
    events = (event.attributes for event in span.events if event.name == names.SMOL_RECOVERY_EVENT)
    return next(
        (f"{told.get(names.SMOL_ERROR_TYPE, '')}: {told.get(names.SMOL_ERROR_MESSAGE, '')}" for told in events), ""
    )


def _is_smolagents(span: Span) -> bool:
    return span.scope_name.startswith(_SCOPE)


def _is_final(description: Any) -> bool:
    return isinstance(description, str) and description.startswith(_FINAL_DESCRIPTION)


def _offers_end(span: Span) -> bool:
    """A cheap look, as every model span is asked."""
    return any(
        isinstance(value, str) and _FINAL_DESCRIPTION in value
        for key, value in span.attributes.items()
        if key.startswith(names.OI_TOOLS)
    )


def _without_end(turn: ModelTurn) -> ModelTurn:
    return ModelTurn(
        messages=[_plain(message) for message in turn.messages],
        tools=[tool for tool in turn.tools if tool.name != _FINAL_ANSWER],
        calls=[call for call in turn.calls if call.name != _FINAL_ANSWER],
    )


def _plain(message: Said) -> Said:
    if message.role != "user" or message.text is None:
        return message
    return Message(
        role="user",
        text=message.text.removeprefix(_TASK),
        calls=[*message.calls],
        results=[*message.results],
    )


RULES: tuple[Rule, ...] = (_final_answer, _model_span, _run_span, _step)
