"""The collector's own work as OpenTelemetry spans, off unless the setting ``self_traces`` names where they go.

A flush is a trace: its steps are children of the span ``flush``. ``flushing`` begins one; ``traced`` marks the steps
wherever they are done, and costs a look at a context variable where no flush is being traced. Only that
setting turns it on: the standard ``OTEL_*`` variables merely add headers and resource attributes.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from collector.segment import Record

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

logger = logging.getLogger(__name__)

#: Instrumentation scope of the spans. A log record that holds these bytes brought such spans back to us, or those of
#: another collector: a flush of nothing else isn't traced, else two collectors would keep each other busy for ever.
SCOPE = "pickwise.collector.self_traces"
SERVICE = "pickwise-collector"
_MARK = SCOPE.encode()
_PATH = "/v1/traces"
#: Spans that wait to be sent; those beyond are lost. All go in one request.
_QUEUE = 1_024
#: A receiver that does not answer must not hold up the collector's end, seconds.
_TIMEOUT_S = 2.0
_PREFIX = "pickwise.collector."

Value = str | int | float
_NOTHING: AbstractContextManager[None] = nullcontext()


class SelfTraces:
    """Sends the spans of one collector. ``endpoint`` None: nothing is loaded, started or sent."""

    def __init__(self, endpoint: str | None = None, ratio: float = 1.0) -> None:
        """``endpoint``: base URL or ``…/v1/traces`` of an OTLP/HTTP receiver; ``ratio``: share of flushes traced."""
        self._endpoint = None if endpoint is None else traces_url(endpoint)
        self._ratio = ratio
        self._provider: TracerProvider | None = None

    @property
    def is_on(self) -> bool:
        return self._provider is not None

    def start(self) -> None:
        """Begin to trace, where there is an endpoint."""
        if self._endpoint is None or self._provider is not None:
            return
        # Imported here: who doesn't trace doesn't pay for it.
        from opentelemetry.exporter.otlp.proto.http import Compression
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

        resource = Resource.create({"service.name": SERVICE, "host.name": platform.node()})
        # Never the global provider: that one belongs to the process.
        provider = TracerProvider(sampler=TraceIdRatioBased(self._ratio), resource=resource)
        exporter = OTLPSpanExporter(self._endpoint, timeout=_TIMEOUT_S, compression=Compression.Gzip)
        provider.add_span_processor(BatchSpanProcessor(exporter, _QUEUE, max_export_batch_size=_QUEUE))
        self._provider = provider
        logger.info("tracing the collector's own work to %s", self._endpoint)

    def stop(self) -> None:
        """Send what waits and end; takes a few seconds where nobody listens there."""
        provider, self._provider = self._provider, None
        if provider is not None:
            provider.shutdown()

    def avoid(self, address: str, *ports: int | None) -> None:
        """The collector listens there: tracing ends when it would be sent to itself."""
        if self._provider is None or self._endpoint is None:
            return
        target = urlsplit(self._endpoint)
        port = target.port or (443 if target.scheme == "https" else 80)
        if port in ports and _is_here(target.hostname or "", address):
            logger.error(
                "self_traces: expected the endpoint of another collector, got our own, %s; not tracing", self._endpoint
            )
            self.stop()

    def flushing(self, records: Sequence[Record]) -> AbstractContextManager[None]:
        """A flush of these records, traced unless off, not sampled, or of self-traces alone."""
        if self._provider is None or all(_MARK in record.body for record in records):
            return _NOTHING
        return self._flush(self._provider, records)

    @contextmanager
    def _flush(self, provider: TracerProvider, records: Sequence[Record]) -> Iterator[None]:
        from opentelemetry.context import Context

        tracer = provider.get_tracer(SCOPE)
        # A context of its own: what traces the process must not become our parent.
        span = tracer.start_span("flush", Context())
        if not span.is_recording():
            span.end()
            yield
            return
        flush = _Flush(provider, span)
        note_on(
            span,
            records=len(records),
            events=sum(record.header.events for record in records),
            bytes=sum(record.size for record in records),
        )
        token = _CURRENT.set(flush)
        try:
            with _ended(span):
                yield
        finally:
            _CURRENT.reset(token)


class _Flush:
    """A flush that is being traced, with its innermost open span."""

    def __init__(self, provider: TracerProvider, span: Span) -> None:
        self._tracer = provider.get_tracer(SCOPE)
        self.root = span
        self._open = span

    @contextmanager
    def step(self, name: str, values: dict[str, Value]) -> Iterator[None]:
        span = self._child(name)
        note_on(span, **values)
        above, self._open = self._open, span
        try:
            with _ended(span):
                yield
        finally:
            self._open = above

    def _child(self, name: str, start_ns: int | None = None) -> Span:
        from opentelemetry.context import Context
        from opentelemetry.trace import set_span_in_context

        return self._tracer.start_span(name, set_span_in_context(self._open, Context()), start_time=start_ns)


_CURRENT: ContextVar[_Flush | None] = ContextVar("self_traces", default=None)


def traced(name: str, **values: Value) -> AbstractContextManager[None]:
    """A step of the flush that is being traced, if one is; steps inside it are its children."""
    flush = _CURRENT.get()
    return _NOTHING if flush is None else flush.step(name, values)


def note(**values: Value) -> None:
    """Attributes of the flush that is being traced, if one is."""
    flush = _CURRENT.get()
    if flush is not None:
        note_on(flush.root, **values)


def note_on(span: Span, **values: Value) -> None:
    for name, value in values.items():
        span.set_attribute(_PREFIX + name, value)


def traces_url(endpoint: str) -> str:
    """The URL that spans are posted to."""
    target = urlsplit(endpoint)
    path = target.path.rstrip("/")
    return target._replace(path=path if path.endswith(_PATH) else path + _PATH).geturl()


@contextmanager
def _ended(span: Span) -> Iterator[None]:
    """End the span with the block. An error is named by its class alone: its text may quote what users wrote."""
    from opentelemetry.trace import Status, StatusCode

    try:
        yield
    except BaseException as error:
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(Status(StatusCode.ERROR))
        raise
    finally:
        span.end()


def _is_here(host: str, address: str) -> bool:
    names = {"localhost", "::1", "0.0.0.0", "::", platform.node().lower(), address}
    return host.lower() in names or host.startswith("127.")
