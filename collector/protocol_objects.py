"""Which JSON objects are messages, parts of them, calls, answers or tool definitions, in whatever library's form."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from collector.remembered import Remembered, once_a_word

_ROLES = frozenset(["system", "developer", "user", "human", "assistant", "ai", "model", "tool", "function"])
_PROTOCOL = re.compile(r"message|call|tool|function|text|human|user|assistant|system|^ai$|constructor|response", re.I)
_OF_USER = re.compile(r"user|human", re.I)
_OF_TOOL = re.compile(
    r"^(?:tool|function)$|(?:tool|function|execution)[\w.-]*?(?:result|response|output|execution)|tool_?message", re.I
)
#: Keys that only a call or the answer to one has.
_CALL_IDS = frozenset({"tool_call_id", "toolCallId", "call_id", "callId", "tool_use_id", "toolUseId"})
_CALLED = frozenset({"name", "toolName", "tool_name", "functionName"})
#: Keys of what names and tells apart.
LABELS = frozenset(
    {"id", "index", "kind", "model", "name", "role", "score", "source", "status", "type", "finish_reason"}
    | {"finishReason", *_CALL_IDS, *_CALLED}
)
ARGUMENTS = frozenset(["args", "arguments", "input", "kwargs", "parameters", "params", "tool_input", "toolInput"])
RESULTS = frozenset(["result", "output", "response"])
_CALL_PARTS = ARGUMENTS | RESULTS | {"content"}
#: Where the text of a message lies, or messages lie in each other.
CONTENT = frozenset(["content", "contents", "kwargs", "message", "messages", "parts", "text", "value"])
_SCHEMAS = (
    *("parameters", "inputSchema", "input_schema"),
    *("parameters_json_schema", "parametersJsonSchema", "json_schema"),
)
_DEFINING = frozenset({"function", "properties", *_SCHEMAS})
_SCHEMA_KEYS = frozenset(
    {"$defs", "$id", "$ref", "$schema", "additionalProperties", "allOf", "anyOf", "default"}
    | {"definitions", "description", "examples", "nullable", "oneOf", "properties", "required"}
    | {"title", "type"}
)

#: Frames that are remembered: an application sends few, objects of data ever new ones.
_FRAMES = 4_096


#: What a key of an object holds. ``answers``: a result, or a list of answers that say whose they are.
Holds = Literal["label", "arguments", "result", "answers", "other"]


class Field(NamedTuple):
    """A key of an object. ``role``: whose the text is that stands there, or in it; ``is_user``: a user's."""

    name: Any
    holds: Holds
    role: str
    is_user: bool


class Frame(NamedTuple):
    """What an object is, and what each of its keys holds, as far as its keys and labels tell."""

    #: A result that does not say whose it is: it may look like anything, and nothing in it is the protocol's.
    is_bare_result: bool
    #: Keys that hold neither labels nor arguments hold answers.
    holds_answers: bool
    #: It may be the definition of a tool, if its values agree.
    may_define: bool
    fields: tuple[Field, ...]


_frames: Remembered[tuple[Any, ...], Frame] = Remembered(_FRAMES)


def frame_of(value: dict[Any, Any], around: str) -> Frame:
    """The frame of an object within a message of the role ``around``."""
    said = value.get("id")
    # All that a frame hangs on, see the functions below.
    marks = (
        around,
        value.get("role"),
        value.get("type"),
        value.get("source") == "user",
        _last_word(said) if isinstance(said, list) else False,
        *value,
    )
    try:
        found = _frames.get(marks)
    except TypeError:  # a role that is a list or an object
        return _frame(value, around)
    if found is None:
        found = _frame(value, around)
        _frames.keep(marks, found)
    return found


def _last_word(items: list[Any]) -> str | None:
    return items[-1] if items and isinstance(items[-1], str) else None


