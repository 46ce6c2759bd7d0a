"""A sender of OTLP over real connections, and the spans that tests send with it."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import grpc
import httpx
import psutil
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.lake import Lake
from tests.collector.test_service import Running

F = TypeVar("F", bound=Callable[..., Any])

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
SERVICE = "/opentelemetry.proto.collector.{0}.v1.{1}Service/Export"
TRACES = SERVICE.format("trace", "Trace")
LOGS = SERVICE.format("logs", "Logs")
METRICS = SERVICE.format("metrics", "Metrics")

#: The table of contents of OpenTelemetry's OTLP specification (1.x).
SECTIONS = frozenset(
    {
        "OTLP/gRPC",
        "OTLP/gRPC Request",
        "OTLP/gRPC Response: Full Success",
        "OTLP/gRPC Response: Partial Success",
        "OTLP/gRPC Response: Failures",
        "OTLP/gRPC Throttling",
        "OTLP/gRPC Service and Protobuf Definitions",
        "OTLP/HTTP",
        "Binary Protobuf Encoding",
        "JSON Protobuf Encoding",
        "OTLP/HTTP Request",
        "OTLP/HTTP Response",
        "OTLP/HTTP Response: Full Success",
        "OTLP/HTTP Response: Partial Success",
        "OTLP/HTTP Response: Failures",
        "OTLP/HTTP Response: Retryable Response Codes",
        "OTLP/HTTP Response: Bad Data",
        "OTLP/HTTP Response: OTLP/HTTP Throttling",
        "OTLP/HTTP Response: All Other Responses",
        "OTLP/HTTP Connection",
        "Empty Telemetry Envelopes",
        "Request Acknowledgements: Duplicate Data",
        "Future Versions and Interoperability",
    }
)


def section(name: str) -> Callable[[F], F]:
    """Cites the section of the specification whose rule a test checks."""
    assert name in SECTIONS, f"the specification has no section {name!r}"
    return lambda test: test


class Answer(NamedTuple):
    """What a sender learns, whatever the way in: the HTTP status (or the name of the gRPC code), refusals, message."""

    status: int | str
    rejected: int
    message: str

    @property
    def is_full_success(self) -> bool:
        return self == (200, 0, "")


class Sender:
    """Sends to one running collector, as one project."""

    _numbers = itertools.count()

    def __init__(self, server: Running, data_dir: Path) -> None:
        self.project = f"p{next(self._numbers)}"
        self.server = server
        self._data_dir = data_dir
        self._http = httpx.Client(base_url=server.url, timeout=60, headers={"x-pickwise-project": self.project})

    def close(self) -> None:
        self._http.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._http.request(method, path, **options)

    def post(self, path: str, body: Any, headers: dict[str, str]) -> httpx.Response:
        return self._http.post(path, content=body, headers=headers)

    def post_json(self, body: bytes, path: str = "/v1/traces", **headers: str) -> Answer:
        response = self.post(path, body, JSON | headers)
        document = response.json()
        partial = document.get("partialSuccess", {})
        count = next((int(value) for key, value in partial.items() if key.startswith("rejected")), 0)
        return Answer(response.status_code, count, partial.get("errorMessage", document.get("message", "")))

    def post_protobuf(self, body: bytes, path: str = "/v1/traces", **headers: str) -> Answer:
        response = self.post(path, body, PROTOBUF | headers)
        assert response.headers["content-type"] == "application/x-protobuf"
        if response.status_code != 200:
            return Answer(response.status_code, 0, Status.FromString(response.content).message)
        return _read(200, response.content)

    def export(self, body: bytes, method: str = TRACES, compression: grpc.Compression | None = None) -> Answer:
        options = [("grpc.max_send_message_length", -1)]
        address = f"127.0.0.1:{self.server.grpc_port}"
        with grpc.insecure_channel(address, options=options, compression=compression) as channel:
            try:
                metadata = (("x-pickwise-project", self.project),)
                answer = channel.unary_unary(method, bytes, bytes)(body, metadata=metadata, timeout=60)
            except grpc.RpcError as error:
                return Answer(error.code().name, 0, error.details() or "")
        return _read(200, answer)

    def refresh(self) -> None:
        assert self._http.post("/v1/refresh").status_code == 200

    def rows(self, table: str = "calls") -> list[dict[str, Any]]:
        """What is visible of this sender's project."""
        self.refresh()
        found = Lake(self._data_dir).read(table).rows(named=True)
        return [row for row in found if row["project"] == self.project]

    def count(self, table: str = "calls") -> int:
        self.refresh()
        found = Lake(self._data_dir).read(table)["project"]
        return int((found == self.project).sum())

    def skills(self) -> list[str]:
        return sorted(row["skill_id"] for row in self.rows())

    def counted(self, metric: str) -> float:
        text = self._http.get("/metrics").text
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(metric))

    def peak_mib(self) -> float:
        """The most memory that the collector's process ever held."""
        status = Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024

    def forget_peak(self) -> float:
        """Start the measure of ``peak_mib`` anew; what the process holds now."""
        Path(f"/proc/{self.server.process.pid}/clear_refs").write_text("5")
        return psutil.Process(self.server.process.pid).memory_info().rss / 2**20


