"""Router and proxy tools, told apart from the skills that they find and call (see ``pickwise.tool_routes``).

What a dialect read of a model turn or of an executed call is looked at here, before it becomes facts: a router's call
is a search for skills, a proxy's call the call of the skill that its arguments name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from collector.mapping.candidates import candidates_in, printed_result
from collector.mapping.conversation import (
    ModelTurn,
    Said,
    ToolCall,
    ToolDefinition,
    ToolResult,
    from_json,
    once_a_menu,
)
from collector.mapping.literals import from_literal
from pickwise.events import Candidate
from pickwise.json_path import json_path, template
from pickwise.tool_routes import ProxyTool, Route, RouterTool, ToolRoutes

_BATCHED_ID_CHARS = 100


class Search(msgspec.Struct, gc=False):
    """A router's call. ``candidates`` is None where its result is not known."""

    entry: RouterTool
    query: str | None
    candidates: list[Candidate] | None


class Proposal(msgspec.Struct, gc=False):
    """A proposed call of a skill. ``place``: among the calls of its turn, and within one that calls several."""

    place: tuple[int, ...]
    call: ToolCall
    is_proxied: bool = False


class Answer(msgspec.Struct, gc=False):
    """A quoted result with the skill that it is of. ``is_shared``: it is the result of several calls at once."""

    place: tuple[int, ...]
    name: str
    result: ToolResult
    is_shared: bool = False


class QuotedSearch(msgspec.Struct, gc=False):
    call_id: str
    search: Search


class RoutedTurn(msgspec.Struct, gc=False):
    """A model turn without its router and proxy tools.

    ``decides``: whether it chose, or could have chosen, among the tools that are left. A turn that only searched or
    only called through a proxy made its choice elsewhere.
    """

    tools: list[ToolDefinition]
    proposals: list[Proposal]
    answers: list[Answer]
    searches: list[QuotedSearch]
    decides: bool
    is_routed: bool


def routed_turn(turn: ModelTurn, routes: ToolRoutes) -> RoutedTurn:
    """What a turn says of skills."""
    tools = skills_of(turn.tools, routes) if turn.tools else turn.tools
    proposals, n_routed = _proposals(turn.calls, routes) if turn.calls else ([], 0)
    is_direct = len(turn.calls) > n_routed
    answers, searches = _quoted(turn, routes)
    return RoutedTurn(
        tools=tools,
        proposals=proposals,
        answers=answers,
        searches=searches,
        decides=is_direct or (bool(tools) and not n_routed),
        is_routed=bool(n_routed or searches) or len(tools) < len(turn.tools),
    )


def search_of(name: str, arguments: Any, result: Any, failed: bool, routes: ToolRoutes) -> Search | None:
    """The search that a call is, or None where it is none. One that failed found nothing."""
    route = routes.of(name)
    if route is None or not route.routers:
        return None
    values = arguments_of(arguments)
    entries = [entry for entry in route.routers if _takes(entry, values)] or list(route.routers)
    found = ((entry, candidates_in(result, entry)) for entry in entries)
    entry, candidates = next(((e, c) for e, c in found if c is not None), (entries[0], None))
    query = _query(entry, arguments, values)
    if candidates is None and not _is_sure(entry, query):
        return None
    if candidates is None and (failed or result not in (None, "")):
        candidates = []
    return Search(entry, query, candidates)


def real_calls(call: ToolCall, routes: ToolRoutes) -> list[ToolCall]:
    """The calls of skills that a proxy's call is; none where it is no proxy's, or names no skill."""
    route = routes.of(call.name)
    if route is None or not route.proxies:
        return []
    values = arguments_of(call.arguments)
    found = (_calls_through(proxy, call, values) for proxy in route.proxies)
    return next((calls for calls in found if calls), [])


def arguments_of(value: Any) -> dict[str, Any] | None:
    """The arguments by name, whether they came as an object, as JSON text or as Python prints them; else None."""
    decoded = from_json(value)
    if isinstance(decoded, str):
        decoded = from_literal(decoded)
    return decoded if isinstance(decoded, dict) else None


# --- tools -----------------------------------------------------------------------------------------------------------


