"""Spans and log records as the archive keeps them: what a mapper reads, with the secrets taken out.

Of a value only what says how things hang together is kept: names, ids, roles and kinds of messages and calls, tool
definitions, the names of arguments, and the user's last text, masked as a query is. Argument values, results and what
models said become their type and length; so does whatever is no message, call or definition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from collector.facts import Facts, OfferedSkill
from collector.mapping import attributes as names
from collector.read_attributes import ANY_SPAN, NAMES, group_roles, is_telling, place_of
from collector.redact import Redactor
from collector.redact_values import UserText, ValueRedactor
from collector.spans import Attributes, LogRecord, Span, SpanEvent

#: Where instrumentations put what a span was given and what it returned, whatever the span is.
_GIVEN = frozenset({names.OI_INPUT, names.TL_INPUT})
_RETURNED = frozenset({names.OI_OUTPUT, names.TL_OUTPUT})
_KINDS = (names.OI_KIND, names.TL_KIND, names.LS_KIND, names.OPERATION)
_TOOL_KINDS = frozenset({"tool", "execute_tool"})


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

    def span(self, span: Span, facts: Facts | None, arguments: Iterable[Any] = ()) -> Span | None:
        """The span as it is kept; None where no mapper reads anything of it.

        ``arguments``: those known of the calls of its trace, which its error text must not repeat.
        """
        events = [event for event in span.events if event.name in NAMES or is_telling(event.attributes)]
        if facts is None and not is_telling(span.attributes) and all(event.name in ANY_SPAN for event in events):
            return None
        self._begin(facts)
        own = span.attributes
        runs_tool = any(isinstance(kind := own.get(name), str) and kind.lower() in _TOOL_KINDS for name in _KINDS)
        known = list(arguments)
        return msgspec.structs.replace(
            span,
            name=self._values.label(span.name),
            status_message=self._error(span.status_message, known),
            attributes=self._attributes(own, runs_tool=runs_tool),
            events=[self._event(event, known) for event in events],
            resource=self._shared(span.resource),
        )

    def log(self, record: LogRecord, facts: Facts | None) -> LogRecord | None:
        """The record as it is kept; None where no mapper reads anything of it."""
        if facts is None and record.event_name not in NAMES and not is_telling(record.attributes):
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
            attributes=self._attributes(record.attributes, role=event),
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
        selections = facts.selections if facts is not None else ()
        self._values.queries = frozenset([found.query for found in selections if found.query])
        self._values.has_masked_label = False

    def _attributes(self, attributes: Attributes, *, role: str = "", runs_tool: bool = False) -> Attributes:
        """The attributes that mappers read. ``runs_tool``: they are those of a span that runs one tool."""
        values = self._values
        kept: Attributes = {}
        texts: dict[str, UserText] = {}
        roles: dict[str, str] | None = None
        for name, value in attributes.items():
            place = place_of(name)
            if place is None:
                continue
            if place.content == "label":
                kept[name] = values.label(value)
            elif (place.content == "arguments" and name not in _GIVEN) or (runs_tool and name in _GIVEN):
                kept[name] = values.arguments(value)
            elif place.content == "definitions" and (defined := values.definitions(value)) is not None:
                kept[name] = defined
            else:
                whose = "tool" if place.content == "result" or (runs_tool and name in _RETURNED) else role
                if place.group:
                    roles = roles if roles is not None else group_roles(attributes)
                    whose = roles.get(place.group, whose)
                text = texts.setdefault(place.family or name, UserText())
                values.put(kept, name, value, whose, text)
        for text in texts.values():
            text.put_back(self._redactor)
        return kept

    def _shared(self, resource: Attributes) -> Attributes:
        """The attributes of a resource, which the items of a request share."""
        if self._resource[0] is not resource:
            self._resource = (resource, self._attributes(resource))
        return self._resource[1]

    def _event(self, event: SpanEvent, arguments: list[Any]) -> SpanEvent:
        kept = self._attributes(event.attributes, role=event.name)
        message = event.attributes.get(names.EXCEPTION_MESSAGE)
        if isinstance(message, str):
            kept[names.EXCEPTION_MESSAGE] = self._error(message, arguments)
        return SpanEvent(event.name, event.time_ns, kept)

    def _error(self, text: str, arguments: list[Any]) -> str:
        return self._redactor.error_message(text, "", arguments) if text else text
