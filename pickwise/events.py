"""The five event types, as users send them: fields, limits and their validation.

Times are Unix nanoseconds once decoded; durations are milliseconds. Nothing here knows a wire or a table.
"""

from __future__ import annotations

import hashlib
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import msgspec

MAX_EVENT_BYTES = 64 * 1024
MAX_QUERY_BYTES = 8 * 1024
MAX_CANDIDATES = 200
MAX_ERROR_MESSAGE_BYTES = 1024
MAX_REQUEST_BYTES = 20 * 1024 * 1024
DEFAULT_PROJECT = "default"

#: Nanosecond timestamps beyond this (year 2262) do not fit a signed 64-bit integer.
MAX_TIME_NS = 2**63 - 1

Phase = Literal["invoke", "validate", "exec", "output"]
ErrorKind = Literal[
    "timeout",
    "http_4xx",
    "http_5xx",
    "invalid_arguments",
    "not_found",
    "permission_denied",
    "rate_limited",
    "tool_error",
    "exception",
    "cancelled",
    "other",
]
#: Error kinds that are the caller's doing, not the skill's.
CALLER_FAULTS: frozenset[str] = frozenset({"invalid_arguments", "not_found", "cancelled"})
FeedbackKind = Literal["accepted", "rejected", "arguments_edited", "reasked", "wrong_skill", "label", "rating"]
FeedbackSource = Literal["human", "implicit", "judge"]
RouteState = Literal["degraded", "recovered", "probe"]

Identifier = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
SkillId = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
TraceId = Annotated[str, msgspec.Meta(pattern="^[0-9a-fA-F]{32}$")]
SpanId = Annotated[str, msgspec.Meta(pattern="^[0-9a-fA-F]{16}$")]


class EventError(ValueError):
    """An event that cannot be taken. The message names the field and what was expected."""


class Candidate(msgspec.Struct, kw_only=True):
    """One offered skill. Its rank is its 1-based position in the selection's list."""

    skill_id: SkillId
    score: float | None = None
    bm25: float | None = None
    dense: float | None = None
    rerank: float | None = None
    source: str | None = None
    propensity: float | None = None
    team: str | None = None


class Intent(msgspec.Struct, kw_only=True):
    domain: str | None = None
    action: str | None = None
    object: str | None = None


class StageMs(msgspec.Struct, kw_only=True):
    """Durations of the stages of one selection, in milliseconds."""

    intent: float | None = None
    embed: float | None = None
    sparse: float | None = None
    dense: float | None = None
    merge: float | None = None
    rerank: float | None = None
    llm_select: float | None = None
    total: float | None = None


class Shadow(msgspec.Struct, kw_only=True):
    """What another index version would have offered for the same query."""

    embedding_version: str | None = None
    skill_ids: list[str] = []


class Event(msgspec.Struct, kw_only=True):
    """Fields that every event may carry."""

    #: Name of the type on the wire and of its table.
    type_name: ClassVar[str] = "event"

    event_id: Identifier | None = None
    time: str | int | None = None
    trace_id: TraceId | None = None
    span_id: SpanId | None = None
    session_id: str | None = None
    agent: str | None = None
    model: str | None = None
    environment: str | None = None
    release: str | None = None


class Selection(Event, kw_only=True, tag="selection", tag_field="type"):
    """One decision turn: a query, the ordered candidates that were offered, and the picks.

    ``picks`` given (also empty) hold; absent (``None``) they are taken from the selection's calls.
    """

    type_name: ClassVar[str] = "selection"

    turn: int | None = None
    query: str | None = None
    language: str | None = None
    intent: Intent | None = None
    candidates: Annotated[list[Candidate], msgspec.Meta(max_length=MAX_CANDIDATES)] = []
    ranked: bool | None = None
    randomized: bool | None = None
    picks: list[SkillId] | None = None
    no_match: bool | None = None
    strategy: str | None = None
    fallback: bool | None = None
    fallback_reason: str | None = None
    stage_ms: StageMs | None = None
    registry_version: str | None = None
    embedding_version: str | None = None
    weights_version: str | None = None
    model_version: str | None = None
    menu_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    shadow: Shadow | None = None
    previous_skill_id: str | None = None
    context_digest: str | None = None


class Call(Event, kw_only=True, tag="call", tag_field="type"):
    """One invocation of a skill, or one of its phases. ``phase`` absent: the whole call in one event."""

    type_name: ClassVar[str] = "call"

    skill_id: SkillId
    call_id: Identifier | None = None
    selection_id: str | None = None
    phase: Phase | None = None
    ok: bool | None = None
    latency_ms: float | None = None
    error_kind: ErrorKind | None = None
    error_message: str | None = None
    attempt: Annotated[int, msgspec.Meta(ge=0)] | None = None
    retryable: bool | None = None
    arguments: Any = None
    args_keys: list[str] | None = None
    depth: Annotated[int, msgspec.Meta(ge=0)] | None = None
    parent_call_id: str | None = None


class Feedback(Event, kw_only=True, tag="feedback", tag_field="type"):
    """A verdict on a selection, a call, a trace or a session."""

    type_name: ClassVar[str] = "feedback"

    kind: FeedbackKind
    selection_id: str | None = None
    call_id: str | None = None
    value: float | str | bool | None = None
    expected: list[SkillId] | None = None
    source: FeedbackSource | None = None
    annotator: str | None = None


