"""DSPy: the tools that a model is offered, and often what it calls, stand in the text of its prompt and its answer.

A prompt has its inputs in sections (``[[ ## question ## ]]``) and says of each tool what it does and what it takes. A
ReAct step answers with the name of a tool and its arguments, in sections or as JSON. ``finish`` is how it ends, not a
skill: it is in no menu and is no call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from collector.facts import Facts
from collector.mapping import attributes as names
from collector.mapping.conversation import Message, Said, ToolCall, ToolDefinition, from_json, text_or_none
from collector.mapping.printed import literal
from collector.mapping.rules import Rule, marked
from collector.spans import Span
from pickwise.settings import Settings

_FINISH = "finish"
#: Name of the method that a span is, where a tool is an object that is called.
CALLED = ".__call__"
_SECTION = re.compile(r"^\[\[ ## (\w{1,200}) ## \]\]$", re.MULTILINE)
_TOOL_NAME, _TOOL_ARGUMENTS = "next_tool_name", "next_tool_args"
#: How a prompt tells of a tool: ``NAME, whose description is <desc>…</desc>. It takes arguments {…}.``
_DESCRIBED, _DESCRIPTION_END, _ARGUMENTS = ", whose description is <desc>", "</desc>", ". It takes arguments "
_ARGUMENTS_END = "}."
_NAME_AT_END = re.compile(r"[\w.\-/:]{1,200}\Z")
_NAME_CHARS = 200


def prompted_menu(messages: Sequence[Said]) -> list[ToolDefinition]:
    """The tools that the prompt tells of; none where it is no such prompt."""
    tools: dict[str, ToolDefinition] = {}
    for message in messages:
        parts = (message.text or "").split(_DESCRIBED)
        for before, after in pairwise(parts):
            name = _NAME_AT_END.search(before[-_NAME_CHARS:])
            if name is not None and name[0] != _FINISH:
                tools.setdefault(name[0], _definition(name[0], after))
    return list(tools.values())


def _definition(name: str, told: str) -> ToolDefinition:
    description, _, rest = told.partition(_DESCRIPTION_END)
    takes = rest.removeprefix(_ARGUMENTS).partition(_ARGUMENTS_END)[0] + "}"
    properties = literal(takes)
    parameters = {"type": "object", "properties": properties} if isinstance(properties, dict) else None
    return ToolDefinition(name=name, description=description or None, parameters=parameters)


def prompted_question(messages: Sequence[Said]) -> list[Message]:
    """The question alone: the first input in the last message of the user, without the course of the run so far."""
    text = next((message.text for message in reversed(messages) if message.role == "user" and message.text), None)
    asked = next(iter(_sections(text).values()), None) if text else None
    return [Message(role="user", text=asked or text)]


def prompted_calls(said: Sequence[Said]) -> list[ToolCall]:
    """The call that an answer names in its text."""
    return [call for message in said if message.text and (call := _call(message.text))]


def _call(text: str) -> ToolCall | None:
    told: Any = _sections(text) or from_json(text)
    name = text_or_none(told.get(_TOOL_NAME)) if isinstance(told, dict) else None
    if name is None or name == _FINISH:
        return None
    return ToolCall(name=name, arguments=told.get(_TOOL_ARGUMENTS))


def _sections(text: str) -> dict[str, str]:
    """What stands below each heading, by its name."""
    parts = _SECTION.split(text)
    return {name: below.strip() for name, below in zip(parts[1::2], parts[2::2], strict=True)}


@marked(names.OI_KIND)
def _finish(span: Span, _settings: Settings) -> Facts | None:
    return Facts() if span.name == _FINISH + CALLED and span.attributes.get(names.OI_KIND) == "TOOL" else None


RULES: tuple[Rule, ...] = (_finish,)
