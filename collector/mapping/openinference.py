"""OpenInference conventions: LLM, TOOL, AGENT and CHAIN spans.

An agent's run is often told twice: by its model and tool spans, and by the messages in the input and output of the
AGENT and CHAIN spans around them. Many exports have the latter only.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from collector.facts import CallFact, Facts
from collector.mapping import attributes as names
from collector.mapping.agent_runs import AgentRun, context_of_run, run_after_query, run_facts
from collector.mapping.conversation import ModelTurn, from_json, text_or_none
from collector.mapping.dspy import CALLED
from collector.mapping.facts_of import Origin, ToolRun, context_facts, run_fact, turn_facts
from collector.mapping.langchain import settle, tool_message, tool_node
from collector.mapping.messages_in_values import (
    Conversation,
    conversations,
    may_tell_calls,
    menu,
    query_in,
)
from collector.mapping.openinference_turns import model_turn
from collector.mapping.origin import origin_of
from collector.mapping.rules import Rule, marked
from collector.spans import Attributes, Span
from pickwise.settings import Settings

#: OpenAI Agents end a turn so when the model names a tool that does not exist; no tool span follows.
_NOT_FOUND = re.compile(r"^Tool not found: \{'tool_name': '(?P<name>[^']+)'\}")
_RUN_KINDS = frozenset({"AGENT", "CHAIN"})
#: Keys of the free metadata that hold the session, under the names that its users commonly choose.
_METADATA_SESSIONS = ("session_id", "sessionId", "thread_id", "conversation_id", "chat_id")
#: What a call is wrapped in where a tool was called as a Python function.
_CALL_WRAPPER = frozenset({"args", "kwargs", "sanitize_inputs_outputs"})
_JSON = "application/json"
#: Status of a span that ended well.
_OK = 1


def kind_of(span: Span) -> str | None:
    return text_or_none(span.attributes.get(names.OI_KIND))


def origin(span: Span) -> Origin:
    """``origin_of``, with what the free metadata and the newer names of the model tell."""
    told = origin_of(span)
    if told.session_id is None and names.OI_METADATA in span.attributes:
        metadata = from_json(span.attributes[names.OI_METADATA])
        held = (metadata.get(key) for key in _METADATA_SESSIONS) if isinstance(metadata, dict) else ()
        told.session_id = next((str(value) for value in held if isinstance(value, str | int) and value != ""), None)
    if told.model is None:
        models = (span.attributes.get(key) for key in (names.OI_REQUEST_MODEL, names.OI_RESPONSE_MODEL))
        told.model = next((model for model in models if isinstance(model, str) and model), None)
    return told


# --- model and tool spans --------------------------------------------------------------------------------------------


@marked(names.OI_KIND)
def _model_span(span: Span, settings: Settings) -> Facts | None:
    if kind_of(span) != "LLM":
        return None
    if _tells_run(span.attributes):
        return _run_facts(span, settings)
    turn = model_turn(span.attributes)
    if _is_around_model(span, turn):
        return context_facts(span, origin(span), turn, settings)
    return turn_facts(span, origin(span), turn, settings)


def _is_around_model(span: Span, turn: ModelTurn) -> bool:
    """Whether what is called a model only lies around one: it ended well, and knows of no answer.

    LlamaIndex has such spans around a model that streams.
    """
    if turn.calls or span.status_code != _OK or names.OI_OUTPUT in span.attributes:
        return False
    return not any(key.startswith(names.OI_OUTPUT_MESSAGES) for key in span.attributes)


def _tells_run(attributes: Attributes) -> bool:
    """Whether what is called a model returned a whole run: calls with their results.

    Its last words are its output message. Where it called tools on the way, those calls are the span's own.
    """
    if not any(key.startswith(names.OI_CALLS) for key in attributes) and any(
        key.startswith(names.OI_OUTPUT_MESSAGES) for key in attributes
    ):
        return False
    output = attributes.get(names.OI_OUTPUT)
    found = conversations(output) if may_tell_calls(output) else []
    return any(message.results for conversation in found for message in conversation.messages)


@marked(names.OI_KIND)
def _tool_span(span: Span, settings: Settings) -> Facts | None:
    return Facts(calls=[tool_run(span, settings)]) if kind_of(span) == "TOOL" else None


def tool_run(span: Span, settings: Settings) -> CallFact:
    """The call that a TOOL span is."""
    attributes = span.attributes
    output = shown(attributes, names.OI_OUTPUT)
    quoted = tool_message(from_json(output))
    ids = (attributes.get(names.OI_TOOL_CALL_ID), attributes.get(names.OI_TOOL_ID), quoted.call_id if quoted else None)
    arguments = arguments_of(attributes)
    run = ToolRun(
        skill_id=text_or_none(attributes.get(names.OI_TOOL_NAME)) or span.name.removesuffix(CALLED),
        call_id=next((call_id for call_id in ids if isinstance(call_id, str) and call_id), None),
        arguments=arguments,
        result=quoted.text if quoted else output,
    )
    fact = run_fact(span, origin(span), run, settings)
    settle(fact, span, quoted, settings)
    if fact.ok is False and fact.error_kind in (None, "tool_error") and _breaks_schema(attributes, arguments):
        fact.error_kind = "invalid_arguments"
    return fact


def shown(attributes: Attributes, name: str) -> Any:
    """The attribute, or None where the sender hides it."""
    value = attributes.get(name)
    return None if value == names.OI_REDACTED else value


def arguments_of(attributes: Attributes) -> Any:
    """The arguments of a call, without what the framework wraps them in."""
    value = shown(attributes, names.OI_INPUT)
    value = shown(attributes, names.OI_CALL_ARGUMENTS) if value is None else value
    schema = from_json(attributes.get(names.OI_TOOL_PARAMETERS))
    if value is None:
        # Some instrumentations write the arguments where the schema belongs.
        return schema if isinstance(schema, dict) and not _is_schema(schema) else None
    decoded = from_json(value)
    if isinstance(decoded, dict) and "kwargs" in decoded and decoded.keys() <= _CALL_WRAPPER:
        return _unwrapped(decoded, schema)
    if isinstance(decoded, str) and attributes.get(names.OI_INPUT_TYPE) != _JSON and decoded[:1] not in ("{", "["):
        only = _argument_names(schema)
        return {only[0]: decoded} if len(only) == 1 else value
    return value


def _unwrapped(call: dict[str, Any], schema: Any) -> Any:
    """Arguments given by name and by place. What a model wrote that is no JSON is given by place, whole."""
    named = call["kwargs"] if isinstance(call["kwargs"], dict) else {}
    placed = call.get("args") if isinstance(call.get("args"), list) else []
    assert isinstance(placed, list)
    if len(placed) == 1 and not named and isinstance(placed[0], str) and placed[0].lstrip()[:1] == "{":
        return placed[0]
    return dict(zip(_argument_names(schema), placed, strict=False)) | named


def _is_schema(value: dict[str, Any]) -> bool:
    """JSON Schema, or the properties of one without the rest."""
    return "properties" in value or (
        bool(value) and all(isinstance(item, dict) and "type" in item for item in value.values())
    )


def _argument_names(schema: Any) -> list[str]:
    """The names of a tool's arguments in order, from its JSON Schema or the bare properties of one."""
    if not isinstance(schema, dict) or not _is_schema(schema):
        return []
    properties = schema.get("properties", schema)
    return list(properties) if isinstance(properties, dict) else []


