"""OTLP/gRPC over a real channel: the standard exporter, the limits and the refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from collector.grpc_server import PortTaken, start_grpc_server
from collector.lake import Lake
from collector.service import Collector
from pickwise.settings import Settings

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LOGS_EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    started = Collector(Settings(data_dir=tmp_path, flush_interval_s=0.05))
    started.start()
    yield started
    started.stop()


@pytest.fixture
def port(collector: Collector) -> Iterator[int]:
    server, bound = start_grpc_server(collector, "127.0.0.1", 0)
    yield bound
    server.stop(1).wait()


@pytest.fixture
def export(port: int) -> Iterator[Any]:
    with grpc.insecure_channel(f"127.0.0.1:{port}", compression=grpc.Compression.Gzip) as channel:
        yield channel.unary_unary(EXPORT, bytes, bytes)


def one_span(name: str = "execute_tool weather", span_id: bytes = b"\1" * 8) -> bytes:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(name=name, trace_id=b"\2" * 16, span_id=span_id)
    span.start_time_unix_nano, span.end_time_unix_nano = 1_770_000_000 * 10**9, 1_770_000_001 * 10**9
    for key, value in (("gen_ai.operation.name", "execute_tool"), ("gen_ai.tool.name", "weather")):
        span.attributes.add(key=key).value.string_value = value
    return request.SerializeToString()


def calls(collector: Collector) -> list[dict[str, Any]]:
    assert collector.refresh(20)
    return Lake(collector.settings.data_dir).read("calls").rows(named=True)


def test_the_standard_exporter_sends_spans(collector: Collector, port: int) -> None:
    exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{port}", insecure=True, headers={"x-pickwise-project": "g"})
    provider = TracerProvider(resource=Resource({"service.name": "agent"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("execute_tool weather") as span:
        span.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather"})
    provider.shutdown()
    (found,) = calls(collector)
    assert (found["project"], found["skill_id"]) == ("g", "weather")


def test_a_bad_span_is_named_and_the_good_one_stays(collector: Collector, export: Any) -> None:
    both = one_span() + one_span("bad one", b"\1\2\3")
    answer = ExportTraceServiceResponse.FromString(export(both))
    assert answer.partial_success.rejected_spans == 1
    assert "bad one" in answer.partial_success.error_message
    assert len(calls(collector)) == 1


def test_a_span_with_invalid_utf8_is_taken(collector: Collector, export: Any) -> None:
    export(one_span().replace(b"weather", b"weathe\xff"))
    assert calls(collector)[0]["skill_id"] == "weathe\ufffd"


def test_an_empty_request_is_good(export: Any, port: int) -> None:
    assert export(b"") == b""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert channel.unary_unary(LOGS_EXPORT, bytes, bytes)(b"") == b""


@pytest.mark.parametrize(
    ("body", "metadata", "code", "words"),
    [
        (b"\xff\xff", (), grpc.StatusCode.INVALID_ARGUMENT, "not a trace request"),
        (b"", (("x-pickwise-project", "a b"),), grpc.StatusCode.INVALID_ARGUMENT, "x-pickwise-project"),
        (b"\0" * (20 * 2**20 + 1), (), grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max"),
    ],
)
def test_refusals(export: Any, body: bytes, metadata: Any, code: grpc.StatusCode, words: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        export(body, metadata=metadata)
    assert refused.value.code() is code
    assert words in (refused.value.details() or "")


def test_overload_is_unavailable_with_retry_info(collector: Collector, export: Any) -> None:
    collector.wal.seal()
    with pytest.raises(grpc.RpcError) as refused:
        export(one_span())
    error: Any = refused.value
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    retry = RetryInfo()
    assert Status.FromString(details).details[0].Unpack(retry)
    assert retry.retry_delay.seconds == 5


def test_a_taken_port_is_refused_by_name(collector: Collector, port: int) -> None:
    with pytest.raises(PortTaken, match=str(port)):
        start_grpc_server(collector, "127.0.0.1", port)