def _frame(value: dict[Any, Any], around: str) -> Frame:
    # A result may look like anything, so nothing in it says whose it is.
    role = around if is_tool(around) else role_of(value, around)
    holds_result = is_tool(role)
    has_labels = speaks(value)
    has_arguments = has_labels and not is_constructor(value)
    fields = []
    for name in value:
        holds: Holds = "answers" if holds_result else "result" if is_result(name, value) else "other"
        if has_labels and name in LABELS:
            holds = "label"
        elif has_arguments and name in ARGUMENTS:
            holds = "arguments"
        whose = role if name in CONTENT else ""
        fields.append(Field(name, holds, whose, is_user(whose)))
    is_bare_result = holds_result and not is_answer(value)
    return Frame(is_bare_result, holds_result, not _DEFINING.isdisjoint(value), tuple(fields))


@once_a_word
def is_user(role: str) -> bool:
    return _OF_USER.search(role) is not None


@once_a_word
def is_tool(role: str) -> bool:
    """Whether what stands in a message of the role is the result of a call."""
    return _OF_TOOL.search(role) is not None


@once_a_word
def is_protocol(kind: str) -> bool:
    """Whether a ``type`` is that of a message, a part, a call or an answer."""
    return _PROTOCOL.search(kind) is not None


@once_a_word
def _is_role(said: str) -> bool:
    return said.lower() in _ROLES or is_tool(said) or is_user(said)


def role_of(value: dict[Any, Any], around: str) -> str:
    """Whose message the object is: its own word for it, else that of the message around it."""
    for key in ("role", "type"):
        said = value.get(key)
        if isinstance(said, str) and _is_role(said):
            return said
    if value.get("source") == "user":
        return "user"
    kind = value.get("id")
    if isinstance(kind, list) and kind and isinstance(kind[-1], str):  # LangChain's serialised constructors
        return kind[-1]
    holds_result = "content" in value or not RESULTS.isdisjoint(value)
    return "tool" if holds_result and not _CALL_IDS.isdisjoint(value) else around


def speaks(value: dict[Any, Any]) -> bool:
    """Whether the object is a message, a part of one, a call or an answer, so that its labels are the protocol's."""
    if not _CALL_IDS.isdisjoint(value):
        return True
    role, kind = value.get("role"), value.get("type")
    if isinstance(role, str) and role.lower() in _ROLES:
        return True
    if isinstance(kind, str) and is_protocol(kind):
        return True
    return not _CALLED.isdisjoint(value) and not _CALL_PARTS.isdisjoint(value)


def is_result(key: Any, value: dict[Any, Any]) -> bool:
    """Whether what stands under the key of a call, or of the answer to one, is its result."""
    return key in RESULTS and not (_CALL_IDS.isdisjoint(value) and _CALLED.isdisjoint(value))


def is_answer(value: dict[Any, Any]) -> bool:
    """Whether the object says whose result it holds: a result itself may look like anything."""
    if not _CALL_IDS.isdisjoint(value):
        return True
    if any(isinstance(said, str) and is_tool(said) for said in (value.get("role"), value.get("type"))):
        return True
    kind = value.get("id")
    return isinstance(kind, list) and bool(kind) and isinstance(kind[-1], str) and is_tool(kind[-1])


def holds_answers(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return bool(items) and all(isinstance(item, dict) and (is_answer(item) or is_call(item)) for item in items)


def is_constructor(value: dict[Any, Any]) -> bool:
    """Whether the object is a message as LangChain serialises it: its content are arguments of its constructor."""
    return isinstance(value.get("id"), list) and "kwargs" in value


def is_call(value: dict[Any, Any]) -> bool:
    return not _CALLED.isdisjoint(value) and not ARGUMENTS.isdisjoint(value)


def is_definition(value: dict[Any, Any]) -> bool:
    """Whether the object defines a tool, or is the schema of its arguments."""
    if "name" not in value and "function" not in value:
        return is_schema(value)
    inner = value.get("function")
    body = inner if isinstance(inner, dict) else value
    if not isinstance(body.get("name"), str):
        return False
    given = [body[key] for key in _SCHEMAS if key in body]
    return bool(given) and all(not schema or is_schema(schema) for schema in given)


def is_schema(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("properties"), dict) and value.keys() <= _SCHEMA_KEYS
