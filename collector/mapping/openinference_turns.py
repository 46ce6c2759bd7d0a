"""What an OpenInference LLM span says: messages, menu and calls, flattened or inside its values."""

from __future__ import annotations

import re
from typing import Any

from collector.mapping import attributes as names
from collector.mapping.conversation import (
    Message,
    ModelTurn,
    ToolCall,
    ToolDefinition,
    ToolResult,
    from_json,
    objects,
    text_or_none,
    tool_definitions,
)
from collector.mapping.dspy import prompted_calls, prompted_menu, prompted_question
from collector.mapping.flattened import Group, grouped
from collector.mapping.langchain import invalid_calls
from collector.mapping.message_forms import ROLES, ChatMessage, chat_message
from collector.mapping.messages_in_values import conversations, definitions, menu
from collector.spans import Attributes

_TOOL_USE = "tool_use"
#: Anthropic's, MCP's and Bedrock's flag of a result that is an error.
_ERROR_FLAG = re.compile(r'"is_?[eE]rror":\s*true|"status":\s*"error"')
#: Ways in which a function call of before there were tool calls is told.
_FUNCTION_NAMES = ("name", "function_name")
_FUNCTION_ARGUMENTS = ("arguments", "args")


def model_turn(attributes: Attributes) -> ModelTurn:
    """The turn that the span's attributes tell. What is not flattened is looked for in its input and output values."""
    outputs = _messages(attributes, names.OI_OUTPUT_MESSAGES, names.OI_OUTPUT)
    outputs = outputs or _completions(attributes.get(names.OI_OUTPUT))
    calls = [call for message in outputs for call in message.calls]
    turn = ModelTurn(
        messages=_messages(attributes, names.OI_INPUT_MESSAGES, names.OI_INPUT),
        tools=_tools(attributes),
        calls=calls + _unreadable(attributes, calls) or _function_call(attributes),
    )
    return turn if turn.tools else _prompted(turn, outputs)


def _prompted(turn: ModelTurn, outputs: list[Message]) -> ModelTurn:
    """The turn with the menu and the call that stand in its texts, if they do."""
    tools = prompted_menu(turn.messages)
    if not tools:
        return turn
    calls = turn.calls or prompted_calls(outputs)
    return ModelTurn(messages=prompted_question(turn.messages), tools=tools, calls=calls)


def _completions(value: Any) -> list[Message]:
    """Answers that are no messages but hold calls as one does."""
    found = (chat_message({"role": "assistant"} | item) for item in objects(value) if item.get("tool_calls"))
    return [message for message in found if message is not None]


def _messages(attributes: Attributes, prefix: str, value: str) -> list[Message]:
    groups = grouped(attributes, prefix)
    if not groups:
        return [*values_messages(attributes.get(value))]
    messages = [_message(group) for group in groups]
    given = attributes.get(value)
    lacks_ids = any(call.call_id is None for message in messages for call in message.calls)
    if lacks_ids or (isinstance(given, str) and _ERROR_FLAG.search(given)):
        _complete(messages, values_messages(given))
    return messages


def _complete(messages: list[Message], told: list[ChatMessage]) -> None:
    """Add what flattened messages lack, from the same ones in the span's value: ids of calls (OpenInference for
    JavaScript writes none), and which results failed (no flattened one has a flag)."""
    calls = [call for message in messages for call in message.calls]
    told_calls = [call for message in told for call in message.calls]
    if [call.name for call in calls] == [call.name for call in told_calls]:
        for call, same in zip(calls, told_calls, strict=True):
            call.call_id = call.call_id or same.call_id
    results = [result for message in told for result in message.results]
    by_id = {result.call_id: result for result in results if result.call_id}
    nameless = [message for message in messages if message.role == "tool" and not any(_ids(message))]
    for message in messages:
        message.results = [by_id.get(result.call_id or "", result) for result in message.results]
    if len(nameless) == len(results):
        for message, result in zip(nameless, results, strict=True):
            message.results = [result]


def _ids(message: Message) -> list[str | None]:
    return [result.call_id for result in message.results]


def values_messages(value: Any) -> list[ChatMessage]:
    """The messages of the first conversation in a value; of several answers of a model, the first."""
    found = conversations(value)
    return found[0].messages if found else []