def _read(status: int, body: bytes) -> Answer:
    # The responses of all signals have the same numbers.
    partial = ExportTraceServiceResponse.FromString(body).partial_success
    return Answer(status, partial.rejected_spans, partial.error_message)


_SPAN_IDS = itertools.count(1)


def json_span(skill: str = "good", **fields: Any) -> dict[str, Any]:
    """A tool call in OTLP/JSON; a field of None is left out."""
    span = {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": f"{next(_SPAN_IDS):016x}",
        "name": f"execute_tool {skill}",
        "kind": 1,
        "startTimeUnixNano": "1770000000000000000",
        "endTimeUnixNano": "1770000000005000000",
        "attributes": [json_pair("gen_ai.operation.name", "execute_tool"), json_pair("gen_ai.tool.name", skill)],
    }
    return {key: value for key, value in (span | fields).items() if value is not None}


def json_pair(key: str, text: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": text}}


def json_request(*spans: Any, resource: Any = None) -> bytes:
    group = {"resource": resource or {}, "scopeSpans": [{"spans": spans}]}
    return json.dumps({"resourceSpans": [group]}).encode()


def span(skill: str = "good", **fields: Any) -> Span:
    """The same in protobuf."""
    given: dict[str, Any] = {
        "trace_id": bytes.fromhex("0af7651916cd43dd8448eb211c80319c"),
        "span_id": next(_SPAN_IDS).to_bytes(8),
        "name": f"execute_tool {skill}",
        "kind": Span.SPAN_KIND_INTERNAL,
        "start_time_unix_nano": 1_770_000_000 * 10**9,
        "end_time_unix_nano": 1_770_000_000 * 10**9 + 5_000_000,
    }
    made = Span(**(given | fields))
    for key, text in (("gen_ai.operation.name", "execute_tool"), ("gen_ai.tool.name", skill)):
        made.attributes.add(key=key).value.string_value = text
    return made


def request(*spans: Span) -> bytes:
    made = ExportTraceServiceRequest()
    made.resource_spans.add().scope_spans.add().spans.extend(spans)
    return made.SerializeToString()


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field on the wire."""
    length, size = len(content), bytearray()
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([number << 3 | 2, *size, length]) + content


def raw_request(*spans: bytes) -> bytes:
    """A request of spans that are bytes already."""
    return field(1, field(2, b"".join(field(2, content) for content in spans)))


def noise(size: int) -> Iterator[bytes]:
    """Bytes that do not compress, in pieces."""
    for start in range(0, size, 2**16):
        yield os.urandom(min(2**16, size - start))
