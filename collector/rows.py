"""From facts to rows of the fact tables: times, ids, redaction and the hash that tells an exact repeat."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import ItemsView, Iterable, Sequence
from functools import cache
from hashlib import blake2b
from itertools import chain, count
from typing import Any, NamedTuple

import msgspec
import polars as pl
import pyarrow as pa

from collector.facts import CallFact, Facts, SelectionFact
from collector.mapping import MAPPING_VERSION
from collector.mapping.conversation import from_json
from collector.redact import Redactor
from collector.tables import FACT_TABLES, STAGES, TEXT, TIME
from pickwise.events import (
    MAX_CANDIDATES,
    Candidate,
    Event,
    Feedback,
    Route,
    Selection,
    StageMs,
    derive_event_id,
    finite,
    parse_time,
)

Row = dict[str, Any]
_SORTED_STAGES = sorted(STAGES)
_SCORES = ("score", "bm25", "dense", "rerank", "propensity")
#: No tool takes arguments nested so deep; beyond, encoders run out of stack.
_MAX_DEPTH = 64
_NESTED = (dict, list)
_NESTED_TYPES = frozenset(_NESTED)
#: So many lists of candidates are remembered as rows.
_MENUS = 128
#: What is kept of so many arguments, none of them longer as JSON, is remembered while the rows of a request are made.
_KEPT = 1_024
_KEPT_BYTES = 1_024
#: Columns that are not hashed, beside those of ``Receipt``: the hash itself, and the time, which may be the receipt's.
_OF_EACH = ("fact", "time")
#: Made of ``time`` once rows are a frame.
_DATE = "date"
_plain = msgspec.json.Encoder()
_sorting = msgspec.json.Encoder(order="sorted")
_encode, _encode_sorted = _plain.encode, _sorting.encode
#: Copied for each fact: that takes less time than to make a new one.
_NOTHING_HASHED = blake2b(digest_size=16)


class Receipt(NamedTuple):
    """How the rows of one request came: columns that are the same in all of them."""

    received_at: int
    source_request: str
    mapping_version: str


class MadeRow(msgspec.Struct, gc=False):
    """A row as it is made, without its receipt: a struct is made, encoded and taken apart in half the time of a dict.

    Its columns are in the order of their names, as they are hashed, and then those that are not hashed: unset until
    then, so that no encoder sees them. What it holds can be read by name, as in a dict.
    """

    def __getitem__(self, column: str) -> Any:
        return getattr(self, column)

    def __contains__(self, column: str) -> bool:
        return column in self.__struct_fields__

    def items(self) -> ItemsView[str, Any]:
        return self.to_dict().items()

    def to_dict(self) -> Row:
        return msgspec.structs.asdict(self)


def _row_type(table: str) -> Any:
    hashed = sorted(set(FACT_TABLES[table].names()).difference(_OF_EACH, Receipt._fields, [_DATE]))
    columns: list[Any] = [*hashed, *((name, Any, msgspec.UNSET) for name in _OF_EACH)]
    return msgspec.defstruct(table, columns, bases=(MadeRow,), gc=False)


_SelectionRow, _CallRow, _FeedbackRow, _RouteRow = map(_row_type, ("selections", "calls", "feedback", "routes"))
_ROW_TYPES: dict[str, type[MadeRow]] = {row.__name__: row for row in (_SelectionRow, _CallRow, _FeedbackRow, _RouteRow)}


def to_frames(
    project: str, facts: Facts, *, received_at: int, source_request: str, redactor: Redactor
) -> dict[str, pl.DataFrame]:
    """One frame a table that the facts touch, in its schema: ``to_rows`` and ``to_frame`` in one."""
    maker = RowMaker(project, received_at, source_request, redactor, Ledger())
    frames = {}
    for table, made in maker.rows(facts).items():
        columns = Columns(table)
        columns.add(made, maker.receipt)
        frames[table] = columns.frame()
    return frames


class Ledger:
    """What became of single events, told apart by their ``id``: the rows made of them, the columns known beforehand.

    Known columns hold whatever the event says; a known ``time`` stands in for one that the event does not carry.
    """

    def __init__(self) -> None:
        #: Each a ``MadeRow``, to be read as a dict is.
        self.made: dict[int, Any] = {}
        self.known: dict[int, Row] = {}


def to_rows(
    project: str,
    facts: Facts,
    *,
    received_at: int,
    source_request: str,
    redactor: Redactor,
    ledger: Ledger | None = None,
) -> dict[str, list[Row]]:
    """The rows of the tables that the facts touch. Offered skills are not rows yet, see ``observed``.

    ``received_at`` (Unix ns) stands in for absent times, a microsecond later for each event, in their order.
    ``fact`` hashes what an event says: without its receipt, and without a time that it didn't carry itself, so that
    a repeated event is known as such whenever it comes.
    """
    maker = RowMaker(project, received_at, source_request, redactor, ledger or Ledger())
    receipt = maker.receipt._asdict()
    return {table: [row.to_dict() | receipt for row in made] for table, made in maker.rows(facts).items()}


class RowMaker:
    """Makes the rows of one request and project, whole or part by part.

    Rows take their columns in the order of their names, without saying them: names would take as long as all the rest.
    """

    def __init__(self, project: str, received_at: int, source_request: str, redactor: Redactor, ledger: Ledger) -> None:
        self._ledger = ledger
        self._project = project
        self.receipt = Receipt(received_at // 1000, source_request, MAPPING_VERSION)
        self._redactor = redactor
        self._next = count(self.receipt.received_at)
        self._seen: Counter[tuple[Any, ...]] = Counter()
        #: A call is told by the turn that proposed it and by its run, with the same arguments.
        self._kept: dict[tuple[str, bytes], _Arguments] = {}
        #: Encoders write into what is there already faster than into new bytes.
        self._buffer = bytearray()

    def rows(self, facts: Facts) -> dict[str, list[MadeRow]]:
        """As ``to_rows``; those of an earlier part count for times and ids."""
        tables = {
            "selections": [self.selection(event) for event in facts.selections],
            "calls": [self.call(event) for event in facts.calls],
            "feedback": [self.feedback(event) for event in facts.feedback],
            "routes": [self.route(event) for event in facts.routes],
        }
        return {table: rows for table, rows in tables.items() if rows}

    def selection(self, event: Selection) -> MadeRow:
        redactor, intent, shadow = self._redactor, event.intent, event.shadow
        query, cut = redactor.query(event.query) if event.query is not None else (None, False)
        role, ended_at, parent_span_id = _extent(event)
        menu = _menu(event, redactor)
        time = parse_time(event.time)
        row = _SelectionRow(
            event.agent,
            menu.encoded,  # for the hash
            event.context_digest,
            event.embedding_version,
            ended_at,
            event.environment,
            event.event_id,
            event.fallback,
            _masked(event.fallback_reason, redactor),  # fallback_reason
            intent.action if intent else None,
            intent.domain if intent else None,
            intent.object if intent else None,
            event.language,
            event.menu_tokens,
            event.model,
            event.model_version,
            event.no_match,
            parent_span_id,
            event.picks,
            event.previous_skill_id,
            self._project,
            query,
            event.randomized,
            event.ranked,
            event.registry_version,
            event.release,
            role,
            event.session_id,
            shadow.embedding_version if shadow else None,
            shadow.skill_ids if shadow else None,
            event.span_id and event.span_id.lower(),
            _stages(event.stage_ms) if event.stage_ms else None,
            event.strategy,
            time is None,  # time_is_receipt
            event.trace_id and event.trace_id.lower(),
            # A menu at the limit may have been cut to it as well.
            cut or len(event.candidates) >= MAX_CANDIDATES,  # truncated
            event.turn,
            event.weights_version,
        )
        made = self._finished(event, row, time)
        if row.candidates is menu.encoded:
            row.candidates = menu
        return made

    def call(self, event: CallFact) -> MadeRow:
        skill_id, arguments, error = event.skill_id, event.arguments, event.error_message
        kept, time = _NO_ARGUMENTS, parse_time(event.time)
        if arguments is not None:
            arguments = canonical_arguments(arguments)
            kept = self._arguments(skill_id, arguments)
        row = _CallRow(
            event.agent,
            kept.digest,
            kept.names if event.args_keys is None else event.args_keys,
            kept.redacted,
            event.attempt,
            event.call_id,
            event.depth,
            event.environment,
            event.error_kind,
            self._redactor.error_message(error, skill_id, arguments) if error is not None else None,
            event.event_id,
            finite(event.latency_ms),
            event.model,
            event.ok,
            event.ordinal,
            event.parent_call_id,
            event.parent_span_id,
            event.phase,
            self._project,
            event.release,
            event.retryable,
            event.role,
            event.selection_id,
            event.session_id,
            skill_id,
            event.span_id and event.span_id.lower(),
            time is None,  # time_is_receipt
            event.trace_id and event.trace_id.lower(),
        )
        return self._finished(event, row, time)

    def feedback(self, event: Feedback) -> MadeRow:
        value, time = event.value, parse_time(event.time)
        row = _FeedbackRow(
            event.agent,
            event.annotator,
            event.call_id,
            event.environment,
            event.event_id,
            event.expected,
            event.kind,
            event.model,
            self._project,
            event.release,
            event.selection_id,
            event.session_id,
            event.source,
            event.span_id and event.span_id.lower(),
            time is None,  # time_is_receipt
            event.trace_id and event.trace_id.lower(),
            finite(float(value)) if isinstance(value, bool | int | float) else None,
            _masked(value, self._redactor) if isinstance(value, str) else None,  # value_text
        )
        return self._finished(event, row, time)

    def route(self, event: Route) -> MadeRow:
        time = parse_time(event.time)
        row = _RouteRow(
            event.agent,
            event.environment,
            finite(event.error_rate),
            event.event_id,
            event.instance,
            event.model,
            finite(event.p99_ms),
            self._project,
            _masked(event.reason, self._redactor),
            event.release,
            event.session_id,
            event.span_id and event.span_id.lower(),
            event.state,
            time is None,  # time_is_receipt
            event.trace_id and event.trace_id.lower(),
        )
        return self._finished(event, row, time)

    def _finished(self, event: Event, row: Any, time: int | None) -> MadeRow:
        """The row with what its other columns make: an id where it has none, what is known, its hash, its receipt."""
        filled_in = next(self._next)
        if not row.event_id:
            row.event_id = self._derived_id(event, row, time)
        encoder = _plain
        known = self._ledger.known.get(id(event))
        if known is not None:
            filled_in = known.get("time", filled_in)
            encoder = _sorting  # what is known may be in any order
            for name in known.keys() & row.__struct_fields__:
                setattr(row, name, known[name])
            row.time = msgspec.UNSET
        # An event's own time is part of what it says, one filled in is not.
        row.fact = self._hash(row, event.type_name, time, encoder)
        row.time = time // 1000 if time is not None else filled_in
        made: MadeRow = row
        self._ledger.made[id(event)] = made
        return made

    def _derived_id(self, event: Event, row: Any, time: int | None) -> str:
        if not event.trace_id or not event.span_id:
            row.event_id = msgspec.UNSET
            return self._hash(row, event.type_name, time, _plain)
        key = (
            row.trace_id,
            row.span_id,
            event.type_name,
            getattr(row, "call_id", None),
            getattr(row, "phase", None),
            getattr(row, "attempt", None),
        )
        ordinal = getattr(row, "ordinal", None)
        if ordinal is None:
            ordinal = self._seen[key]
            self._seen[key] += 1
        return derive_event_id(self._project, *key, ordinal)

    def _hash(self, row: MadeRow, type_name: str, time: int | None, encoder: msgspec.json.Encoder) -> str:
        """What tells an exact repeat."""
        encoder.encode_into([type_name, time, row], self._buffer)
        hashed = _NOTHING_HASHED.copy()
        hashed.update(self._buffer)
        return hashed.hexdigest()

    def _arguments(self, skill_id: str, arguments: Any) -> _Arguments:
        key = skill_id, _encode(arguments)
        known = self._kept.get(key)
        if known is not None:
            self._redactor.counts["argument"] += known.taken_out
            return known
        made = self._new_arguments(skill_id, arguments)
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        if len(key[1]) <= _KEPT_BYTES:
            self._kept[key] = made
        return made

    def _new_arguments(self, skill_id: str, arguments: Any) -> _Arguments:
        redactor = self._redactor
        before = redactor.counts["argument"]
        redacted = redactor.arguments(skill_id, arguments)
        return _Arguments(
            redactor.digest(_encode_sorted(arguments)),
            sorted(arguments) if isinstance(arguments, dict) else None,
            redacted,
            redactor.counts["argument"] - before,
        )


class _Arguments(NamedTuple):
    """What is kept of the arguments of a call, and how many values were taken out."""

    digest: str | None
    names: list[str] | None
    redacted: str | None
    taken_out: int


_NO_ARGUMENTS = _Arguments(None, None, None, 0)


def _extent(event: Selection) -> tuple[str | None, int | None, str | None]:
    """Role, end (µs) and the span around it, of what is more than a turn."""
    if not isinstance(event, SelectionFact) or event.role == "turn":
        return None, None, None
    return (
        event.role,
        event.ended_at // 1000 if event.ended_at else None,
        event.parent_span_id and event.parent_span_id.lower(),
    )


def _stages(stages: StageMs) -> Row:
    return {stage: finite(getattr(stages, stage)) for stage in _SORTED_STAGES}


class _Menu(list[Row]):
    """Candidates as they stand in a row; ``encoded``: as they stand in its hash."""

    __slots__ = ("encoded",)

    def __init__(self, candidates: Iterable[Row]) -> None:
        super().__init__(candidates)
        self.encoded = msgspec.Raw(_encode_sorted(self))


class _Menus:
    """Menus by their lists of candidates: turn after turn is offered one and the same, which nobody changes."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[list[Candidate], _Menu]] = {}

    def of(self, candidates: list[Candidate]) -> _Menu:
        known = self._made.get(id(candidates))
        if known is None:
            if len(self._made) >= _MENUS:
                self._made.clear()
            # The list is kept with it: as long as it lives, no other one has its id.
            known = self._made[id(candidates)] = candidates, _Menu(map(_candidate, candidates))
        return known[1]


