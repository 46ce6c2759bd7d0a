"""From facts to rows of the fact tables: times, ids, redaction and the hash that tells an exact repeat."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from itertools import count
from typing import Any

import msgspec

from collector.call_arguments import NO_ARGUMENTS, ArgumentsKeeper, canonical_arguments
from collector.facts import CallFact, Facts, SelectionFact
from collector.mapping import MAPPING_VERSION
from collector.redact import Redactor
from collector.row_types import CallRow, FeedbackRow, MadeRow, Receipt, RouteRow, Row, SelectionRow
from collector.tables import STAGES
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

_SORTED_STAGES = sorted(STAGES)
_SCORES = ("score", "bm25", "dense", "rerank", "propensity")
#: So many lists of candidates are remembered as rows.
_MENUS = 128
_plain = msgspec.json.Encoder()
_sorting = msgspec.json.Encoder(order="sorted")
#: Copied for each fact: that takes less time than to make a new one.
_NOTHING_HASHED = blake2b(digest_size=16)


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
        self._arguments = ArgumentsKeeper(redactor)
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
        row = SelectionRow(
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
        kept, time = NO_ARGUMENTS, parse_time(event.time)
        if arguments is not None:
            arguments = canonical_arguments(arguments)
            kept = self._arguments.of(skill_id, arguments)
        row = CallRow(
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
        row = FeedbackRow(
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
        row = RouteRow(
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
        self.encoded = msgspec.Raw(_sorting.encode(self))


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


def _masked(text: str | None, redactor: Redactor) -> str | None:
    return redactor.text(text) if text else text
