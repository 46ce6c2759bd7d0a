"""OpenLLMetry (Traceloop): both generations of its conventions.

The older one flattens messages into numbered names (``gen_ai.prompt.0.content``) and offered tools into
``llm.request.functions.0.name``. The newer one writes OpenTelemetry's messages, which the rules for those read; but
the arguments and results of its tools come in wrappers, and what a graph refused is only in what its nodes returned.
"""

from __future__ import annotations

from typing import Any

from collector.facts import CallFact, Facts
from collector.mapping import attributes as names
from collector.mapping import genai
from collector.mapping.conversation import (
    Message,
    ModelTurn,
    ToolDefinition,
    ToolResult,
    as_text,
    from_json,
    text_or_none,
    tool_definitions,
)
from collector.mapping.facts_of import Origin, ToolRun, context_facts, run_fact, selection_id, turn_facts
from collector.mapping.flattened import Group, grouped
from collector.mapping.genai_events import messages
from collector.mapping.langchain import node_facts, settle, unreadable_proposals
from collector.mapping.message_forms import chat_message
from collector.mapping.openllmetry_values import read_given, read_returned, readable
from collector.mapping.origin import origin_of
from collector.mapping.rules import Rule, marked
from collector.spans import Attributes, Span
from pickwise.settings import Settings

_MODEL_REQUESTS = ("chat", "completion")
#: One of these is on every model span whose messages are flattened.
_FLATTENED = frozenset(
    f"{prefix}.0.{field}"
    for prefix, fields in (
        (names.PROMPTS, ("role", "content", names.TL_USER)),
        (names.COMPLETIONS, ("role", "content", f"{names.TL_CALLS}.0.name", f"{names.TL_FUNCTION_CALL}.name")),
        (names.TL_FUNCTIONS, ("name",)),
    )
    for field in fields
)
#: The part of it that tells what a model chose, and among what.
_FLATTENED_CHOICE = frozenset({f"{names.TL_FUNCTIONS}.0.name", f"{names.COMPLETIONS}.0.{names.TL_FUNCTION_CALL}.name"})
_SCHEMAS = ("parameters", "input_schema")
_SCOPE = "opentelemetry.instrumentation."
_LANGCHAIN_SCOPE = "opentelemetry.instrumentation.langchain"
#: Since this release its handler writes log records when the model's span is no longer the current one.
_RECORDS_OUTSIDE = (0, 59, 1)
#: LlamaIndex and LangChain for JavaScript: names of classes where the tool's name belongs.
_TOOL_CLASSES = frozenset({"FunctionTool", "QueryEngineTool", "DynamicTool", "DynamicStructuredTool"})
#: Stands in the path of a function that is local to another.
_LOCALS = "<locals>."
#: Keys of LangChain's metadata, which newer releases put on each span below ``traceloop.association.properties``.
_SESSIONS = tuple(name.rpartition(".")[2] for name in names.TL_SESSIONS)
_AGENT = names.TL_AGENT.rpartition(".")[2]
#: Workflow of the spans of an MCP server: its own name, not the agent's.
_MCP_SERVER = ".mcp"


# --- model spans -----------------------------------------------------------------------------------------------------


@marked(names.TL_REQUEST_TYPE, *_FLATTENED)
def _flattened_model_span(span: Span, settings: Settings) -> Facts | None:
    if not _is_flattened(span.attributes):
        return None
    turn = _turn(span.attributes)
    facts = turn_facts(span, _origin(span), turn, settings)
    if not (facts.selections or turn.messages):
        # Its messages may come as log records, which know neither when it began nor whose it was.
        facts.extend(context_facts(span, _origin(span), turn, settings))
    return facts


def _is_flattened(attributes: Attributes) -> bool:
    if names.INPUT_MESSAGES in attributes or names.OUTPUT_MESSAGES in attributes:
        # LiteLLM has the messages in the newer generation's form, but menu and calls in the older one's.
        return not attributes.keys().isdisjoint(_FLATTENED_CHOICE)
    return attributes.get(names.TL_REQUEST_TYPE) in _MODEL_REQUESTS or not attributes.keys().isdisjoint(_FLATTENED)


