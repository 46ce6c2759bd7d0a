"""A selection and a call in the making, as ``pickwise.trace`` hands them out."""

from __future__ import annotations

import logging
import secrets
import time as clock
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast, get_args

import msgspec
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, Status, StatusCode
from opentelemetry.trace import set_span_in_context as in_context

from pickwise.attributes import EVENT, to_attributes
from pickwise.events import MAX_CANDIDATES, Call, Candidate, ErrorKind, Phase, Selection, StageMs

logger = logging.getLogger(__name__)

ERROR_KINDS: frozenset[str] = frozenset(get_args(ErrorKind))
Offer = Candidate | Mapping[str, Any] | str
#: Starts a span: its name, its start in Unix nanoseconds (None: now), its parent (None: the current span).
StartSpan = Callable[[str, "int | None", "Context | None"], Span]


@contextmanager
def quietly(what: str) -> Iterator[None]:
    """Log a fault of the telemetry instead of raising it: the host application comes first."""
    try:
        yield
    except Exception:
        logger.warning("pickwise.trace: %s could not be recorded", what, exc_info=True)


class SelectionScope:
    """One selection in the making. Its ``event`` is sent when the block that opened it ends."""

    def __init__(
        self,
        start_span: StartSpan,
        query: str,
        session_id: str | None,
        turn: int | None,
        model: str | None,
        agent: str | None,
        time: int | None,
    ) -> None:
        self._start_span = start_span
        self._span: Span = INVALID_SPAN
        self._given_time = time
        self._stages: dict[str, float] = {}
        self._started = clock.perf_counter_ns()
        #: Id of the selection, for feedback and for calls that are made elsewhere.
        self.selection_id = new_id()
        self.event = Selection(
            event_id=self.selection_id, query=query, session_id=session_id, turn=turn, model=model, agent=agent
        )
        with quietly("selection"):
            self._span = start_span("selection", time, None)
        self._context = in_context(self._span, Context())

    def offer(
        self,
        candidates: Iterable[Offer],
        *,
        ranked: bool = True,
        strategy: str | None = None,
        randomized: bool | None = None,
    ) -> None:
        """Set the candidates in the order shown: skill ids, ``Candidate`` structs or their fields as a mapping."""
        with quietly("candidates"):
            self.event.candidates = [_candidate(item) for item in candidates][:MAX_CANDIDATES]
            self.set(ranked=ranked, strategy=strategy or self.event.strategy, randomized=randomized)

    def pick(self, *skill_ids: str) -> None:
        """Say what was picked; call it without a skill when nothing was. Without it the picks are the calls'."""
        self.event.picks = [*(self.event.picks or []), *skill_ids]

    def fall_back(self, reason: str) -> None:
        """Say that the list comes from the degraded path."""
        self.set(fallback=True, fallback_reason=reason)

    def set(self, **fields: Any) -> None:
        """Set any other fields of the selection event; a name that it does not have is logged and left out."""
        for name, value in fields.items():
            if name in Selection.__struct_fields__:
                setattr(self.event, name, value)
            else:
                logger.warning("pickwise.trace: a selection has no field %s; left out", name)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage (``embed``, ``sparse``, …, see ``StageMs``); a repeated one adds up."""
        started = clock.perf_counter_ns()
        try:
            yield
        finally:
            self.add_stage(name, (clock.perf_counter_ns() - started) / 1e6)

    def add_stage(self, name: str, milliseconds: float) -> None:
        """Add a stage's duration that was measured elsewhere."""
        if name not in StageMs.__struct_fields__:
            logger.warning("pickwise.trace: no stage %s; stages are %s", name, ", ".join(StageMs.__struct_fields__))
            return
        self._stages[name] = self._stages.get(name, 0.0) + milliseconds

    @contextmanager
    def call(
        self,
        skill_id: str,
        arguments: Any = None,
        *,
        call_id: str | None = None,
        time: int | None = None,
        **fields: Any,
    ) -> Iterator[CallScope]:
        """Open one call of the selection, inside its block or after it; an exception marks it as failed.

        ``time`` is its start in Unix nanoseconds; ``fields`` are other fields of a call event (``attempt``, …).
        """
        scope = CallScope(self, skill_id, arguments, call_id, time, fields)
        try:
            yield scope
        except BaseException as error:
            scope.fail(error_kind_of(error), str(error) or type(error).__name__)
            raise
        finally:
            scope._end()

    def _end(self) -> None:
        with quietly("selection"):
            if self._given_time is None:
                self._stages.setdefault("total", (clock.perf_counter_ns() - self._started) / 1e6)
            if self._stages:
                self.event.stage_ms = StageMs(**self._stages)
            self._span.set_attributes(to_attributes(self.event))
            end = None
            if self._given_time is not None:
                end = self._given_time + int(self._stages.get("total", 0.0) * 1e6)
            self._span.end(end)


