"""OTLP/gRPC: the same judgement, log and limits as OTLP/HTTP, over raw message bytes.

The handlers take bytes, not parsed messages: one span with invalid UTF-8 must not make gRPC refuse the whole request.
They are registered as if the client streamed, which looks the same on the wire: so they see the key, the quota and
the room there is before the message is received, and a refused one takes no memory.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NoReturn

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from collector.access import Caller
from collector.problems import PROTOBUF, Problem, outcome_of, overloaded, problem_of
from collector.reception import BODY_TIMEOUT_S, Signal, Taken, is_light, logs, metrics, traces
from collector.service import Collector
from pickwise.events import MAX_REQUEST_BYTES

logger = logging.getLogger(__name__)

TRACE_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"
LOGS_SERVICE = "opentelemetry.proto.collector.logs.v1.LogsService"
METRICS_SERVICE = "opentelemetry.proto.collector.metrics.v1.MetricsService"
PROJECT_METADATA = "x-pickwise-project"
#: Where clients look for RetryInfo: the standard place, and the one that OpenTelemetry's Python exporter reads.
_STATUS_METADATA, _RETRY_METADATA = "grpc-status-details-bin", "google.rpc.retryinfo-bin"
#: Handlers mostly wait for the disk: this many requests share a group commit.
_WORKERS = 32
#: Calls that wait for a handler. They hold next to nothing, but there must be an end: gRPC refuses more by itself.
_MAX_CALLS = 1_024
_DURABLE_TIMEOUT_S = 30.0
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.so_reuseport", 0),
    # Else gRPC lets clients send megabytes ahead, also those whose calls wait for room: 400 MiB more from 64 of them.
    ("grpc.http2.bdp_probe", 0),
)
_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}

Handler = Callable[[Iterator[bytes], grpc.ServicerContext], bytes]


class PortTaken(OSError):  # noqa: N818 - a state of the machine
    """The address cannot be listened on."""


def start_grpc_server(collector: Collector, host: str, port: int) -> tuple[grpc.Server, int]:
    """Serve TraceService/Export and LogsService/Export; returns the server and its port (for port 0).

    Raises PortTaken when the address can't be had.
    """
    server = grpc.server(
        ThreadPoolExecutor(_WORKERS, thread_name_prefix="grpc"),
        options=_OPTIONS,
        maximum_concurrent_rpcs=_MAX_CALLS,
    )
    door = _Door(collector)
    server.add_generic_rpc_handlers(
        (
            _service(TRACE_SERVICE, door.handler(traces(collector))),
            _service(LOGS_SERVICE, door.handler(logs(collector))),
            _service(METRICS_SERVICE, door.handler(metrics(collector))),
        )
    )
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise PortTaken(f"gRPC can't listen on {host}:{port}: {error}; give another --grpc-port") from error
    server.start()
    return server, bound


def _service(name: str, export: Handler) -> grpc.GenericRpcHandler[bytes, bytes]:
    # No (de)serializer: requests and responses are bytes.
    return grpc.method_handlers_generic_handler(name, {"Export": grpc.stream_unary_rpc_method_handler(export)})


class _Door:
    """What the handlers of one collector share."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._slow = _SlowSenders()
        self._light = threading.Lock()

    def handler(self, signal: Signal) -> Handler:
        requests = self._collector.telemetry.requests
        way = f"grpc_{signal.name}"

        def export(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            try:
                answer = self._export(signal, messages, context)
            except Exception as error:
                requests.labels(way, outcome_of(error)).inc()
                problem = problem_of(error)
                if problem is None:
                    raise
                _abort(context, problem)
            requests.labels(way, "accepted").inc()
            return answer

        return export

    def _export(self, signal: Signal, messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        caller = self._caller(context)
        self._collector.access.check_quota(caller)
        with self._collector.admission.entered_from_thread(MAX_REQUEST_BYTES) as seat:
            with self._slow.watched(context):
                body = next(messages, b"")
            seat.resize(len(body))
            taken = self._take(signal, caller, body)
            if taken.durable is not None:
                try:
                    taken.durable.result(_DURABLE_TIMEOUT_S)
                except TimeoutError as error:
                    raise overloaded("the disk does not answer", 10) from error
            return taken.answer

    def _take(self, signal: Signal, caller: Caller, body: bytes) -> Taken:
        # Several at once would be no faster, parsing holds the interpreter's lock, but all be in memory in parsed form.
        with self._light if is_light(body, PROTOBUF) else self._collector.admission.heavy:
            return signal.take(caller, body, "protobuf")

    def _caller(self, context: grpc.ServicerContext) -> Caller:
        metadata = [(key, _text(value)) for key, value in context.invocation_metadata()]
        authorization = [value for key, value in metadata if key == "authorization"]
        names = [(key, value) for key, value in metadata if key == PROJECT_METADATA]
        return self._collector.access.authorize(authorization, names, ("ingest",))


class _SlowSenders:
    """Cancels calls whose message does not come: each holds a handler and room that others want."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deadlines: dict[int, tuple[float, grpc.ServicerContext]] = {}
        self._timer: threading.Timer | None = None

    @contextmanager
    def watched(self, context: grpc.ServicerContext) -> Iterator[None]:
        with self._lock:
            self._deadlines[id(context)] = (time.monotonic() + BODY_TIMEOUT_S, context)
            self._look_again()
        try:
            yield
        finally:
            with self._lock:
                del self._deadlines[id(context)]

    def _look_again(self) -> None:
        if self._timer is None and self._deadlines:
            self._timer = threading.Timer(BODY_TIMEOUT_S / 2, self._look)
            self._timer.daemon = True
            self._timer.start()

    def _look(self) -> None:
        now = time.monotonic()
        with self._lock:
            late = [context for deadline, context in self._deadlines.values() if deadline <= now]
            self._timer = None
            self._look_again()
        for context in late:
            context.cancel()  # type: ignore[no-untyped-call]


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _abort(context: grpc.ServicerContext, problem: Problem) -> NoReturn:
    """End the call; with RetryInfo, which tells OTLP exporters when to come again, where that may help."""
    if problem.retry_after_s is not None:
        retry = RetryInfo(retry_delay=Duration(seconds=problem.retry_after_s))
        detail = AnyMessage()
        detail.Pack(retry)
        status = Status(code=problem.code, message=problem.message, details=[detail])
        context.set_trailing_metadata(
            ((_STATUS_METADATA, status.SerializeToString()), (_RETRY_METADATA, retry.SerializeToString()))
        )
    context.abort(_STATUS_CODES[problem.code], problem.message)
    raise AssertionError("abort returns never")