def _turn(attributes: Attributes) -> ModelTurn:
    returned = [_message(group, "assistant") for group in grouped(attributes, names.COMPLETIONS)]
    sent = [message for group in grouped(attributes, names.PROMPTS) if (message := _message(group, "user"))]
    offered = [tool for group in grouped(attributes, names.TL_FUNCTIONS) if (tool := _definition(group))]
    return ModelTurn(
        messages=sent or messages(attributes.get(names.INPUT_MESSAGES), "user"),
        tools=offered or tool_definitions(attributes.get(names.TOOL_DEFINITIONS)),
        calls=[call for message in returned if message for call in message.calls]
        or [call for message in messages(attributes.get(names.OUTPUT_MESSAGES), "assistant") for call in message.calls],
    )


def _definition(group: Group) -> ToolDefinition | None:
    name = text_or_none(group.get("name"))
    if name is None:
        return None
    schema = next((decoded for key in _SCHEMAS if isinstance(decoded := from_json(group.get(key)), dict)), None)
    return ToolDefinition(name=name, description=text_or_none(group.get("description")), parameters=schema)


def _message(group: Group, role: str) -> Message | None:
    content = group.get("content", group.get(names.TL_USER, ""))
    parts = from_json(content) if isinstance(content, str) and content.startswith("[{") else content
    only_call = {key: group.get(f"{names.TL_FUNCTION_CALL}.{key}") for key in ("name", "arguments")}
    return chat_message(
        {
            "role": group.get("role", role),
            "content": parts if isinstance(parts, list) else as_text(content),
            "tool_calls": grouped(group, names.TL_CALLS) or ([only_call] if only_call["name"] else []),
            names.TL_RESULT_ID: group.get(names.TL_RESULT_ID),
        }
    )


@marked(*genai.MARKS)
def _model_span(span: Span, settings: Settings) -> Facts | None:
    """The newer generation: OpenTelemetry's messages, but for what its instrumentations write otherwise."""
    if not span.scope_name.startswith(_SCOPE) or names.TOOL_NAME in span.attributes:
        return None
    facts = next((found for rule in genai.RULES if (found := rule(span, settings)) is not None), None)
    if facts is None or not (facts.selections or facts.calls):
        return facts
    for call in facts.calls:
        call.arguments = readable(call.arguments)
    agent = _origin(span).agent
    for event in (*facts.selections, *facts.calls):
        event.agent = event.agent or agent
    if span.parent_span_id and _tells_messages_apart(span):
        _move(facts, selection_id(span.trace_id, span.span_id), selection_id(span.trace_id, span.parent_span_id))
    return facts


def _tells_messages_apart(span: Span) -> bool:
    """Whether LangChain's handler told the messages in log records that name the span around the model's.

    What the model answered is on its span whether or not it is told in records, what it was asked is in one place only.
    """
    attributes = span.attributes
    told = names.OUTPUT_MESSAGES in attributes and names.INPUT_MESSAGES not in attributes
    return told and span.scope_name == _LANGCHAIN_SCOPE and _version(span.scope_version) >= _RECORDS_OUTSIDE


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


def _move(facts: Facts, old: str, new: str) -> None:
    """Let the turn have the event id that the facts of its log records have."""
    for selection in facts.selections:
        selection.event_id = new if selection.event_id == old else selection.event_id
    for call in facts.calls:
        call.selection_id = new if call.selection_id == old else call.selection_id


# --- tool spans ------------------------------------------------------------------------------------------------------


@marked(names.TL_KIND)
def _tool_span(span: Span, settings: Settings) -> Facts | None:
    attributes = span.attributes
    kind = attributes.get(names.TL_KIND)
    if kind != "tool" and not (kind == "task" and _class_name(attributes) in _TOOL_CLASSES):
        return None
    given = read_given(attributes.get(names.TOOL_ARGUMENTS, attributes.get(names.TL_INPUT)))
    returned = read_returned(attributes.get(names.TOOL_RESULT, attributes.get(names.TL_OUTPUT)))
    skill_id = _skill(attributes) or returned.name
    if skill_id is None:
        return Facts()
    call_id = text_or_none(attributes.get(names.TOOL_CALL_ID)) or given.call_id or returned.call_id
    run = ToolRun(skill_id=skill_id, call_id=call_id, arguments=given.arguments, result=returned.text)
    return Facts(calls=[_run(span, run, returned, settings)])


