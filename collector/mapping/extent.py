"""When runs and retrievals ended and what span is around them, which no dialect needs to know."""

from __future__ import annotations

from collector.facts import Facts, SelectionFact
from collector.spans import Span


def add_extent(facts: Facts, span: Span) -> None:
    """Give the span's runs and retrievals its end (ns, where it is known and not before the start) and its parent.

    Those of another time, or with an end of their own, are only quoted by the span.
    """
    for selection in facts.selections:
        if not isinstance(selection, SelectionFact) or selection.role == "turn" or selection.ended_at is not None:
            continue
        if selection.time == span.start_ns:
            selection.ended_at = span.end_ns if span.end_ns >= span.start_ns else None
            selection.parent_span_id = span.parent_span_id
