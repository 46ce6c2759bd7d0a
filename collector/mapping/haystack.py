"""Haystack, as OpenInference sees it: pipelines and agents are CHAIN spans, all else is in their values.

Messages are printed as Python prints them, or serialised as Haystack does itself. The menu is nowhere but in the
counts of calls that an agent keeps: it begins with its tools, at zero, and adds what the model makes up.
"""

from __future__ import annotations

import re

import msgspec

from collector.facts import Facts
from collector.mapping import attributes as names
from collector.mapping import failures
from collector.mapping.agent_runs import AgentRun, context_of_run, run_facts
from collector.mapping.conversation import ToolDefinition, ToolResult
from collector.mapping.messages_in_values import Conversation, Holder, definitions
from collector.mapping.openinference import kind_of, query_of, run_origin, told_runs, values_of
from collector.mapping.rules import Rule, marked
from collector.spans import Span
from pickwise.settings import Settings

_SCOPE = "openinference.instrumentation.haystack"
_COUNTS = "tool_call_counts"
#: Releases before 0.1.40 called whatever they did not know a model.
_KINDS = frozenset({"CHAIN", "AGENT", "LLM"})
#: What the agent tells the model of a call that failed: it repeats the arguments before it comes to the error.
_FAILED = re.compile(r"^Failed to (?:invoke|convert)\b.*?[.:] Error: (?P<error>.*)$", re.DOTALL)


@marked(names.OI_KIND)
def _run_span(span: Span, settings: Settings) -> Facts | None:
    if not span.scope_name.startswith(_SCOPE) or kind_of(span) not in _KINDS:
        return None
    given, returned = values_of(span)
    if kind_of(span) == "LLM" and not any(_COUNTS in found.holder for found in returned):
        return None
    origin = run_origin(span)
    query = query_of(span, given)
    runs = [_informed(run, found) for run, found in zip(told_runs(given, returned, query), returned, strict=False)]
    facts = run_facts(span, origin, runs, settings)
    if span.parent_span_id is None:
        asked = next((run.query for run in runs if run.query), query)
        facts.extend(context_of_run(span, origin, asked, [], settings))
    return facts


def _informed(run: AgentRun, found: Conversation) -> AgentRun:
    """The run with its menu, the name of its agent in the pipeline, and results without what they repeat."""
    for result in (result for message in run.messages for result in message.results):
        _shorten(result)
    agent = found.path[-1] if found.path else None
    return msgspec.structs.replace(run, tools=_menu(run, found.holder), agent=agent)


def _menu(run: AgentRun, holder: Holder) -> list[ToolDefinition]:
    counts = holder.get(_COUNTS)
    if not isinstance(counts, dict):
        return definitions(holder.get("tools"))
    made_up = {name for message in run.messages for result in message.results if (name := _made_up(result))}
    return [ToolDefinition(name=name) for name in counts if isinstance(name, str) and name not in made_up]


def _made_up(result: ToolResult) -> str | None:
    """The name that was called, if the agent says that it has no such tool."""
    return result.name if result.error and failures.classify("", result.text) == "not_found" else None


def _shorten(result: ToolResult) -> None:
    found = _FAILED.match(result.text) if result.error else None
    if found:
        result.text = found["error"]


RULES: tuple[Rule, ...] = (_run_span,)
