"""A menu that comes turn after turn is read once, and says the same as one that is read each time."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.facts import SelectionFact
from collector.mapping import conversation
from collector.mapping.conversation import from_json, tool_definitions
from collector.mapping.facts_of import _candidates, _whole_menu
from collector.mapping.routing import skills_of
from collector.redact import Redactor
from collector.rows import to_rows
from pickwise.events import MAX_CANDIDATES, Candidate
from pickwise.settings import Settings
from pickwise.tool_routes import ToolRoutes
from tests.collector.mapping.spans import START, mapped

ROUTES = ToolRoutes()
TOOLS: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["get", "put", "route", "execute-tool", "x" * 600, "", "search_tools"])},
        optional={
            "description": st.sampled_from(["gets", None]),
            "parameters": st.sampled_from(
                [{}, {"properties": {"query": {}}}, {"properties": {"server_name": {}, "tool_name": {}, "params": {}}}]
            ),
        },
    ),
    max_size=6,
)


def turn(definitions: Any, operation: str = "chat") -> dict[str, Any]:
    said = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hi"}]}])
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.tool.definitions": definitions,
        "gen_ai.input.messages": said,
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "get", "arguments": {}}]}]
        ),
    }


@settings(max_examples=200, deadline=None)
@given(TOOLS, st.sampled_from(["chat", "invoke_agent"]))
def test_a_menu_as_text_says_what_it_says_as_a_structure(tools: list[dict[str, Any]], operation: str) -> None:
    structured = mapped(turn(tools, operation))
    for _ in range(2):
        assert mapped(turn(json.dumps(tools), operation)) == structured


def test_beyond_the_limit_the_called_ones_stay() -> None:
    tools = [{"name": f"tool{n}"} for n in range(MAX_CANDIDATES + 5)] + [{"name": "get"}]
    (selection,) = mapped(turn(json.dumps(tools))).selections
    names = [candidate.skill_id for candidate in selection.candidates]
    assert names == [*(f"tool{n}" for n in range(MAX_CANDIDATES - 1)), "get"]


def test_turns_with_one_menu_share_its_candidates_and_schemas_but_not_its_times() -> None:
    text = json.dumps([{"name": "get", "parameters": {"type": "object"}}, {"name": "put"}])
    first, second = (mapped(turn(text), start_ns=START + later) for later in (0, 1_000))
    assert first.selections[0].candidates is second.selections[0].candidates
    assert first.offered[0].skills is second.offered[0].skills
    assert [offer.time for offer in (*first.offered, *second.offered)] == [START, START + 1_000]
    assert [skill.time for skill in second.offered_skills] == [START + 1_000, START + 1_000]


def test_nothing_behind_the_mapping_changes_what_is_shared() -> None:
    facts = mapped(turn(json.dumps([{"name": "get"}, {"name": "put"}])))
    shared = facts.selections[0].candidates
    to_rows("p", facts, received_at=1, source_request="r", redactor=Redactor(Settings(), b"k" * 32))
    assert shared == [Candidate(skill_id="get"), Candidate(skill_id="put")]
    assert isinstance(facts.selections[0], SelectionFact)
    assert _candidates(("get", "put")) is shared


def test_long_menus_and_definitions_are_not_kept() -> None:
    short, long = (json.dumps([{"name": "get", "description": "x" * size}]) for size in (10, conversation._MENU_CHARS))
    assert tool_definitions(short) is tool_definitions(short)
    assert tool_definitions(long) is not tool_definitions(long)
    assert tool_definitions(long) == tool_definitions(json.loads(long))
    short, long = (json.dumps({"name": "get", "description": "x" * size}) for size in (10, 20_000))
    assert tool_definitions([short])[0] is tool_definitions([short])[0]
    assert tool_definitions([long])[0] is not tool_definitions([long])[0]


def test_what_is_kept_of_hostile_menus_is_bounded_by_what_it_takes() -> None:
    """Empty lists take 22 times their characters; a count alone let 64 menus of them take 180 MiB in each process."""
    tracemalloc.start()
    try:
        for number in range(80):
            lists = "[]," * (conversation._MENU_CHARS // 3 - 20) + "1"
            menu = tool_definitions(f'[{{"name":"t{number}","parameters":{{"x":[{lists}]}}}}]')
            assert _whole_menu(skills_of(menu, ROUTES)) == [Candidate(skill_id=f"t{number}")]
        for number in range(600):
            lists = "[]," * 5_000 + "1"
            assert tool_definitions([f'{{"name":"t{number}","parameters":{{"x":[{lists}]}}}}'])
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 60 * 2**20
    finally:
        tracemalloc.stop()


def test_what_is_made_of_a_menu_is_made_once() -> None:
    menu = tool_definitions(json.dumps([{"name": "made once"}]))
    assert skills_of(menu, ROUTES) is menu
    assert _whole_menu(menu) is _whole_menu(menu)


JSON_TEXTS = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers(-(2**40), 2**40) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
).map(json.dumps)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(["", " ", "\t\r\n", "\ufeff", "\xa0", "x", "NaN", "+"]), JSON_TEXTS | st.text(max_size=5))
def test_plain_text_is_known_without_trying(before: str, text: str) -> None:
    try:
        expected = msgspec.json.decode(before + text)
    except msgspec.MsgspecError:
        expected = before + text
    assert from_json(before + text) == expected