def _breaks_schema(attributes: Attributes, given: Any) -> bool:
    """Whether the arguments break the tool's own schema: some frameworks redact why a call failed.

    Looks at the names only, which needs no foreign schema to be run.
    """
    schema, arguments = from_json(attributes.get(names.OI_TOOL_PARAMETERS)), from_json(given)
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False
    if not isinstance(arguments, dict):
        return True
    required, properties = schema.get("required", []), schema.get("properties", {})
    missing = isinstance(required, list) and any(name not in arguments for name in required)
    closed = schema.get("additionalProperties") is False and isinstance(properties, dict)
    return missing or (closed and any(name not in properties for name in arguments))


# --- spans around them -----------------------------------------------------------------------------------------------


@marked(names.OI_KIND)
def _tool_node(span: Span, settings: Settings) -> Facts | None:
    return tool_node(span, settings) if kind_of(span) == "CHAIN" else None


@marked(names.OI_KIND)
def _unknown_tool(span: Span, settings: Settings) -> Facts | None:
    if kind_of(span) != "CHAIN":
        return None
    found = _NOT_FOUND.match(span.status_message) if span.failed else None
    return Facts(calls=[unknown_tool(span, found["name"], settings)]) if found else None


def unknown_tool(span: Span, name: str, settings: Settings) -> CallFact:
    """The call of a tool that does not exist, told by the step that it ended."""
    fact = run_fact(span, origin(span), ToolRun(skill_id=name), settings)
    # The step starts before its model span; the call is known at its end. How long the step took is not its latency.
    fact.time, fact.latency_ms, fact.error_kind = span.end_ns or None, None, "not_found"
    return fact


