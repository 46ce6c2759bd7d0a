"""Settings of router and proxy tools: what they accept, what they say of a mistake, and whose names they know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pickwise.known_tools import PROXIES, ROUTERS
from pickwise.settings import Settings, SettingsError, load_settings
from pickwise.tool_routes import RouterTool

FINDER = {"name": "find", "query": "q", "candidates": "hits[*]", "skill_id": "{id}", "score": "rank.score"}
CALLER = {"name": "do", "skill_id": "{server}/{tool}", "arguments": "args"}


def test_entries_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pickwise.toml").write_text(
        '[[router_tools]]\nname = "find"\ncandidates = ["hits[*]", "more[*]"]\n\n'
        '[[proxy_tools]]\nname = "do"\nskill_id = "{server}/{tool}"\n'
    )
    settings = load_settings()
    (router,), (proxy,) = settings.router_tools, settings.proxy_tools
    assert (router.query, router.candidates, router.skill_id, router.strategy) == (
        "query",
        ["hits[*]", "more[*]"],
        "{name}",
        "dense",
    )
    assert (proxy.skill_id, proxy.arguments) == ("{server}/{tool}", None)


@pytest.mark.parametrize("entries", [FINDER, [FINDER]], ids=["one", "list"])
def test_entries_in_a_variable(monkeypatch: pytest.MonkeyPatch, entries: Any) -> None:
    monkeypatch.setenv("PICKWISE_ROUTER_TOOLS", json.dumps(entries))
    monkeypatch.setenv("PICKWISE_PROXY_TOOLS", json.dumps([CALLER]))
    settings = load_settings()
    assert [tool.name for tool in settings.router_tools] == ["find"]
    assert settings.router_tools[0].candidates == ["hits[*]"]
    assert [tool.name for tool in settings.proxy_tools] == ["do"]


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("router_tools", "find", "router_tools: .*expected a JSON list of objects"),
        ("router_tools", '["find"]', "router_tools.0: "),
        ("router_tools", '[{"name": "find"}]', "expected candidates .a JSON path., parser or pattern"),
        ("router_tools", '[{"name": "", "parser": "loaded_tools"}]', "router_tools.0.name: "),
        (
            "router_tools",
            '[{"name": "f", "candidates": "a..b"}]',
            "router_tools.0.candidates.0: .*expected a JSON path",
        ),
        ("router_tools", '[{"name": "f", "parser": "xml"}]', "router_tools.0.parser: .*'mcp_copilot'"),
        ("router_tools", '[{"name": "f", "pattern": "("}]', "router_tools.0.pattern: .*expected a regular expression"),
        ("router_tools", '[{"name": "f", "candidates": "a", "scores": "b"}]', "router_tools.0.scores: "),
        ("proxy_tools", '[{"name": "do"}]', "proxy_tools.0.skill_id: "),
        ("proxy_tools", '[{"name": "do", "skill_id": "tool"}]', "proxy_tools.0.skill_id: .*names no field"),
        ("proxy_tools", '[{"name": "do", "skill_id": "{tool"}]', "proxy_tools.0.skill_id: .*expected a template"),
        ("proxy_tools", '[{"name": "do", "skill_id": "{a}", "each": "[x]"}]', "proxy_tools.0.each: "),
    ],
)
def test_a_mistake_is_named(monkeypatch: pytest.MonkeyPatch, setting: str, value: str, said: str) -> None:
    monkeypatch.setenv(f"PICKWISE_{setting.upper()}", value)
    with pytest.raises(SettingsError, match=said):
        load_settings()


@pytest.mark.parametrize("name", ["execute-tool", "execute_tool", "copilot/execute-tool", "mcp__copilot__execute-tool"])
def test_a_name_is_known_with_and_without_its_server(name: str) -> None:
    route = Settings().tool_routes.of(name)
    assert route is not None
    assert [proxy.skill_id for proxy in route.proxies] == ["{server_name}/{tool_name}"]


@pytest.mark.parametrize("name", ["get_weather", "reroute", "route/plan", "execute", ""])
def test_other_names_are_skills(name: str) -> None:
    assert Settings().tool_routes.of(name) is None


def test_own_entries_hide_known_ones_of_the_same_name() -> None:
    own = RouterTool(name="search_*", candidates=["hits[*]"])
    routes = Settings(router_tools=[own]).tool_routes
    found = routes.of("search_tools")
    assert found is not None
    assert found.routers == (own,)
    assert routes.of("call_tool") is not None


def test_known_tools_can_be_switched_off() -> None:
    routes = Settings(known_tools=False).tool_routes
    assert {routes.of(entry.name) for entry in (*ROUTERS, *PROXIES)} == {None}