class Route(Event, kw_only=True, tag="route", tag_field="type"):
    """A discovery router changed state."""

    type_name: ClassVar[str] = "route"

    instance: str
    state: RouteState
    reason: str | None = None
    p99_ms: float | None = None
    error_rate: float | None = None


EVENT_TYPES: dict[str, type[Event]] = {t.type_name: t for t in (Selection, Call, Feedback, Route)}
KNOWN_FIELDS: dict[str, frozenset[str]] = {
    name: frozenset(t.__struct_fields__) | {"type", "project"} for name, t in EVENT_TYPES.items()
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: More digits fit no time.
_DIGITS = re.compile(r"[0-9]{1,20}")
_SPACE_FOR_PLUS = re.compile(r"(\S+[Tt ]\S+) ([0-9]{2}:?[0-9]{2})")


def parse_time(value: str | int | None) -> int | None:
    """Unix nanoseconds of an RFC 3339 string or an integer; None for absent or 0.

    Raises EventError when the string is not RFC 3339 or the time does not fit 64 bits.
    """
    if value is None or value == 0:
        return None
    if isinstance(value, int):
        nanoseconds = value
    else:
        try:
            parsed = msgspec.convert(value, datetime)
        except msgspec.ValidationError as error:
            raise EventError(
                f"time: expected RFC 3339 (2026-01-31T12:00:00Z) or integer Unix nanoseconds, got {value!r:.60}"
            ) from error
        parsed = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed
        delta = parsed - _EPOCH
        nanoseconds = (delta.days * 86_400 + delta.seconds) * 1_000_000_000 + delta.microseconds * 1_000
    if not 0 < nanoseconds <= MAX_TIME_NS:
        raise EventError(f"time: expected a time between 1970 and 2262, got {value!r:.60}")
    return nanoseconds


def parse_instant(text: str) -> int | None:
    """``parse_time`` of a flag or of a parameter in a URL: RFC 3339, or the digits of Unix nanoseconds.

    A ``+`` before the zone may have become a space, as URLs have it.
    """
    if _DIGITS.fullmatch(text):
        return parse_time(int(text))
    spaced = _SPACE_FOR_PLUS.fullmatch(text)
    return parse_time(f"{spaced[1]}+{spaced[2]}" if spaced else text)


def as_datetime(nanoseconds: int) -> datetime:
    """The moment to the microsecond, cut as stored times are."""
    return _EPOCH + timedelta(microseconds=nanoseconds // 1_000)


def finite(value: float | None) -> float | None:
    """The value, or None when it is NaN or infinite (stored tables hold no non-finite numbers)."""
    return value if value is not None and math.isfinite(value) else None


def cut_utf8(text: str, limit: int) -> tuple[str, bool]:
    """The text cut to at most ``limit`` UTF-8 bytes, and whether anything was cut."""
    if len(text) * 4 <= limit:
        return text, False
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded) <= limit:
        return text, False
    return encoded[:limit].decode("utf-8", "ignore"), True


#: Copied for each id: that takes half as long as to make a new one.
_NO_PARTS = hashlib.blake2b(digest_size=16)


def derive_event_id(*parts: object) -> str:
    """A stable 32-character id from the parts that identify an event (None counts as absent)."""
    try:
        joined = "\x1f".join(parts)  # type: ignore[arg-type] # mostly they are texts already
    except TypeError:
        joined = "\x1f".join(["" if part is None else str(part) for part in parts])
    hashed = _NO_PARTS.copy()
    hashed.update(joined.encode("utf-8", "surrogatepass"))
    return hashed.hexdigest()


def decode_event(raw: object) -> tuple[Event, int]:
    """Turn one decoded JSON object into an event; returns it with the count of unknown fields kept out.

    ``skill`` events are registry entries and belong to ``pickwise.skills``.
    Raises EventError naming the field and what was expected.
    """
    if not isinstance(raw, dict):
        raise EventError(f"expected an object, got {type(raw).__name__}")
    name = raw.get("type")
    event_type = EVENT_TYPES.get(name) if isinstance(name, str) else None
    if event_type is None:
        raise EventError(f"type: expected one of {', '.join(EVENT_TYPES)}, skill; got {name!r:.60}")
    try:
        event = msgspec.convert(raw, event_type)
    except msgspec.ValidationError as error:
        raise EventError(reason_of(error, event_type)) from error
    parse_time(event.time)
    unknown = sum(1 for key in raw if key not in KNOWN_FIELDS[event_type.type_name])
    return event, unknown


def reason_of(error: msgspec.ValidationError, form: type[msgspec.Struct]) -> str:
    """Why a value has not the form; with the words that a field takes, where it has another one."""
    reason = plain_reason(str(error))
    field, separator, got = reason.partition(": invalid enum value ")
    words = _words(form, field) if separator else ()
    return f"{field}: expected one of {', '.join(words)}; got {got:.60}" if words else reason


def _words(form: type[msgspec.Struct], field: str) -> tuple[str, ...]:
    """Those of a field that is one of a few words, or null."""
    hint = get_type_hints(form).get(field)
    literals = [part for part in (hint, *get_args(hint)) if get_origin(part) is Literal]
    return get_args(literals[0]) if literals else ()


def plain_reason(message: str) -> str:
    """``Expected `str`, got `int` - at `$.query``` reads better with the field in front."""
    reason, separator, path = message.partition(" - at `")
    if not separator:
        return message
    field = path.rstrip("`").removeprefix("$").lstrip(".")
    return f"{field}: {reason[0].lower()}{reason[1:]}" if field else reason
