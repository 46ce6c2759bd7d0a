"""Messages in the form of OpenTelemetry's conventions for generative AI, redacted where they stand.

They are most of what current instrumentations send, and this takes half the time of the walk through values of
any form (`redact_values`), with the same result. Whatever is not quite of the form is left to that.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from collector import protocol_objects as shapes
from collector.redact import described

#: How deep a part lies in the value of an attribute that is a list of messages as JSON text.
_DEPTH = 4
_ROLES = frozenset({"system", "user", "assistant", "tool"})


class Words(Protocol):
    """Where the user's last text is noted, see ``redact_values.UserText``."""

    def note(self, holder: Any, key: Any, text: str) -> None: ...


class Values(Protocol):
    """What redacts values of any form, see ``redact_values.ValueRedactor``."""

    queries: frozenset[str]

    def label(self, value: Any) -> Any: ...

    def arguments(self, value: Any) -> Any: ...

    def put(self, holder: Any, key: Any, value: Any, role: str, text: Any, depth: int) -> None: ...


class KnownMessage(NamedTuple):
    """A message that may come again, as each turn of a conversation repeats those before it.

    It is kept the same wherever it stands, unless a text of it is a query or the user's last.
    """

    #: JSON, as is what stands in it before and after a user's last text.
    kept: str
    texts: tuple[str, ...]
    around: tuple[str, str] | None = None


def redact_message(message: Any, values: Values, words: Words) -> bool:
    """Redact a message, an item of a list, where it stands; False for one of another form, which stays as it is."""
    parts = _parts_of(message)
    if parts is None:
        return False
    role, reason = message["role"], message.get("finish_reason")
    if role != "tool":
        _redact_speech(parts, role, values, words)
    elif not _redact_answers(parts, values):
        return False
    if reason is not None:
        message["finish_reason"] = values.label(reason)
    return True


def redact_plain(message: Any, values: Values) -> tuple[str, ...] | None:
    """The same for a message that holds no text but those returned. None, and it is left anyhow, for any other."""
    parts = _parts_of(message)
    if parts is None:
        return None
    answers, texts = message["role"] == "tool", []
    if answers and not _redact_answers(parts, values):
        return None
    for part in () if answers else parts:
        text = _said(part)
        if text is not None:
            texts.append(text)
            part["content"] = f"string({len(text)})"
        elif _is_call(part):
            _redact_call(part, values)
        else:
            return None
    if "finish_reason" in message:
        message["finish_reason"] = values.label(message["finish_reason"])
    return tuple(texts)


def _parts_of(message: Any) -> list[Any] | None:
    """The parts of a message of the usual form; None for any other."""
    if not isinstance(message, dict):
        return None
    role, parts = message.get("role"), message.get("parts")
    if not isinstance(role, str) or role not in _ROLES or not isinstance(parts, list):
        return None
    if len(message) != 2 and (len(message) != 3 or not isinstance(message.get("finish_reason"), str)):
        return None
    return parts


def _redact_speech(parts: list[Any], role: str, values: Values, words: Words) -> None:
    queries = values.queries
    for index, part in enumerate(parts):
        content = _said(part)
        if content is not None and content not in queries:
            part["content"] = f"string({len(content)})"
            if role == "user":
                words.note(part, "content", content)
        elif _is_call(part):
            _redact_call(part, values)
        else:
            values.put(parts, index, part, role, words, _DEPTH)


def _redact_call(part: dict[str, Any], values: Values) -> None:
    part["id"] = values.label(part["id"])
    part["name"] = values.label(part["name"])
    part["arguments"] = values.arguments(part["arguments"])


def _said(part: Any) -> str | None:
    """The text of a part that is one; None for any other, and for JSON, which may hold messages itself."""
    if not isinstance(part, dict) or part.get("type") != "text" or len(part) != 2:
        return None
    content = part.get("content")
    return content if isinstance(content, str) and not content.startswith(("{", "[")) else None


def _is_call(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and part.get("type") == "tool_call"
        and len(part) == 4
        and "arguments" in part
        and isinstance(part.get("id"), str)
        and isinstance(part.get("name"), str)
    )


def _redact_answers(parts: list[Any], values: Values) -> bool:
    """Redact answers to calls; False, and all as it was, if anything else is among them."""
    keys = [_result_key(part) for part in parts]
    if not keys or None in keys:
        return False
    for part, key in zip(parts, keys, strict=True):
        part["id"] = values.label(part["id"])
        result = part[key]
        part[key] = result if isinstance(result, bool | None) else described(result)
    return True


def _result_key(part: Any) -> str | None:
    """Where an answer to a call has its result; None if it is none of the usual form, or holds other answers."""
    if not isinstance(part, dict) or part.get("type") != "tool_call_response" or len(part) != 3:
        return None
    key = "response" if "response" in part else "result"
    if key not in part or not isinstance(part.get("id"), str):
        return None
    return None if isinstance(part[key], dict | list) and shapes.holds_answers(part[key]) else key
