"""Native events: from the bytes of one request to facts, each item judged alone.

Parsing is a pure function of the bytes: the door runs it to answer, the flusher runs it again on the logged body and
comes to the same facts and the same refusals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any, Literal

import msgspec

from collector import json_text
from collector.body import TooLarge
from collector.clock import time_problem
from collector.facts import CallFact, Facts
from pickwise.events import (
    MAX_CANDIDATES,
    MAX_EVENT_BYTES,
    Call,
    Event,
    EventError,
    Feedback,
    Route,
    Selection,
    decode_event,
    parse_time,
)

#: How the items of a body are laid out: one JSON value (an object or an array of them), or one a line.
Layout = Literal["json", "ndjson"]

SKILL_TYPE = "skill"
_UTF8_BOM = b"\xef\xbb\xbf"
#: Items of one request: 20 MiB of events of two hundred bytes, and what a commit has the memory for.
MAX_ITEMS = 100_000
#: Integers beyond this fit no column.
_MAX_WHOLE = 2**63 - 1


class BodyError(ValueError):
    """The body as a whole cannot be read; the message says why."""


class Rejection(msgspec.Struct, frozen=True):
    """An item that was refused: its position in the request and the reason."""

    index: int
    event_id: str | None
    reason: str


class Item(msgspec.Struct, frozen=True):
    """One JSON value of a request and its position; ``reason`` says why it could not be read."""

    index: int
    value: Any = None
    reason: str | None = None
    #: NaN and infinities in the value.
    nonfinite: int = 0


class ParsedEvents(msgspec.Struct):
    """What one request of native events holds. ``skills`` are registry entries, not yet validated."""

    facts: Facts
    skills: list[Item]
    rejected: list[Rejection]
    unknown_fields: int = 0
    #: NaN and infinities that are stored as null.
    nonfinite: int = 0

    @property
    def accepted(self) -> int:
        """Events taken; registry entries are counted by the registry."""
        return len(self.facts)


def parse_events(body: bytes, layout: Layout, own: str | None = None) -> ParsedEvents:
    """Decode and validate every event of a request; with ``own``, those that name another project are refused.

    Raises BodyError when the body is no JSON at all, TooLarge. Times become Unix nanoseconds; an absent time stays None
    and an absent ``event_id`` too: they are filled where the receipt is known.
    """
    parsed = ParsedEvents(Facts(), [], [])
    for item in read_items(body, layout):
        if item.reason is not None:
            parsed.rejected.append(Rejection(item.index, None, item.reason))
        elif own is not None and _names_another(item.value, own):
            reason = f"project: expected {own}, the key's, or none"
            parsed.rejected.append(Rejection(item.index, item_id(item.value), reason))
        elif isinstance(item.value, dict) and item.value.get("type") == SKILL_TYPE:
            parsed.skills.append(item)
        else:
            _take(parsed, item)
    return parsed


def read_items(body: bytes, layout: Layout) -> Iterator[Item]:
    """The JSON values of a body, each with its position, or with the reason why it is none.

    Raises BodyError when the items cannot be told apart, TooLarge when they are too many.
    """
    for index, raw in enumerate(_split(body.removeprefix(_UTF8_BOM), layout)):
        if len(raw) > MAX_EVENT_BYTES:
            yield Item(index, reason=f"expected at most {MAX_EVENT_BYTES} bytes an event, got {len(raw)}")
            continue
        text = bytes(raw)
        if json_text.is_deep(text):
            yield Item(index, reason=f"expected at most {json_text.MAX_DEPTH} levels of nesting")
            continue
        try:
            value, nonfinite = json_text.decode_counting(text)
            yield Item(index, value, nonfinite=nonfinite)
        except ValueError as error:
            yield Item(index, reason=f"expected a JSON object: {error}")


def item_id(value: object, field: str = "event_id") -> str | None:
    """The id that a refused item names itself by, where it can be read."""
    found = value.get(field) if isinstance(value, dict) else None
    return found[:128] if isinstance(found, str) else None


def _names_another(value: object, own: str) -> bool:
    named = value.get("project") if isinstance(value, dict) else None
    return named is not None and named != own


def _split(body: bytes, layout: Layout) -> Sequence[bytes | msgspec.Raw]:
    if layout == "ndjson":
        return _lines(body)
    if body.lstrip(b" \t\r\n")[:1] != b"[":
        return [_whole(body)]
    try:
        return json_text.split_array(body, MAX_ITEMS)
    except TooLarge:
        raise
    except ValueError as error:
        raise BodyError(f"expected a JSON array of objects: {error}") from error


def _lines(body: bytes) -> list[bytes]:
    """The lines that are not empty. Raises TooLarge as soon as they are too many."""
    lines: list[bytes] = []
    for line in BytesIO(body):
        if line.strip():
            lines.append(line)
            if len(lines) > MAX_ITEMS:
                raise TooLarge(f"expected at most {MAX_ITEMS} items a request")
    return lines


def _whole(body: bytes) -> bytes:
    """A body that is one value. Raises BodyError when it is not: there is nothing else to take."""
    if len(body) <= MAX_EVENT_BYTES and not json_text.is_deep(body):
        try:
            json_text.decode(body)
        except ValueError as error:
            raise BodyError(f"expected a JSON object or an array of objects: {error}") from error
    return body


def _take(parsed: ParsedEvents, item: Item) -> None:
    try:
        event, unknown = decode_event(item.value)
        fact = _as_fact(_normalised(event))
    except EventError as error:
        parsed.rejected.append(Rejection(item.index, item_id(item.value), str(error)))
        return
    parsed.unknown_fields += unknown
    parsed.nonfinite += item.nonfinite
    _file(parsed.facts, fact)


def _normalised(event: Event) -> Event:
    """The event with its time in nanoseconds and its ids in lower case. Raises EventError for what fits no column."""
    _check_limits(event)
    if isinstance(event.time, int) and (problem := time_problem("time", event.time)):
        raise EventError(problem)
    event.time = parse_time(event.time)
    event.trace_id = event.trace_id.lower() if event.trace_id else None
    event.span_id = event.span_id.lower() if event.span_id else None
    return event


def _check_limits(event: Event) -> None:
    for field in event.__struct_fields__:
        value = getattr(event, field)
        if isinstance(value, int) and abs(value) > _MAX_WHOLE:
            raise EventError(f"{field}: expected an integer of 64 bits")
    if isinstance(event, Selection) and len(event.candidates) > MAX_CANDIDATES:
        raise EventError(f"candidates: expected at most {MAX_CANDIDATES}, got {len(event.candidates)}")


def _as_fact(event: Event) -> Event:
    """A native call is a call that ran."""
    if not isinstance(event, Call):
        return event
    return CallFact(**{field: getattr(event, field) for field in Call.__struct_fields__}, role="run")


def _file(facts: Facts, event: Event) -> None:
    match event:
        case Selection():
            facts.selections.append(event)
        case CallFact():
            facts.calls.append(event)
        case Feedback():
            facts.feedback.append(event)
        case Route():
            facts.routes.append(event)
        case _:
            raise AssertionError(f"decode_event gave a {type(event).__name__}, which has no table")
