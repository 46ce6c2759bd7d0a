"""Conversations inside the values of spans: lists of chat messages, wherever the JSON holds them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from collector.mapping import attributes as names
from collector.mapping.conversation import ToolDefinition, from_json, text_or_none, tool_definitions
from collector.mapping.message_forms import ChatMessage, chat_message
from collector.mapping.printed import printed_tool

#: A cheap look at a text before it is decoded: without one of these it tells of no call and no offer.
_CALL = re.compile(r'[tT]ool[_-]?(?:[uU]se|[cC]all)|function_?[cC]all|"(?:available_)?tools"|"functions"')
#: How deep a conversation may lie, and how many values are looked through; state of graphs is large.
_MAX_DEPTH = 6
_MAX_VALUES = 2_000
#: Keys that frameworks have a menu under, beside the messages or among the parameters of the call.
_MENUS = ("tools", "functions", "available_tools", "tools_names", "tool_names", "allowed_tools")
#: Keys that frameworks have the words of the user under.
_QUERIES = ("task", "query", "question", "input", "prompt", "user_input", "user_message", "message", "text")

Holder = dict[str, Any]


#: A tool's name where no definition says that it is one.
_NAME = re.compile(r"[\w.\-/:]{1,200}")


class Conversation(msgspec.Struct, kw_only=True):
    """A list of messages, the object that holds it, and the keys that lead to that object."""

    messages: list[ChatMessage]
    holder: Holder
    path: tuple[str, ...]

    @property
    def tells_calls(self) -> bool:
        return any(message.calls or message.results for message in self.messages)


def may_tell_calls(value: Any) -> bool:
    """Whether a text or structure may hold calls, or a menu, at all."""
    return bool(_CALL.search(value)) if isinstance(value, str) else isinstance(value, dict | list)


def conversations(value: Any) -> list[Conversation]:
    """The conversations of a value, given structured or as JSON text, the outermost first.

    A message that is no item of a list is a conversation of one.
    """
    found: list[Conversation] = []
    waiting = [_Place(from_json(value), {}, (), 0)]
    for place in waiting:
        messages = _messages_of(place.value)
        if messages:
            found.append(Conversation(messages=messages, holder=place.holder, path=place.path))
        elif place.depth < _MAX_DEPTH and len(waiting) < _MAX_VALUES:
            waiting += _inside(place)
    return found


class _Place(msgspec.Struct):
    """A value, the object around it, the keys that lead to that object, and how deep it lies."""

    value: Any
    holder: Holder
    path: tuple[str, ...]
    depth: int


def _inside(place: _Place) -> Iterator[_Place]:
    """The values in a value that may hold a conversation; text only where it looks like JSON that tells of calls."""
    value, depth = place.value, place.depth + 1
    if isinstance(value, list):
        for item in value:
            if isinstance(item, list):
                yield _Place(item, place.holder, place.path, depth)
            elif isinstance(item, dict):
                yield from _inside(_Place(item, item, place.path, place.depth))
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, str) and item.startswith(("[", "{")) and may_tell_calls(item):
                item = from_json(item)
            if isinstance(item, list):
                yield _Place(item, value, place.path, depth)
            elif isinstance(item, dict):
                yield _Place(item, value, (*place.path, key), depth)


def _messages_of(value: Any) -> list[ChatMessage]:
    if isinstance(value, list):
        return _messages(value)
    message = chat_message(value) if isinstance(value, dict) else None
    return [message] if message is not None else []


def _messages(items: list[Any]) -> list[ChatMessage]:
    """The messages of a list, if it is one of messages; calls that stand by themselves join the message before."""
    messages: list[ChatMessage] = []
    for item in items:
        message = chat_message(item)
        if message is None:
            # What stands between the items of a response, reasoning say, is no message; any other list is none at all.
            if messages and isinstance(item, dict) and isinstance(item.get("type"), str):
                continue
            return []
        if message.bare and messages and messages[-1].role == "assistant":
            messages[-1].calls = messages[-1].calls + message.calls
        else:
            messages.append(message)
    return messages


def menu(*holders: Any) -> list[ToolDefinition]:
    """The first menu that one of the objects has, of definitions or of bare names."""
    for holder in holders:
        for key in _MENUS if isinstance(holder, dict) else ():
            if tools := definitions(holder.get(key)):
                return tools
    return []


def definitions(value: Any) -> list[ToolDefinition]:
    """The tools of a list of definitions, bare names, or tools as Python prints them."""
    decoded = from_json(value)
    if not isinstance(decoded, list):
        return []
    named = [_named(item) if isinstance(item, str) else None for item in decoded]
    if decoded and all(named):
        return [tool for tool in named if tool]
    return tool_definitions([definition for item in decoded for definition in _unwrapped(item)])


def _named(text: str) -> ToolDefinition | None:
    if _NAME.fullmatch(text):
        return ToolDefinition(name=text)
    printed = printed_tool(text)
    return ToolDefinition(name=printed[0], description=printed[1]) if printed else None


def _unwrapped(item: Any) -> list[Any]:
    """What the envelopes of Bedrock (``toolSpec``) and Gemini (``functionDeclarations``) hold."""
    decoded = from_json(item) if isinstance(item, str) and ("toolSpec" in item or "unction" in item) else item
    if not isinstance(decoded, dict):
        return [item]
    spec = decoded.get("toolSpec")
    if isinstance(spec, dict):
        schema = spec.get("inputSchema")
        return [spec | {"inputSchema": schema.get("json", schema)}] if isinstance(schema, dict) else [spec]
    declared = decoded.get("functionDeclarations", decoded.get("function_declarations"))
    return declared if isinstance(declared, list) else [item]


def query_in(value: Any) -> str | None:
    """The words of the user in a value: plain text, or the field that frameworks have them in."""
    decoded = from_json(value)
    if isinstance(decoded, dict):
        return next((text for key in _QUERIES if (text := text_or_none(decoded.get(key)))), None)
    if not isinstance(decoded, str) or decoded == names.OI_REDACTED or decoded.lstrip().startswith(("{", "[")):
        return None
    return decoded or None