@marked(names.OI_KIND)
def _run_span(span: Span, settings: Settings) -> Facts | None:
    """The turns of a run that its messages tell, and what the run knows for turns that others tell."""
    return _run_facts(span, settings) if kind_of(span) in _RUN_KINDS else None


def _run_facts(span: Span, settings: Settings) -> Facts | None:
    told = run_origin(span)
    given, returned = values_of(span)
    offered = [from_json(span.attributes.get(names.OI_INPUT))] if given or returned else []
    tools = menu(*(found.holder for found in (*returned, *given)), *offered)
    runs = [msgspec.structs.replace(run, tools=tools) for run in told_runs(given, returned, query_of(span, given))]
    facts = run_facts(span, told, runs, settings)
    if kind_of(span) == "AGENT" or span.parent_span_id is None:
        query = next((run.query for run in runs if run.query), None) or query_of(span, given)
        facts.extend(context_of_run(span, told, query, tools, settings))
    return facts if len(facts) else None


def run_origin(span: Span) -> Origin:
    """``origin`` of a span around an agent: a node of a graph that is an agent has the agent's name."""
    told = origin(span)
    if told.agent is None and kind_of(span) == "AGENT":
        told.agent = text_or_none(span.attributes.get(names.OI_NODE))
    return told


def values_of(span: Span) -> tuple[list[Conversation], list[Conversation]]:
    """The conversations that a span was given and that it returned; those that tell of no call only of an agent."""
    values = span.attributes.get(names.OI_INPUT), span.attributes.get(names.OI_OUTPUT)
    if not any(may_tell_calls(value) for value in values):
        return (conversations(values[0]), []) if kind_of(span) == "AGENT" else ([], [])
    given, returned = (conversations(value) for value in values)
    return given, returned


def query_of(span: Span, given: list[Conversation]) -> str | None:
    """The words of the user that a run was given."""
    asked = [message.text for found in given for message in found.messages if message.role == "user" and message.text]
    return asked[-1] if asked else query_in(span.attributes.get(names.OI_INPUT))


def told_runs(given: list[Conversation], returned: list[Conversation], query: str | None) -> list[AgentRun]:
    """The runs that the conversations tell: what was returned goes on where what was given ends, if it doesn't repeat
    it. Where nothing was returned, what was given is all that is known.
    """
    if not returned:
        return [run for found in given if (run := run_after_query(found.messages, query=query)).turns]
    history = given[0].messages if given else []
    return [_continued(history, found, query) for found in returned]


def _continued(history: list[Any], found: Conversation, query: str | None) -> AgentRun:
    messages = found.messages
    repeats = any(message.role == "user" and message.text for message in messages)
    if repeats or messages[: len(history)] == history:
        return run_after_query(messages, query=query)
    return run_after_query([*history, *messages], query=query, fresh=len(history))


RULES: tuple[Rule, ...] = (_model_span, _tool_span, _tool_node, _unknown_tool, _run_span)
