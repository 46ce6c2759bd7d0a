"""The collector's own spans: off by default, sent to a real receiver, never to itself."""

from __future__ import annotations

import gzip
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.self_traces import SCOPE, SERVICE, traced, traces_url
from collector.service import Collector
from pickwise.settings import Settings, SettingsError, load_settings
from tests.collector.test_service import running

EVENT = {"type": "call", "event_id": "e", "skill_id": "s", "arguments": {"to": "Ada"}}


class Receiver(ThreadingHTTPServer):
    """An OTLP/HTTP receiver on loopback that keeps the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[ExportTraceServiceRequest] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        assert self.path == "/v1/traces"
        self.server.bodies.append(body)
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def collecting(data_dir: Path, **changes: Any) -> Iterator[Collector]:
    collector = Collector(Settings(data_dir=data_dir, **changes))
    collector.start()
    try:
        yield collector
    finally:
        collector.stop()


def send(collector: Collector, *events: dict[str, Any]) -> None:
    _, future = collector.submit_events(json.dumps(events).encode(), "json", "p")
    assert future is not None
    future.result(10)
    assert collector.refresh(20)


def attributes(span: Span) -> dict[str, Any]:
    values = {}
    for pair in span.attributes:
        kind = pair.value.WhichOneof("value")
        assert kind is not None
        values[pair.key.removeprefix("pickwise.collector.")] = getattr(pair.value, kind)
    return values


def test_a_commit_is_a_trace_with_its_steps(tmp_path: Path, receiver: Receiver) -> None:
    with collecting(tmp_path, self_traces=receiver.url, compact_every=1) as collector:
        send(collector, EVENT)
    spans = receiver.spans
    (flush,) = [span for span in spans if span.name == "flush"]
    assert not flush.parent_span_id
    found = attributes(flush)
    assert (found["records"], found["events"]) == (1, 1)
    assert found["bytes"] > 0
    assert 0 < found["lag_seconds"] < 60
    children = {span.name: span for span in spans if span.parent_span_id == flush.span_id}
    steps = ["map and redact", "dedup", "commit", "archive", "release", "compact"]
    assert sorted(children) == sorted(steps)
    assert {span.trace_id for span in spans} == {flush.trace_id}
    commit = children["commit"]
    assert attributes(commit) == {"table": "calls", "rows": 1}
    (sync,) = [span for span in spans if span.name == "sync"]
    assert sync.parent_span_id == commit.span_id
    for span in children.values():
        assert flush.start_time_unix_nano <= span.start_time_unix_nano
        assert span.start_time_unix_nano <= span.end_time_unix_nano <= flush.end_time_unix_nano
    (resource,) = receiver.requests[0].resource_spans
    assert SERVICE in [pair.value.string_value for pair in resource.resource.attributes if pair.key == "service.name"]


def test_a_failed_attempt_is_marked_and_quotes_nothing(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting(tmp_path, self_traces=receiver.url) as collector:
        lake = collector.stores.lake
        append = lake.append
        failures = [OSError("planted-secret")]

        def fail_once(*arguments: Any) -> None:
            if failures:
                raise failures.pop()
            append(*arguments)

        monkeypatch.setattr(lake, "append", fail_once)
        send(collector, EVENT)
    failed, done = (span for span in receiver.spans if span.name == "commit")
    assert attributes(failed)["error.type"] == "OSError"
    assert failed.status.code == failed.status.STATUS_CODE_ERROR
    assert done.status.code == done.status.STATUS_CODE_UNSET
    assert b"planted-secret" not in b"".join(receiver.bodies)


def test_only_the_setting_switches_it_on(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{receiver.url}/v1/traces")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    with collecting(tmp_path) as collector:
        assert not collector.telemetry.self_traces.is_on
        send(collector, EVENT)
    assert receiver.requests == []


def test_the_variable_switches_it_on_and_headers_come_from_the_standard_ones(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PICKWISE_SELF_TRACES", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20key")
    with collecting(tmp_path) as collector:
        send(collector, EVENT)
    assert receiver.headers[0]["authorization"] == "Bearer key"


def test_steps_outside_a_traced_flush_are_nothing() -> None:
    assert traced("commit", table="calls") is traced("map and redact")
    with traced("commit"), traced("sync"):
        pass


def test_no_flush_of_a_share_of_none_is_traced(tmp_path: Path, receiver: Receiver) -> None:
    with collecting(tmp_path, self_traces=receiver.url, self_traces_ratio=0.0) as collector:
        assert collector.telemetry.self_traces.is_on
        send(collector, EVENT)
    assert receiver.requests == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_endpoint_that_is_our_own_port_is_refused(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture, host: str
) -> None:
    with collecting(tmp_path, self_traces=f"http://{host}:{receiver.server_port}") as collector:
        with caplog.at_level(logging.ERROR, "collector.self_traces"):
            collector.announce("127.0.0.1", receiver.server_port, None)
        assert not collector.telemetry.self_traces.is_on
        send(collector, EVENT)
    assert "self_traces" in caplog.text
    assert receiver.requests == []


def test_another_port_is_not_taken_for_our_own(tmp_path: Path, receiver: Receiver) -> None:
    with collecting(tmp_path, self_traces=receiver.url) as collector:
        collector.announce("127.0.0.1", receiver.server_port + 1, None)
        assert collector.telemetry.self_traces.is_on


def test_a_second_collector_takes_them_and_does_not_trace_them(tmp_path: Path, receiver: Receiver) -> None:
    with running(tmp_path / "second") as second:
        with collecting(tmp_path / "first", self_traces=second.url) as first:
            send(first, EVENT)
        samples = httpx.get(f"{second.url}/metrics").text
    assert 'pickwise_accepted_total{kind="traces"} 7.0' in samples
    assert 'pickwise_rejected_total{kind="traces"} 0.0' in samples
    with collecting(tmp_path / "third", self_traces=receiver.url) as third:
        send(third, EVENT)
        third.telemetry.self_traces.stop()
        body = receiver.bodies[-1]
    assert SCOPE.encode() in body
    count = len(receiver.requests)
    with collecting(tmp_path / "fourth", self_traces=receiver.url) as fourth:
        _, future = fourth.submit_traces(body, "protobuf", "")
        assert future is not None
        future.result(10)
        assert fourth.refresh(20)
    assert len(receiver.requests) == count


def test_a_receiver_that_is_down_costs_nothing_but_the_spans(tmp_path: Path) -> None:
    with collecting(tmp_path, self_traces="http://127.0.0.1:1") as collector:
        send(collector, EVENT)
    with collecting(tmp_path) as collector:
        assert collector.stores.lake.read("calls").height == 1


@pytest.mark.parametrize(
    ("given", "posted"),
    [
        ("http://h:1", "http://h:1/v1/traces"),
        ("http://h:1/", "http://h:1/v1/traces"),
        ("https://h/otlp", "https://h/otlp/v1/traces"),
        ("http://h:1/v1/traces", "http://h:1/v1/traces"),
        ("http://h:1/v1/traces/", "http://h:1/v1/traces"),
    ],
)
def test_spans_are_posted_to_the_path_of_traces(given: str, posted: str) -> None:
    assert traces_url(given) == posted


@pytest.mark.parametrize(
    "given", ["", "127.0.0.1:4318", "ftp://h", "http://", "http://h:many", "http://u:p@h", "http://h?key=1"]
)
def test_a_url_that_is_none_is_named(given: str) -> None:
    with pytest.raises(SettingsError, match="self_traces"):
        load_settings(self_traces=given)
