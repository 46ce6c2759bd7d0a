"""From a model turn or an executed call to facts: the part that every dialect shares."""

from __future__ import annotations

from typing import Any

import msgspec

from collector.facts import CallFact, Facts, OfferedSkill
from collector.mapping import failures
from collector.mapping.conversation import ModelTurn, ToolCall, ToolResult
from collector.mapping.failures import Failure
from collector.spans import Span
from pickwise.events import MAX_CANDIDATES, Candidate, Selection, derive_event_id
from pickwise.settings import Settings

STRATEGY = "llm_direct"
_SKILL_ID_CHARS = 512
_ID_CHARS = 128


class Origin(msgspec.Struct, kw_only=True):
    """Who and where: what every event of one span shares."""

    session_id: str | None = None
    agent: str | None = None
    model: str | None = None
    environment: str | None = None
    release: str | None = None


class ToolRun(msgspec.Struct, kw_only=True):
    """An executed call as its span tells it."""

    skill_id: str
    call_id: str | None = None
    arguments: Any = None
    result: Any = None


def selection_id(trace_id: str, span_id: str) -> str:
    """Event id of the selection that a model span is."""
    return derive_event_id(trace_id, span_id, "selection")


def turn_facts(span: Span, origin: Origin, turn: ModelTurn, settings: Settings) -> Facts | None:
    """A selection with its proposed calls, its offers and the answers it quotes; None when no tool was in play."""
    answers = [_answer(span, origin, i, turn, result, settings) for i, result in enumerate(turn.fresh_results)]
    facts = Facts(calls=[answer for answer in answers if answer is not None])
    if turn.tools or turn.calls:
        facts.selections = [_selection(span, origin, turn)]
        facts.calls = [_proposal(span, origin, i, call) for i, call in enumerate(turn.calls)] + facts.calls
        facts.offered = _offers(span, turn)
    return facts


def run_fact(span: Span, origin: Origin, run: ToolRun, settings: Settings) -> CallFact:
    """The call that a tool span executed. A span that ended without a sign of failure is a success."""
    failure = failures.of_span(span, run.result, run.skill_id, settings)
    return CallFact(
        role="run",
        event_id=derive_event_id(span.trace_id, span.span_id, "call", "run"),
        time=span.start_ns or None,
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_span_id,
        skill_id=run.skill_id[:_SKILL_ID_CHARS],
        call_id=_call_id(run.call_id),
        arguments=run.arguments,
        latency_ms=span.duration_ms,
        ok=failure is None,
        error_kind=failure.kind if failure else None,
        error_message=failure.message if failure else None,
        **_shared(origin),
    )


def _selection(span: Span, origin: Origin, turn: ModelTurn) -> Selection:
    return Selection(
        event_id=selection_id(span.trace_id, span.span_id),
        time=span.start_ns or None,
        trace_id=span.trace_id,
        span_id=span.span_id,
        query=turn.query,
        candidates=[Candidate(skill_id=name) for name in _menu(turn)],
        ranked=False,
        strategy=STRATEGY,
        **_shared(origin),
    )


def _menu(turn: ModelTurn) -> list[str]:
    """The offered names in order, each once. Beyond the limit those that were called stay, then the first ones."""
    names = list(dict.fromkeys(tool.name[:_SKILL_ID_CHARS] for tool in turn.tools))
    if len(names) <= MAX_CANDIDATES:
        return names
    called = {call.name for call in turn.calls}
    kept = set(sorted(names, key=lambda name: name not in called)[:MAX_CANDIDATES])
    return [name for name in names if name in kept]


def _proposal(span: Span, origin: Origin, ordinal: int, call: ToolCall) -> CallFact:
    return CallFact(
        role="propose",
        event_id=derive_event_id(span.trace_id, span.span_id, "call", "propose", ordinal),
        time=span.start_ns or None,
        trace_id=span.trace_id,
        span_id=span.span_id,
        ordinal=ordinal,
        selection_id=selection_id(span.trace_id, span.span_id),
        skill_id=call.name[:_SKILL_ID_CHARS],
        call_id=_call_id(call.call_id),
        arguments=call.arguments,
        ok=False if call.invalid else None,
        error_kind="invalid_arguments" if call.invalid else None,
        error_message=call.invalid,
        **_shared(origin),
    )


def _answer(
    span: Span, origin: Origin, ordinal: int, turn: ModelTurn, result: ToolResult, settings: Settings
) -> CallFact | None:
    """A quoted result. Without the name of its tool it tells nothing; a vague failure leaves the kind open."""
    name = result.name or turn.called_names.get(result.call_id or "")
    if not name or not result.call_id:
        return None
    failure = _answer_failure(result, name, settings)
    return CallFact(
        role="answer",
        event_id=derive_event_id(span.trace_id, span.span_id, "call", "answer", ordinal),
        time=span.start_ns or None,
        trace_id=span.trace_id,
        span_id=span.span_id,
        ordinal=ordinal,
        skill_id=name[:_SKILL_ID_CHARS],
        call_id=_call_id(result.call_id),
        ok=failure is None,
        error_kind=failure.kind if failure else None,
        error_message=failure.message if failure else None,
        **_shared(origin),
    )


def _answer_failure(result: ToolResult, name: str, settings: Settings) -> Failure | None:
    if result.error:
        return Failure(failures.classify("", result.text), result.text)
    return failures.of_text(result.text, name, settings)


def _offers(span: Span, turn: ModelTurn) -> list[OfferedSkill]:
    return [
        OfferedSkill(
            skill_id=tool.name[:_SKILL_ID_CHARS],
            time=span.start_ns,
            name=tool.name[:_SKILL_ID_CHARS],
            description=tool.description,
            parameters_schema=tool.parameters,
        )
        for tool in turn.tools
    ]


def _call_id(value: str | None) -> str | None:
    return value[:_ID_CHARS] if value else None


def _shared(origin: Origin) -> dict[str, Any]:
    return msgspec.structs.asdict(origin)
