"""Spans and log records as the archive keeps them: what a mapper reads, with the secrets taken out.

Of a value only what says how things hang together is kept: names, ids, roles and kinds of messages and calls, tool
definitions, the names of arguments, and the user's last text, masked as a query is. Argument values, results and what
models said become their type and length; so does whatever is no message, call or definition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from collector.facts import Facts, OfferedSkill
from collector.mapping import attributes as names
from collector.read_attributes import ANY_SPAN, NAMES, Layout, group_roles, layout_of
from collector.redact import Redactor, described
from collector.redact_values import UserText, ValueRedactor
from collector.spans import Attributes, LogRecord, Span, SpanEvent

#: Where instrumentations put what a span was given and what it returned, whatever the span is.
_GIVEN = frozenset({names.OI_INPUT, names.TL_INPUT})
_RETURNED = frozenset({names.OI_OUTPUT, names.TL_OUTPUT})
_TOOL_KINDS = frozenset({"tool", "execute_tool"})
_NO_QUERIES: frozenset[str] = frozenset()


def _no_arguments(_trace_id: str) -> list[Any]:
    return []


class ItemRedactor:
    """Redacts whole spans and log records by the rules of one installation."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._values = ValueRedactor(redactor)
        self._resource: tuple[Attributes, Attributes] = ({}, {})

    @property
    def has_masked_label(self) -> bool:
        """Whether a label of the last item was masked: then it may name something else than before."""
        return self._values.has_masked_label

    def span(
        self,
        span: Span,
        facts: Facts | None,
        arguments: Callable[[str], list[Any]] = _no_arguments,
        layout: Layout | None = None,
    ) -> Span | None:
        """The span as it is kept; None where no mapper reads anything of it.

        ``arguments``: those known of the calls of a trace, which an error text of the trace must not repeat;
        ``layout``: that of its attributes, where it is known.
        """
        own = span.attributes
        layout = layout or layout_of(own)
        events, message, known = span.events, span.status_message, []
        if events:
            events = [event for event in events if event.name in NAMES or layout_of(event.attributes).is_telling]
        if facts is None and not layout.is_telling and all(event.name in ANY_SPAN for event in events):
            return None
        self._begin(facts)
        if message or events:
            known = arguments(span.trace_id)
            message = self._error(message, known)
            events = [self._event(event, known) for event in events]
        return msgspec.structs.replace(
            span,
            name=self._values.label(span.name),
            status_message=message,
            attributes=self._attributes(own, layout, runs_tool=bool(layout.places) and _runs_tool(own, layout)),
            events=events,
            resource=self._shared(span.resource),
        )

    def log(self, record: LogRecord, facts: Facts | None) -> LogRecord | None:
        """The record as it is kept; None where no mapper reads anything of it."""
        layout = layout_of(record.attributes)
        if facts is None and record.event_name not in NAMES and not layout.is_telling:
            return None
        self._begin(facts)
        event = record.event_name or str(record.attributes.get(names.EVENT_NAME, ""))
        body: list[Any] = [None]
        text = UserText()
        self._values.put(body, 0, record.body, event, text)
        text.put_back(self._redactor)
        return msgspec.structs.replace(
            record,
            body=body[0],
            attributes=self._attributes(record.attributes, layout, role=event),
            resource=self._shared(record.resource),
        )

    def offer(self, skill: OfferedSkill) -> OfferedSkill:
        """A tool as it was offered, with its texts masked."""
        masked = {
            "description": self._values.masked(skill.description),
            "parameters_schema": self._values.masked(skill.parameters_schema),
        }
        return msgspec.structs.replace(skill, **masked)

    def _begin(self, facts: Facts | None) -> None:
        queries = _NO_QUERIES
        if facts is not None and facts.selections:
            queries = frozenset([found.query for found in facts.selections if found.query])
        self._values.queries = queries
        self._values.has_masked_label = False

    def _attributes(
        self, attributes: Attributes, layout: Layout, *, role: str = "", runs_tool: bool = False
    ) -> Attributes:
        """The attributes that mappers read. ``runs_tool``: they are those of a span that runs one tool."""
        values = self._values
        kept = {name: attributes[name] for name in layout.names}
        if not values.are_clean(map(attributes.__getitem__, layout.labels)):
            for name in layout.labels:
                kept[name] = values.label(attributes[name])
        if not layout.places:
            return kept
        texts: dict[str, UserText] = {}
        roles = group_roles(attributes, layout) if layout.roles else {}
        for name, content, place in layout.places:
            value = attributes[name]
            if (content == "arguments" and name not in _GIVEN) or (runs_tool and name in _GIVEN):
                kept[name] = values.arguments(value)
            elif content == "definitions" and (defined := values.definitions(value)) is not None:
                kept[name] = defined
            elif isinstance(value, int | float):
                kept[name] = value if isinstance(value, bool) else described(value)
            else:
                whose = "tool" if content == "result" or (runs_tool and name in _RETURNED) else role
                if not place.family and (listed := values.json_list(value, whose)) is not None:
                    kept[name] = listed
                    continue
                family = place.family or name
                if family not in texts:
                    texts[family] = UserText()
                values.put(kept, name, value, roles.get(place.group, whose), texts[family])
        for text in texts.values():
            text.put_back(self._redactor)
        return kept

    def _shared(self, resource: Attributes) -> Attributes:
        """The attributes of a resource, which the items of a request share."""
        if self._resource[0] is not resource:
            self._resource = (resource, self._attributes(resource, layout_of(resource)))
        return self._resource[1]

    def _event(self, event: SpanEvent, arguments: list[Any]) -> SpanEvent:
        kept = self._attributes(event.attributes, layout_of(event.attributes), role=event.name)
        message = event.attributes.get(names.EXCEPTION_MESSAGE)
        if isinstance(message, str):
            kept[names.EXCEPTION_MESSAGE] = self._error(message, arguments)
        return SpanEvent(event.name, event.time_ns, kept)

    def _error(self, text: str, arguments: list[Any]) -> str:
        return self._redactor.error_message(text, "", arguments) if text else text


def _runs_tool(attributes: Attributes, layout: Layout) -> bool:
    for name in layout.kinds:
        kind = attributes[name]
        if isinstance(kind, str) and kind.lower() in _TOOL_KINDS:
            return True
    return False