class CallScope:
    """One call in the making: one span, with one span event for each of its phases."""

    def __init__(
        self,
        selection: SelectionScope,
        skill_id: str,
        arguments: Any,
        call_id: str | None,
        time: int | None,
        fields: Mapping[str, Any],
    ) -> None:
        self._time = time if time is not None else clock.time_ns()
        self._given_time = time
        self._started = clock.perf_counter_ns()
        self._latency_ms: float | None = None
        self._phases_ms = 0.0
        self._span: Span = INVALID_SPAN
        owner = selection.event
        self.call_id = call_id or new_id()
        self.event = Call(
            skill_id=skill_id,
            event_id=new_id(),
            call_id=self.call_id,
            selection_id=selection.selection_id,
            session_id=owner.session_id,
            agent=owner.agent,
            model=owner.model,
        )
        for name, value in fields.items():
            if name in Call.__struct_fields__:
                setattr(self.event, name, value)
            else:
                logger.warning("pickwise.trace: a call has no field %s; left out", name)
        with quietly("arguments"):
            # Values that are no JSON travel as their text: the collector keeps their type and length only.
            self.event.arguments = msgspec.to_builtins(arguments, enc_hook=str)
        with quietly("call"):
            self._span = selection._start_span("call", time, selection._context)

    @contextmanager
    def phase(self, name: Phase, latency_ms: float | None = None) -> Iterator[None]:
        """Time one phase (``invoke``, ``validate``, ``exec``, ``output``); an exception marks it as failed.

        ``latency_ms`` replaces the measured time, for calls that are replayed or simulated.
        """
        started = clock.perf_counter_ns()
        failure: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failure = error
            raise
        finally:
            offset_ms = (started - self._started) / 1e6 if latency_ms is None else self._phases_ms
            measured = (clock.perf_counter_ns() - started) / 1e6
            self._add_phase(name, offset_ms, measured if latency_ms is None else latency_ms, failure)

    def fail(self, error_kind: ErrorKind, message: str | None = None, *, retryable: bool | None = None) -> None:
        """Mark the call as failed, for tools that report their faults instead of raising them."""
        self.event.ok = False
        self.event.error_kind = error_kind
        self.event.error_message = message
        if retryable is not None:
            self.event.retryable = retryable

    def took(self, latency_ms: float) -> None:
        """Give the call's duration instead of measuring it."""
        self._latency_ms = latency_ms

    def _add_phase(self, name: Phase, offset_ms: float, latency_ms: float, failure: BaseException | None) -> None:
        with quietly("phase"):
            self._phases_ms += latency_ms
            event = Call(
                skill_id=self.event.skill_id,
                event_id=new_id(),
                call_id=self.call_id,
                selection_id=self.event.selection_id,
                session_id=self.event.session_id,
                phase=name,
                ok=failure is None,
                error_kind=None if failure is None else error_kind_of(failure),
                latency_ms=latency_ms,
                attempt=self.event.attempt,
            )
            self._span.add_event(EVENT, to_attributes(event), self._time + int(offset_ms * 1e6))

    def _end(self) -> None:
        with quietly("call"):
            if self._latency_ms is None:
                measured = (clock.perf_counter_ns() - self._started) / 1e6
                self._latency_ms = self._phases_ms if self._given_time is not None else max(measured, self._phases_ms)
            self.event.latency_ms = self._latency_ms
            self.event.ok = self.event.ok if self.event.ok is not None else True
            self._span.set_attributes(to_attributes(self.event))
            if not self.event.ok:
                self._span.set_status(Status(StatusCode.ERROR, self.event.error_message))
            self._span.end(self._time + int(self._latency_ms * 1e6))


def error_kind_of(error: BaseException) -> ErrorKind:
    """The error kind of an exception: its own ``error_kind``, else by its type or the HTTP status that it carries."""
    given = getattr(error, "error_kind", None)
    if given in ERROR_KINDS:
        return cast(ErrorKind, given)
    if isinstance(error, TimeoutError) or "timeout" in type(error).__name__.lower():
        return "timeout"
    if isinstance(error, PermissionError):
        return "permission_denied"
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "CancelledError":
        return "cancelled"
    status = getattr(getattr(error, "response", None), "status_code", None)
    return _kind_of_status(status) if isinstance(status, int) else "exception"


def _kind_of_status(status: int) -> ErrorKind:
    if status == 429:
        return "rate_limited"
    if status in (401, 403):
        return "permission_denied"
    return "http_5xx" if status >= 500 else "http_4xx"


def new_id() -> str:
    """A random 32-character id."""
    return secrets.token_hex(16)


def _candidate(item: Offer) -> Candidate:
    if isinstance(item, Candidate):
        return item
    return Candidate(skill_id=item) if isinstance(item, str) else msgspec.convert(dict(item), Candidate)
