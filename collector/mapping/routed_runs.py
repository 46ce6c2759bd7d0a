"""What runs, proposals and answers become that turn out to be a router's or a proxy's, whichever dialect made them."""

from __future__ import annotations

import msgspec

from collector.facts import CallFact, Facts, Offer, SelectionFact
from collector.mapping.conversation import ToolCall, ToolDefinition
from collector.mapping.routing import real_calls, search_of, skills_of
from pickwise.events import derive_event_id
from pickwise.settings import Settings
from pickwise.tool_routes import ToolRoutes

_SKILL_ID_CHARS = 512
_ID_CHARS = 128
_SEARCH_FIELDS = ("event_id", "time", "trace_id", "span_id", "parent_span_id", "skill_id")


class RoutedRun(CallFact, kw_only=True):
    """A run of a proxy or a router; ``settled`` puts in its place what it is.

    A proxy's is the call or the calls that it made, its ``parts``; it has the name and the arguments of the first. A
    router's is a ``search``, or nothing where its result isn't known.
    """

    search: SelectionFact | None = None
    parts: list[ToolCall] = msgspec.field(default_factory=list)


def settled(facts: Facts, settings: Settings) -> Facts:
    """The facts of one span with what routers and proxies did in place of their own runs, proposals and answers."""
    routes = settings.tool_routes
    for selection in facts.selections:
        if selection.candidates and isinstance(selection, SelectionFact) and selection.role in ("run", "step"):
            _hide_routed(selection, facts, routes)
    for call in facts.calls:
        # Runs that are routed are of a class of their own.
        if (call.role != "run" or type(call) is not CallFact) and _may_be_routed(call, routes):
            _settle_calls(facts, routes)
            break
    return facts


def _settle_calls(facts: Facts, routes: ToolRoutes) -> None:
    searches = [call.search for call in facts.calls if isinstance(call, RoutedRun) and call.search is not None]
    facts.is_routed |= any(isinstance(call, RoutedRun) for call in facts.calls)
    facts.calls = [told for call in facts.calls for told in _settled_call(call, routes)]
    facts.selections = [*facts.selections, *searches]


def _may_be_routed(call: CallFact, routes: ToolRoutes) -> bool:
    # Runs were looked at when they were made. What users send as an event of theirs is a run too, and stays as it is.
    return isinstance(call, RoutedRun) or (call.role != "run" and routes.of(call.skill_id) is not None)


def _settled_call(call: CallFact, routes: ToolRoutes) -> list[CallFact]:
    if isinstance(call, RoutedRun):
        return _parts(call) if call.parts else [_span_of_search(call)]
    if not _may_be_routed(call, routes):
        return [call]
    if search_of(call.skill_id, call.arguments, None, False, routes) is not None:
        return []
    if call.role == "answer":
        return [msgspec.structs.replace(call, skill_id="")]  # its id tells the skill
    real = real_calls(ToolCall(name=call.skill_id, call_id=call.call_id, arguments=call.arguments), routes)
    if len(real) != 1:
        return [call]
    return [msgspec.structs.replace(call, skill_id=real[0].name[:_SKILL_ID_CHARS], arguments=real[0].arguments)]


def _span_of_search(run: RoutedRun) -> CallFact:
    return CallFact(role="search", **{name: getattr(run, name) for name in _SEARCH_FIELDS})


def _parts(run: RoutedRun) -> list[CallFact]:
    """The calls that one call made. Whether each of several succeeded the one result doesn't tell."""
    shared = {name: getattr(run, name) for name in CallFact.__struct_fields__}
    return [
        CallFact(
            **shared
            | {
                "event_id": derive_event_id(run.event_id, place) if place else run.event_id,
                "skill_id": call.name[:_SKILL_ID_CHARS],
                "call_id": call.call_id[:_ID_CHARS] if call.call_id else None,
                "arguments": call.arguments,
                "ok": None if run.ok and len(run.parts) > 1 else run.ok,
            }
        )
        for place, call in enumerate(run.parts)
    ]


def _hide_routed(selection: SelectionFact, facts: Facts, routes: ToolRoutes) -> None:
    """Take routers and proxies out of what a run was offered."""
    names = [candidate.skill_id for candidate in selection.candidates]
    if all(routes.of(name) is None for name in names):
        return
    told = {
        skill.skill_id: ToolDefinition(
            name=skill.skill_id, description=skill.description, parameters=skill.parameters_schema
        )
        for offer in facts.offered
        for skill in offer.skills
    }
    menu = [told.get(name, ToolDefinition(name=name)) for name in names]
    left = {tool.name for tool in skills_of(menu, routes)}
    hidden = set(names) - left
    if hidden:
        selection.candidates = [candidate for candidate in selection.candidates if candidate.skill_id in left]
        offers = [_without(hidden, offer) for offer in facts.offered]
        facts.offered = [offer for offer in offers if offer.skills]


def _without(hidden: set[str], offer: Offer) -> Offer:
    return Offer(offer.time, tuple([skill for skill in offer.skills if skill.skill_id not in hidden]))
