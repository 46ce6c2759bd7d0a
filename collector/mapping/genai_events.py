"""Messages of the GenAI conventions, from attributes and from events; the older events hold one message each.

Up to v1.36 a span or a log record has one event a message (``gen_ai.user.message``, …, ``gen_ai.choice``), before that
one for all of them (``gen_ai.content.prompt``); since v1.37 messages are attributes of the span or of one event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from collector.mapping import attributes as names
from collector.mapping.conversation import Message, ToolCall, ToolResult, as_text, from_json, objects
from collector.mapping.failures import is_error_result
from collector.mapping.message_forms import chat_message
from collector.spans import Attributes, SpanEvent

Raw = dict[str, Any]
#: Who speaks in the events that hold one message.
ROLES = {
    names.SYSTEM_EVENT: "system",
    names.USER_EVENT: "user",
    names.ASSISTANT_EVENT: "assistant",
    names.TOOL_EVENT: "tool",
    names.CHOICE_EVENT: "assistant",
}
#: Placeholders that frameworks write where they have no value.
_NO_CALL_ID = frozenset({"", "<not specified>"})


class _Text(msgspec.Struct, gc=False, forbid_unknown_fields=True, tag="text"):
    content: str = ""


class _Called(msgspec.Struct, gc=False, forbid_unknown_fields=True, tag="tool_call"):
    name: str
    id: str | None = None
    arguments: Any = None


class _Answered(msgspec.Struct, gc=False, forbid_unknown_fields=True, tag="tool_call_response"):
    response: str
    id: str | None = None
    name: str | None = None


class _Conventional(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A message just as the conventions have it."""

    role: Literal["system", "user", "assistant", "tool"]
    parts: list[_Text | _Called | _Answered]
    finish_reason: str | None = None


_CONVENTIONAL = msgspec.json.Decoder(list[_Conventional])


def messages(value: Any, role: str) -> list[Message]:
    """The messages of a list, given structured or as JSON text; ``role`` is that of those that name none."""
    if value is None:
        return []
    if isinstance(value, str):
        try:
            return [_conventional(message) for message in _CONVENTIONAL.decode(value)]
        except (msgspec.MsgspecError, _Unusual):
            pass
    found = (_message(raw, role) for raw in objects(value))
    return [message for message in found if message is not None]


def held(body: Any, attributes: Attributes) -> Raw:
    """What an event holds: in its body, as JSON text in one attribute, or spread over its attributes."""
    for value in (body, attributes.get(names.EVENT_CONTENT)):
        decoded = from_json(value)
        if isinstance(decoded, dict):
            return decoded
        if decoded:
            return {"content": decoded}
    return attributes


def event_message(name: str, content: Raw) -> Message | None:
    """The message of an event of the older generation; ``content`` as ``held`` gives it."""
    if name == names.CHOICE_EVENT:
        content = _chosen(content)
    return _message(content, ROLES[name])


def of_events(events: Iterable[SpanEvent], attributes: Attributes) -> tuple[list[Message], list[Message]]:
    """The messages that a span's events of the older generations hold, sent and returned, each in their order."""
    sent: list[Message] = []
    returned: list[Message] = []
    for name, content in [*_listed(attributes), *((event.name, held(None, event.attributes)) for event in events)]:
        if name in ROLES and (message := event_message(name, content)):
            (returned if name == names.CHOICE_EVENT else sent).append(message)
        elif name == names.PROMPT_EVENT:
            sent += _whole(content.get(names.PROMPT), "user")
        elif name == names.COMPLETION_EVENT:
            returned += _whole(content.get(names.COMPLETION), "assistant")
    return sent, returned


def call_id(value: Any) -> str | None:
    return value if isinstance(value, str) and value not in _NO_CALL_ID else None


def _message(raw: Raw, role: str) -> Message | None:
    content = raw.get("content")
    if isinstance(content, dict) and "parts" in content:  # all of Gemini's `Content` where its text is expected
        return _message(content, role)
    if isinstance(content, str) and content.startswith("[{"):
        raw = raw | {"content": from_json(content)}
    message = chat_message({"role": role} | {key: value for key, value in raw.items() if value is not None})
    if message is None:
        return None
    if isinstance(content, str) and not (message.text or message.calls or message.results):
        message.text = content or None
    for call in message.calls:
        call.call_id = call_id(call.call_id)
    for result in message.results:
        result.call_id = call_id(result.call_id)
        result.error = result.error or _tells_failure(result)
    return message


class _Unusual(Exception):  # noqa: N818 - a property of the message
    """A message that only the general reader can read."""


def _conventional(message: _Conventional) -> Message:
    """The same as ``_message`` makes of it, in a fraction of the time. Raises _Unusual."""
    role = message.role
    texts: list[str] = []
    calls: list[ToolCall] = []
    results: list[ToolResult] = []
    for part in message.parts:
        if isinstance(part, _Text):
            if part.content:
                texts.append(part.content)
        elif isinstance(part, _Called) and part.name and role == "assistant":
            told_id = part.id if part.id not in _NO_CALL_ID else None
            calls.append(ToolCall(name=part.name, call_id=told_id, arguments=part.arguments))
        elif isinstance(part, _Answered) and role == "tool":
            told_id = part.id if part.id not in _NO_CALL_ID else None
            result = ToolResult(call_id=told_id, name=part.name or None, text=part.response)
            result.error = _tells_failure(result)
            results.append(result)
        else:
            raise _Unusual
    if role == "tool" and not results:
        raise _Unusual
    return Message(role=role, text="\n".join(texts) or None, calls=calls, results=results)


def _tells_failure(result: ToolResult) -> bool | None:
    """Whether the result itself says so: MCP's ``isError``, or the key ``error`` alone, where Gemini's tools put it."""
    decoded = from_json(result.text) if result.text.startswith("{") else None
    if not isinstance(decoded, dict):
        return result.error
    return True if is_error_result(decoded) or (list(decoded) == ["error"] and decoded["error"]) else result.error


def _listed(attributes: Attributes) -> list[tuple[str, Raw]]:
    """Pydantic AI's first instrumentation wrote the events as one attribute."""
    return [(as_text(raw.get(names.EVENT_NAME)), raw) for raw in objects(attributes.get(names.PYDANTIC_EVENTS))]


def _chosen(content: Raw) -> Raw:
    """The message of a choice; its calls may stand beside it."""
    inner = from_json(content.get("message"))
    if inner is None:
        return content
    found = inner if isinstance(inner, dict) else {"content": inner}
    return {"tool_calls": content.get("tool_calls")} | found


def _whole(value: Any, role: str) -> list[Message]:
    """All messages in one value: JSON of them, or the text alone."""
    found = messages(value, role)
    return found or ([Message(role=role, text=value)] if isinstance(value, str) and value else [])
