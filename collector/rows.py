"""From facts to rows of the fact tables: times, ids, redaction and the hash that tells an exact repeat."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from functools import cache
from itertools import count
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
_COMMON = ("trace_id", "span_id", "session_id", "agent", "model", "environment", "release")
#: No tool takes arguments nested so deep; beyond, encoders run out of stack.
_MAX_DEPTH = 64
_SORTED = msgspec.json.Encoder(order="sorted")


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
    context = _Context(project, received_at, source_request, redactor, ledger or Ledger())
    tables: dict[str, list[Row]] = {
        "selections": [context.row(event, _selection(event, redactor)) for event in facts.selections],
        "calls": [context.row(event, _call(event, redactor)) for event in facts.calls],
        "feedback": [context.row(event, _feedback(event, redactor)) for event in facts.feedback],
        "routes": [context.row(event, _route(event, redactor)) for event in facts.routes],
    }
    return {table: rows for table, rows in tables.items() if rows}


class _Context:
    """What the rows of one request share."""

    def __init__(self, project: str, received_at: int, source_request: str, redactor: Redactor, ledger: Ledger) -> None:
        self._ledger = ledger
        self._project = project
        self._received_at = received_at
        self._redactor = redactor
        self._receipt = {
            "received_at": received_at // 1000,
            "source_request": source_request,
            "mapping_version": MAPPING_VERSION,
        }
        self._next = count()
        self._seen: Counter[tuple[Any, ...]] = Counter()

    def row(self, event: Event, columns: Row) -> Row:
        time = parse_time(event.time)
        index = next(self._next)
        columns["project"] = self._project
        for field in _COMMON:
            columns[field] = getattr(event, field)
        columns["trace_id"] = _lower(event.trace_id)
        columns["span_id"] = _lower(event.span_id)
        columns["time_is_receipt"] = time is None
        columns["event_id"] = event.event_id or self._derived_id(event, columns, time)
        known = dict(self._ledger.known.get(id(event), {}))
        filled_in = known.pop("time", self._received_at // 1000 + index)
        columns.update(known)
        # An event's own time is part of what it says, one filled in is not.
        columns["fact"] = _hash(columns, event.type_name, time)
        columns["time"] = time // 1000 if time is not None else filled_in
        columns.update(self._receipt)
        self._ledger.made[id(event)] = columns
        return columns

    def _derived_id(self, event: Event, columns: Row, time: int | None) -> str:
        if not event.trace_id or not event.span_id:
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


def _selection(event: Selection, redactor: Redactor) -> Row:
    query, cut = redactor.query(event.query) if event.query is not None else (None, False)
    stages = event.stage_ms or StageMs()
    return {
        **_extent(event),
        "turn": event.turn,
        "query": query,
        # A menu at the limit may have been cut to it as well.
        "truncated": cut or len(event.candidates) >= MAX_CANDIDATES,
        "language": event.language,
        "intent_domain": event.intent.domain if event.intent else None,
        "intent_action": event.intent.action if event.intent else None,
        "intent_object": event.intent.object if event.intent else None,
        "candidates": _candidates(event, redactor),
        "ranked": event.ranked,
        "randomized": event.randomized,
        "picks": event.picks,
        "no_match": event.no_match,
        "strategy": event.strategy,
        "fallback": event.fallback,
        "fallback_reason": _masked(event.fallback_reason, redactor),
        "stage_ms": {stage: finite(getattr(stages, stage)) for stage in STAGES} if event.stage_ms else None,
        "registry_version": event.registry_version,
        "embedding_version": event.embedding_version,
        "weights_version": event.weights_version,
        "model_version": event.model_version,
        "menu_tokens": event.menu_tokens,
        "shadow_embedding_version": event.shadow.embedding_version if event.shadow else None,
        "shadow_skill_ids": event.shadow.skill_ids if event.shadow else None,
        "previous_skill_id": event.previous_skill_id,
        "context_digest": event.context_digest,
    }


def _extent(event: Selection) -> Row:
    if not isinstance(event, SelectionFact) or event.role == "turn":
        return {"role": None, "ended_at": None, "parent_span_id": None}
    ended_at = event.ended_at // 1000 if event.ended_at else None
    return {"role": event.role, "ended_at": ended_at, "parent_span_id": _lower(event.parent_span_id)}


def _candidates(event: Selection, redactor: Redactor) -> list[Row]:
    found = [_candidate(candidate) for candidate in event.candidates]
    if isinstance(event, SelectionFact) and event.role == "retrieval":
        # What a search found may be documents, whose names may say anything.
        for columns in found:
            columns["skill_id"] = redactor.text(columns["skill_id"])
    return found


def _candidate(candidate: Candidate) -> Row:
    columns = msgspec.structs.asdict(candidate)
    for name in _SCORES:
        value = columns[name]
        if value is not None and not math.isfinite(value):
            columns[name] = None
    return columns


def _call(event: CallFact, redactor: Redactor) -> Row:
    arguments = canonical_arguments(event.arguments)
    keys = event.args_keys
    if keys is None and isinstance(arguments, dict):
        keys = sorted(arguments)
    return {
        "role": event.role,
        "ordinal": event.ordinal,
        "parent_span_id": event.parent_span_id,
        "call_id": event.call_id,
        "selection_id": event.selection_id,
        "skill_id": event.skill_id,
        "phase": event.phase,
        "ok": event.ok,
        "latency_ms": finite(event.latency_ms),
        "error_kind": event.error_kind,
        "error_message": _error_message(event, arguments, redactor),
        "attempt": event.attempt,
        "retryable": event.retryable,
        "arguments": redactor.arguments(event.skill_id, arguments),
        "args_keys": keys,
        "args_digest": redactor.digest(_SORTED.encode(arguments)) if arguments is not None else None,
        "depth": event.depth,
        "parent_call_id": event.parent_call_id,
    }


def _error_message(event: CallFact, arguments: Any, redactor: Redactor) -> str | None:
    if event.error_message is None:
        return None
    return redactor.error_message(event.error_message, event.skill_id, arguments)


def canonical_arguments(value: Any) -> Any:
    """The arguments decoded, whether they came as an object or as JSON text; text that is no JSON stays text."""
    decoded = from_json(value)
    if not isinstance(decoded, dict | list):
        return value
    return decoded if _is_shallow(decoded) else f"nested deeper than {_MAX_DEPTH}"


def _is_shallow(value: Any) -> bool:
    """Whether the value can be walked and encoded wherever it goes."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        below = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
        level = [child for child in below if isinstance(child, dict | list)]
        if not level:
            return True
    return False


