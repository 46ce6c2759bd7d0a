"""From a model turn or an executed call to facts: the part that every dialect shares."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from collector.facts import CallFact, DefinedSkill, Facts, Offer, SelectionFact, SelectionRole
from collector.mapping import failures
from collector.mapping.candidates import plain_result
from collector.mapping.conversation import ModelTurn, ToolCall, ToolDefinition, once_a_menu
from collector.mapping.routed_runs import RoutedRun
from collector.mapping.routing import (
    Answer,
    Proposal,
    QuotedSearch,
    Search,
    real_calls,
    routed_turn,
    search_of,
    skills_of,
)
from collector.mapping.unnamed_calls import with_call_ids
from collector.spans import Span
from pickwise.events import MAX_CANDIDATES, Candidate, Event, Selection, StageMs, derive_event_id
from pickwise.settings import Settings

STRATEGY = "llm_direct"
_SKILL_ID_CHARS = 512
_ID_CHARS = 128
#: Sets apart what one span tells of in an order: a microsecond, as stored times are cut to it.
_ORDER_NS = 1_000
_EventT = TypeVar("_EventT", bound=Event)


class Origin(msgspec.Struct, kw_only=True, gc=False):
    """Who and where: what every event of one span shares."""

    session_id: str | None = None
    agent: str | None = None
    model: str | None = None
    environment: str | None = None
    release: str | None = None

    def given(self, event: _EventT) -> _EventT:
        """The event, with this in its fields. (As arguments of its class, so many take far longer.)"""
        event.session_id = self.session_id
        event.agent = self.agent
        event.model = self.model
        event.environment = self.environment
        event.release = self.release
        return event

    def given_in(self, span: Span, event: _EventT) -> _EventT:
        """The same, and the span's own: its ids and its start."""
        event.time = span.start_ns or None
        event.trace_id = span.trace_id
        event.span_id = span.span_id
        event.session_id = self.session_id
        event.agent = self.agent
        event.model = self.model
        event.environment = self.environment
        event.release = self.release
        return event


class ToolRun(msgspec.Struct, kw_only=True, gc=False):
    """An executed call as its span tells it."""

    skill_id: str
    call_id: str | None = None
    arguments: Any = None
    result: Any = None


def selection_id(trace_id: str, span_id: str) -> str:
    """Event id of the selection that a model span is."""
    return derive_event_id(trace_id, span_id, "selection")


def turn_facts(span: Span, origin: Origin, turn: ModelTurn, settings: Settings) -> Facts:
    """A selection with its proposed calls, its offers and the answers it quotes; none when no skill was in play.

    Searches by router tools that it quotes are selections of their own.
    """
    return step_facts(span, origin, with_call_ids(turn), settings)


def step_facts(span: Span, origin: Origin, turn: ModelTurn, settings: Settings) -> Facts:
    """The same of a turn whose calls may stay without ids: who tells of a whole run knows which results are theirs."""
    routed = routed_turn(turn, settings.tool_routes)
    made_by = selection_id(span.trace_id, span.span_id)
    selections: list[Selection] = []
    if routed.decides:
        selections.append(_selection(span, origin, made_by, turn, routed.tools))
    if routed.searches:
        selections += _quoted_searches(span, origin, routed.searches)
    calls = [_proposal(span, origin, made_by, proposal) for proposal in routed.proposals]
    if routed.answers:
        calls += [_answer(span, origin, answer, settings) for answer in routed.answers]
    return Facts(
        selections=selections,
        calls=calls,
        offered=offers(span, routed.tools),
        is_routed=routed.is_routed,
    )


def context_facts(span: Span, origin: Origin, turn: ModelTurn, settings: Settings) -> Facts:
    """What a span knows of turns without being one: an agent's run, or a model span whose messages come elsewhere."""
    tools = skills_of(turn.tools, settings.tool_routes) if turn.tools else []
    fact = _selection(span, origin, selection_id(span.trace_id, span.span_id), turn, tools)
    fact.role = "run"
    return Facts(selections=[fact], offered=offers(span, tools))


