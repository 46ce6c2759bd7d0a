"""Our own attributes: a span, or its span events named ``pickwise.event``, carry events as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from collector.facts import CallFact, Facts
from collector.mapping.facts_of import Origin
from collector.mapping.origin import origin_of
from collector.mapping.rules import Rule, marked
from collector.spans import Span
from pickwise.attributes import EVENT, from_attributes
from pickwise.events import Call, Event, EventError, Feedback, Route, Selection, decode_event
from pickwise.settings import Settings

#: A request without these bytes carries no event of ours.
MARK = EVENT.encode()
_Source = Literal["span", "span_event"]


@marked(EVENT)
def _carrying_span(span: Span, _settings: Settings) -> Facts | None:
    """The events that the span carries; None when it carries none."""
    if EVENT not in span.attributes and not span.events:
        return None
    facts = Facts()
    for raw, time_ns, source in _carried(span):
        try:
            event, _ = decode_event(raw)
        except EventError:
            continue  # refused by name when the request was parsed, see `problem`
        _add(facts, _complete(event, span, origin_of(span), time_ns, source))
    return facts if len(facts) else None


def problem(span: Span) -> str | None:
    """Why an event that the span carries cannot be taken, or None."""
    for raw, _, _ in _carried(span):
        try:
            decode_event(raw)
        except EventError as error:
            return f"pickwise.{error}"
    return None


def _carried(span: Span) -> Iterator[tuple[dict[str, Any], int, _Source]]:
    raw = from_attributes(span.attributes)
    if raw is not None:
        yield raw, span.start_ns, "span"
    for event in span.events:
        raw = from_attributes(event.attributes) if event.name == EVENT else None
        if raw is not None:
            yield raw, event.time_ns or span.start_ns, "span_event"


def _complete(event: Event, span: Span, origin: Origin, time_ns: int, source: _Source) -> Event:
    """What the event leaves out, its span says."""
    event.time = event.time or time_ns or None
    event.trace_id = event.trace_id or span.trace_id
    event.span_id = event.span_id or span.span_id
    for field in Origin.__struct_fields__:
        if getattr(event, field) is None:
            setattr(event, field, getattr(origin, field))
    if isinstance(event, Call) and source == "span" and event.latency_ms is None:
        event.latency_ms = span.duration_ms
    return event


def _add(facts: Facts, event: Event) -> None:
    if isinstance(event, Selection):
        facts.selections.append(event)
    elif isinstance(event, Call):
        facts.calls.append(CallFact(**msgspec.structs.asdict(event)))
    elif isinstance(event, Feedback):
        facts.feedback.append(event)
    elif isinstance(event, Route):
        facts.routes.append(event)


RULES: tuple[Rule, ...] = (_carrying_span,)
