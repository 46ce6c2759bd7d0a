"""OTLP/gRPC: the same judgement, log and limits as OTLP/HTTP, over raw message bytes.

The handlers take bytes, not parsed messages: one span with invalid UTF-8 must not make gRPC refuse the whole request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from collector.decode import is_project
from collector.otlp import OtlpError, logs_response, traces_response
from collector.service import Collector
from collector.wal import Overloaded
from pickwise.events import MAX_REQUEST_BYTES

logger = logging.getLogger(__name__)

TRACE_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"
LOGS_SERVICE = "opentelemetry.proto.collector.logs.v1.LogsService"
PROJECT_METADATA = "x-pickwise-project"
_STATUS_METADATA = "grpc-status-details-bin"
#: Handlers mostly wait for the disk: this many requests share a group commit.
_WORKERS = 16
_DURABLE_TIMEOUT_S = 30.0

Submit = Callable[[bytes, Any, str], tuple[Any, Future[int] | None]]
Respond = Callable[[Any, Any], bytes]


class PortTaken(OSError):  # noqa: N818 - a state of the machine
    """The address cannot be listened on."""


def start_grpc_server(collector: Collector, host: str, port: int) -> tuple[grpc.Server, int]:
    """Serve TraceService/Export and LogsService/Export; returns the server and its port (for port 0).

    Raises PortTaken when the address can't be had.
    """
    server = grpc.server(
        ThreadPoolExecutor(_WORKERS, thread_name_prefix="grpc"),
        options=[("grpc.max_receive_message_length", MAX_REQUEST_BYTES), ("grpc.so_reuseport", 0)],
    )
    server.add_generic_rpc_handlers(
        (
            _service(TRACE_SERVICE, _exporter(collector, "grpc_traces", collector.submit_traces, traces_response)),
            _service(LOGS_SERVICE, _exporter(collector, "grpc_logs", collector.submit_logs, logs_response)),
        )
    )
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise PortTaken(f"gRPC can't listen on {host}:{port}: {error}; give another --grpc-port") from error
    server.start()
    return server, bound


def _service(name: str, export: Callable[[bytes, grpc.ServicerContext], bytes]) -> grpc.GenericRpcHandler[bytes, bytes]:
    # No (de)serializer: requests and responses are bytes.
    return grpc.method_handlers_generic_handler(name, {"Export": grpc.unary_unary_rpc_method_handler(export)})


def _exporter(
    collector: Collector, way: str, submit: Submit, respond: Respond
) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    requests = collector.telemetry.requests

    def export(body: bytes, context: grpc.ServicerContext) -> bytes:
        project = _project(context)
        try:
            parsed, future = submit(body, "protobuf", project)
            if future is not None:
                future.result(_DURABLE_TIMEOUT_S)
        except OtlpError as error:
            requests.labels(way, "refused").inc()
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except Overloaded as error:
            requests.labels(way, "refused").inc()
            _abort_overloaded(context, error.reason, error.retry_after_s)
        except TimeoutError:
            requests.labels(way, "refused").inc()
            _abort_overloaded(context, "the disk does not answer", 10)
        requests.labels(way, "accepted").inc()
        return respond(parsed, "protobuf")

    return export


def _project(context: grpc.ServicerContext) -> str:
    for key, value in context.invocation_metadata():
        if key == PROJECT_METADATA:
            name = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            if not is_project(name):
                context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"{PROJECT_METADATA}: expected 1 to 64 of A-Z a-z 0-9 . _ -, got {name!r:.80}",
                )
            return name
    return ""


def _abort_overloaded(context: grpc.ServicerContext, reason: str, retry_after_s: int) -> NoReturn:
    """UNAVAILABLE with RetryInfo, which tells OTLP exporters when to come again."""
    detail = AnyMessage()
    detail.Pack(RetryInfo(retry_delay=Duration(seconds=retry_after_s)))
    status = Status(code=code_pb2.UNAVAILABLE, message=reason, details=[detail])
    context.set_trailing_metadata(((_STATUS_METADATA, status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNAVAILABLE, reason)
    raise AssertionError("abort returns never")
