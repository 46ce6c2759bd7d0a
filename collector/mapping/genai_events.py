"""Messages of the GenAI conventions, from attributes and from events; the older events hold one message each.

Up to v1.36 a span or a log record has one event a message (``gen_ai.user.message``, …, ``gen_ai.choice``), before that
one for all of them (``gen_ai.content.prompt``); since v1.37 messages are attributes of the span or of one event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec

from collector.mapping import attributes as names
from collector.mapping.conversation import Message, Said, ToolCall, ToolResult, as_text, from_json, objects
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


# Messages just as the conventions have them, read as ``_message`` reads them in a fraction of the time. Their calls and
# results are decoded as what they become. Of a long conversation only the end is read any further.


class _Text(msgspec.Struct, gc=False, forbid_unknown_fields=True, tag="text"):
    content: str = ""


class _Called(ToolCall, kw_only=True, gc=False, forbid_unknown_fields=True, tag="tool_call", rename={"call_id": "id"}):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    call_id: str | None = None
    arguments: Any = None
    invalid: None = None


class _Answered(
    ToolResult,
    kw_only=True,
    gc=False,
    forbid_unknown_fields=True,
    tag="tool_call_response",
    rename={"call_id": "id", "text": "response"},
):
    text: str
    call_id: str | None = None
    name: str | None = None
    error: None = None


class _Conventional(msgspec.Struct, kw_only=True, gc=False, forbid_unknown_fields=True, tag_field="role"):
    role: ClassVar[str]
    calls: ClassVar[Sequence[ToolCall]] = ()
    results: ClassVar[Sequence[ToolResult]] = ()
    finish_reason: str | None = None


class _Spoken(_Conventional, kw_only=True, gc=False):
    """A message of texts alone."""

    parts: list[_Text]

    @property
    def text(self) -> str | None:
        parts = self.parts
        if len(parts) == 1:
            return parts[0].content or None
        return "\n".join([part.content for part in parts if part.content]) or None


class _FromSystem(_Spoken, kw_only=True, gc=False, tag="system"):
    role: ClassVar[str] = "system"


class _FromUser(_Spoken, kw_only=True, gc=False, tag="user"):
    role: ClassVar[str] = "user"


class _FromModel(_Conventional, kw_only=True, gc=False, tag="assistant"):
    role: ClassVar[str] = "assistant"
    parts: list[_Text | _Called]

    @property
    def text(self) -> str | None:
        return "\n".join([part.content for part in self.parts if isinstance(part, _Text) and part.content]) or None

    @property
    def calls(self) -> Sequence[ToolCall]:  # type: ignore[override] # what the others have none of
        calls = [part for part in self.parts if isinstance(part, _Called)]
        for call in calls:
            if call.call_id in _NO_CALL_ID:
                call.call_id = None
        return calls


class _FromTools(_Conventional, kw_only=True, gc=False, tag="tool"):
    role: ClassVar[str] = "tool"
    text: ClassVar[None] = None
    parts: Annotated[list[_Answered], msgspec.Meta(min_length=1)]

    @property
    def results(self) -> Sequence[ToolResult]:  # type: ignore[override] # as above
        results: list[ToolResult] = [*self.parts]
        for result in results:
            if result.call_id in _NO_CALL_ID:
                result.call_id = None
            if not result.name:
                result.name = None
        return results


_CONVENTIONAL = msgspec.json.Decoder(list[_FromUser | _FromModel | _FromTools | _FromSystem])


def messages(value: Any, role: str) -> Sequence[Said]:
    """The messages of a list, given structured or as JSON text; ``role`` is that of those that name none."""
    if value is None:
        return ()
    if isinstance(value, str):
        try:
            return _CONVENTIONAL.decode(value)
        except msgspec.MsgspecError:
            pass  # unusual in some way, which the general reader may know
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


def of_events(events: Sequence[SpanEvent], attributes: Attributes) -> tuple[list[Said], list[Said]]:
    """The messages that a span's events of the older generations hold, sent and returned, each in their order."""
    sent: list[Said] = []
    returned: list[Said] = []
    if not events and names.PYDANTIC_EVENTS not in attributes:
        return sent, returned
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
    return message


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


def _whole(value: Any, role: str) -> Sequence[Said]:
    """All messages in one value: JSON of them, or the text alone."""
    found = messages(value, role)
    return found or ([Message(role=role, text=value)] if isinstance(value, str) and value else [])
