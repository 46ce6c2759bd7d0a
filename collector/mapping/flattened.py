"""Lists that a dialect flattens into numbered attribute names (``llm.tools.0.tool.json_schema``)."""

from __future__ import annotations

from typing import Any

Group = dict[str, Any]


def grouped(attributes: Group, prefix: str) -> list[Group]:
    """The items below ``prefix.N.``, by ascending N, each with the rest of its names as keys."""
    start = len(prefix) + 1
    dotted = prefix + "."
    groups: dict[int, Group] = {}
    for key, value in attributes.items():
        if not key.startswith(dotted):
            continue
        number, _, rest = key[start:].partition(".")
        if number.isdecimal():
            groups.setdefault(int(number), {})[rest] = value
    return [groups[number] for number in sorted(groups)]