@once_a_menu
def skills_of(tools: list[ToolDefinition], routes: ToolRoutes) -> list[ToolDefinition]:
    """The definitions that are neither a router's nor a proxy's. A name that others bear too is a router's beside a
    proxy, or where its definition says so."""
    found = [(tool, route) for tool in tools if (route := routes.of(tool.name)) is not None]
    if not found:
        return tools
    hidden = {tool.name for tool, route in found if _is_proxy(tool, route)}
    hidden |= {tool.name for tool, route in found if _is_router(tool, route, beside_proxy=bool(hidden))}
    return [tool for tool in tools if tool.name not in hidden]


def _is_proxy(tool: ToolDefinition, route: Route) -> bool:
    return any(
        _has(tool, (str(json_path(proxy.each).steps[0]),) if proxy.each else template(proxy.skill_id).fields)
        for proxy in route.proxies
    )


def _is_router(tool: ToolDefinition, route: Route, *, beside_proxy: bool) -> bool:
    for entry in route.routers:
        if not _has(tool, (str(json_path(entry.query).steps[0]),)) and entry.query_pattern is not None:
            continue
        if entry.query_pattern is None or beside_proxy or re.search(entry.query_pattern, _description(tool)):
            return True
    return False


def _has(tool: ToolDefinition, names: Iterable[str]) -> bool:
    """Whether a definition has those arguments, as far as it tells them."""
    properties = (tool.parameters or {}).get("properties")
    return not isinstance(properties, dict) or not properties or all(name in properties for name in names)


def _description(tool: ToolDefinition) -> str:
    return f"{tool.description or ''} {tool.parameters or ''}"


# --- calls -----------------------------------------------------------------------------------------------------------


def _proposals(calls: list[ToolCall], routes: ToolRoutes) -> tuple[list[Proposal], int]:
    """The proposed calls of skills, and how many of the turn's calls were a router's or a proxy's."""
    proposals: list[Proposal] = []
    n_routed = 0
    for place, call in enumerate(calls):
        if routes.of(call.name) is None:
            proposals.append(Proposal((place,), call))
            continue
        real = [] if search_of(call.name, call.arguments, None, False, routes) else real_calls(call, routes)
        if real:
            proposals += [
                Proposal((place, *((part,) if part else ())), one, is_proxied=True) for part, one in enumerate(real)
            ]
        elif search_of(call.name, call.arguments, None, False, routes) is None:
            proposals.append(Proposal((place,), call))
            continue
        n_routed += 1
    return proposals, n_routed


def _calls_through(proxy: ProxyTool, call: ToolCall, values: dict[str, Any] | None) -> list[ToolCall]:
    if values is None:
        return []
    items = json_path(proxy.each).find(values) if proxy.each else [values]
    named = [(item, name) for item in items or [] if (name := template(proxy.skill_id).fill(item))]
    return [
        ToolCall(
            name=name,
            call_id=_part_id(call.call_id, part),
            arguments=_inner_arguments(proxy, item),
            invalid=call.invalid,
        )
        for part, (item, name) in enumerate(named)
    ]


def _part_id(call_id: str | None, part: int) -> str | None:
    """Ids of the calls that one call makes: its own for the first of them."""
    return f"{call_id[:_BATCHED_ID_CHARS]}#{part}" if call_id and part else call_id


def _inner_arguments(proxy: ProxyTool, item: dict[str, Any]) -> Any:
    if proxy.arguments is None:
        named = template(proxy.skill_id).fields
        return {name: value for name, value in item.items() if name not in named}
    value = json_path(proxy.arguments).first(item)
    return {} if value is None else from_json(value)


def _takes(entry: RouterTool, values: dict[str, Any] | None) -> bool:
    return values is not None and json_path(entry.query).first(values) is not None


def _query(entry: RouterTool, arguments: Any, values: dict[str, Any] | None) -> str | None:
    """The query; of arguments that are a bare text (the only argument of a tool), the text."""
    if values is None:
        return arguments if isinstance(arguments, str) and arguments else None
    found = json_path(entry.query).find(values) or []
    texts = [text for value in found for text in (value if isinstance(value, list) else [value])]
    return "\n".join(text for text in texts if isinstance(text, str)) or None