_NO_MENU = _Menu([])
_menus = _Menus()


def _menu(event: Selection, redactor: Redactor) -> _Menu:
    if not event.candidates:
        return _NO_MENU
    if isinstance(event, SelectionFact) and event.role == "retrieval":
        # What a search found may be documents, whose names may say anything.
        return _Menu(_candidate(found) | {"skill_id": redactor.text(found.skill_id)} for found in event.candidates)
    return _menus.of(event.candidates)


def _candidate(candidate: Candidate) -> Row:
    columns = msgspec.structs.asdict(candidate)
    for name in _SCORES:
        value = columns[name]
        if value is not None and not math.isfinite(value):
            columns[name] = None
    return columns


def canonical_arguments(value: Any) -> Any:
    """The arguments decoded, whether they came as an object or as JSON text; text that is no JSON stays text."""
    decoded = from_json(value) if isinstance(value, str) else value
    if not isinstance(decoded, _NESTED):
        return value
    return decoded if _is_shallow(decoded) else f"nested deeper than {_MAX_DEPTH}"


def _is_shallow(value: Any) -> bool:
    """Whether the value can be walked and encoded wherever it goes."""
    if _NESTED_TYPES.isdisjoint(map(type, value.values() if isinstance(value, dict) else value)):
        return True  # as most are
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, _NESTED)
        ]
        if not level:
            return True
    return False


