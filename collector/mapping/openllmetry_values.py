"""Arguments and results of tools, out of the wrappers that OpenLLMetry's instrumentations put them in."""

from __future__ import annotations

from typing import Any

import msgspec

from collector.mapping.conversation import ToolResult, as_text, from_json, text_or_none
from collector.mapping.langchain import tool_message
from collector.mapping.literals import from_literal
from collector.mapping.message_forms import chat_message

#: Beside ``input_str``, by which LangChain's wrapper is told from arguments of that name.
_LANGCHAIN_WRAPPER = ("inputs", "tags", "metadata", "kwargs")
#: Key under which arguments are that were no JSON.
_UNREADABLE = "_raw"


class Given(msgspec.Struct):
    """What a tool was given: the arguments, and the call's id where the wrapper tells it."""

    arguments: Any
    call_id: str | None = None


def read_given(value: Any) -> Given:
    """The arguments, out of LangChain's, MCP's and the decorators' wrappers."""
    raw = from_json(value)
    if isinstance(raw, str):
        return Given(from_literal(raw))
    if not isinstance(raw, dict):
        return Given(raw)
    if "input_str" in raw and any(key in raw for key in _LANGCHAIN_WRAPPER):
        return _langchain_given(raw)
    if "arguments" in raw and set(raw) <= {"tool_name", "arguments"}:
        return Given(from_json(raw["arguments"]))
    positional, named = raw.get("args", []), raw.get("kwargs")
    if set(raw) <= {"args", "kwargs"} and isinstance(positional, list) and isinstance(named, dict):
        return Given(_python_arguments(positional, named))
    if set(raw) == {"args"} and isinstance(positional, list) and len(positional) == 1:
        only = from_json(positional[0])  # LangChain for JavaScript
        return Given(only if isinstance(only, dict) else raw)
    return Given(readable(raw))


def _langchain_given(raw: dict[str, Any]) -> Given:
    more = raw.get("kwargs")
    call_id = text_or_none(more.get("tool_call_id")) if isinstance(more, dict) else None
    inputs = raw.get("inputs")
    if isinstance(inputs, dict):
        return Given(inputs, call_id)
    printed = from_json(raw["input_str"])
    return Given(from_literal(printed) if isinstance(printed, str) else printed, call_id)


def _python_arguments(positional: list[Any], named: dict[str, Any]) -> Any:
    """Arguments of a Python function; the names of positional ones are not told."""
    if not positional:
        return named
    if len(positional) == 1 and isinstance(positional[0], dict) and not named:
        return positional[0]
    return [*positional, named] if named else positional


def read_returned(value: Any) -> ToolResult:
    """The result, out of the wrappers of LangChain, MCP and LlamaIndex."""
    raw = from_json(value)
    if isinstance(raw, dict) and "output" in raw and set(raw) <= {"output", "kwargs"}:
        raw = raw["output"]
    message = tool_message(raw)
    if message is not None:
        return message
    told = raw if isinstance(raw, dict) else {}
    failed = told.get("is_error")
    return ToolResult(
        call_id=None,
        name=text_or_none(told.get("tool_name")),
        text=_result_text(told, raw),
        error=failed if isinstance(failed, bool) else None,
    )


def _result_text(told: dict[str, Any], raw: Any) -> str:
    if "result" in told and set(told) <= {"result", "is_error"}:
        return as_text(told["result"])
    if "raw_output" in told:
        message = chat_message({"role": "tool", "content": told.get("blocks", told.get("content"))})
        return message.results[0].text if message else as_text(told["raw_output"])
    return as_text(raw)


def readable(arguments: Any) -> Any:
    """The text that was no JSON, out of its wrapper."""
    if isinstance(arguments, dict) and list(arguments) == [_UNREADABLE]:
        return arguments[_UNREADABLE]
    return arguments
