"""One request as the archive keeps it, and the way back from it to facts and rows.

Redaction takes away what some rules need: a result that says that a call failed, the argument values behind a digest,
the text that an id is made of. So what the redacted item tells is compared with what the whole one told, and the
columns and rows that it tells otherwise are stored beside it. The same mapping therefore gives the same rows again,
and a mended one is used wherever the redacted item can tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from collector import mapping
from collector.facts import CallFact, Facts, Offer, OfferedSkill
from collector.item_shapes import ItemShapes, Shape, kind_of
from collector.mapping.conversation import from_json
from collector.projects import project_of
from collector.read_attributes import layout_of
from collector.redact import Redactor
from collector.redact_items import ItemRedactor
from collector.row_types import Row
from collector.rows import Ledger, to_rows
from collector.segment import Record
from collector.spans import LogRecord, Span
from pickwise.events import Event, Selection
from pickwise.settings import Settings

Item = Span | LogRecord
#: An event among those of its item: table, event id ('' where it has none), and how many of the same came before it.
EventKey = tuple[str, str, int]
RowsByTable = dict[str, list[Row]]

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
#: What stands for a value that was taken out, see ``redact.described``.
_PLACEHOLDER = re.compile(r"(?:string|array|object)\(\d+\)|number|boolean|null")


class Carried(msgspec.Struct, omit_defaults=True, gc=False):
    """What the redacted item does not tell of one event, or tells wrongly."""

    event: EventKey
    #: `changed`: the item tells some ``columns`` of its row otherwise. `lost`: it does not tell of the event; `wrong`:
    #: it tells of another one in its place; ``columns`` are the whole row then. `spurious`: there was no such event.
    state: Literal["changed", "lost", "wrong", "spurious"] = "changed"
    columns: Row = {}


class ArchivedItem(msgspec.Struct, omit_defaults=True, gc=False):
    """A redacted span or log record."""

    span: Span | None = None
    log: LogRecord | None = None
    carried: list[Carried] = []
    #: The tools that were offered, where the redacted item tells otherwise.
    offered: list[OfferedSkill] | None = None

    @property
    def held(self) -> Item:
        held = self.span if self.span is not None else self.log
        assert held is not None
        return held


class ArchivedRequest(msgspec.Struct, omit_defaults=True, gc=False):
    """An OTLP request: what its log record said of it, and its items that some mapper could know."""

    seq: int
    project: str
    received_at: int
    items: list[ArchivedItem]
    imported: bool = False


class EncodedRequest(NamedTuple):
    """An archived request as the archive writes it."""

    seq: int
    received_at: int
    #: The ``ArchivedRequest`` as MessagePack.
    encoded: bytes

    @classmethod
    def of(cls, request: ArchivedRequest) -> EncodedRequest:
        return cls(request.seq, request.received_at, msgspec.msgpack.encode(request))


class Archivist:
    """Turns requests into archived ones and these into rows again, by the rules of one installation."""

    def __init__(self, settings: Settings, redactor: Redactor) -> None:
        self._settings = settings
        self._items = ItemRedactor(redactor)
        self._shapes = ItemShapes()
        self._redactor = _Again(redactor)

    def archived(
        self, record: Record, seen: Sequence[tuple[Item, Facts | None]], made: dict[int, Row]
    ) -> ArchivedRequest | None:
        """The request of a log record, from its items, their facts and the rows that these became.

        None where no mapper reads anything of it.
        """
        arguments = Arguments()
        arguments.note(seen)
        items = self.items(seen, made, arguments)
        header = record.header
        if not items:
            return None
        return ArchivedRequest(header.seq, header.project, header.received_at, items, header.imported)

    def items(
        self, seen: Sequence[tuple[Item, Facts | None]], made: dict[int, Row], arguments: Arguments
    ) -> list[ArchivedItem]:
        """What is kept of some items of a request; ``arguments``: those of all its calls."""
        known = arguments.of
        return [kept for item, facts in seen if (kept := self._item(item, facts, made, known)) is not None]

    def facts(self, request: ArchivedRequest, ledger: Ledger) -> tuple[dict[str, Facts], dict[str, RowsByTable]]:
        """What the mapping of today reads in the request, by project; and the rows of what it can't read any more.

        Columns that are known from the first mapping go to the ledger.
        """
        found: dict[str, Facts] = {}
        lost: dict[str, RowsByTable] = {}
        for item in request.items:
            facts, rows = self._told(item, ledger)
            for offer in facts.offered:
                offer.time = offer.time or request.received_at
            project = project_of(item.held, request.project)
            found.setdefault(project, Facts()).extend(facts)
            for table, row in rows:
                lost.setdefault(project, {}).setdefault(table, []).append(row)
        return found, lost

    def rows(
        self, request: ArchivedRequest, project: str, facts: Facts, ledger: Ledger, source_request: str
    ) -> RowsByTable:
        """The rows of the facts of one project."""
        return to_rows(
            project,
            facts,
            received_at=request.received_at,
            source_request=source_request,
            redactor=self._redactor,
            ledger=ledger,
        )

    # -- into the archive -------------------------------------------------------------------------------------------

    def _item(
        self, item: Item, facts: Facts | None, made: dict[int, Row], arguments: Callable[[str], list[Any]]
    ) -> ArchivedItem | None:
        if not isinstance(item, Span):
            log = self._items.log(item, facts)
            return None if log is None else self._looked_at(ArchivedItem(log=log), facts, made)
        layout = layout_of(item.attributes)
        span = self._items.span(item, facts, arguments, layout)
        if span is None:
            return None
        kept = ArchivedItem(span=span)
        if self._items.has_masked_label:
            return self._looked_at(kept, facts, made)
        kind = kind_of(span, layout, facts)
        if kind is None:
            return self._looked_at(kept, facts, made)
        shape = self._shapes.of(kind)
        if not shape.needs_look():
            if facts is not None:
                kept.carried = _usual(facts, made, shape)
        elif shape.is_trusted:
            _learn(shape, self._looked_at(kept, facts, made), facts, made)
        else:
            self._looked_at(kept, facts, made)
        return kept

    def _looked_at(self, kept: ArchivedItem, facts: Facts | None, made: dict[int, Row]) -> ArchivedItem:
        """The item with what it tells otherwise, redacted, than was told."""
        told = facts or Facts()
        tells = self._mapped(kept) or Facts()
        kept.carried = list(_differences(told, tells, made))
        if told.offered != tells.offered:
            offered = [self._items.offer(skill) for skill in told.offered_skills]
            kept.offered = None if offered == tells.offered_skills else offered
        return kept

    def _mapped(self, item: ArchivedItem) -> Facts | None:
        held = item.held
        return (
            mapping.map_span(held, self._settings) if isinstance(held, Span) else mapping.map_log(held, self._settings)
        )

    # -- and out of it ----------------------------------------------------------------------------------------------

    def _told(self, item: ArchivedItem, ledger: Ledger) -> tuple[Facts, list[tuple[str, Row]]]:
        """What the item tells, mended by what is known of its first mapping; and the rows that it does not tell."""
        tells = self._mapped(item) or Facts()
        carried = {found.event: found for found in item.carried}
        facts = Facts(offered=tells.offered)
        if item.offered is not None:
            facts.offered = [Offer(skill.time, (skill,)) for skill in item.offered]
        for key, event in _keys(tells):
            known = carried.get(key)
            if known is None:
                if not _clean(event):
                    continue
                ledger.known[id(event)] = {"args_digest": None} if isinstance(event, CallFact) else {}
            elif known.state in ("changed", "lost"):
                ledger.known[id(event)] = _known_columns(carried.pop(key))
            else:
                continue
            _events(facts, key[0]).append(event)
        whole = [(left.event[0], left.columns) for left in carried.values() if left.state in ("lost", "wrong")]
        return facts, whole


class _Again(Redactor):
    """Redacts what was redacted before: what stands for a value taken out stays as it is."""

    def __init__(self, redactor: Redactor) -> None:
        self.__dict__.update(redactor.__dict__)
        self.counts = Counter()

    def arguments(self, skill_id: str, value: Any) -> str | None:
        kept = super().arguments(skill_id, value)
        if isinstance(value, dict) and kept is not None:
            decoded = msgspec.json.decode(kept)
            decoded |= {name: item for name, item in value.items() if name in decoded and _is_placeholder(item)}
            return msgspec.json.encode(decoded).decode()
        return msgspec.json.encode(value).decode() if _is_placeholder(value) else kept


def _events(facts: Facts, table: str) -> list[Any]:
    found: list[Any] = getattr(facts, table)
    return found


def _keys(facts: Facts) -> list[tuple[EventKey, Event]]:
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


def _differences(told: Facts, tells: Facts, made: dict[int, Row]) -> Iterator[Carried]:
    """What the first mapping told otherwise than the redacted item tells."""
    now = dict(_keys(tells))
    for key, event in _keys(told):
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


def _usual(told: Facts, made: dict[int, Row], shape: Shape) -> list[Carried]:
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


def _learn(shape: Shape, looked_at: ArchivedItem, facts: Facts | None, made: dict[int, Row]) -> None:
    """Note what a look showed."""
    shape.hides_failure |= any(not found.columns.keys().isdisjoint(_FAILURE) for found in looked_at.carried)
    usual = [] if facts is None else _usual(facts, made, shape)
    shape.is_trusted = _is_expected(looked_at, usual)


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


def _known_columns(known: Carried) -> Row:
    """What holds of an event that the item tells of, whatever it tells.

    Of one that it did not tell of when it was archived, a mended mapping may know better, but for the arguments.
    """
    if known.state == "lost":
        return {name: known.columns[name] for name in _COLUMNS["arguments"] if name in known.columns}
    return known.columns


def _clean(event: Event) -> bool:
    """Whether an event that only today's mapping sees can be kept; what stands for a value taken out is no value."""
    for name in event.__struct_fields__:
        if name != "arguments" and _is_placeholder(getattr(event, name)):
            if name in ("skill_id", "kind", "instance", "state"):
                return False
            setattr(event, name, None)
    if isinstance(event, Selection):
        event.candidates = [found for found in event.candidates if not _is_placeholder(found.skill_id)]
    return True


def _is_placeholder(value: Any) -> bool:
    return isinstance(value, str) and _PLACEHOLDER.fullmatch(value) is not None


class Arguments:
    """Those of the calls of each trace of a request: decoded once an error text asks for them, which few do."""

    def __init__(self) -> None:
        self._noted: dict[str, list[Any]] = {}
        self._decoded: dict[str, list[Any]] = {}

    def note(self, seen: Sequence[tuple[Item, Facts | None]]) -> None:
        for item, facts in seen:
            if facts is not None:
                for call in facts.calls:
                    if call.arguments is not None:
                        self._noted.setdefault(item.trace_id or "", []).append(call.arguments)

    def of(self, trace_id: str) -> list[Any]:
        decoded = self._decoded.setdefault(trace_id, [])
        decoded += map(from_json, self._noted.pop(trace_id, ()))
        return decoded
