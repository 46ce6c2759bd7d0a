"""Python objects as ``repr`` prints them, where an instrumentation had no better form for them.

Only what a data class prints is read: names, literals, lists and enumeration members. Nothing is ever evaluated.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import msgspec

#: Strings are matched whole, so that what stands in them counts for nothing; one that never ends takes the rest.
_STRING = r"""(?:'(?:[^'\\]|\\.|\\\Z)*+(?:'|\Z)|"(?:[^"\\]|\\.|\\\Z)*+(?:"|\Z))"""
#: ``<ChatRole.USER: 'user'>``: a member of an enumeration, which is no Python.
_TOKEN = re.compile(rf"({_STRING})|<[A-Za-z_][\w.]{{0,200}}: ({_STRING}|-?\d+)>", re.DOTALL)
#: ``Tool(name='search', description='…', …`` and pydantic's ``name='search' description='…' …``
_TOOL = re.compile(rf"(?:\w{{1,100}}\()?name=({_STRING})(?:,? description=({_STRING}))?", re.DOTALL)
#: Beside its strings a message has a few dozen words; the parser's memory and stack grow with them.
_MAX_STRUCTURE = 20_000
_MIN_WHOLE, _MAX_WHOLE = -(2**63), 2**63 - 1


class PrintedObject(msgspec.Struct):
    """``Name(field=value, …)``"""

    name: str
    fields: dict[str, Any]


def printed_object(text: str, name: str) -> PrintedObject | None:
    """The object of that class that the text prints, or None where it prints none."""
    if not text.startswith(f"{name}("):
        return None
    if len(text) > _MAX_STRUCTURE and len(_TOKEN.sub("", text)) > _MAX_STRUCTURE:
        return None
    try:
        tree = ast.parse(_TOKEN.sub(lambda found: found[1] or found[2], text), mode="eval")
        found = _value(tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return found if isinstance(found, PrintedObject) else None


def printed_tool(text: str) -> tuple[str, str | None] | None:
    """Name and description of a tool that the text prints, or None where it prints none."""
    found = _TOOL.match(text)
    name = literal(found[1]) if found else None
    if found is None or not isinstance(name, str) or not name:
        return None
    description = literal(found[2]) if found[2] else None
    return name, description if isinstance(description, str) else None


def literal(text: str) -> Any:
    """The value of a Python literal; None where the text is none."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Any:
    """The value of a node; None for what no data class prints of itself."""
    if isinstance(node, ast.Call):
        fields = {keyword.arg: _value(keyword.value) for keyword in node.keywords if keyword.arg}
        return PrintedObject(node.func.id, fields) if isinstance(node.func, ast.Name) else None
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(key.value): _value(value) for key, value in pairs if isinstance(key, ast.Constant)}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = node.operand.value if isinstance(node.operand, ast.Constant) else None
        return _constant(-value) if isinstance(value, int | float) else None
    return _constant(node.value) if isinstance(node, ast.Constant) else None


def _constant(value: Any) -> Any:
    """A constant that JSON has as well; larger numbers than it takes as text."""
    if isinstance(value, int) and not _MIN_WHOLE <= value <= _MAX_WHOLE:
        return str(value)
    return value if isinstance(value, str | int | float) else None
