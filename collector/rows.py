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
from collector.tables import STAGES, TABLES
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
_SCORES = ("score", "bm25", "dense", "rerank", "propensity")
#: No tool takes arguments nested so deep; beyond, encoders run out of stack.
_MAX_DEPTH = 64
_NESTED = (dict, list)
#: So many lists of candidates are remembered as rows.
_MENUS = 128
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


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

    Columns are written in the order of their names, as they are hashed: what is sorted already is sorted fastest.
    """

    def __init__(self, project: str, received_at: int, source_request: str, redactor: Redactor, ledger: Ledger) -> None:
        self._ledger = ledger
        self._project = project
        self._received_at = received_at // 1000
        self._source_request = source_request
        self._redactor = redactor
        self._next = count(self._received_at)
        self._seen: Counter[tuple[Any, ...]] = Counter()

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
        time = parse_time(event.time)
        redactor, intent, shadow = self._redactor, event.intent, event.shadow
        query, cut = redactor.query(event.query) if event.query is not None else (None, False)
        role, ended_at, parent_span_id = _extent(event)
        columns = {
            "agent": event.agent,
            "candidates": _candidates(event, redactor),
            "context_digest": event.context_digest,
            "embedding_version": event.embedding_version,
            "ended_at": ended_at,
            "environment": event.environment,
            "event_id": event.event_id,
            "fallback": event.fallback,
            "fallback_reason": _masked(event.fallback_reason, redactor),
            "intent_action": intent.action if intent else None,
            "intent_domain": intent.domain if intent else None,
            "intent_object": intent.object if intent else None,
            "language": event.language,
            "menu_tokens": event.menu_tokens,
            "model": event.model,
            "model_version": event.model_version,
            "no_match": event.no_match,
            "parent_span_id": parent_span_id,
            "picks": event.picks,
            "previous_skill_id": event.previous_skill_id,
            "project": self._project,
            "query": query,
            "randomized": event.randomized,
            "ranked": event.ranked,
            "registry_version": event.registry_version,
            "release": event.release,
            "role": role,
            "session_id": event.session_id,
            "shadow_embedding_version": shadow.embedding_version if shadow else None,
            "shadow_skill_ids": shadow.skill_ids if shadow else None,
            "span_id": _lower(event.span_id),
            "stage_ms": _stages(event.stage_ms) if event.stage_ms else None,
            "strategy": event.strategy,
            "time_is_receipt": time is None,
            "trace_id": _lower(event.trace_id),
            # A menu at the limit may have been cut to it as well.
            "truncated": cut or len(event.candidates) >= MAX_CANDIDATES,
            "turn": event.turn,
            "weights_version": event.weights_version,
        }
        return self._finished(event, time, columns)

    def call(self, event: CallFact) -> Row:
        time = parse_time(event.time)
        redactor, skill_id = self._redactor, event.skill_id
        arguments = canonical_arguments(event.arguments)
        keys, error = event.args_keys, event.error_message
        if keys is None and isinstance(arguments, dict):
            keys = sorted(arguments)
        columns = {
            "agent": event.agent,
            "args_digest": redactor.digest(_encode_sorted(arguments)) if arguments is not None else None,
            "args_keys": keys,
            "arguments": redactor.arguments(skill_id, arguments),
            "attempt": event.attempt,
            "call_id": event.call_id,
            "depth": event.depth,
            "environment": event.environment,
            "error_kind": event.error_kind,
            "error_message": redactor.error_message(error, skill_id, arguments) if error is not None else None,
            "event_id": event.event_id,
            "latency_ms": finite(event.latency_ms),
            "model": event.model,
            "ok": event.ok,
            "ordinal": event.ordinal,
            "parent_call_id": event.parent_call_id,
            "parent_span_id": event.parent_span_id,
            "phase": event.phase,
            "project": self._project,
            "release": event.release,
            "retryable": event.retryable,
            "role": event.role,
            "selection_id": event.selection_id,
            "session_id": event.session_id,
            "skill_id": skill_id,
            "span_id": _lower(event.span_id),
            "time_is_receipt": time is None,
            "trace_id": _lower(event.trace_id),
        }
        return self._finished(event, time, columns)

    def feedback(self, event: Feedback) -> Row:
        time = parse_time(event.time)
        value = event.value
        columns = {
            "agent": event.agent,
            "annotator": event.annotator,
            "call_id": event.call_id,
            "environment": event.environment,
            "event_id": event.event_id,
            "expected": event.expected,
            "kind": event.kind,
            "model": event.model,
            "project": self._project,
            "release": event.release,
            "selection_id": event.selection_id,
            "session_id": event.session_id,
            "source": event.source,
            "span_id": _lower(event.span_id),
            "time_is_receipt": time is None,
            "trace_id": _lower(event.trace_id),
            "value": finite(float(value)) if isinstance(value, bool | int | float) else None,
            "value_text": _masked(value, self._redactor) if isinstance(value, str) else None,
        }
        return self._finished(event, time, columns)

    def route(self, event: Route) -> Row:
        time = parse_time(event.time)
        columns = {
            "agent": event.agent,
            "environment": event.environment,
            "error_rate": finite(event.error_rate),
            "event_id": event.event_id,
            "instance": event.instance,
            "model": event.model,
            "p99_ms": finite(event.p99_ms),
            "project": self._project,
            "reason": _masked(event.reason, self._redactor),
            "release": event.release,
            "session_id": event.session_id,
            "span_id": _lower(event.span_id),
            "state": event.state,
            "time_is_receipt": time is None,
            "trace_id": _lower(event.trace_id),
        }
        return self._finished(event, time, columns)

    def _finished(self, event: Event, time: int | None, columns: Row) -> Row:
        """The columns that the others make: ids, what is known beforehand, the hash, the receipt."""
        filled_in = next(self._next)
        if not columns["event_id"]:
            columns["event_id"] = self._derived_id(event, columns, time)
        known = self._ledger.known.get(id(event))
        if known is not None:
            columns.update(known)
            filled_in = columns.pop("time", filled_in)
        # An event's own time is part of what it says, one filled in is not.
        columns["fact"] = _hash(columns, event.type_name, time)
        columns["time"] = time // 1000 if time is not None else filled_in
        columns["received_at"] = self._received_at
        columns["source_request"] = self._source_request
        columns["mapping_version"] = MAPPING_VERSION
        self._ledger.made[id(event)] = columns
        return columns

    def _derived_id(self, event: Event, columns: Row, time: int | None) -> str:
        if not event.trace_id or not event.span_id:
            del columns["event_id"]
            return _hash(columns, event.type_name, time)
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


def _extent(event: Selection) -> tuple[str | None, int | None, str | None]:
    """Role, end (µs) and the span around it, of what is more than a turn."""
    if not isinstance(event, SelectionFact) or event.role == "turn":
        return None, None, None
    return event.role, event.ended_at // 1000 if event.ended_at else None, _lower(event.parent_span_id)


def _stages(stages: StageMs) -> Row:
    return {stage: finite(getattr(stages, stage)) for stage in STAGES}


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
        return [_candidate(found) | {"skill_id": redactor.text(found.skill_id)} for found in event.candidates]
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
    decoded = from_json(value)
    if not isinstance(decoded, _NESTED):
        return value
    return decoded if _is_shallow(decoded) else f"nested deeper than {_MAX_DEPTH}"


def _is_shallow(value: Any) -> bool:
    """Whether the value can be walked and encoded wherever it goes."""
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
    schema = TABLES[table]
    # Through Arrow, which reads nested rows twice as fast as Polars does.
    fields = _arrow_schema(table)
    columns = map(_column, fields, _transposed(rows, fields.names))
    frame = pl.DataFrame(pa.Table.from_arrays(list(columns), schema=fields))
    times = [pl.col(name).cast(dtype) for name, dtype in schema.items() if isinstance(dtype, pl.Datetime)]
    return frame.with_columns(times).with_columns(pl.col("time").dt.date().alias("date")).select(schema.names())


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
    """The columns of a table, times as integers: whole columns of them are cast faster than objects are read."""
    plain = {
        name: pl.Int64 if isinstance(dtype, pl.Datetime) else dtype
        for name, dtype in TABLES[table].items()
        if name != "date"
    }
    return pl.Schema(plain).to_frame().to_arrow().schema


def _hash(columns: Row, type_name: str, time: int | None) -> str:
    menu = columns.get("candidates")
    if isinstance(menu, _Menu):
        columns = columns | {"candidates": menu.encoded}
    return blake2b(_encode_sorted([type_name, time, columns]), digest_size=16).hexdigest()


def _masked(text: str | None, redactor: Redactor) -> str | None:
    return redactor.text(text) if text else text


def _lower(value: str | None) -> str | None:
    return value.lower() if value else value
