"""Too much at once: what is refused before it is read, what still answers, and that senders who retry lose nothing."""

from __future__ import annotations

import gzip
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import httpx
import pytest
import uvicorn
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from collector import reception
from collector.admission import Admission
from collector.grpc_server import start_grpc_server
from collector.http import create_collector_app
from collector.lake import Lake
from collector.reception import is_light
from collector.service import Collector
from pickwise.events import MAX_REQUEST_BYTES
from pickwise.settings import Settings
from tests.collector.test_grpc_server import EXPORT, one_span

PROTOBUF = {"content-type": "application/x-protobuf"}


class Served(NamedTuple):
    collector: Collector
    url: str
    grpc_port: int


@contextmanager
def served(data_dir: Path, patience_s: float = 0.05, **settings: Any) -> Iterator[Served]:
    """A collector in this process behind real ports."""
    collector = Collector(Settings(data_dir=data_dir, flush_interval_s=0.05, **settings))
    collector.admission = Admission(collector.settings.inflight_bytes, collector.settings.inflight_requests, patience_s)
    collector.start()
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_collector_app(collector), log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    grpc_server, grpc_port = start_grpc_server(collector, "127.0.0.1", 0)
    try:
        yield Served(collector, f"http://127.0.0.1:{listener.getsockname()[1]}", grpc_port)
    finally:
        grpc_server.stop(1).wait()
        server.should_exit = True
        thread.join()
        collector.stop()


def over_http(service: Served) -> SpanExporter:
    return HttpExporter(endpoint=f"{service.url}/v1/traces", timeout=60)


def over_grpc(service: Served) -> SpanExporter:
    return GrpcExporter(endpoint=f"http://127.0.0.1:{service.grpc_port}", insecure=True, timeout=60)


def batch(sender: int, number: int) -> list[ReadableSpan]:
    tracer = TracerProvider().get_tracer("test")
    spans: list[ReadableSpan] = []
    for index in range(5):
        span = tracer.start_span("execute_tool")
        skill = f"{sender}-{number}-{index}"
        span.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": skill})
        span.end()
        assert isinstance(span, ReadableSpan)
        spans.append(span)
    return spans


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("exporter_of", [over_http, over_grpc])
def test_exporters_that_retry_lose_nothing(tmp_path: Path, exporter_of: Callable[[Served], SpanExporter]) -> None:
    senders, batches = 6, 3
    with served(tmp_path, inflight_requests=1, queue_bytes=1) as service:

        def send(sender: int) -> list[SpanExportResult]:
            exporter = exporter_of(service)
            try:
                return [exporter.export(batch(sender, number)) for number in range(batches)]
            finally:
                exporter.shutdown()

        admission = service.collector.admission
        with ThreadPoolExecutor(senders) as threads:
            with admission.entered_from_thread(0):  # the one place is taken until all were refused once
                results = [threads.submit(send, sender) for sender in range(senders)]
                until(lambda: admission.refused >= senders)
            assert [result.result() for result in results] == [[SpanExportResult.SUCCESS] * batches] * senders
        assert service.collector.refresh(30)
        stored = Lake(tmp_path).read("calls")["skill_id"].to_list()
    expected = {f"{s}-{n}-{i}" for s in range(senders) for n in range(batches) for i in range(5)}
    assert (len(stored), set(stored)) == (len(expected), expected)


