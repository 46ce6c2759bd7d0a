"""Send selections, calls, feedback and routes from a discovery layer of your own, over OpenTelemetry.

    tracer = SelectionTracer(agent="support-bot", model="gpt-4o")
    with tracer.selection("refund order 1234", session_id="s1", turn=3) as selection:
        with selection.stage("embed"):
            vector = embed(query)
        selection.offer(ranked_candidates, strategy="hybrid")
        selection.pick("refund_order")
    with selection.call("refund_order", arguments={"order_id": "1234"}) as call:
        with call.phase("exec"):
            refund_order("1234")

A fault of the telemetry is logged and never reaches the host application; an exception of the host's own code inside
a ``call`` marks that call as failed and goes on its way.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags
from opentelemetry.trace import set_span_in_context as in_context

from pickwise.attributes import PROJECT, to_attributes
from pickwise.events import Event, Feedback, FeedbackKind, FeedbackSource, Route, RouteState
from pickwise.scopes import CallScope, SelectionScope, error_kind_of, new_id, quietly

__all__ = ["CallScope", "SelectionScope", "SelectionTracer", "error_kind_of"]

#: Spans that may wait for the exporter: half a minute of traffic at 500 spans/s.
MAX_QUEUE_SPANS = 16_384
#: Longest wait until a finished span is sent; a metric may be asked for three seconds later.
SCHEDULE_DELAY_MS = 1_000.0
EXPORT_TIMEOUT_S = 10.0


class SelectionTracer:
    """The sender of one process. Safe to use from several threads.

    Give a ``tracer_provider`` to send through an OpenTelemetry set-up that you already have; ``endpoint``, ``project``,
    ``environment``, ``release`` and ``api_key`` (absent: the variable ``PICKWISE_API_KEY``) belong to the resource and
    exporter that are built without one.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        endpoint: str = "http://127.0.0.1:4318",
        project: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        environment: str | None = None,
        release: str | None = None,
        api_key: str | None = None,
    ) -> None:
        self.agent = agent
        self.model = model
        self._provider = tracer_provider or _provider(endpoint, project, agent, environment, release, api_key)
        self._tracer = self._provider.get_tracer("pickwise.trace", version("pickwise"))

    @contextmanager
    def selection(
        self,
        query: str,
        *,
        session_id: str | None = None,
        turn: int | None = None,
        model: str | None = None,
        agent: str | None = None,
        time: int | None = None,
        **fields: Any,
    ) -> Iterator[SelectionScope]:
        """Open one selection; it is sent when the block ends, as it then stands.

        ``time`` is its start in Unix nanoseconds (absent: now); ``fields`` are other fields of a selection event.
        The total time of the block becomes ``stage_ms.total`` unless a ``total`` was timed or ``time`` was given.
        """
        scope = SelectionScope(self._start, query, session_id, turn, model or self.model, agent or self.agent, time)
        scope.set(**fields)
        try:
            yield scope
        finally:
            scope._end()

    def feedback(
        self,
        kind: FeedbackKind,
        *,
        selection_id: str | None = None,
        call_id: str | None = None,
        trace_id: str | None = None,
        session_id: str | None = None,
        value: float | str | bool | None = None,
        expected: Sequence[str] | None = None,
        source: FeedbackSource | None = None,
        annotator: str | None = None,
        time: int | None = None,
    ) -> None:
        """Send a verdict on a selection, a call, a trace or a session."""
        with quietly("feedback"):
            event = Feedback(
                kind=kind,
                event_id=new_id(),
                selection_id=selection_id,
                call_id=call_id,
                session_id=session_id,
                value=value,
                expected=list(expected) if expected is not None else None,
                source=source,
                annotator=annotator,
                agent=self.agent,
                model=self.model,
            )
            self._send_now("feedback", event, time, parent=_remote_trace(trace_id))

    def route(
        self,
        instance: str,
        state: RouteState,
        *,
        reason: str | None = None,
        p99_ms: float | None = None,
        error_rate: float | None = None,
        time: int | None = None,
    ) -> None:
        """Send a change of state of a discovery router."""
        with quietly("route"):
            event = Route(
                instance=instance,
                state=state,
                event_id=new_id(),
                reason=reason,
                p99_ms=p99_ms,
                error_rate=error_rate,
                agent=self.agent,
            )
            self._send_now("route", event, time, parent=Context())

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Send what waits; False when not all of it went out within the time."""
        sent: list[bool] = []
        with quietly("flush"):
            sent.append(self._provider.force_flush(int(timeout_s * 1000)))
        return sent == [True]

    def shutdown(self) -> None:
        """Send what waits and end; spans started later are dropped."""
        with quietly("shutdown"):
            self._provider.shutdown()

    def _start(self, name: str, time: int | None, parent: Context | None) -> Span:
        return self._tracer.start_span(name, context=parent, start_time=time)

    def _send_now(self, name: str, event: Event, time: int | None, parent: Context | None) -> None:
        span = self._start(name, time, parent)
        span.set_attributes(to_attributes(event))
        span.end(time)


def _provider(
    endpoint: str,
    project: str | None,
    agent: str | None,
    environment: str | None,
    release: str | None,
    api_key: str | None,
) -> TracerProvider:
    resource = {
        "service.name": agent or "discovery",
        "service.version": release,
        "deployment.environment.name": environment,
        PROJECT: project,
    }
    api_key = api_key or os.environ.get("PICKWISE_API_KEY")
    exporter = OTLPSpanExporter(
        endpoint=f"{endpoint.rstrip('/')}/v1/traces",
        headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
        compression=Compression.Gzip,
        timeout=EXPORT_TIMEOUT_S,
    )
    provider = TracerProvider(resource=Resource.create({k: v for k, v in resource.items() if v is not None}))
    provider.add_span_processor(
        BatchSpanProcessor(exporter, max_queue_size=MAX_QUEUE_SPANS, schedule_delay_millis=SCHEDULE_DELAY_MS)
    )
    return provider


def _remote_trace(trace_id: str | None) -> Context | None:
    """A context in that trace, so that the feedback's span belongs to it; the current one where none is given."""
    if trace_id is None:
        return None
    parent = SpanContext(int(trace_id, 16), secrets.randbits(63) + 1, is_remote=True, trace_flags=TraceFlags(1))
    return in_context(NonRecordingSpan(parent), Context())
