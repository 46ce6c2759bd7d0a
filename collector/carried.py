"""What a redacted item does not tell of its events, or tells wrongly, and what holds when it is mapped again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from collector.archived import ArchivedItem, Carried, EventKey
from collector.facts import CallFact, Facts
from collector.item_shapes import Shape
from collector.redact import is_described
from collector.row_types import Row
from pickwise.events import Event, Selection

#: Columns that a field becomes, where they are not the one of its name.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "arguments": ("arguments", "args_keys", "args_digest", "error_message"),
    "candidates": ("candidates", "truncated"),
    "intent": ("intent_domain", "intent_action", "intent_object"),
    "query": ("query", "truncated"),
    "shadow": ("shadow_embedding_version", "shadow_skill_ids"),
    "value": ("value", "value_text"),
}
#: Columns that may be read in a result that tells of a failure.
_FAILURE = ("ok", "error_kind")
#: The number of an event that is alone.
_FIRST = (0,)
#: How and when a row came: said anew by each replay.
_OF_RECEIPT = ("project", "received_at", "source_request", "mapping_version")


def events_of(facts: Facts, table: str) -> list[Any]:
    found: list[Any] = getattr(facts, table)
    return found


def keyed(facts: Facts) -> list[tuple[EventKey, Event]]:
    """The events, each with its key."""
    return [
        ((table, event.event_id or "", number), event)
        for table, events in _lists(facts)
        for event, number in zip(events, _numbers(events), strict=True)
    ]


def _lists(facts: Facts) -> list[tuple[str, Sequence[Event]]]:
    """The lists that hold events, with their tables."""
    found: list[tuple[str, Sequence[Event]]] = []
    if facts.selections:
        found.append(("selections", facts.selections))
    if facts.calls:
        found.append(("calls", facts.calls))
    if facts.feedback:
        found.append(("feedback", facts.feedback))
    if facts.routes:
        found.append(("routes", facts.routes))
    return found


def _numbers(events: Sequence[Event]) -> Sequence[int]:
    """For each event, how many of the same id came before it."""
    if len(events) == 1:
        return _FIRST
    counts: dict[str, int] = {}
    numbers = []
    for event in events:
        event_id = event.event_id or ""
        numbers.append(counts.get(event_id, 0))
        counts[event_id] = numbers[-1] + 1
    return numbers


def differences(told: Facts, tells: Facts, made: dict[int, Row]) -> Iterator[Carried]:
    """What the first mapping told otherwise than the redacted item tells."""
    now = dict(keyed(tells))
    for key, event in keyed(told):
        row = made.get(id(event))
        other = now.pop(key, None)
        if row is None:
            continue  # could not be stored, see the dead letters
        if other is None or other.time != event.time:
            whole = {name: value for name, value in row.items() if name not in _OF_RECEIPT}
            yield Carried(key, "lost" if other is None else "wrong", whole)
        elif columns := _changed_columns(event, other, row):
            yield Carried(key, "changed", columns)
    for key in now:
        yield Carried(key, "spurious")


def usual(told: Facts, made: dict[int, Row], shape: Shape) -> list[Carried]:
    """What a redacted item of a kind always tells otherwise: arguments, masked texts, and failures that it hides."""
    found: list[Carried] = []
    for table, events in _lists(told):
        numbers: Sequence[int] = ()
        for place, event in enumerate(events):
            row = made.get(id(event))
            if row is not None and (columns := _usual_columns(event, row, shape)):
                numbers = numbers or _numbers(events)
                found.append(Carried((table, event.event_id or "", numbers[place]), "changed", columns))
    return found


def _usual_columns(event: Event, row: Any, shape: Shape) -> Row:
    columns: Row = {}
    if isinstance(event, CallFact):
        if event.arguments is not None:
            columns = {
                "arguments": row.arguments,
                "args_keys": row.args_keys,
                "args_digest": row.args_digest,
                "error_message": row.error_message,
            }
        if event.ok is False:
            columns["error_message"] = row.error_message
            if shape.hides_failure:
                columns |= {name: row[name] for name in _FAILURE}
    elif isinstance(event, Selection) and event.query != row.query:
        columns = {name: row[name] for name in _COLUMNS["query"]}
    if row.time_is_receipt:
        columns["time"] = row.time
    return columns


def learn(shape: Shape, looked_at: ArchivedItem, facts: Facts | None, made: dict[int, Row]) -> None:
    """Note what a look showed."""
    shape.hides_failure |= any(not found.columns.keys().isdisjoint(_FAILURE) for found in looked_at.carried)
    expected = [] if facts is None else usual(facts, made, shape)
    shape.is_trusted = _is_expected(looked_at, expected)


def _is_expected(kept: ArchivedItem, usual: Sequence[Carried]) -> bool:
    """Whether a look showed nothing beyond the usual."""
    expected = {found.event: found.columns.keys() for found in usual}
    return kept.offered is None and all(
        found.state == "changed" and found.columns.keys() <= expected.get(found.event, set()) for found in kept.carried
    )


def _changed_columns(event: Event, other: Event, row: Row) -> Row:
    names = (
        [] if event == other else [f for f in event.__struct_fields__ if getattr(event, f) != getattr(other, f, None)]
    )
    if isinstance(event, CallFact) and event.arguments is not None and "arguments" not in names:
        names.append("arguments")  # nothing was taken out, but whoever maps it again can't know that
    columns = {column: row[column] for name in names for column in _COLUMNS.get(name, (name,)) if column in row}
    if row["time_is_receipt"]:
        columns["time"] = row["time"]
    return columns


def known_columns(known: Carried) -> Row:
    """What holds of an event that the item tells of, whatever it tells.

    Of one that it did not tell of when it was archived, a mended mapping may know better, but for the arguments.
    """
    if known.state == "lost":
        return {name: known.columns[name] for name in _COLUMNS["arguments"] if name in known.columns}
    return known.columns


def is_clean(event: Event) -> bool:
    """Whether an event that only today's mapping sees can be kept; what stands for a value taken out is no value."""
    for name in event.__struct_fields__:
        if name != "arguments" and is_described(getattr(event, name)):
            if name in ("skill_id", "kind", "instance", "state"):
                return False
            setattr(event, name, None)
    if isinstance(event, Selection):
        event.candidates = [found for found in event.candidates if not is_described(found.skill_id)]
    return True