def test_what_has_no_room_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """OTLP specification, "OTLP/HTTP Throttling" and "OTLP/gRPC Throttling"."""
    with served(tmp_path, inflight_bytes=MAX_REQUEST_BYTES) as service, httpx.Client(base_url=service.url) as client:
        with service.collector.admission.entered_from_thread(MAX_REQUEST_BYTES):
            status, retry_after, said = _announce_only(service.url, 1_000)
            assert (status, retry_after) == (503, "1")
            assert "are being taken in" in Status.FromString(said).message
            with (
                grpc.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel,
                pytest.raises(grpc.RpcError) as refused,
            ):
                channel.stream_unary(EXPORT, bytes, bytes)(iter(()), timeout=20)
            error: Any = refused.value
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            trailers, retry = dict(error.trailing_metadata()), RetryInfo()
            assert Status.FromString(trailers["grpc-status-details-bin"]).details[0].Unpack(retry)
            assert retry.retry_delay.seconds == 1
            for path in ("/healthz", "/readyz", "/metrics"):
                assert client.get(path).status_code == 200
            assert "pickwise_inflight_refused_total 2.0" in client.get("/metrics").text
        assert client.post("/v1/traces", content=one_span(), headers=PROTOBUF).status_code == 200


def _announce_only(url: str, size: int) -> tuple[int, str | None, bytes]:
    """The answer to a request whose body is announced and never sent."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    connection.putrequest("POST", "/v1/traces")
    for name, value in (PROTOBUF | {"content-length": str(size)}).items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    return answer.status, answer.headers["retry-after"], said


@pytest.mark.parametrize("wire", ["http", "grpc"])
def test_a_body_that_does_not_come_gives_its_place_back(
    tmp_path: Path, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "BODY_TIMEOUT_S", 0.2)
    monkeypatch.setattr("collector.grpc_server.BODY_TIMEOUT_S", 0.2)
    with served(tmp_path, inflight_requests=1) as service:
        over = threading.Event()
        if wire == "http":
            with httpx.Client(base_url=service.url, timeout=20) as client:

                def trickle() -> Iterator[bytes]:
                    yield b"\0"
                    over.wait(5)

                answer = client.post("/v1/traces", content=trickle(), headers=PROTOBUF)
            assert answer.status_code == 408
        else:
            with grpc.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:

                def silent() -> Iterator[bytes]:
                    over.wait(20)
                    yield b""

                with pytest.raises(grpc.RpcError) as refused:
                    channel.stream_unary(EXPORT, bytes, bytes)(silent(), timeout=20)
                over.set()
            assert refused.value.code() is grpc.StatusCode.CANCELLED
        until(lambda: service.collector.admission.requests == 0)
        assert httpx.post(f"{service.url}/v1/traces", content=one_span(), headers=PROTOBUF).status_code == 200


def test_large_bodies_are_judged_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain, compressed and over gRPC alike: only so is the memory of their parsed form bounded."""
    request = one_span() * 4_000
    assert not is_light(request, PROTOBUF["content-type"])
    with served(tmp_path, patience_s=20.0) as service:
        inside, most = 0, 0
        submit, counting = service.collector.submit_traces, threading.Lock()

        def watched(*arguments: Any) -> Any:
            nonlocal inside, most
            with counting:
                inside += 1
                most = max(most, inside)
            try:
                return submit(*arguments)
            finally:
                with counting:
                    inside -= 1

        monkeypatch.setattr(service.collector, "submit_traces", watched)
        zipped = gzip.compress(request)

        def send(number: int) -> object:
            if number % 3 == 0:
                with grpc.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
                    return channel.unary_unary(EXPORT, bytes, bytes)(request, timeout=60)
            content, more = (request, {}) if number % 3 == 1 else (zipped, {"content-encoding": "gzip"})
            return httpx.post(
                f"{service.url}/v1/traces", content=content, headers=PROTOBUF | more, timeout=60
            ).raise_for_status()

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(send, range(6)))
        assert most == 1


def test_an_answer_names_a_bounded_number_of_refused_events(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        body = b"{}\n" * 50_000 + b'{"type": "call", "skill_id": "s"}\n'
        headers = {"content-type": "application/x-ndjson"}
        answer = httpx.post(f"{service.url}/v1/events", content=body, headers=headers, timeout=60).json()
    assert (answer["accepted"], answer["rejected_count"]) == (1, 50_000)
    assert [refused["index"] for refused in answer["rejected"]] == list(range(10_000))
