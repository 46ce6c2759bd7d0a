"""Claude Code's spans (`CLAUDE_CODE_ENHANCED_TELEMETRY_BETA`): an interaction, and below it requests and tools.

They tell of the same selections and calls as its log events, see ``coding_agents``.
"""

from __future__ import annotations

from collector.facts import CallFact, Facts
from collector.mapping import attributes as names
from collector.mapping.coding_agents import told_words
from collector.mapping.conversation import Message, ModelTurn, text_or_none
from collector.mapping.facts_of import ToolRun, cut_call_id, run_fact, turn_without_menu
from collector.mapping.failures import of_span
from collector.mapping.origin import origin_of
from collector.mapping.rules import Rule, marked
from collector.spans import Span
from pickwise.events import derive_event_id
from pickwise.settings import Settings


@marked(names.CLAUDE_SPAN)
def _interaction(span: Span, _settings: Settings) -> Facts | None:
    if span.attributes.get(names.CLAUDE_SPAN) != "interaction":
        return None
    message = Message(role="user", text=told_words(span.attributes.get(names.CLAUDE_PROMPT)))
    turn = ModelTurn(messages=[message], tools=[], calls=[])
    return Facts(selections=[turn_without_menu(span, origin_of(span), turn)])


@marked(names.CLAUDE_SPAN)
def _tool(span: Span, settings: Settings) -> Facts | None:
    attributes = span.attributes
    if attributes.get(names.CLAUDE_SPAN) != "tool":
        return None
    tool = text_or_none(attributes.get(names.CLAUDE_TOOL))
    if tool is None:
        return Facts()
    run = ToolRun(skill_id=tool, call_id=text_or_none(attributes.get(names.TOOL_CALL_ID)))
    return Facts(calls=[run_fact(span, origin_of(span), run, settings)])


@marked(names.CLAUDE_SPAN)
def _execution(span: Span, settings: Settings) -> Facts | None:
    """The part of a tool's span that runs it; only this says how it ended."""
    attributes = span.attributes
    if attributes.get(names.CLAUDE_SPAN) != "tool.execution":
        return None
    fact = origin_of(span).given_in(span, CallFact(role="answer", skill_id=""))
    fact.event_id = derive_event_id(span.trace_id, span.span_id, "call", "answer")
    fact.call_id = cut_call_id(text_or_none(attributes.get(names.TOOL_CALL_ID)))
    failure = of_span(span, None, "", settings)
    fact.ok = failure is None
    if failure is not None:
        fact.error_kind, fact.error_message = failure.kind, failure.message
    return Facts(calls=[fact]) if fact.call_id else Facts()


@marked(names.CLAUDE_SPAN)
def _other(span: Span, _settings: Settings) -> Facts | None:
    """Requests, which tell neither menu nor messages, hooks, and the wait for a permission."""
    return Facts() if names.CLAUDE_SPAN in span.attributes else None


RULES: tuple[Rule, ...] = (_interaction, _tool, _execution, _other)
