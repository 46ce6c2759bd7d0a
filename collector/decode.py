"""From a log record to facts by project, the same way each time: the door has already judged the very same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Literal, NamedTuple, cast

import msgspec

from collector import mapping, otlp
from collector.events_in import Layout, parse_events
from collector.facts import EVENT_LISTS, Facts
from collector.foreign import own_logs, own_traces
from collector.otlp_limits import NAMED_REFUSALS
from collector.projects import project_of
from collector.segment import Record
from collector.spans import LogRecord, Span
from pickwise.events import DEFAULT_PROJECT
from pickwise.settings import Settings

#: Spans, log records or native events of a part: what is made of them takes some tens of MiB.
PART_ITEMS = 8_192
#: A span or log record with its facts, None where no dialect knows it.
DecodedItem = tuple[Span | LogRecord, Facts | None]
#: Keeps what could not be mapped, and why.
SetAside = Callable[[Record, Exception], None]
#: The encoding of a record that was set aside: the items that failed, as JSON in our own shape, without the others.
ITEMS = "items"


class Unmapped(RuntimeError):  # noqa: N818 - a state of the items
    """Spans or log records that a rule failed on; the message says which, and how."""


class Part(NamedTuple):
    """Some of a record: facts by project, and the spans or log records that they come from, each with its own."""

    by_project: dict[str, Facts]
    items: list[DecodedItem]


def decode_parts(record: Record, settings: Settings, set_aside: SetAside | None = None) -> Iterator[Part]:
    """The facts of a record of kind `traces`, `logs` or `events`, a few thousand items at a time.

    The project that the request named decides, then the one that a resource names, then `default`. What a rule of the
    mapping fails on is set aside alone, and raised without a ``set_aside``.
    """
    header = record.header
    if header.kind == "events":
        own = header.project if header.bound else None
        for facts in _sliced(parse_events(record.body, cast(Layout, header.encoding), own).facts):
            yield Part({header.project or DEFAULT_PROJECT: facts}, [])
        return
    failures = _Failures()
    found = _found(record, settings, failures)
    while items := list(islice(found, PART_ITEMS)):
        yield Part(mapping.by_project(items, lambda item: project_of(item, header.project)), items)
    if failures.items and set_aside is None:
        raise failures.error
    if failures.items and set_aside is not None:
        set_aside(failures.part_of(record), failures.error)


def decode_facts(record: Record, settings: Settings) -> tuple[dict[str, Facts], list[DecodedItem]]:
    """All facts of a record by project, and its items: the parts of ``decode_parts`` in one."""
    by_project: dict[str, Facts] = {}
    items: list[DecodedItem] = []
    for part in decode_parts(record, settings):
        items += part.items
        for project, facts in part.by_project.items():
            by_project.setdefault(project, Facts()).extend(facts)
    return by_project, items


def _found(record: Record, settings: Settings, failures: _Failures) -> Iterator[DecodedItem]:
    received_at = record.header.received_at
    match record.header.kind:
        case "traces":
            return mapping.facts_of_traces(_traces(record), received_at, settings, failures.note)
        case "logs":
            return mapping.facts_of_logs(_logs(record), received_at, settings, failures.note)
        case kind:
            raise ValueError(f"a record of kind {kind} holds no facts")


def _sliced(facts: Facts) -> Iterator[Facts]:
    """Facts of native events, which list no offers, a few thousand at a time."""
    for name in EVENT_LISTS:
        events = getattr(facts, name)
        for start in range(0, len(events), PART_ITEMS):
            yield Facts(**{name: events[start : start + PART_ITEMS]})


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
