"""Standard OpenTelemetry exporters: point them here, and a metric shows their spans within three seconds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.trace import Status, StatusCode

from tests.end_to_end.conftest import Service

TOOLS = json.dumps([{"type": "function", "name": name, "description": name} for name in ("search", "mail")])
ASKED = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "find it"}]}])
ANSWERED = json.dumps(
    [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": "x"}}]}]
)


def http_exporter(service: Service) -> SpanExporter:
    return HttpExporter(endpoint=f"{service.url}/v1/traces")


def grpc_exporter(service: Service) -> SpanExporter:
    return GrpcExporter(endpoint=service.addresses["grpc"], insecure=True)


@pytest.mark.parametrize("exporter", [http_exporter, grpc_exporter])
def test_spans_are_visible_within_three_seconds(service: Service, exporter: Callable[[Service], SpanExporter]) -> None:
    provider = TracerProvider(resource=Resource.create({"service.name": "agent", "service.version": "1.2"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter(service)))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("invoke_agent"):
        with tracer.start_as_current_span("chat m") as chat:
            chat.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
            chat.set_attributes({"gen_ai.tool.definitions": TOOLS, "gen_ai.input.messages": ASKED})
            chat.set_attribute("gen_ai.output.messages", ANSWERED)
        with tracer.start_as_current_span("execute_tool search") as tool:
            tool.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"})
            tool.set_attributes({"gen_ai.tool.call.id": "c1", "error.type": "timeout"})
            tool.set_status(Status(StatusCode.ERROR))
    provider.shutdown()
    deadline = time.monotonic() + 3
    while (row := service.metric("failed_tool_rate"))["n"] == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (row["value"], row["n"]) == (1.0, 1)
    (kind,) = service.rows("failed_tool_rate", by="error_kind,release")
    assert (kind["error_kind"], kind["release"]) == ("timeout", "1.2")
    assert service.metric("acceptance_rate")["value"] == 1.0
