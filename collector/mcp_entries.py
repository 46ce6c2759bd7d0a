"""Tools as MCP describes them → registry entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What a tool's annotations are called in an entry.
_HINTS = {"readOnlyHint": "read_only", "idempotentHint": "idempotent", "destructiveHint": "destructive"}


def entry_of(tool: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The entry of one item of ``tools/list``; what the server leaves out stays out.

    ``prefix`` goes before the name in ``skill_id``, so that two servers may have tools of one name.
    """
    name = tool.get("name")
    entry = {
        "skill_id": f"{prefix}{name}" if isinstance(name, str) and name else None,
        "name": name,
        "kind": "mcp",
        "description": tool.get("description"),
        "parameters_schema": tool.get("inputSchema"),
        "outputs": tool.get("outputSchema"),
        "side_effect": _side_effect(tool) or None,
    }
    return {field: value for field, value in entry.items() if value is not None}


def _side_effect(tool: Mapping[str, Any]) -> dict[str, bool]:
    annotations, execution = tool.get("annotations"), tool.get("execution")
    said = annotations if isinstance(annotations, dict) else {}
    effect = {field: said[hint] for hint, field in _HINTS.items() if isinstance(said.get(hint), bool)}
    if isinstance(execution, dict) and execution.get("taskSupport") == "required":
        effect["asynchronous"] = True
    return effect
