"""Chat messages in the forms that frameworks serialise them to, each read into one.

Known: OpenAI's chat messages and response items, Anthropic's and Bedrock's content blocks, Gemini's parts, LangChain's
envelopes, the parts of the Vercel AI SDK and of OpenTelemetry, Haystack's objects and their printed form. They differ
in names more than in structure: a call has a name, an id and arguments, a result an id, a text and perhaps a flag.
"""

from __future__ import annotations

from typing import Any

from collector.mapping.conversation import Message, ToolCall, ToolResult, as_text, from_json, text_or_none
from collector.mapping.printed import PrintedObject, printed_object

Raw = dict[str, Any]

ROLES = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "developer": "system",
}
#: Roles that may also stand as a ``type``, as LangChain has them. Elsewhere a ``function`` is a definition.
_TYPE_ROLES = {
    "human": "user",
    "HumanMessageChunk": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "tool": "tool",
    "system": "system",
}
_CALL_TYPES = ("tool_use", "tool-call", "tool_call", "function_call", "server_tool_use", "mcp_call")
_RESULT_TYPES = ("tool_result", "tool-result", "tool_call_response", "function_call_output")
#: Keys under which a part holds a call or a result as an object of its own.
_CALL_KEYS = ("toolUse", "functionCall", "function_call", "tool_call")
_RESULT_KEYS = ("toolResult", "functionResponse", "function_response", "tool_call_result")
_NAMES = ("name", "toolName", "tool_name")
_CALL_IDS = ("call_id", "toolCallId", "toolUseId", "id")
_ANSWERED_IDS = ("tool_call_id", "tool_use_id", "call_id", "toolCallId", "toolUseId", "id")
_ARGUMENTS = ("arguments", "args", "input")
_RESULTS = ("content", "output", "result", "response")
_CONTENTS = ("content", "_content", "parts", "blocks")
_ERROR_OUTPUTS = ("error-text", "error-json", "execution-denied")


class ChatMessage(Message, kw_only=True):
    """A message with the model that wrote it. ``bare``: a call that stands beside its message instead of in it."""

    model: str | None = None
    bare: bool = False


def chat_message(raw: Any) -> ChatMessage | None:
    """The message that a value is, or None where it is none."""
    if isinstance(raw, str):
        return _printed(raw)
    if isinstance(raw, list):
        return _pair(raw)
    if not isinstance(raw, dict):
        return None
    return _item(raw) or _message(opened(raw))


def _pair(raw: list[Any]) -> ChatMessage | None:
    """``["user", "text"]``"""
    if len(raw) != 2 or not all(isinstance(item, str) for item in raw) or raw[0] not in ROLES:
        return None
    return ChatMessage(role=ROLES[raw[0]], text=raw[1])


def _printed(text: str) -> ChatMessage | None:
    """A Haystack message as Python prints it."""
    found = printed_object(text, "ChatMessage")
    return _message(_plain(found)) if found is not None else None


def _plain(value: Any) -> Any:
    """A printed message as the object that Haystack itself would serialise."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, PrintedObject):
        return value
    fields = {name: _plain(field) for name, field in value.fields.items()}
    if value.name == "ToolCall":
        return {"tool_call": fields}
    if value.name == "ToolCallResult":
        origin = fields.get("origin")
        return {"tool_call_result": fields | {"origin": origin.get("tool_call") if isinstance(origin, dict) else None}}
    return fields


def opened(raw: Raw) -> Raw:
    """What LangChain's envelopes hold: ``{"type": "ai", "data": …}`` and ``{"lc": 1, "id": […], "kwargs": …}``."""
    inner = raw.get("kwargs") if "lc" in raw else raw.get("data")
    if not isinstance(inner, dict):
        return raw
    path = raw.get("id")
    class_name = path[-1] if isinstance(path, list) and path and isinstance(path[-1], str) else ""
    told = inner.get("type") or raw.get("type")
    if not isinstance(told, str) or told not in _TYPE_ROLES:
        told = class_name.partition("Message")[0].lower()
    return {**inner, "type": told}


def _role(raw: Raw) -> str | None:
    told = raw.get("role", raw.get("_role"))
    if isinstance(told, str):
        # `MessageRole.USER` and the like, where an enumeration was printed.
        return ROLES.get(told.rpartition(".")[2].lower())
    kind = raw.get("type")
    return _TYPE_ROLES.get(kind) if isinstance(kind, str) else None


def _message(raw: Raw) -> ChatMessage | None:
    role = _role(raw)
    content = next((raw[key] for key in _CONTENTS if key in raw), None)
    if role is None or not (_has_calls(raw) or any(key in raw for key in _CONTENTS)):
        return None
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    text = _text(content)
    results = [result for part in parts if (result := _part_result(part))]
    if role == "tool" and not results:
        results = [_result(raw, text)]
    return ChatMessage(
        # What only answers calls is no word of the user, whoever the provider lets say it.
        role="tool" if role == "user" and results and not text else role,
        text=text or None,
        calls=_calls(raw, parts) if role == "assistant" else [],
        results=results,
        model=_model(raw),
    )


