"""From a log record to facts by project, the same way each time: the door has already judged the very same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, cast

import msgspec

from collector import mapping, otlp
from collector.events_in import Layout, parse_events
from collector.facts import Facts
from collector.foreign import own_logs, own_traces
from collector.otlp_limits import NAMED_REFUSALS
from collector.projects import is_project
from collector.segment import Record
from collector.spans import LogRecord, Span
from pickwise.events import DEFAULT_PROJECT
from pickwise.settings import Settings

#: Keeps what could not be mapped, and why.
SetAside = Callable[[Record, Exception], None]
#: The encoding of a record that was set aside: the items that failed, as JSON in our own shape, without the others.
ITEMS = "items"


class Unmapped(RuntimeError):  # noqa: N818 - a state of the items
    """Spans or log records that a rule failed on; the message says which, and how."""


def decode_facts(
    record: Record,
    settings: Settings,
    seen: mapping.Seen = lambda *_: None,
    set_aside: SetAside | None = None,
) -> dict[str, Facts]:
    """The facts of a record of kind `traces`, `logs` or `events`, by project.

    The project that the request named decides, then the one that a resource names, then `default`. ``seen`` is told
    of each span and log record. What a rule of the mapping fails on is set aside alone, and raised without a
    ``set_aside``.
    """
    header = record.header
    failures = _Failures()
    match header.kind:
        case "events":
            own = header.project if header.bound else None
            by_project = {"": parse_events(record.body, cast(Layout, header.encoding), own).facts}
        case "traces":
            by_project = mapping.map_traces(_traces(record), header.received_at, settings, seen, failures.note)
        case "logs":
            by_project = mapping.map_logs(_logs(record), header.received_at, settings, seen, failures.note)
        case _:
            raise ValueError(f"a record of kind {header.kind} holds no facts")
    if failures.items and set_aside is None:
        raise failures.error
    if failures.items and set_aside is not None:
        set_aside(failures.part_of(record), failures.error)
    return settled(by_project, header.project)


class _Failures:
    """The items of a record that could not be mapped."""

    def __init__(self) -> None:
        self.items: list[Span | LogRecord] = []
        self._errors: list[Exception] = []

    def note(self, item: Span | LogRecord, error: Exception) -> None:
        self.items.append(item)
        self._errors.append(error)

    @property
    def error(self) -> Unmapped:
        named = [
            f"{item.span_id} of trace {item.trace_id}: {type(error).__name__}: {error}"
            for item, error in zip(self.items[:NAMED_REFUSALS], self._errors, strict=False)
        ]
        found = Unmapped(f"{len(self.items)} could not be mapped: {'; '.join(named)}")
        found.__cause__ = self._errors[0]
        return found

    def part_of(self, record: Record) -> Record:
        """The record with nothing but these items."""
        body = msgspec.json.encode(self.items)
        return Record(msgspec.structs.replace(record.header, encoding=ITEMS, events=len(self.items)), body, len(body))


class _Items:
    """The items of a record that was set aside."""

    def __init__(self, record: Record) -> None:
        self._body = record.body

    def spans(self) -> Iterator[Span]:
        return iter(msgspec.json.decode(self._body, type=list[Span]))

    def records(self) -> Iterator[LogRecord]:
        return iter(msgspec.json.decode(self._body, type=list[LogRecord]))


def _traces(record: Record) -> mapping.Traces:
    if record.header.encoding == ITEMS:
        return _Items(record)
    header, encoding = record.header, _encoding(record.header.encoding)
    if not header.bound:
        return otlp.TraceBody(record.body, encoding)
    return own_traces(otlp.parse_traces(record.body, encoding), record.body, header.project)


def _logs(record: Record) -> mapping.Logs:
    if record.header.encoding == ITEMS:
        return _Items(record)
    header, encoding = record.header, _encoding(record.header.encoding)
    if not header.bound:
        return otlp.LogBody(record.body, encoding)
    return own_logs(otlp.parse_logs(record.body, encoding), record.body, header.project)


def _encoding(encoding: str) -> Literal["protobuf", "json"]:
    return cast(Literal["protobuf", "json"], encoding)


def settled(by_project: dict[str, Facts], named: str) -> dict[str, Facts]:
    """The facts by the project that they go to: the one that the request named, a resource's, or `default`."""
    found_in: dict[str, Facts] = {}
    for found, facts in by_project.items():
        project = named or (found if is_project(found) else DEFAULT_PROJECT)
        if project in found_in:
            found_in[project].extend(facts)
        else:
            found_in[project] = facts
    return found_in
