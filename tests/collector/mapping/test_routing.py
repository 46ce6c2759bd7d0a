"""Router and proxy tools: a router's call is a search for skills, a proxy's the call of the skill that it names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.facts import Facts, SelectionFact
from pickwise.events import Candidate
from pickwise.settings import Settings
from pickwise.tool_routes import ProxyTool, RouterTool
from tests.collector.mapping.spans import SPAN, START, mapped, only_call

QUERY = "<tool_assistant>\nserver: mail\ntool: send\n</tool_assistant>"
FOUND = (
    "success: true\nmatched_tools:\n- server_name: mail\n  tool_name: send\n- server_name: mail\n  tool_name: read\n"
)
SEND = {"server_name": "mail", "tool_name": "send", "params": {"to": "Ada"}}
ROUTE = {"type": "function", "name": "route", "parameters": {"type": "object", "properties": {"query": {}}}}
EXECUTE = {"type": "function", "name": "execute-tool"}
TIME = {"type": "function", "name": "get_time", "parameters": {"type": "object"}}


def call(name: str, arguments: Any, call_id: str = "1") -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def result(text: Any, call_id: str = "1") -> dict[str, Any]:
    return {"type": "tool_call_response", "id": call_id, "response": text}


def turn(
    *output: dict[str, Any],
    tools: list[dict[str, Any]] | None = None,
    quoted: list[dict[str, Any]] | None = None,
    settings: Settings | None = None,
) -> Facts:
    """A model turn: what it proposes, and the calls and results that its prompt quotes."""
    parts = quoted or []
    sent = [
        {"role": "user", "parts": [{"type": "text", "content": "Write to Ada"}]},
        {"role": "assistant", "parts": [part for part in parts if part["type"] == "tool_call"]},
        {"role": "tool", "parts": [part for part in parts if part["type"] != "tool_call"]},
    ]
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.tool.definitions": json.dumps([ROUTE, EXECUTE] if tools is None else tools),
        "gen_ai.input.messages": json.dumps(sent),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": list(output)}]),
    }
    return mapped(attributes, settings=settings)


def run(name: str, arguments: Any = None, value: Any = None, call_id: str | None = "1", **fields: Any) -> Facts:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.call.arguments": json.dumps(arguments) if arguments is not None else None,
        "gen_ai.tool.call.result": value,
    }
    given = {key: told for key, told in attributes.items() if told is not None}
    return mapped(given | fields.pop("attributes", {}), **fields)


def only_search(facts: Facts) -> SelectionFact:
    (found,) = facts.selections
    assert isinstance(found, SelectionFact)
    return found


# --- routers ---------------------------------------------------------------------------------------------------------


def test_a_routers_run_is_a_selection_and_no_call() -> None:
    facts = run("route", {"query": QUERY}, FOUND)
    search = only_search(facts)
    assert search.candidates == [Candidate(skill_id="mail/send"), Candidate(skill_id="mail/read")]
    assert (search.role, search.query, search.ranked, search.strategy) == ("turn", QUERY, True, "dense")
    assert (search.time, search.picks, search.fallback) == (START, None, None)
    assert search.stage_ms is not None
    assert search.stage_ms.total == 5.0
    assert [(fact.role, fact.span_id, fact.arguments) for fact in facts.calls] == [("search", SPAN, None)]
    assert facts.offered_skills == []


def test_a_quoted_result_is_the_same_selection() -> None:
    told = only_search(run("route", {"query": QUERY}, FOUND))
    quoted = only_search(turn(quoted=[call("route", {"query": QUERY}), result(FOUND)]))
    assert quoted.event_id == told.event_id
    assert quoted.candidates == told.candidates
    assert quoted.time == START
    assert quoted.stage_ms is None


def test_ids_that_are_used_again_tell_searches_apart_by_their_query() -> None:
    first, second = (
        only_search(run("route", {"query": QUERY.replace("mail", server)}, FOUND)) for server in ("mail", "chat")
    )
    assert first.event_id != second.event_id


def test_searches_of_one_prompt_keep_their_order() -> None:
    quoted = [
        call("route", {"query": QUERY}, "1"),
        call("route", {"query": QUERY.replace("mail", "chat")}, "2"),
        result(FOUND, "1"),
        result(FOUND, "2"),
    ]
    assert [search.time for search in turn(quoted=quoted).selections] == [START - 1_000, START]


def test_a_run_that_does_not_know_its_calls_id_waits_for_one_that_does() -> None:
    assert only_search(run("route", {"query": QUERY}, FOUND, call_id=None)).role == "search"


@pytest.mark.parametrize(
    "fields",
    [{"status_code": 2}, {"attributes": {"error.type": "timeout"}}, {"value": json.dumps({"isError": True})}],
    ids=["status", "type", "mcp"],
)
def test_a_search_that_failed_found_nothing(fields: dict[str, Any]) -> None:
    search = only_search(run("route", {"query": QUERY}, **fields))
    assert (search.candidates, search.query) == ([], QUERY)


def test_a_search_that_says_that_it_found_nothing() -> None:
    text = "success: false\nerror: No tool_assistant tag found\nmatched_servers: []\nmatched_tools: []\n"
    assert only_search(run("route", {"query": "mail"}, text)).candidates == []


def test_a_search_whose_result_is_not_told_is_no_selection() -> None:
    for facts in (run("search_tools", {"query": "mail"}), run("search_tools", {}, status_code=2)):
        assert facts.selections == []
        assert [fact.role for fact in facts.calls] == ["search"]
    assert turn(call("route", {"query": QUERY})).selections == []


def test_scores_and_strategy_are_those_of_the_settings() -> None:
    entry = RouterTool(
        name="look*", query="q.text", candidates=["hits[*]"], skill_id="{id}", score="s", strategy="hybrid"
    )
    arguments, found = {"q": {"text": "mail"}}, json.dumps({"hits": [{"id": "a", "s": 2}, {"id": "b", "s": 1}]})
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "server/look_up",
        "gen_ai.tool.call.arguments": json.dumps(arguments),
        "gen_ai.tool.call.result": found,
    }
    search = only_search(mapped(attributes, settings=Settings(router_tools=[entry])))
    assert [(c.skill_id, c.score) for c in search.candidates] == [("a", 2.0), ("b", 1.0)]
    assert (search.query, search.strategy) == ("mail", "hybrid")


def test_what_loads_its_tools_ranks_the_turns_that_follow() -> None:
    found = json.dumps({"discovered_tools": [{"name": "send"}]})
    assert only_search(run("search_tools", {"queries": ["mail", "post"]}, found)).role == "retrieval"
    assert only_search(run("search_tools", {"query": "mail"}, json.dumps([{"name": "send"}]))).role == "turn"


def test_a_provider_runs_the_search_within_the_models_answer() -> None:
    found = {"tool_references": [{"type": "tool_reference", "tool_name": "send"}]}
    answer = [call("tool_search_tool_bm25", {"query": "mail"}), result(found), call("send", {}, "2")]
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.tool.definitions": json.dumps([TIME]),
        "gen_ai.input.messages": json.dumps(
            [{"role": "assistant", "parts": answer}, {"role": "tool", "parts": [result("sent", "2")]}]
        ),
    }
    facts = mapped(attributes)
    assert [(s.strategy, [c.skill_id for c in s.candidates]) for s in facts.selections] == [
        ("llm_direct", ["get_time"]),
        ("bm25", ["send"]),
    ]
    assert [(fact.role, fact.skill_id) for fact in facts.calls] == [("answer", "send")]


@pytest.mark.parametrize("arguments", ["mail", "{'query': 'mail'}", '{"query": "mail"}'])
def test_arguments_in_the_forms_that_instrumentations_have(arguments: str) -> None:
    attributes = {
        "openinference.span.kind": "TOOL",
        "tool.name": "search_tools",
        "input.value": arguments,
        "output.value": '[{"name": "send"}]',
    }
    assert only_search(mapped(attributes)).query == "mail"


# --- names that others use too ---------------------------------------------------------------------------------------


def test_a_route_of_ones_own_stays_a_skill() -> None:
    own = {"name": "route", "parameters": {"properties": {"origin": {}, "destination": {}}}}
    facts = turn(call("route", {"origin": "a", "destination": "b"}), tools=[own, TIME])
    (selection,) = facts.selections
    assert [candidate.skill_id for candidate in selection.candidates] == ["route", "get_time"]
    assert [(fact.role, fact.skill_id) for fact in facts.calls] == [("propose", "route")]
    for arguments in ({"origin": "a"}, {"query": "to the sea"}, None):
        (fact,) = run("route", arguments, "turn left").calls
        assert (fact.role, fact.skill_id) == ("run", "route")


def test_a_router_may_be_known_by_its_definition_alone() -> None:
    described = ROUTE | {"description": "The query must contain a <tool_assistant> tag."}
    (selection,) = turn(tools=[described, TIME]).selections
    assert [candidate.skill_id for candidate in selection.candidates] == ["get_time"]


def test_a_tool_with_other_arguments_is_no_proxy() -> None:
    own = {"name": "call_tool", "parameters": {"properties": {"phone": {}}}}
    (selection,) = turn(tools=[own]).selections
    assert [candidate.skill_id for candidate in selection.candidates] == ["call_tool"]


# --- proxies ---------------------------------------------------------------------------------------------------------


def test_a_proxys_run_is_the_call_of_the_real_skill() -> None:
    (fact,) = run("mcp__copilot__execute-tool", SEND, "sent").calls
    assert (fact.role, fact.skill_id, fact.call_id, fact.arguments) == ("run", "mail/send", "1", {"to": "Ada"})
    assert (fact.ok, fact.latency_ms, fact.time) == (True, 5.0, START)


@pytest.mark.parametrize(
    ("proxy", "arguments", "inner"),
    [
        (ProxyTool(name="do", skill_id="{tool}", arguments="args"), {"tool": "send", "args": '{"a": 1}'}, {"a": 1}),
        (ProxyTool(name="do", skill_id="{tool}", arguments="args"), {"tool": "send", "args": None}, {}),
        (ProxyTool(name="do", skill_id="{tool}", arguments="args"), {"tool": "send"}, {}),
        (ProxyTool(name="do", skill_id="{tool}", arguments="args.in"), {"tool": "send", "args": {"in": [1]}}, [1]),
        (ProxyTool(name="do", skill_id="{tool}"), {"tool": "send", "a": 1, "b": 2}, {"a": 1, "b": 2}),
        (ProxyTool(name="do", skill_id="{tool.id}"), {"tool": {"id": "send"}, "a": 1}, {"a": 1}),
    ],
)
def test_where_the_real_arguments_are(proxy: ProxyTool, arguments: Any, inner: Any) -> None:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "do",
        "gen_ai.tool.call.arguments": json.dumps(arguments),
    }
    fact = only_call(attributes, settings=Settings(proxy_tools=[proxy]))
    assert (fact.skill_id, fact.arguments) == ("send", inner)


@pytest.mark.parametrize("arguments", [{}, {"server_name": "mail"}, {"server_name": "", "tool_name": "x"}, [], "{"])
def test_without_a_usable_name_it_keeps_the_proxys_own(arguments: Any) -> None:
    (fact,) = run("execute-tool", arguments, "done").calls
    assert (fact.role, fact.skill_id) == ("run", "execute-tool")
    (proposal,) = turn(call("execute-tool", arguments)).calls
    assert proposal.skill_id == "execute-tool"


def test_failures_are_judged_by_the_real_skill() -> None:
    settings = Settings(error_patterns=[{"pattern": "^no", "skill_id": "mail/send", "error_kind": "not_found"}])
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "execute-tool",
        "gen_ai.tool.call.arguments": json.dumps(SEND),
        "gen_ai.tool.call.result": "no such address",
    }
    fact = only_call(attributes, settings=settings)
    assert (fact.ok, fact.error_kind) == (False, "not_found")
    quoted = [call("execute-tool", SEND), result("no such address")]
    (answer,) = turn(quoted=quoted, settings=settings).calls
    assert (answer.skill_id, answer.ok, answer.error_kind) == ("mail/send", False, "not_found")


@pytest.mark.parametrize("flag", [True, False])
def test_a_printed_mcp_result_says_whether_it_failed(flag: bool) -> None:
    printed = (
        f"meta=None content=[TextContent(type='text', text='the mail server is down', annotations=None)] isError={flag}"
    )
    (fact,) = run("execute-tool", SEND, printed).calls
    assert fact.ok is not flag
    (answer,) = turn(quoted=[call("execute-tool", SEND), result(printed)]).calls
    assert (answer.ok, answer.error_message) == (not flag, "the mail server is down" if flag else None)


def test_one_call_may_call_several_skills() -> None:
    items = [{"tool_slug": "MAIL_SEND", "arguments": {"to": "Ada"}}, {"tool_slug": "MAIL_READ", "arguments": {}}]
    told = [("MAIL_SEND", "1", {"to": "Ada"}), ("MAIL_READ", "1#1", {})]
    facts = run("COMPOSIO_MULTI_EXECUTE_TOOL", {"tools": items}, "two results")
    assert [(fact.skill_id, fact.call_id, fact.arguments) for fact in facts.calls] == told
    # One result for both doesn't say how each of them went.
    assert {fact.ok for fact in facts.calls} == {None}
    assert len({fact.event_id for fact in facts.calls}) == 2
    failed = run("COMPOSIO_MULTI_EXECUTE_TOOL", {"tools": items}, status_code=2)
    assert {fact.ok for fact in failed.calls} == {False}
    proposed = turn(call("COMPOSIO_MULTI_EXECUTE_TOOL", {"tools": items}), tools=[])
    assert [(fact.skill_id, fact.call_id, fact.arguments) for fact in proposed.calls] == told
    quoted = turn(quoted=[call("COMPOSIO_MULTI_EXECUTE_TOOL", {"tools": items[:1]}), result("sent")], tools=[])
    assert [(fact.role, fact.skill_id, fact.ok) for fact in quoted.calls] == [("answer", "MAIL_SEND", True)]


# --- turns -----------------------------------------------------------------------------------------------------------


def test_a_menu_of_routers_and_proxies_is_no_selection() -> None:
    for facts in (turn(), turn(call("route", {"query": QUERY})), turn(call("execute-tool", SEND))):
        assert facts.selections == []
        assert facts.offered_skills == []


def test_a_proxied_proposal_looks_for_its_selection() -> None:
    (fact,) = turn(call("execute-tool", SEND)).calls
    assert (fact.role, fact.skill_id, fact.arguments) == ("propose", "mail/send", {"to": "Ada"})
    assert (fact.selection_id, fact.ordinal, fact.time) == (None, None, START)


def test_proxied_proposals_keep_their_order() -> None:
    facts = turn(call("execute-tool", SEND, "1"), call("execute-tool", SEND | {"tool_name": "read"}, "2"))
    assert [(fact.skill_id, fact.time) for fact in facts.calls] == [("mail/send", START), ("mail/read", START + 1_000)]


def test_tools_beside_a_router_are_a_menu() -> None:
    facts = turn(call("get_time", {}, "1"), call("route", {"query": QUERY}, "2"), tools=[ROUTE, EXECUTE, TIME])
    (selection,) = facts.selections
    assert [candidate.skill_id for candidate in selection.candidates] == ["get_time"]
    assert [(fact.skill_id, fact.selection_id, fact.ordinal) for fact in facts.calls] == [
        ("get_time", selection.event_id, 0)
    ]
    assert [offer.skill_id for offer in facts.offered_skills] == ["get_time"]


@pytest.mark.parametrize("made", [call("route", {"query": QUERY}), call("execute-tool", SEND)])
def test_a_turn_that_only_searched_or_used_a_proxy_chose_elsewhere(made: dict[str, Any]) -> None:
    assert turn(made, tools=[ROUTE, EXECUTE, TIME]).selections == []


def test_a_turn_that_called_nothing_could_have_chosen_among_the_rest() -> None:
    assert len(turn(tools=[ROUTE, EXECUTE, TIME]).selections) == 1


def test_a_quoted_result_without_its_call_leaves_the_skill_to_its_id() -> None:
    named = {"type": "tool_call_response", "id": "1", "name": "execute-tool", "response": "sent"}
    (answer,) = turn(quoted=[named]).calls
    assert (answer.role, answer.skill_id, answer.call_id, answer.ok) == ("answer", "", "1", True)
    assert turn(quoted=[named | {"name": "search_tools"}]).calls == []


def test_what_was_read_through_is_marked_as_such() -> None:
    routed = (
        run("route", {"query": QUERY}, FOUND),
        run("execute-tool", SEND),
        turn(),
        turn(call("execute-tool", SEND), tools=[]),
        turn(quoted=[call("route", {"query": QUERY}), result(FOUND)], tools=[]),
    )
    assert [facts.is_routed for facts in routed] == [True] * 5
    assert not turn(call("get_time", {}), tools=[TIME]).is_routed
    assert not run("get_time", {}).is_routed
