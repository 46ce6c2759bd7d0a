"""From spans to facts: a pure function of one span, so that order and batching of requests change nothing.

A dialect is one module with a flat list of small rules. Dialects are asked in this order, their rules in theirs, and
the first rule that knows a span maps it. ``None`` means: not mine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from collector.facts import Facts
from collector.mapping import evaluations, genai, openinference, pickwise, vercel
from collector.mapping.rules import LogRule, Rule
from collector.spans import Attributes, LogRecord, Span
from pickwise.attributes import PROJECT
from pickwise.settings import Settings

#: Raised with every change of what a request maps to; rows carry it, so that a replay knows what is old.
MAPPING_VERSION = "1"

RULES: tuple[Rule, ...] = (
    *pickwise.RULES,
    *genai.RULES,
    *vercel.RULES,
    *openinference.RULES,
)
#: Log records that hold facts; the same, for log records.
LOG_RULES: tuple[LogRule, ...] = (*evaluations.LOG_RULES,)


class Traces(Protocol):
    def spans(self) -> Iterator[Span]: ...


class Logs(Protocol):
    def records(self) -> Iterator[LogRecord]: ...


def map_traces(parsed: Traces, received_at: int, settings: Settings) -> dict[str, Facts]:
    """Facts by project ('' where the resource names none). ``received_at`` (ns) stands in for absent start times."""
    by_project: dict[str, Facts] = {}
    for span in parsed.spans():
        facts = map_span(span, settings)
        if facts is None:
            continue
        for offer in facts.offered:
            offer.time = offer.time or received_at
        by_project.setdefault(_project(span.resource), Facts()).extend(facts)
    return by_project


def map_span(span: Span, settings: Settings) -> Facts | None:
    """What one span says, or None when no dialect knows it."""
    found = next((facts for rule in RULES if (facts := rule(span, settings)) is not None), None)
    verdicts = evaluations.of_span(span)
    if not verdicts:
        return found
    found = found if found is not None else Facts()
    found.feedback = found.feedback + verdicts
    return found


def map_logs(parsed: Logs, received_at: int, settings: Settings) -> dict[str, Facts]:
    """Facts by project from log records; ``received_at`` as in ``map_traces``."""
    by_project: dict[str, Facts] = {}
    for record in parsed.records():
        facts = map_log(record, settings)
        if facts is None:
            continue
        for offer in facts.offered:
            offer.time = offer.time or received_at
        by_project.setdefault(_project(record.resource), Facts()).extend(facts)
    return by_project


def map_log(record: LogRecord, settings: Settings) -> Facts | None:
    """What one log record says, or None when no dialect knows it."""
    return next((facts for rule in LOG_RULES if (facts := rule(record, settings)) is not None), None)


def _project(resource: Attributes) -> str:
    value = resource.get(PROJECT)
    return value if isinstance(value, str) else ""