def _item(raw: Raw) -> ChatMessage | None:
    """A call or a result that stands in the list by itself, as in OpenAI's Responses API."""
    kind = raw.get("type")
    if "role" in raw or kind not in ("function_call", "function_call_output", "mcp_call"):
        return None
    if kind == "function_call_output":
        return ChatMessage(role="tool", results=[_result(raw, _text(raw.get("output")))])
    call = _call(raw)
    return ChatMessage(role="assistant", calls=[call], bare=True) if call else None


def _has_calls(raw: Raw) -> bool:
    return any(raw.get(key) for key in ("tool_calls", "function_call", "invalid_tool_calls"))


def _calls(raw: Raw, parts: list[Raw]) -> list[ToolCall]:
    """The calls of a message. Where it lists them apart and in its content, they are the same ones."""
    more = raw.get("additional_kwargs")
    more = more if isinstance(more, dict) else {}
    listed = raw.get("tool_calls") or more.get("tool_calls") or []
    calls = [call for item in _dicts(listed) if (call := _call(item))]
    if not calls:
        calls = [call for part in parts if (call := _part_call(part))]
    for holder in (raw, more):
        single = holder.get("function_call")
        if not calls and isinstance(single, dict) and (call := _call(single)):
            calls = [call]
    unreadable = [call for item in _dicts(raw.get("invalid_tool_calls")) if (call := _unreadable(item))]
    told_twice = {call.call_id for call in unreadable if call.call_id}
    return [call for call in calls if call.call_id not in told_twice] + unreadable


def _call(raw: Raw) -> ToolCall | None:
    function = raw.get("function")
    body = raw | function if isinstance(function, dict) else raw
    name = _first_text(body, _NAMES)
    if name is None:
        return None
    arguments = next((body[key] for key in _ARGUMENTS if key in body), None)
    return ToolCall(name=name, call_id=_first_text(raw, _CALL_IDS), arguments=arguments)


def _unreadable(raw: Raw) -> ToolCall | None:
    """A call whose arguments LangChain could not read."""
    call = _call(raw)
    if call is not None:
        call.invalid = text_or_none(raw.get("error")) or "arguments are not valid JSON"
    return call


def _part_call(part: Raw) -> ToolCall | None:
    if part.get("type") in _CALL_TYPES:
        return _call(part)
    body = next((part[key] for key in _CALL_KEYS if isinstance(part.get(key), dict)), None)
    return _call(body) if body is not None else None


def _part_result(part: Raw) -> ToolResult | None:
    if part.get("type") in _RESULT_TYPES:
        return _result(part, None)
    body = next((part[key] for key in _RESULT_KEYS if isinstance(part.get(key), dict)), None)
    return _result(body, None) if body is not None else None


def _result(raw: Raw, text: str | None) -> ToolResult:
    value = next((raw[key] for key in _RESULTS if key in raw), None)
    told = value if isinstance(value, dict) and "type" in value and "value" in value else {}
    origin = raw.get("origin")
    called = _call(origin) if isinstance(origin, dict) else None
    return ToolResult(
        call_id=_first_text(raw, _ANSWERED_IDS) or (called.call_id if called else None),
        name=_first_text(raw, _NAMES) or (called.name if called else None),
        text=text or _text(value) or as_text(told.get("value", value)),
        error=_is_error(raw, told),
    )


def _is_error(raw: Raw, told: Raw) -> bool | None:
    """The flag of a result; None where its form has none."""
    flags = [raw[key] for key in ("is_error", "isError", "error") if isinstance(raw.get(key), bool)]
    if flags:
        return any(flags)
    if isinstance(raw.get("status"), str):
        return bool(raw["status"] == "error")
    return any(told.get("type") == kind for kind in _ERROR_OUTPUTS) if told else None


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(text for part in parts if (text := _part_text(part)))


def _part_text(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return None
    text = part.get("text")
    if text is None and part.get("type") == "text":
        text = part.get("content")
    return text_or_none(text)


def _model(raw: Raw) -> str | None:
    holders = (raw, raw.get("meta"), raw.get("_meta"), raw.get("response_metadata"))
    told = (_first_text(holder, ("model", "model_name")) for holder in holders if isinstance(holder, dict))
    return next((model for model in told if model), None)


def _dicts(value: Any) -> list[Raw]:
    decoded = from_json(value)
    return [item for item in decoded if isinstance(item, dict)] if isinstance(decoded, list) else []


def _first_text(raw: Raw, keys: tuple[str, ...]) -> str | None:
    return next((found for key in keys if (found := text_or_none(raw.get(key)))), None)