def to_frame(table: str, rows: list[Row]) -> pl.DataFrame:
    """The rows of ``to_rows``, of any number of requests, as one frame in the schema of the table.

    A column that a row does not have, as it was archived before there was one, is null there.
    """
    return _frame(table, [[row.get(name) for row in rows] for name in _columns(table)])


class Columns:
    """Rows of one table on their way into a frame: the values of each column."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._values: list[list[Any]] = [[] for _ in _columns(table)]

    def add(self, rows: Sequence[MadeRow], receipt: Receipt) -> None:
        if not rows:
            return
        # While they are few, and near: a column at a time of very many takes longer.
        told = zip(*map(msgspec.structs.astuple, rows), strict=True)
        received = ([value] * len(rows) for value in receipt)
        for column, values in zip(self._values, chain(told, received), strict=True):
            column += values

    def part(self, which: slice) -> Columns:
        """Some of the rows."""
        part = Columns(self._table)
        part._values = [column[which] for column in self._values]
        return part

    def frame(self) -> pl.DataFrame:
        """The rows in the schema of the table."""
        return _frame(self._table, self._values)


def _columns(table: str) -> tuple[str, ...]:
    return _ROW_TYPES[table].__struct_fields__ + Receipt._fields


def _frame(table: str, columns: list[list[Any]]) -> pl.DataFrame:
    schema = FACT_TABLES[table]
    named = zip(_columns(table), columns, strict=True)
    found = {name: _series(name, schema[name], values) for name, values in named}
    found[_DATE] = found["time"].dt.date().alias(_DATE)
    return pl.DataFrame([found[name] for name in schema])


def _series(name: str, kind: pl.DataType, values: list[Any]) -> pl.Series:
    """One column. Polars is the faster with texts and times, Arrow with all that is nested."""
    if name == "candidates":
        return _menus_series(name, kind, values)
    if len(values) > 1 and values[0] is values[-1] and values.count(values[0]) == len(values):
        return _series(name, kind, values[:1]).new_from_index(0, len(values))  # as most are, above all the null ones
    if kind == TEXT:
        return pl.Series(name, values, dtype=kind)
    if kind == TIME:
        return pl.Series(name, values, dtype=pl.Int64).cast(kind)
    return pl.Series(name, pa.array(values, _arrow_type(kind)))


def _menus_series(name: str, kind: pl.DataType, values: list[Any]) -> pl.Series:
    """Many rows hold one and the same menu, which is read once."""
    distinct = {id(value): value for value in values}
    places = {key: place for place, key in enumerate(distinct)}
    menus = pl.Series(name, pa.array(list(distinct.values()), _arrow_type(kind)))
    return menus.gather([places[id(value)] for value in values])


@cache
def _arrow_type(kind: pl.DataType) -> pa.DataType:
    return pl.Series(dtype=kind).to_arrow().type


def _masked(text: str | None, redactor: Redactor) -> str | None:
    return redactor.text(text) if text else text
