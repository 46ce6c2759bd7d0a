"""Verdicts of evaluations (``gen_ai.evaluation.result``), from log records and span events."""

from __future__ import annotations

from collector.facts import Facts
from collector.mapping import attributes as names
from collector.mapping.conversation import text_or_none
from collector.mapping.facts_of import selection_id
from collector.mapping.rules import LogRule
from collector.spans import Attributes, LogRecord, Span
from pickwise.events import Feedback, derive_event_id
from pickwise.settings import Settings


def _of_log(record: LogRecord, _settings: Settings) -> Facts | None:
    """The verdict that a log record holds; None for records of other events."""
    if names.EVALUATION_EVENT not in (record.event_name, record.attributes.get(names.EVENT_NAME)):
        return None
    verdict = _feedback(record.attributes, record.trace_id, record.span_id, record.time_ns, record.resource)
    return None if verdict is None else Facts(feedback=[verdict])


def of_span(span: Span) -> list[Feedback]:
    """The verdicts among a span's events."""
    verdicts = (
        _feedback(event.attributes, span.trace_id, span.span_id, event.time_ns, span.resource)
        for event in span.events
        if event.name == names.EVALUATION_EVENT
    )
    return [verdict for verdict in verdicts if verdict is not None]


def _feedback(
    attributes: Attributes, trace_id: str | None, span_id: str | None, time_ns: int, resource: Attributes
) -> Feedback | None:
    score, label = attributes.get(names.EVALUATION_SCORE), attributes.get(names.EVALUATION_LABEL)
    value = score if isinstance(score, int | float) else text_or_none(label)
    if value is None:
        return None
    evaluator = text_or_none(attributes.get(names.EVALUATION_NAME))
    return Feedback(
        kind="rating",
        event_id=derive_event_id(trace_id, span_id, "feedback", evaluator, time_ns, value),
        time=time_ns or None,
        trace_id=trace_id,
        span_id=span_id,
        selection_id=selection_id(trace_id, span_id) if trace_id and span_id else None,
        value=value,
        source="judge",
        annotator=evaluator,
        session_id=text_or_none(attributes.get(names.CONVERSATION_ID)),
        environment=text_or_none(resource.get(names.ENVIRONMENT)),
        release=text_or_none(resource.get(names.SERVICE_VERSION)),
    )


LOG_RULES: tuple[LogRule, ...] = (_of_log,)