def turn_without_menu(span: Span, origin: Origin, turn: ModelTurn) -> SelectionFact:
    """A selection of which only the words of the user are told: its calls come elsewhere."""
    return _selection(span, origin, selection_id(span.trace_id, span.span_id), turn, [])


def run_fact(span: Span, origin: Origin, run: ToolRun, settings: Settings) -> CallFact:
    """The call that a tool span executed. A span that ended without a sign of failure is a success.

    A proxy's call is the call of the skill that its arguments name. See ``RoutedRun`` for what else it may be.
    """
    routes = settings.tool_routes
    if routes.of(run.skill_id) is None:
        return _run(span, origin, run, settings)
    run = replace(run, result=plain_result(run.result))
    fact = _run(span, origin, run, settings)
    search = search_of(run.skill_id, run.arguments, run.result, fact.ok is False, routes)
    if search is not None:
        return RoutedRun(**msgspec.structs.asdict(fact), search=_run_search(span, origin, run, search))
    parts = real_calls(ToolCall(name=run.skill_id, call_id=run.call_id, arguments=run.arguments), routes)
    if not parts:
        return fact
    run = replace(run, skill_id=parts[0].name, arguments=parts[0].arguments)
    return RoutedRun(**msgspec.structs.asdict(_run(span, origin, run, settings)), parts=parts)


def _run(span: Span, origin: Origin, run: ToolRun, settings: Settings) -> CallFact:
    failure = failures.of_span(span, run.result, run.skill_id, settings)
    fact = origin.given_in(span, CallFact(role="run", skill_id=cut_skill_id(run.skill_id)))
    fact.event_id = derive_event_id(span.trace_id, span.span_id, "call", "run")
    fact.parent_span_id = span.parent_span_id
    fact.call_id = cut_call_id(run.call_id)
    fact.arguments = run.arguments
    fact.latency_ms = span.duration_ms
    fact.ok = failure is None
    if failure is not None:
        fact.error_kind, fact.error_message = failure.kind, failure.message
    return fact


def _selection(
    span: Span, origin: Origin, event_id: str, turn: ModelTurn, tools: list[ToolDefinition]
) -> SelectionFact:
    fact = origin.given_in(span, SelectionFact(candidates=_menu(tools, turn.calls), strategy=STRATEGY))
    fact.event_id = event_id
    fact.query = turn.query
    fact.ranked = False
    return fact


def _menu(tools: list[ToolDefinition], calls: list[ToolCall]) -> list[Candidate]:
    """The offered names in order, each once. Beyond the limit those that were called stay, then the first ones."""
    if not tools:
        return []
    if len(tools) <= MAX_CANDIDATES:
        return _whole_menu(tools)
    names = dict.fromkeys(tool.name[:_SKILL_ID_CHARS] for tool in tools)
    called = {call.name for call in calls}
    kept = set(sorted(names, key=lambda name: name not in called)[:MAX_CANDIDATES])
    return _candidates(tuple(name for name in names if name in kept))


@once_a_menu
def _whole_menu(tools: list[ToolDefinition]) -> list[Candidate]:
    return _candidates(tuple([tool.name[:_SKILL_ID_CHARS] for tool in tools]))


# What is kept has at most so many names, each cut to its limit.
@lru_cache(maxsize=128)
def _candidates(names: tuple[str, ...]) -> list[Candidate]:
    """One list for all selections with these names: not to be changed."""
    return [Candidate(skill_id=name) for name in dict.fromkeys(names)]


def _run_search(span: Span, origin: Origin, run: ToolRun, search: Search) -> SelectionFact | None:
    """The selection that a router's run is; None where nothing tells what it found, or for what."""
    if search.candidates is None or (not search.candidates and not search.query):
        return None
    fact = _search(span, origin, search, run.call_id)
    fact.stage_ms = StageMs(total=span.duration_ms)
    return fact


