"""CrewAI, as OpenInference sees it: a crew is a CHAIN span, each task an AGENT span, each call a TOOL span.

There are no model spans: what the model was told and answered is in the outputs of tasks, in their messages, and so
are the ids of calls and those calls that never ran.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from collector.facts import Facts
from collector.mapping import attributes as names
from collector.mapping.agent_runs import AgentRun, context_of_run, run_after_query, run_facts
from collector.mapping.conversation import ToolCall, from_json, objects, text_or_none
from collector.mapping.literals import from_literal
from collector.mapping.message_forms import ChatMessage
from collector.mapping.messages_in_values import Conversation, Holder, conversations, menu
from collector.mapping.openinference import kind_of, run_origin, tool_run
from collector.mapping.rules import Rule, marked
from collector.spans import Span
from pickwise.settings import Settings

#: How the results of failed calls begin, in CrewAI's own words.
_FAILED = re.compile(r"Error executing tool\b|Tool not found$|Error: Failed to parse tool arguments")
_PRINTED_ARGUMENTS = re.compile(r"\barguments=(\{.*\})", re.DOTALL)


@marked(names.OI_KIND)
def _task_span(span: Span, settings: Settings) -> Facts | None:
    """One task of one agent, with its menu."""
    if kind_of(span) != "AGENT" or not _is_crew(span):
        return None
    given = from_json(span.attributes.get(names.OI_INPUT))
    tools = menu(given)
    origin = run_origin(span)
    runs = [msgspec.structs.replace(run, tools=tools) for run in _runs(span)]
    facts = run_facts(span, origin, runs, settings)
    query = next((run.query for run in runs if run.query), None) or _description(span)
    facts.extend(context_of_run(span, origin, query, tools, settings))
    return facts


@marked(names.OI_KIND)
def _crew_span(span: Span, settings: Settings) -> Facts | None:
    """The whole crew, which repeats its tasks. It knows the menus by names that are folded to lower case, so the tasks'
    own are better.
    """
    if kind_of(span) != "CHAIN" or not _is_crew(span):
        return None
    return run_facts(span, run_origin(span), _runs(span), settings)


@marked(names.OI_KIND)
def _tool_usage(span: Span, settings: Settings) -> Facts | None:
    """A call as releases before 1.0 tell it: with the object that stands for it, and the text that it was read from."""
    given = from_json(span.attributes.get(names.OI_INPUT)) if kind_of(span) == "TOOL" else None
    if not isinstance(given, dict) or not {"calling", "tool_string"} <= given.keys():
        return None
    fact = tool_run(span, settings)
    fact.arguments = _called_with(given["calling"])
    return Facts(calls=[fact])


def _called_with(calling: Any) -> Any:
    """The arguments of that object, serialised or printed."""
    if isinstance(calling, dict):
        return calling.get("arguments")
    found = _PRINTED_ARGUMENTS.search(calling) if isinstance(calling, str) else None
    arguments = from_literal(found[1]) if found else None
    return arguments if isinstance(arguments, dict) else None


def _is_crew(span: Span) -> bool:
    return names.CREW_KEY in span.attributes or names.CREW_ID in span.attributes


def _runs(span: Span) -> list[AgentRun]:
    found = conversations(span.attributes.get(names.OI_OUTPUT))
    return [_run(conversation) for conversation in found if conversation.tells_calls or conversation.holder]


def _run(found: Conversation) -> AgentRun:
    """The run of a task. What the user said is its description: the prompt wraps it."""
    run = run_after_query(found.messages)
    failed = objects(found.holder.get("tool_failures"))
    for message in run.messages:
        for result in message.results:
            call = _call(run.messages, result.call_id)
            result.error = bool(_FAILED.match(result.text)) or any(_is_of(failure, call) for failure in failed)
    query = text_or_none(found.holder.get("description")) or run.query
    return msgspec.structs.replace(run, query=query, agent=text_or_none(found.holder.get("agent")))


def _call(messages: list[ChatMessage], call_id: str | None) -> ToolCall | None:
    calls = (call for message in messages for call in message.calls)
    return next((call for call in calls if call.call_id == call_id and call_id), None)


def _is_of(failure: Holder, call: ToolCall | None) -> bool:
    """Whether a failure in a task's list is that of a call."""
    return (
        call is not None
        and failure.get("tool_name") == call.name
        and (from_json(failure.get("tool_args")) == from_json(call.arguments))
    )


def _description(span: Span) -> str | None:
    told = from_json(span.attributes.get(names.OI_OUTPUT))
    return text_or_none(told.get("description")) if isinstance(told, dict) else None


RULES: tuple[Rule, ...] = (_task_span, _crew_span, _tool_usage)