def _unreadable(attributes: Attributes, calls: list[ToolCall]) -> list[ToolCall]:
    """Calls that LangChain could not read, which are not flattened."""
    known = {call.call_id for call in calls if call.invalid}
    return [call for call in invalid_calls(attributes.get(names.OI_OUTPUT)) if call.call_id not in known]


def _message(group: Group) -> Message:
    parts = grouped(group, names.OI_PARTS)
    text = _shown(group.get(names.OI_CONTENT))
    if text is None:
        texts = (_shown(part.get(names.OI_PART_TEXT)) for part in parts)
        text = "\n".join(part for part in texts if part) or None
    calls = [call for raw in grouped(group, names.OI_CALLS) if (call := _call(raw))]
    calls = calls or [call for part in parts if (call := _part_call(part))]
    told_role = str(group.get(names.OI_ROLE, ""))
    role = ROLES.get(told_role, told_role)
    return Message(role=role, text=text, calls=calls or _legacy_call(group), results=_results(group, role, text))


def _shown(value: Any) -> str | None:
    return None if value == names.OI_REDACTED else text_or_none(value)


def _call(group: Group) -> ToolCall | None:
    name = text_or_none(group.get(names.OI_CALL_NAME))
    if name is None:
        return None
    call_id = text_or_none(group.get(names.OI_CALL_ID))
    return ToolCall(name=name, call_id=call_id, arguments=group.get(names.OI_CALL_ARGUMENTS))


def _part_call(part: Group) -> ToolCall | None:
    """A call that stands among the parts of a message, in their order."""
    name = text_or_none(part.get(names.OI_PART_CALL_NAME))
    if part.get(names.OI_PART_TYPE) != _TOOL_USE or name is None:
        return None
    call_id = text_or_none(part.get(names.OI_PART_CALL_ID))
    return ToolCall(name=name, call_id=call_id, arguments=part.get(names.OI_PART_CALL_INPUT))


def _legacy_call(group: Group) -> list[ToolCall]:
    name = text_or_none(group.get(names.OI_FUNCTION_NAME))
    return [ToolCall(name=name, arguments=group.get(names.OI_FUNCTION_ARGUMENTS))] if name else []


def _function_call(attributes: Attributes) -> list[ToolCall]:
    """The call that the whole span made, in OpenInference's oldest form."""
    told = from_json(attributes.get(names.OI_FUNCTION_CALL))
    if not isinstance(told, dict):
        return []
    name = next((text for key in _FUNCTION_NAMES if (text := text_or_none(told.get(key)))), None)
    arguments = next((told[key] for key in _FUNCTION_ARGUMENTS if key in told), None)
    return [ToolCall(name=name, arguments=arguments)] if name else []


def _results(group: Group, role: str, text: str | None) -> list[ToolResult]:
    call_id = text_or_none(group.get(names.OI_RESULT_ID))
    name = text_or_none(group.get(names.OI_RESULT_NAME))
    if call_id is None and (role != "tool" or name is None):
        return []
    return [ToolResult(call_id=call_id, name=name, text=text or "")]


def _tools(attributes: Attributes) -> list[ToolDefinition]:
    """The menu: flattened, as one list, or among the parameters of the request."""
    groups = grouped(attributes, names.OI_TOOLS)
    flattened = [tool for group in groups for tool in _tool(group)]
    return (
        flattened
        or definitions(attributes.get(names.OI_TOOLS))
        or menu(from_json(attributes.get(names.OI_PARAMETERS)), _request(attributes.get(names.OI_INPUT)))
    )


def _tool(group: Group) -> list[ToolDefinition]:
    """The definitions of one numbered entry: whole in its schema, or its name, description and parameters apart."""
    schemas = [group[names.OI_TOOL_SCHEMA]] if names.OI_TOOL_SCHEMA in group else []
    whole = tool_definitions(schemas) or definitions(schemas)
    name = text_or_none(group.get(names.OI_TOOL_NAME))
    if whole or name is None:
        return whole
    schema = from_json(group.get(names.OI_TOOL_PARAMETERS, group.get(names.OI_TOOL_SCHEMA)))
    return [
        ToolDefinition(
            name=name,
            description=text_or_none(group.get(names.OI_TOOL_DESCRIPTION)),
            parameters=schema if isinstance(schema, dict) else None,
        )
    ]


def _request(value: Any) -> Any:
    """The request to the model that an input is, if it has a menu; most are without, and long."""
    if isinstance(value, str) and '"tools"' not in value and '"functions"' not in value:
        return None
    return from_json(value)
