"""What a router tool found: the candidates in its result, whatever form that came in."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pydantic_core

from collector.mapping.conversation import from_json
from collector.mapping.literals import from_literal
from collector.mapping.printed import literal
from pickwise.events import MAX_CANDIDATES, Candidate
from pickwise.json_path import json_path, template
from pickwise.tool_routes import Parser, RouterTool

_SKILL_ID_CHARS = 512
#: A result inside a result inside a result: an MCP result in a framework's, its text JSON.
_MAX_LAYERS = 5
_WRAPPERS = ("result", "output")
#: Texts are looked at so far: beyond, no list of candidates goes on.
_LOOK_AT = 1_000_000
#: An MCP result as Python prints it (``meta=None content=[TextContent(type='text', text='…')] isError=False``), perhaps
#: cut off somewhere.
_PRINTED = re.compile(r"^(?:CallToolResult\()?(?:_?meta=\S+ )?content=\[")
_PRINTED_TEXT = re.compile(r"""\btext=('(?:[^'\\]|\\.)*+(?:'|\Z|\\\Z)|"(?:[^"\\]|\\.)*+(?:"|\Z|\\\Z))""", re.DOTALL)
_PRINTED_ERROR = re.compile(r"\bis_?[eE]rror=True\W*$")

Item = Any


def candidates_in(result: Any, entry: RouterTool) -> list[Candidate] | None:
    """The candidates of a result in their order, each once; None where it has not the entry's form."""
    for view in _views(result):
        items = _items(view, entry)
        if items is None:
            continue
        found: dict[str, Candidate] = {}
        for candidate in (_candidate(item, entry) for item in items):
            if candidate is not None:
                found.setdefault(candidate.skill_id, candidate)
        if found or not items:
            return list(found.values())[:MAX_CANDIDATES]
    return None


def plain_result(result: Any) -> Any:
    """An MCP result that Python printed, as the object that it was; any other result as it is."""
    printed = printed_result(result) if isinstance(result, str) else None
    if printed is None:
        return result
    text, failed = printed
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def printed_result(text: str) -> tuple[str, bool] | None:
    """The text of an MCP result that Python printed, and whether it is an error; None for any other text."""
    if not _PRINTED.match(text):
        return None
    parts = [_unquoted(found[1]) for found in _PRINTED_TEXT.finditer(text[:_LOOK_AT])]
    return "\n".join(part for part in parts if part is not None), _PRINTED_ERROR.search(text[-40:]) is not None


def _unquoted(quoted: str) -> str | None:
    """The text of a string literal, also of one that was cut off."""
    if len(quoted) < 2 or quoted[-1] != quoted[0]:
        quoted = re.sub(r"\\[^\\]{0,9}$", "", quoted) + quoted[0]
    text = literal(quoted)
    return text if isinstance(text, str) else None


def _views(result: Any, layer: int = 0) -> Iterator[Any]:
    """The result and what it wraps, outermost first: objects and lists, and texts that are none."""
    value = _decoded(plain_result(result))
    if value is None or layer == _MAX_LAYERS:
        return
    yield value
    if isinstance(value, dict):
        for key in ("structuredContent", "structured_content", *_WRAPPERS):
            if value.get(key) is not None:
                yield from _views(value[key], layer + 1)
        if isinstance(value.get("content"), list | dict | str):
            yield from _views(value["content"], layer + 1)
    elif isinstance(value, list):
        texts = [text for part in value if isinstance(part, dict) and isinstance(text := part.get("text"), str)]
        if texts:
            yield from _views("\n".join(texts), layer + 1)


def _decoded(value: Any) -> Any:
    """JSON text decoded, also where it was cut off."""
    if not isinstance(value, str):
        return value
    text = value[:_LOOK_AT]
    decoded = from_json(text)
    if isinstance(decoded, str) and text.lstrip().startswith(("{", "[")):
        try:
            return pydantic_core.from_json(text, allow_partial=True)
        except ValueError:
            return text
    return decoded


def _items(view: Any, entry: RouterTool) -> list[Item] | None:
    if isinstance(view, str):
        return _in_text(view, entry)
    found = [items for path in entry.candidates if (items := json_path(path).find(view)) is not None]
    if found:
        return [item for items in found for item in items]
    if entry.parser == "server_actions":
        return _server_actions(view)
    return None


def _in_text(text: str, entry: RouterTool) -> list[Item] | None:
    if entry.parser is not None and (parse := _TEXT_PARSERS.get(entry.parser)):
        return parse(text)
    if entry.pattern is None:
        return None
    return [found.groupdict() or found[0] for found in re.finditer(entry.pattern, text)] or None


def _candidate(item: Item, entry: RouterTool) -> Candidate | None:
    """A candidate from its fields; a bare text is its name."""
    skill_id = item if isinstance(item, str) else template(entry.skill_id).fill(item)
    if not skill_id:
        return None
    score = json_path(entry.score).first(item) if entry.score else None
    return Candidate(skill_id=skill_id[:_SKILL_ID_CHARS], score=_number(score))


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


# --- known formats ---------------------------------------------------------------------------------------------------

_COPILOT = re.compile(r"^- server_name: (?P<server_name>.+)\n  tool_name: (?P<tool_name>.+)$", re.MULTILINE)
_COPILOT_MARK = re.compile(r"^matched_tools:", re.MULTILINE)
_HEADING = re.compile(r"^### (?P<name>\S.*)$", re.MULTILINE)
_AVAILABLE = re.compile(r"^Available tools: (\[.*\])\s*$", re.DOTALL)
_LOADED = re.compile(r"^Found and loaded \d+ tool\(s\): (.*?)\. Use them")
_SCORED = re.compile(r"^\[\d+\] Tool: (?P<name>.+) \((?P<score>[\d.]+)% match\)$", re.MULTILINE)


def _mcp_copilot(text: str) -> list[Item] | None:
    """LiveMCPBench's YAML; read by its lines, as what quotes it cuts it off."""
    if not _COPILOT_MARK.search(text):
        return None
    return [{name: _scalar(value) for name, value in found.groupdict().items()} for found in _COPILOT.finditer(text)]


def _scalar(value: str) -> str:
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] == '"' else value


