"""From facts to rows of the fact tables: times, ids, redaction and the hash that tells an exact repeat."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import blake2b
from itertools import count
from operator import itemgetter
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from collector.facts import CallFact, Facts, SelectionFact
from collector.mapping import MAPPING_VERSION
from collector.mapping.conversation import from_json
from collector.redact import Redactor
from collector.tables import FACT_TABLES, STAGES, TABLES
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
#: So many digests of arguments are remembered while the rows of one request are made.
_DIGESTS = 1_024
#: Columns that are not hashed: the hash itself, when the row came, and of what.
_RECEIPT = ("fact", "time", "received_at", "source_request", "mapping_version", "date")
_BLANK: dict[str, Row] = {
    table: dict.fromkeys(sorted(set(schema.names()).difference(_RECEIPT))) for table, schema in FACT_TABLES.items()
}
_plain = msgspec.json.Encoder()
_sorting = msgspec.json.Encoder(order="sorted")
_encode_sorted = _sorting.encode


def to_frames(
    project: str, facts: Facts, *, received_at: int, source_request: str, redactor: Redactor
) -> dict[str, pl.DataFrame]:
    """One frame a table that the facts touch, in its schema: ``to_rows`` and ``to_frame`` in one."""
    rows = to_rows(project, facts, received_at=received_at, source_request=source_request, redactor=redactor)
    return {table: to_frame(table, found) for table, found in rows.items()}


class Ledger:
    """What became of single events, told apart by their ``id``: the rows made of them, the columns known beforehand.

    Known columns hold whatever the event says; a known ``time`` stands in for one that the event does not carry.
    """

    def __init__(self) -> None:
        self.made: dict[int, Row] = {}
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
    return maker.rows(facts)


class RowMaker:
    """Makes the rows of one request and project, whole or part by part.

    Each begins as a copy of a blank one, with the columns in the order of their names: a copy is filled in half the
    time that a literal of so many columns takes, and need not be sorted to be hashed. What is nested is sorted too.
    """

    def __init__(self, project: str, received_at: int, source_request: str, redactor: Redactor, ledger: Ledger) -> None:
        self._ledger = ledger
        self._project = project
        self._received_at = received_at // 1000
        self._source_request = source_request
        self._redactor = redactor
        self._next = count(self._received_at)
        self._seen: Counter[tuple[Any, ...]] = Counter()
        #: A call is told by the turn that proposed it and by its run, with the same arguments.
        self._digests: dict[bytes, str] = {}
        #: Encoders write into what is there already faster than into new bytes.
        self._buffer = bytearray()

    def rows(self, facts: Facts) -> dict[str, list[Row]]:
        """As ``to_rows``; those of an earlier part count for times and ids."""
        tables = {
            "selections": [self.selection(event) for event in facts.selections],
            "calls": [self.call(event) for event in facts.calls],
            "feedback": [self.feedback(event) for event in facts.feedback],
            "routes": [self.route(event) for event in facts.routes],
        }
        return {table: rows for table, rows in tables.items() if rows}

    def selection(self, event: Selection) -> Row:
        redactor, intent, shadow = self._redactor, event.intent, event.shadow
        query, cut = redactor.query(event.query) if event.query is not None else (None, False)
        role, ended_at, parent_span_id = _extent(event)
        columns = _BLANK["selections"].copy()
        columns["candidates"] = _candidates(event, redactor)
        columns["context_digest"] = event.context_digest
        columns["embedding_version"] = event.embedding_version
        columns["ended_at"] = ended_at
        columns["fallback"] = event.fallback
        columns["fallback_reason"] = _masked(event.fallback_reason, redactor)
        columns["intent_action"] = intent.action if intent else None
        columns["intent_domain"] = intent.domain if intent else None
        columns["intent_object"] = intent.object if intent else None
        columns["language"] = event.language
        columns["menu_tokens"] = event.menu_tokens
        columns["model_version"] = event.model_version
        columns["no_match"] = event.no_match
        columns["parent_span_id"] = parent_span_id
        columns["picks"] = event.picks
        columns["previous_skill_id"] = event.previous_skill_id
        columns["query"] = query
        columns["randomized"] = event.randomized
        columns["ranked"] = event.ranked
        columns["registry_version"] = event.registry_version
        columns["role"] = role
        columns["shadow_embedding_version"] = shadow.embedding_version if shadow else None
        columns["shadow_skill_ids"] = shadow.skill_ids if shadow else None
        columns["stage_ms"] = _stages(event.stage_ms) if event.stage_ms else None
        columns["strategy"] = event.strategy
        # A menu at the limit may have been cut to it as well.
        columns["truncated"] = cut or len(event.candidates) >= MAX_CANDIDATES
        columns["turn"] = event.turn
        columns["weights_version"] = event.weights_version
        return self._finished(event, columns)

    def call(self, event: CallFact) -> Row:
        redactor, skill_id = self._redactor, event.skill_id
        keys, error = event.args_keys, event.error_message
        arguments = digest = redacted = None
        if event.arguments is not None:
            arguments = canonical_arguments(event.arguments)
            digest, redacted = self._digest(arguments), redactor.arguments(skill_id, arguments)
            if keys is None and isinstance(arguments, dict):
                keys = sorted(arguments)
        columns = _BLANK["calls"].copy()
        columns["args_digest"] = digest
        columns["args_keys"] = keys
        columns["arguments"] = redacted
        columns["attempt"] = event.attempt
        columns["call_id"] = event.call_id
        columns["depth"] = event.depth
        columns["error_kind"] = event.error_kind
        columns["error_message"] = redactor.error_message(error, skill_id, arguments) if error is not None else None
        columns["latency_ms"] = finite(event.latency_ms)
        columns["ok"] = event.ok
        columns["ordinal"] = event.ordinal
        columns["parent_call_id"] = event.parent_call_id
        columns["parent_span_id"] = event.parent_span_id
        columns["phase"] = event.phase
        columns["retryable"] = event.retryable
        columns["role"] = event.role
        columns["selection_id"] = event.selection_id
        columns["skill_id"] = skill_id
        return self._finished(event, columns)

    def feedback(self, event: Feedback) -> Row:
        value = event.value
        columns = _BLANK["feedback"].copy()
        columns["annotator"] = event.annotator
        columns["call_id"] = event.call_id
        columns["expected"] = event.expected
        columns["kind"] = event.kind
        columns["selection_id"] = event.selection_id
        columns["source"] = event.source
        columns["value"] = finite(float(value)) if isinstance(value, bool | int | float) else None
        columns["value_text"] = _masked(value, self._redactor) if isinstance(value, str) else None
        return self._finished(event, columns)

    def route(self, event: Route) -> Row:
        columns = _BLANK["routes"].copy()
        columns["error_rate"] = finite(event.error_rate)
        columns["instance"] = event.instance
        columns["p99_ms"] = finite(event.p99_ms)
        columns["reason"] = _masked(event.reason, self._redactor)
        columns["state"] = event.state
        return self._finished(event, columns)

    def _finished(self, event: Event, columns: Row) -> Row:
        """What every kind of event has, and what the other columns make: ids, what is known beforehand, the hash."""
        time = parse_time(event.time)
        columns["agent"] = event.agent
        columns["environment"] = event.environment
        columns["event_id"] = event.event_id
        columns["model"] = event.model
        columns["project"] = self._project
        columns["release"] = event.release
        columns["session_id"] = event.session_id
        columns["span_id"] = _lower(event.span_id)
        columns["time_is_receipt"] = time is None
        columns["trace_id"] = _lower(event.trace_id)
        filled_in = next(self._next)
        encoder = _plain
        if not columns["event_id"]:
            columns["event_id"] = self._derived_id(event, columns, time)
            encoder = _sorting
        known = self._ledger.known.get(id(event))
        if known is not None:
            columns.update(known)
            filled_in = columns.pop("time", filled_in)
            encoder = _sorting
        # An event's own time is part of what it says, one filled in is not.
        columns["fact"] = self._hash(columns, event.type_name, time, encoder)
        columns["time"] = time // 1000 if time is not None else filled_in
        columns["received_at"] = self._received_at
        columns["source_request"] = self._source_request
        columns["mapping_version"] = MAPPING_VERSION
        self._ledger.made[id(event)] = columns
        return columns

    def _derived_id(self, event: Event, columns: Row, time: int | None) -> str:
        if not event.trace_id or not event.span_id:
            del columns["event_id"]
            return self._hash(columns, event.type_name, time, _plain)
        key = (
            columns["trace_id"],
            columns["span_id"],
            event.type_name,
            columns.get("call_id"),
            columns.get("phase"),
            columns.get("attempt"),
        )
        ordinal = columns.get("ordinal")
        if ordinal is None:
            ordinal = self._seen[key]
            self._seen[key] += 1
        return derive_event_id(self._project, *key, ordinal)

    def _hash(self, columns: Row, type_name: str, time: int | None, encoder: msgspec.json.Encoder) -> str:
        """What tells an exact repeat: of the columns in the order of their names, which a plain encoder leaves."""
        menu = columns.get("candidates")
        if isinstance(menu, _Menu):
            columns["candidates"] = menu.encoded
        encoder.encode_into([type_name, time, columns], self._buffer)
        if isinstance(menu, _Menu):
            columns["candidates"] = menu
        return blake2b(self._buffer, digest_size=16).hexdigest()

    def _digest(self, arguments: Any) -> str:
        encoded = _encode_sorted(arguments)
        digest = self._digests.get(encoded)
        if digest is None:
            if len(self._digests) >= _DIGESTS:
                self._digests.clear()
            digest = self._digests[encoded] = self._redactor.digest(encoded)
        return digest


def _extent(event: Selection) -> tuple[str | None, int | None, str | None]:
    """Role, end (µs) and the span around it, of what is more than a turn."""
    if not isinstance(event, SelectionFact) or event.role == "turn":
        return None, None, None
    return event.role, event.ended_at // 1000 if event.ended_at else None, _lower(event.parent_span_id)


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


def _candidates(event: Selection, redactor: Redactor) -> list[Row]:
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
    """The rows of ``to_rows``, of any number of requests, as one frame in the schema of the table."""
    # Through Arrow, which reads nested rows twice as fast as Polars does.
    schema = _arrow_schema(table)
    told = [field for field in schema if field.name != "date"]
    columns = map(_column, told, _transposed(rows, [field.name for field in told]))
    arrays = {field.name: column for field, column in zip(told, columns, strict=True)}
    # Without their zone, which is UTC: its data base may be missing.
    arrays["date"] = arrays["time"].view(pa.timestamp("us")).cast(pa.date32())
    return pl.DataFrame(pa.Table.from_arrays([arrays[name] for name in schema.names], schema=schema))


def _transposed(rows: list[Row], names: list[str]) -> Iterable[Sequence[Any]]:
    """The values by column; a column that a row does not have is null there."""
    try:
        # Row by row, as a row lies together in memory.
        return list(zip(*map(itemgetter(*names), rows), strict=True)) or [()] * len(names)
    except KeyError:  # archived before there was such a column
        return [[row.get(name) for row in rows] for name in names]


def _column(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    if field.name != "candidates":
        return pa.array(values, field.type)
    # Many rows hold one and the same menu, which is read once.
    distinct = {id(value): value for value in values}
    places = {key: place for place, key in enumerate(distinct)}
    found = pa.array([places[id(value)] for value in values], pa.int64())
    return pa.array(list(distinct.values()), field.type).take(found)


@cache
def _arrow_schema(table: str) -> pa.Schema:
    return TABLES[table].to_frame().to_arrow().schema


def _masked(text: str | None, redactor: Redactor) -> str | None:
    return redactor.text(text) if text else text


def _lower(value: str | None) -> str | None:
    return value.lower() if value else value
