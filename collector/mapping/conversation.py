"""One model turn in one form, whatever dialect told of it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec


class ToolDefinition(msgspec.Struct, kw_only=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolCall(msgspec.Struct, kw_only=True):
    """A call as the model proposed it; ``invalid`` when its framework refused to read its arguments."""

    name: str
    call_id: str | None = None
    arguments: Any = None
    invalid: str | None = None


class ToolResult(msgspec.Struct, kw_only=True):
    """A result as a prompt quotes it; ``error`` is None where the dialect has no flag."""

    call_id: str | None
    name: str | None
    text: str
    error: bool | None = None


class Message(msgspec.Struct, kw_only=True):
    role: str
    text: str | None = None
    calls: list[ToolCall] = []
    results: list[ToolResult] = []


class ModelTurn(msgspec.Struct, kw_only=True):
    """What one model span says: the messages it was sent, the tools it was offered, the calls it proposed."""

    messages: list[Message]
    tools: list[ToolDefinition]
    calls: list[ToolCall]

    @property
    def query(self) -> str | None:
        """Text of the last user message."""
        texts = (message.text for message in reversed(self.messages) if message.role == "user" and message.text)
        return next(texts, None)

    @property
    def fresh_results(self) -> list[ToolResult]:
        """Results quoted after the model's last message.

        Older ones were fresh in the turn before; repeated here they could meet a later call that reuses their id.
        """
        fresh: list[ToolResult] = []
        for message in reversed(self.messages):
            if message.role == "assistant":
                break
            fresh = [*message.results, *fresh]
        return fresh

    @property
    def called_names(self) -> dict[str, str]:
        """Tool name by call id, as the quoted calls have it."""
        return {call.call_id: call.name for message in self.messages for call in message.calls if call.call_id}


#: Brackets and commas of a JSON text: no conversation has more, and each value takes sixty bytes and more in memory.
_MAX_MARKS = 1_000_000


def from_json(value: Any) -> Any:
    """JSON text decoded; structured values, text that is no JSON and text of too many values stay as they are."""
    if not isinstance(value, str) or _is_heavy(value):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, RecursionError):
        return value


def _is_heavy(text: str) -> bool:
    return len(text) > _MAX_MARKS and sum(map(text.count, "[{,")) > _MAX_MARKS


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list, given structured or as JSON text; anything else is no object."""
    decoded = from_json(value)
    return [item for item in decoded if isinstance(item, dict)] if isinstance(decoded, list) else []


def as_text(value: Any) -> str:
    """The value as a person would read it: text as it is, the rest as JSON."""
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else msgspec.json.encode(value).decode()
    except RecursionError:
        return ""


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def tool_definitions(value: Any) -> list[ToolDefinition]:
    """The definitions of a list, given structured, as JSON text, or as a list of JSON texts. Not to be changed."""
    if isinstance(value, str):
        return _definitions_in(value)
    found = map(_definition, value) if isinstance(value, list) else ()
    return [tool for tool in found if tool is not None]


# The same menu is offered turn after turn.
@lru_cache(maxsize=128)
def _definitions_in(text: str) -> list[ToolDefinition]:
    decoded = from_json(text)
    return tool_definitions(decoded) if isinstance(decoded, list) else []


def _definition(raw: Any) -> ToolDefinition | None:
    return _definition_in(raw) if isinstance(raw, str) else _read_definition(raw)


@lru_cache(maxsize=1_024)
def _definition_in(text: str) -> ToolDefinition | None:
    return _read_definition(from_json(text))


def _read_definition(raw: Any) -> ToolDefinition | None:
    """A definition in any of the usual forms: flat, or wrapped as OpenAI's ``{"type": "function", "function": …}``."""
    if not isinstance(raw, dict):
        return None
    inner = raw.get("function")
    body = inner if isinstance(inner, dict) else raw
    name = text_or_none(body.get("name"))
    if name is None:
        return None
    schema = next((body[key] for key in _SCHEMA_KEYS if isinstance(body.get(key), dict)), None)
    return ToolDefinition(name=name, description=text_or_none(body.get("description")), parameters=schema)


_SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema", "parameters_json_schema")