def _is_sure(entry: RouterTool, query: str | None) -> bool:
    """Whether a call is the router's although its result doesn't tell."""
    return entry.query_pattern is None or bool(query and re.search(entry.query_pattern, query))


# --- quoted results --------------------------------------------------------------------------------------------------


def _quoted(turn: ModelTurn, routes: ToolRoutes) -> tuple[list[Answer], list[QuotedSearch]]:
    """The fresh results that a prompt quotes: of skills, and of searches.

    Of a proxy's result whose call is not quoted with it only the id tells the skill.
    """
    answers: list[Answer] = []
    searches: list[QuotedSearch] = []
    said, fresh = turn.ending
    if not fresh and not (said and said.results):
        return answers, searches
    fresh = _with_ids_of_calls(turn, fresh)
    calls = _calls_named(turn, [*fresh, *(said.results if said else ())])
    for place, result in enumerate(fresh):
        if not result.call_id:
            continue
        call = calls.get(result.call_id)
        name = result.name or (call.name if call else "")
        route = routes.of(name)
        if route is None:
            answers.append(Answer((place,), name, result))
        elif call is not None:
            _add_routed(call, place, result, routes, answers, searches)
        elif not route.routers:
            answers.append(Answer((place,), "", _plain(result)))
    if said is not None and said.results:
        searches += _hosted(said, calls, routes)
    return answers, searches


def _with_ids_of_calls(turn: ModelTurn, fresh: list[ToolResult]) -> list[ToolResult]:
    """The results with the ids that their calls have in the prompt.

    OpenAI's Responses API gives a call two ids, its item's and its own, and some instrumentations write the one on the
    call and the other on the result. So where no call has an id of the results, and they are as many as the calls
    just before them, they answer those in order.
    """
    answered = {result.call_id for result in fresh}
    calls: list[ToolCall] = []
    for message in reversed(turn.messages):
        if message.role == "assistant":
            calls[:0] = message.calls
        elif calls or not message.results:
            break
    ids = [call.call_id for call in calls]
    if len(ids) != len(fresh) or not all(ids) or not answered.isdisjoint(ids):
        return fresh
    return [msgspec.structs.replace(result, call_id=call_id) for result, call_id in zip(fresh, ids, strict=True)]


def _calls_named(turn: ModelTurn, results: list[ToolResult]) -> dict[str, ToolCall]:
    """The calls that results are of, by their ids; of those that reuse an id the last one. They are near the end."""
    sought = {result.call_id for result in results if result.call_id}
    calls: dict[str, ToolCall] = {}
    for message in reversed(turn.messages):
        if not sought:
            break
        for call in reversed(message.calls):
            if call.call_id in sought:
                sought.remove(call.call_id)
                calls[call.call_id] = call
    return calls


def _add_routed(
    call: ToolCall,
    place: int,
    result: ToolResult,
    routes: ToolRoutes,
    answers: list[Answer],
    searches: list[QuotedSearch],
) -> None:
    assert result.call_id is not None
    search = search_of(call.name, call.arguments, result.text, bool(result.error), routes)
    if search is not None:
        searches.append(QuotedSearch(result.call_id, search))
        return
    real = real_calls(call, routes) or [call]
    told = _plain(result)
    for part, one in enumerate(real):
        answer = msgspec.structs.replace(told, call_id=_part_id(result.call_id, part))
        answers.append(Answer((place, *((part,) if part else ())), one.name, answer, is_shared=len(real) > 1))


def _plain(result: ToolResult) -> ToolResult:
    """The result with the text and the flag of the MCP result that it prints, if it does."""
    text, failed = printed_result(result.text) or (result.text, False)
    return msgspec.structs.replace(result, text=text, error=True if failed else result.error)


def _hosted(said: Said, calls: dict[str, ToolCall], routes: ToolRoutes) -> Iterator[QuotedSearch]:
    """Searches that the provider ran within the model's last answer: its message holds call and result."""
    for result in said.results:
        call = calls.get(result.call_id or "")
        if call is None or result.call_id is None:
            continue
        search = search_of(call.name, call.arguments, result.text, bool(result.error), routes)
        if search is not None:
            yield QuotedSearch(result.call_id, search)