@marked(names.TL_KIND)
def _tool_step(span: Span, settings: Settings) -> Facts | None:
    """The step in which a LlamaIndex agent calls a tool. It knows the call's id; the tool's own span lies within."""
    name = text_or_none(span.attributes.get(names.OI_TOOL_NAME))
    if name is None or span.attributes.get(names.TL_KIND) is None:
        return None
    told = _object(from_json(span.attributes.get(names.TL_OUTPUT)))
    if "tool_output" not in told:
        return None
    returned = read_returned(told["tool_output"])
    arguments = from_json(span.attributes.get(names.TOOL_ARGUMENTS_LLAMAINDEX))
    run = ToolRun(skill_id=name, call_id=text_or_none(told.get("tool_id")), arguments=arguments, result=returned.text)
    return Facts(calls=[_run(span, run, returned, settings)])


def _run(span: Span, run: ToolRun, returned: ToolResult, settings: Settings) -> CallFact:
    fact = run_fact(span, _origin(span), run, settings)
    settle(fact, span, returned, settings)
    return fact


def _skill(attributes: Attributes) -> str | None:
    """The tool's name. A decorated function that gives none is called by its path in Python."""
    name = text_or_none(attributes.get(names.TOOL_NAME))
    if name is None and _class_name(attributes) not in _TOOL_CLASSES:
        name = text_or_none(attributes.get(names.TL_NAME))
    return name.rpartition(_LOCALS)[2] if name else None


def _class_name(attributes: Attributes) -> str:
    """The entity's name without the kind that LlamaIndex puts behind it."""
    return as_text(attributes.get(names.TL_NAME)).partition(".")[0]


# --- other spans -----------------------------------------------------------------------------------------------------


@marked(names.TL_KIND)
def _node(span: Span, settings: Settings) -> Facts | None:
    """A node of a LangGraph, or what is around its model."""
    attributes = span.attributes
    if attributes.get(names.TL_KIND) != "task":
        return None
    returned = attributes.get(names.TL_OUTPUT)
    facts = node_facts(span, attributes.get(names.TL_INPUT), returned, settings)
    if facts is None and (unreadable := unreadable_proposals(span, returned, settings)):
        return Facts(calls=unreadable)
    return facts  # None for others: LlamaIndex calls its model spans tasks, too


@marked(names.TL_KIND)
def _whole_run(span: Span, settings: Settings) -> Facts | None:
    """A workflow or an agent. Older releases tell its session only in LangChain's wrapper of what it was given."""
    if span.attributes.get(names.TL_KIND) not in ("workflow", "agent"):
        return None
    told = _object(from_json(span.attributes.get(names.TL_INPUT)))
    metadata, asked = _object(told.get("metadata")), _object(told.get("inputs")).get("messages")
    origin = origin_of(span)
    origin.session_id = origin.session_id or next((key for name in _SESSIONS if (key := _text(metadata, name))), None)
    origin.agent = origin.agent or _text(metadata, _AGENT)
    found = (chat_message(raw) for raw in asked) if isinstance(asked, list) else ()
    turn = ModelTurn(messages=[message for message in found if message is not None], tools=[], calls=[])
    facts = context_facts(span, origin, turn, settings)
    facts.calls = unreadable_proposals(span, span.attributes.get(names.TL_OUTPUT), settings)
    return facts


def _object(value: Any) -> Attributes:
    return value if isinstance(value, dict) else {}


def _text(holder: Attributes, key: str) -> str | None:
    return text_or_none(holder.get(key))


def _origin(span: Span) -> Origin:
    origin = origin_of(span)
    workflow = text_or_none(span.attributes.get(names.TL_WORKFLOW))
    if origin.agent is None and workflow is not None and not workflow.endswith(_MCP_SERVER):
        origin.agent = workflow
    return origin


RULES: tuple[Rule, ...] = (_tool_span, _tool_step, _node, _whole_run, _flattened_model_span, _model_span)
