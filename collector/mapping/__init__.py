"""From spans to facts: a pure function of one span, so that order and batching of requests change nothing.

A dialect is one module with a flat list of small rules. Dialects are asked in this order, their rules in theirs, and
the first rule that knows a span maps it. ``None`` means: not mine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from collector.facts import Facts
from collector.mapping import (
    adk,
    autogen,
    claude_code,
    coding_agents,
    crewai,
    dspy,
    evaluations,
    gemini_cli,
    genai,
    genai_logs,
    haystack,
    langsmith,
    mastra,
    openinference,
    openllmetry,
    pickwise,
    retrieval,
    smolagents,
    valued,
    vercel,
)
from collector.mapping.attributes import OPERATION
from collector.mapping.extent import add_extent
from collector.mapping.routed_runs import settled
from collector.mapping.rules import LogRule, Rule, marks_of, operating, rules_for
from collector.remembered import Remembered
from collector.spans import LogRecord, Span
from pickwise.attributes import PROJECT
from pickwise.settings import Settings

#: Raised with every change of what a request maps to; rows carry it, so that a replay knows what is old.
MAPPING_VERSION = "5"

RULES: tuple[Rule, ...] = (
    *pickwise.RULES,
    # They know kinds of spans that others would take for runs of their own.
    *retrieval.RULES,
    # These two carry some of OpenTelemetry's attributes too, so they come before its own rules.
    *langsmith.RULES,
    *openllmetry.RULES,
    *adk.RULES,
    *autogen.RULES,
    *mastra.RULES,
    *claude_code.RULES,
    *gemini_cli.RULES,
    *genai.RULES,
    *vercel.RULES,
    *valued.RULES,
    # Frameworks that OpenInference sees in a way of their own, before its own rules.
    *haystack.RULES,
    *crewai.RULES,
    *smolagents.RULES,
    *dspy.RULES,
    *openinference.RULES,
)
#: Names of which a span that some rule knows has one.
_MARKS = marks_of(RULES)
#: The rules to ask by the names that a span has and by its operation; senders may invent ever new ones.
_asked: Remembered[tuple[str | None, ...], tuple[Rule, ...]] = Remembered(1_024)
#: Log records that hold facts; the same, for log records.
LOG_RULES: tuple[LogRule, ...] = (
    *evaluations.LOG_RULES,
    # Their records of the conventions' events repeat spans.
    *gemini_cli.LOG_RULES,
    *genai_logs.LOG_RULES,
    *coding_agents.LOG_RULES,
)


#: Told of each span or log record that could not be mapped, and why.
Unmapped = Callable[[Span | LogRecord, Exception], None]


#: Facts of one request: more than any agent's export holds, and what a commit has the memory for.
MAX_FACTS = 200_000

ItemT = TypeVar("ItemT", Span, LogRecord)


class TooManyFacts(ValueError):  # noqa: N818 - what the request holds
    """An item whose facts are beyond the limit of its request."""


def _raise(_item: Span | LogRecord, error: Exception) -> None:
    raise error


class Traces(Protocol):
    def spans(self) -> Iterator[Span]: ...


class Logs(Protocol):
    def records(self) -> Iterator[LogRecord]: ...


def map_traces(parsed: Traces, received_at: int, settings: Settings) -> dict[str, Facts]:
    """Facts by project ('' where the resource names none). ``received_at`` (ns) stands in for absent start times."""
    return by_project(facts_of_traces(parsed, received_at, settings), _named)


def map_logs(parsed: Logs, received_at: int, settings: Settings) -> dict[str, Facts]:
    """Facts by project from log records; the rest as in ``map_traces``."""
    return by_project(facts_of_logs(parsed, received_at, settings), _named)


def facts_of_traces(
    parsed: Traces, received_at: int, settings: Settings, unmapped: Unmapped = _raise
) -> Iterator[tuple[Span, Facts | None]]:
    """Each span with its facts. One that a rule fails on takes no other with it: ``unmapped`` is told of it."""
    return _facts_of(parsed.spans(), map_span, received_at, settings, unmapped)


def facts_of_logs(
    parsed: Logs, received_at: int, settings: Settings, unmapped: Unmapped = _raise
) -> Iterator[tuple[LogRecord, Facts | None]]:
    """The same for log records."""
    return _facts_of(parsed.records(), map_log, received_at, settings, unmapped)


def by_project(
    found: Iterable[tuple[Span | LogRecord, Facts | None]], project_of: Callable[[Span | LogRecord], str]
) -> dict[str, Facts]:
    """All facts of items by the project that they go to."""
    projects: dict[str, Facts] = {}
    for item, facts in found:
        if facts is None:
            continue
        project = project_of(item)
        if project not in projects:
            projects[project] = Facts()
        projects[project].extend(facts)
    return projects


def _facts_of(
    items: Iterator[ItemT],
    map_item: Callable[[ItemT, Settings], Facts | None],
    received_at: int,
    settings: Settings,
    unmapped: Unmapped,
) -> Iterator[tuple[ItemT, Facts | None]]:
    room = MAX_FACTS
    for item in items:
        try:
            facts = map_item(item, settings)
            if facts is not None and len(facts) > room:
                raise TooManyFacts(f"expected at most {MAX_FACTS} facts a request")
        except Exception as error:  # noqa: BLE001 - whatever a sender makes a rule do
            unmapped(item, error)
            continue
        if facts is not None:
            room -= len(facts)
            for offer in facts.offered:
                if not offer.time:
                    offer.time = received_at
        yield item, facts


def map_span(span: Span, settings: Settings) -> Facts | None:
    """What one span says, or None when no dialect knows it."""
    found = None
    for rule in rules_asked(span):
        found = rule(span, settings)
        if found is not None:
            break
    if found is not None:
        add_extent(settled(found, settings), span)
    verdicts = evaluations.of_span(span) if span.events else ()
    if not verdicts:
        return found
    found = found if found is not None else Facts()
    found.feedback = [*found.feedback, *verdicts]
    return found


def rules_asked(span: Span) -> tuple[Rule, ...]:
    """The rules that could know a span, in their order."""
    operation = span.attributes.get(OPERATION)
    told = operation if isinstance(operation, str) else None
    key = (*span.attributes, *[event.name for event in span.events], told) if span.events else (*span.attributes, told)
    asked = _asked.get(key)
    if asked is None:
        asked = rules_for(RULES, _MARKS.intersection((*key, *operating(told or ""))))
        _asked.keep(key, asked)
    return asked


def map_log(record: LogRecord, settings: Settings) -> Facts | None:
    """What one log record says, or None when no dialect knows it."""
    found = next((facts for rule in LOG_RULES if (facts := rule(record, settings)) is not None), None)
    return settled(found, settings) if found is not None else None


def _named(item: Span | LogRecord) -> str:
    value = item.resource.get(PROJECT)
    return value if isinstance(value, str) else ""
