"""What a tool of an MCP server becomes in the registry."""

from __future__ import annotations

from typing import Any

import pytest

from collector.mcp_entries import entry_of
from pickwise.skills import decode_skill
from tests.collector.mcp_server import TOOLS


def test_schemas_and_annotations_are_taken_over() -> None:
    forecast, delete, chinese = (entry_of(tool, "weather/") for tool in TOOLS)
    assert forecast == {
        "skill_id": "weather/get_forecast",
        "name": "get_forecast",
        "kind": "mcp",
        "description": "Forecast of a city.",
        "parameters_schema": TOOLS[0]["inputSchema"],
        "outputs": {"type": "object"},
        "side_effect": {"read_only": True, "idempotent": True},
    }
    assert delete["side_effect"] == {"destructive": True, "asynchronous": True}
    assert chinese["skill_id"] == "weather/查询天气"
    assert "side_effect" not in chinese
    for entry in (forecast, delete, chinese):
        assert decode_skill(entry)[1] == 0


@pytest.mark.parametrize("tool", [{}, {"name": ""}, {"name": 5}])
def test_a_tool_without_a_name_has_no_id(tool: dict[str, Any]) -> None:
    assert "skill_id" not in entry_of(tool, "weather/")


@pytest.mark.parametrize("annotations", [None, [], {"readOnlyHint": "yes"}, {"readOnlyHint": None}])
def test_hints_that_are_none_are_left_out(annotations: object) -> None:
    assert entry_of({"name": "a", "annotations": annotations, "execution": 5}) == {
        "skill_id": "a",
        "name": "a",
        "kind": "mcp",
    }