def _feedback(event: Feedback, redactor: Redactor) -> Row:
    text = event.value if isinstance(event.value, str) else None
    return {
        "kind": event.kind,
        "selection_id": event.selection_id,
        "call_id": event.call_id,
        "value": finite(float(event.value)) if isinstance(event.value, bool | int | float) else None,
        "value_text": _masked(text, redactor),
        "expected": event.expected,
        "source": event.source,
        "annotator": event.annotator,
    }


def _route(event: Route, redactor: Redactor) -> Row:
    return {
        "instance": event.instance,
        "state": event.state,
        "reason": _masked(event.reason, redactor),
        "p99_ms": finite(event.p99_ms),
        "error_rate": finite(event.error_rate),
    }


def to_frame(table: str, rows: list[Row]) -> pl.DataFrame:
    """The rows of ``to_rows``, of any number of requests, as one frame in the schema of the table."""
    schema = TABLES[table]
    # Through Arrow, which reads nested rows twice as fast as Polars does.
    frame = pl.DataFrame(pa.Table.from_pylist(rows, schema=_arrow_schema(table)))
    times = [pl.col(name).cast(dtype) for name, dtype in schema.items() if isinstance(dtype, pl.Datetime)]
    return frame.with_columns(times).with_columns(pl.col("time").dt.date().alias("date")).select(schema.names())


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
    content = _SORTED.encode([type_name, time, columns])
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _masked(text: str | None, redactor: Redactor) -> str | None:
    return redactor.text(text) if text else text


def _lower(value: str | None) -> str | None:
    return value.lower() if value else value
