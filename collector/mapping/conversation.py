"""One model turn in one form, whatever dialect told of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Protocol, TypeVar, TypeVarTuple, cast

import msgspec

from collector.remembered import Remembered

_MadeT = TypeVar("_MadeT")
_Ts = TypeVarTuple("_Ts")

# None of these can be part of a cycle, as they hold plain values only: the garbage collector need not look.


class ToolDefinition(msgspec.Struct, kw_only=True, gc=False):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolCall(msgspec.Struct, kw_only=True, gc=False):
    """A call as the model proposed it; ``invalid`` when its framework refused to read its arguments."""

    name: str
    call_id: str | None = None
    arguments: Any = None
    invalid: str | None = None


class ToolResult(msgspec.Struct, kw_only=True, gc=False):
    """A result as a prompt quotes it; ``error`` is None where the dialect has no flag."""

    call_id: str | None
    name: str | None
    text: str
    error: bool | None = None


class Message(msgspec.Struct, kw_only=True, gc=False):
    role: str
    text: str | None = None
    calls: list[ToolCall] = []
    results: list[ToolResult] = []


class Said(Protocol):
    """What is read of a message: a ``Message``, or one as its dialect has it, which is read when it is asked."""

    @property
    def role(self) -> str: ...

    @property
    def text(self) -> str | None: ...

    @property
    def calls(self) -> Sequence[ToolCall]: ...

    @property
    def results(self) -> Sequence[ToolResult]: ...


class ModelTurn(msgspec.Struct, kw_only=True, gc=False):
    """What one model span says: the messages it was sent, the tools it was offered, the calls it proposed."""

    messages: Sequence[Said]
    tools: list[ToolDefinition]
    calls: list[ToolCall]

    @property
    def query(self) -> str | None:
        """Words of the user in the last message that has some."""
        for message in reversed(self.messages):
            if message.role == "user" and (text := message.text) and (words := _words(text)):
                return words
        return None

    @property
    def ending(self) -> tuple[Said | None, list[ToolResult]]:
        """The model's last message, and the fresh results: those quoted after it.

        Older ones were fresh in the turn before; repeated here they could meet a later call that reuses their id.
        """
        fresh: list[ToolResult] = []
        for message in reversed(self.messages):
            if message.role == "assistant":
                return message, fresh
            fresh[:0] = message.results
        return None, fresh


#: What coding agents put before the words of the user: the day, the folder, the rules of the house.
_SURROUNDINGS = re.compile(
    r"(?:\s*<(session_context|environment_context|current_datetime|system-reminder)>.*?</\1>)+\s*", re.DOTALL
)


def _words(text: str) -> str:
    """The text without what an agent put before it."""
    if not text.startswith("<"):
        return text
    around = _SURROUNDINGS.match(text)
    return text[around.end() :] if around else text


#: Brackets and commas of a JSON text: no conversation has more, and each value takes sixty bytes and more in memory.
_MAX_MARKS = 1_000_000
#: No JSON text begins otherwise: a plain one need not be tried.
_JSON_BEGINNINGS = frozenset('{["-0123456789tfn \t\n\r')


def from_json(value: Any) -> Any:
    """JSON text decoded; structured values, text that is no JSON and text of too many values stay as they are."""
    if not isinstance(value, str) or value[:1] not in _JSON_BEGINNINGS:
        return value
    if len(value) > _MAX_MARKS and _is_heavy(value):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, RecursionError):
        return value


def _is_heavy(text: str) -> bool:
    return sum(map(text.count, "[{,")) > _MAX_MARKS


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


# --- menus -----------------------------------------------------------------------------------------------------------

#: The same menu is offered turn after turn, so it is read once. Texts longer than these are read each time.
_MENU_CHARS = 131_072
_DEFINITION_CHARS = 16_384
#: Of all that is kept: JSON of empty lists takes 22 times its characters when it is decoded, in each process that maps.
_KEPT_CHARS = 2**20


class Menu(list[ToolDefinition]):
    """The tools of a text that is kept: the same object whenever that text comes. Not to be changed."""

    __slots__ = ("made",)

    def __init__(self, tools: list[ToolDefinition]) -> None:
        super().__init__(tools)
        #: What was made of it once, by function and its other arguments; None where that is the menu itself.
        self.made: dict[tuple[Any, ...], Any] = {}


def once_a_menu(
    make: Callable[[list[ToolDefinition], *_Ts], _MadeT],
) -> Callable[[list[ToolDefinition], *_Ts], _MadeT]:
    """Let what a function makes of a menu be made once for one that is kept. Nobody may change it."""

    @wraps(make)
    def made(tools: list[ToolDefinition], *args: *_Ts) -> _MadeT:
        if type(tools) is not Menu:
            return make(tools, *args)
        key = (make, *args)
        if key not in tools.made:
            result = make(tools, *args)
            tools.made[key] = None if result is tools else result  # a menu that holds itself would outlive its place
        kept = tools.made[key]
        return cast(_MadeT, tools if kept is None else kept)

    return made


_menus: Remembered[tuple[str], Menu] = Remembered(64, _KEPT_CHARS)
_definitions: Remembered[tuple[str], ToolDefinition] = Remembered(512, _KEPT_CHARS)


def tool_definitions(value: Any) -> list[ToolDefinition]:
    """The definitions of a list, given structured, as JSON text, or as a list of JSON texts. Not to be changed."""
    if isinstance(value, str):
        return _kept_menu(value) if len(value) <= _MENU_CHARS else _definitions_in(value)
    found = map(_definition, value) if isinstance(value, list) else ()
    return [tool for tool in found if tool is not None]


def _kept_menu(text: str) -> Menu:
    menu = _menus.get((text,))
    if menu is None:
        menu = Menu(_definitions_in(text))
        _menus.keep((text,), menu)
    return menu


def _definitions_in(text: str) -> list[ToolDefinition]:
    decoded = from_json(text)
    return tool_definitions(decoded) if isinstance(decoded, list) else []


def _definition(raw: Any) -> ToolDefinition | None:
    if not isinstance(raw, str):
        return _read_definition(raw)
    return _kept_definition(raw) if len(raw) <= _DEFINITION_CHARS else _read_definition(from_json(raw))


def _kept_definition(text: str) -> ToolDefinition | None:
    definition = _definitions.get((text,))
    if definition is None:
        definition = _read_definition(from_json(text))
        if definition is not None:
            _definitions.keep((text,), definition)
    return definition


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


_SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema", "parameters_json_schema", "parametersJsonSchema")
