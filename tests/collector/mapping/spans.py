"""Spans for tests."""

from __future__ import annotations

from typing import Any

from collector.facts import CallFact, Facts
from collector.mapping import map_span
from collector.spans import Span
from pickwise.settings import Settings

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
START = 1_700_000_000_000_000_000


def span(**fields: Any) -> Span:
    """A finished span of 5 ms; keyword arguments replace its fields."""
    given: dict[str, Any] = {
        "trace_id": TRACE,
        "span_id": SPAN,
        "parent_span_id": None,
        "name": "span",
        "kind": 1,
        "start_ns": START,
        "end_ns": START + 5_000_000,
        "status_code": 0,
        "status_message": "",
        "attributes": {},
        "events": [],
        "resource": {},
        "scope_name": "",
        "scope_version": "",
    }
    return Span(**{**given, **fields})


def mapped(attributes: dict[str, Any], *, settings: Settings | None = None, **fields: Any) -> Facts:
    facts = map_span(span(attributes=attributes, **fields), settings or Settings())
    assert facts is not None
    return facts


def only_call(attributes: dict[str, Any], *, settings: Settings | None = None, **fields: Any) -> CallFact:
    (call,) = mapped(attributes, settings=settings, **fields).calls
    return call