def _markdown_headings(text: str) -> list[Item] | None:
    """FastMCP's compact form: a heading of the third level a tool."""
    return [found.groupdict() for found in _HEADING.finditer(text)] or None


def _available_tools(text: str) -> list[Item] | None:
    """``Available tools: ['a', 'b']``"""
    found = _AVAILABLE.match(text)
    names = from_literal(found[1]) if found else None
    return names if isinstance(names, list) else None


def _loaded_tools(text: str) -> list[Item] | None:
    """``Found and loaded 2 tool(s): a, b. Use them directly as tools.``"""
    found = _LOADED.match(text)
    return found[1].split(", ") if found else None


def _scored_tools(text: str) -> list[Item] | None:
    """``[1] Tool: a (87.3% match)``, with the score as a fraction."""
    return [
        {"name": found["name"], "score": (_number(found["score"]) or 0.0) / 100} for found in _SCORED.finditer(text)
    ] or None


def _server_actions(view: Any) -> list[Item] | None:
    """``{"server": [{"name": "action"}]}``"""
    if not isinstance(view, dict) or not any(isinstance(actions, list) for actions in view.values()):
        return None
    lists = ((server, actions) for server, actions in view.items() if isinstance(actions, list))
    return [
        action | {"server_name": server} for server, actions in lists for action in actions if isinstance(action, dict)
    ]


_TEXT_PARSERS: dict[Parser, Callable[[str], list[Item] | None]] = {
    "mcp_copilot": _mcp_copilot,
    "markdown_headings": _markdown_headings,
    "available_tools": _available_tools,
    "loaded_tools": _loaded_tools,
    "scored_tools": _scored_tools,
}