def _quoted_searches(span: Span, origin: Origin, searches: list[QuotedSearch]) -> list[SelectionFact]:
    """The searches that a prompt quotes. They came before it, in the order in which it quotes them."""
    told = [quoted for quoted in searches if quoted.search.candidates is not None]
    facts = [_search(span, origin, quoted.search, quoted.call_id) for quoted in told]
    for later, fact in enumerate(reversed(facts)):
        fact.time = span.start_ns - _ORDER_NS * later if span.start_ns else None
        fact.ended_at = span.start_ns or None
    return facts


def _search(span: Span, origin: Origin, search: Search, call_id: str | None) -> SelectionFact:
    """A search is known by its call's id and its query, as ids are reused; without an id, by its span."""
    key = ("call", call_id, search.query) if call_id else ("span", span.span_id)
    role: SelectionRole = "turn" if call_id else "search"
    fact = SelectionFact(
        role="retrieval" if search.entry.loads else role,
        event_id=derive_event_id(span.trace_id, "search", *key),
        query=search.query,
        candidates=search.candidates or [],
        ranked=True,
        strategy=search.entry.strategy,
    )
    return origin.given_in(span, fact)


def _proposal(span: Span, origin: Origin, made_by: str, proposal: Proposal) -> CallFact:
    """A proposed call of the turn's selection. What goes through a proxy was chosen from a search before it."""
    call = proposal.call
    ordinal = proposal.place[0]
    fact = origin.given_in(span, CallFact(role="propose", skill_id=call.name[:_SKILL_ID_CHARS]))
    fact.event_id = derive_event_id(span.trace_id, span.span_id, "call", "propose", *map(str, proposal.place))
    fact.call_id = cut_call_id(call.call_id)
    fact.arguments = call.arguments
    if not proposal.is_proxied:
        fact.ordinal, fact.selection_id = ordinal, made_by
    elif span.start_ns:
        fact.time = span.start_ns + _ORDER_NS * ordinal
    fact.error_message = call.invalid
    if call.invalid:
        fact.ok, fact.error_kind = False, "invalid_arguments"
    return fact


def _answer(span: Span, origin: Origin, answer: Answer, settings: Settings) -> CallFact:
    """A quoted result; a vague failure leaves the kind open. Where no message names its tool, its call's id does."""
    result, place = answer.result, answer.place
    failure = failures.of_quoted(result.text, result.error, answer.name, settings)
    fact = origin.given_in(span, CallFact(role="answer", skill_id=answer.name[:_SKILL_ID_CHARS]))
    fact.event_id = derive_event_id(span.trace_id, span.span_id, "call", "answer", *map(str, place))
    fact.ordinal = place[0]
    fact.call_id = cut_call_id(result.call_id)
    if failure is not None:
        fact.ok, fact.error_kind, fact.error_message = False, failure.kind, failure.message
    elif not answer.is_shared:
        fact.ok = True
    return fact


def offers(span: Span, tools: list[ToolDefinition]) -> list[Offer]:
    """Tool definitions as they were offered when the span began."""
    return [Offer(span.start_ns, _skills(tools))] if tools else []


@once_a_menu
def _skills(tools: list[ToolDefinition]) -> tuple[DefinedSkill, ...]:
    return tuple(
        [
            DefinedSkill(
                skill_id=(name := tool.name[:_SKILL_ID_CHARS]),
                name=name,
                description=tool.description,
                parameters_schema=tool.parameters,
            )
            for tool in tools
        ]
    )


def cut_skill_id(name: str) -> str:
    """A tool's name as events may have it."""
    return name[:_SKILL_ID_CHARS]


def cut_call_id(value: str | None) -> str | None:
    """A call's id as events may have it; None for an empty one."""
    return value[:_ID_CHARS] if value else None
