"""Results of router tools, in the forms of the libraries that are known."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from collector.mapping.candidates import candidates_in, plain_result
from pickwise.known_tools import ROUTERS
from pickwise.tool_routes import RouterTool

COPILOT = ROUTERS[0]
TOOLS = RouterTool(name="find", candidates=["tools[*]"], score="score")
SKILLS = [{"name": "a", "score": 0.5}, {"name": "b", "score": "0.25"}]


def known(name: str, query: str = "query") -> RouterTool:
    return next(entry for entry in ROUTERS if entry.name == name and entry.query == query)


def names(result: Any, entry: RouterTool) -> list[str] | None:
    found = candidates_in(result, entry)
    return None if found is None else [candidate.skill_id for candidate in found]


@pytest.mark.parametrize(
    "result",
    [
        {"tools": SKILLS},
        json.dumps({"tools": SKILLS}),
        {"content": [{"type": "text", "text": json.dumps({"tools": SKILLS})}], "isError": False},
        {"content": [{"type": "text", "text": "two tools"}], "structuredContent": {"tools": SKILLS}},
        json.dumps([{"type": "text", "text": json.dumps({"tools": SKILLS})}]),
        {"result": json.dumps({"tools": SKILLS})},
        {"output": {"content": json.dumps({"tools": SKILLS})}},
    ],
    ids=["object", "text", "mcp", "structured", "blocks", "adk", "nested"],
)
def test_a_path_finds_the_candidates_in_whatever_wraps_them(result: Any) -> None:
    found = candidates_in(result, TOOLS)
    assert found is not None
    assert [(candidate.skill_id, candidate.score) for candidate in found] == [("a", 0.5), ("b", 0.25)]


def test_each_candidate_counts_once_at_its_best_place() -> None:
    assert names({"tools": [{"name": "a"}, {"name": "b"}, {"name": "a"}, {}, None, 7]}, TOOLS) == ["a", "b"]


def test_text_that_was_cut_off_gives_what_is_left_of_it() -> None:
    text = json.dumps({"tools": [{"name": f"t{i}", "description": "x" * 50} for i in range(9)]})
    assert names(text[:200], TOOLS) == ["t0", "t1", "t2"]


@pytest.mark.parametrize(
    "result", [None, "", "no such tool", 5, [], {}, {"tools": None}, {"tools": [{"x": 1}]}, "[", "{"]
)
def test_a_result_of_another_form_is_none(result: Any) -> None:
    assert candidates_in(result, TOOLS) is None


def test_nothing_found_is_an_empty_list() -> None:
    assert candidates_in({"tools": []}, TOOLS) == []


def copilot_text(*tools: tuple[str, str], **more: Any) -> str:
    listed = [
        {"server_name": server, "tool_name": tool, "tool_description": "Says:\n- server_name: no\n", "inputschema": {}}
        for server, tool in tools
    ]
    text: str = yaml.dump({"success": True, "matched_tools": listed, **more}, sort_keys=False, allow_unicode=True)
    return text


@given(
    tools=st.lists(
        st.tuples(*[st.text(alphabet="abc-_ 中'\":#1", min_size=1, max_size=20).filter(lambda t: t == t.strip())] * 2),
        max_size=4,
    )
)
def test_the_copilots_yaml(tools: list[tuple[str, str]]) -> None:
    expected = list(dict.fromkeys(f"{server}/{tool}" for server, tool in tools))
    text = copilot_text(*tools)
    printed = f"meta=None content=[TextContent(type='text', text={text!r}, annotations=None)] isError=False"
    assert names(text, COPILOT) == names(printed, COPILOT) == expected


def test_a_printed_result_that_was_cut_off() -> None:
    text = copilot_text(("s", "a"), ("s", "b"), ("s", "c"))
    printed = f"meta=None content=[TextContent(type='text', text={text!r}, annotations=None)] isError=False"
    cuts = [names(printed[:length], COPILOT) for length in range(40, len(printed))]
    assert all(cut in (None, [], ["s/a"], ["s/a", "s/b"], ["s/a", "s/b", "s/c"]) for cut in cuts if cut)
    assert cuts[-1] == ["s/a", "s/b", "s/c"]


@pytest.mark.parametrize(
    ("printed", "is_error"),
    [
        ("meta=None content=[TextContent(type='text', text='it\\'s', annotations=None)] isError=True", True),
        ('meta=None content=[TextContent(type="text", text="it\'s", annotations=None)] isError=False', False),
        ("CallToolResult(meta=None, content=[TextContent(type='text', text='it\\'s')], isError=True)", True),
    ],
)
def test_a_printed_mcp_result(printed: str, is_error: bool) -> None:
    assert plain_result(printed) == {"content": [{"type": "text", "text": "it's"}], "isError": is_error}


@given(text=st.text(max_size=60))
def test_what_is_printed_is_read_back(text: str) -> None:
    printed = f"meta=None content=[TextContent(type='text', text={text!r}, annotations=None)] isError=False"
    assert plain_result(printed)["content"][0]["text"] == text


@given(st.text() | st.recursive(st.none() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_no_result_stops_a_reader(result: Any) -> None:
    for entry in ROUTERS:
        found = candidates_in(result, entry)
        assert found is None or isinstance(found, list)


TWO = [{"name": "add", "inputSchema": {}}, {"name": "multiply", "inputSchema": {}}]


@pytest.mark.parametrize(
    ("entry", "result", "expected"),
    [
        (known("search_tools"), {"structuredContent": {"result": TWO}, "content": []}, ["add", "multiply"]),
        (known("search_tools"), json.dumps(TWO), ["add", "multiply"]),
        (
            known("search_tools"),
            "### add\n\nAdds.\n\n**Parameters**\n- `a` (int)\n\n### multiply\n",
            ["add", "multiply"],
        ),
        (known("search_tools", "queries[*]"), {"discovered_tools": TWO}, ["add", "multiply"]),
        (
            known("search_tools", "tool_keywords"),
            "Found and loaded 2 tool(s): add, multiply. Use them directly as tools.",
            ["add", "multiply"],
        ),
        (
            known("tool_search_tool_bm25"),
            {
                "type": "tool_search_tool_search_result",
                "tool_references": [{"type": "tool_reference", "tool_name": "add"}],
            },
            ["add"],
        ),
        (known("tool_search_tool_bm25"), [{"type": "tool_reference", "tool_name": "add"}], ["add"]),
        (known("tool_search", "paths[*]"), {"tools": [{"type": "function", "name": "add"}]}, ["add"]),
        (known("retrieve_tools"), ["add", "multiply"], ["add", "multiply"]),
        (known("retrieve_tools"), "Available tools: ['add', 'multiply']", ["add", "multiply"]),
        (known("x_amz_bedrock_agentcore_search"), {"structuredContent": {"tools": TWO}}, ["add", "multiply"]),
        (known("find-tools", "prompt"), json.dumps({"tools": TWO}, indent=2), ["add", "multiply"]),
        (
            known("COMPOSIO_SEARCH_TOOLS", "queries[*].use_case"),
            {
                "data": {
                    "results": [
                        {"primary_tool_slugs": ["MAIL_SEND"], "related_tool_slugs": ["MAIL_DRAFT"]},
                        {"primary_tool_slugs": ["SHEET_ADD", "MAIL_SEND"]},
                    ]
                }
            },
            ["MAIL_SEND", "SHEET_ADD", "MAIL_DRAFT"],
        ),
        (
            known("discover_server_actions", "user_query"),
            {"github": [{"name": "star"}], "slack": {"error": "not connected"}, "jira": []},
            ["github/star"],
        ),
    ],
)
def test_known_forms(entry: RouterTool, result: Any, expected: list[str]) -> None:
    assert names(result, entry) == expected


def test_scores_in_a_text() -> None:
    text = (
        "Search results\n\n[1] Tool: add (87.5% match)\n    Server: a\n\n[2] Tool: sum (50.0% match)\n    Server: a\n"
    )
    found = candidates_in(text, known("search_mcp_tools"))
    assert found is not None
    assert [(candidate.skill_id, candidate.score) for candidate in found] == [("add", 0.875), ("sum", 0.5)]


def test_a_pattern_of_ones_own() -> None:
    pattern = r"(?m)^\* (?P<tool>\S+) @ (?P<server>\S+) (?P<s>[\d.]+)$"
    entry = RouterTool(name="f", pattern=pattern, skill_id="{server}/{tool}", score="s")
    assert names("nothing", entry) is None
    found = candidates_in("found:\n* add @ math 0.5\n* get @ web 0.25\n", entry)
    assert found is not None
    assert [(candidate.skill_id, candidate.score) for candidate in found] == [("math/add", 0.5), ("web/get", 0.25)]


def test_a_printed_list_is_read_within_bounds() -> None:
    assert names(f"Available tools: [{'[' * 100}{']' * 100}]", known("retrieve_tools")) is None
    assert names(f"Available tools: [{', '.join(['1'] * 50_000)}]", known("retrieve_tools")) is None
