"""A whole service with keys: what the standard senders do with one, and that none is written down anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter

from pickwise.trace import SelectionTracer
from tests.end_to_end.conftest import Service, pickwise, pickwise_json

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Keys of project `shop`, made before the service starts."""
    made = {}
    for role in ("ingest", "read", "admin"):
        arguments = ("create", "--data-dir", tmp_path / "data", "--project", "shop", "--role", role)
        made[role] = pickwise_json("keys", *arguments)
    return made


@pytest.fixture
def locked(keys: dict[str, Any], serve: Callable[..., Service]) -> Service:
    """The service with these keys; its client reads and refreshes."""
    service = serve("--no-dashboard", "--no-jobs")
    service.client.headers["Authorization"] = f"Bearer {keys['admin']['key']}"
    return service


def send_call(exporter: SpanExporter, skill: str) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("test").start_as_current_span(f"execute_tool {skill}") as span:
        span.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": skill})
    provider.shutdown()


def skills_called(service: Service, project: str = "shop") -> list[str]:
    query = f"select distinct skill_id from calls where project = '{project}' order by 1"
    return [row["skill_id"] for row in pickwise_json("sql", query, "--data-dir", service.data_dir)]


def test_senders_with_a_key_get_in_and_those_without_do_not(
    locked: Service, keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_call(HttpExporter(endpoint=f"{locked.url}/v1/traces"), "no-key")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"Authorization=Bearer%20{keys['ingest']['key']}")
    send_call(HttpExporter(endpoint=f"{locked.url}/v1/traces"), "over-http")
    send_call(GrpcExporter(endpoint=f"http://{locked.addresses['grpc']}", insecure=True), "over-grpc")
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_HEADERS")
    monkeypatch.setenv("PICKWISE_API_KEY", keys["ingest"]["key"])
    tracer = SelectionTracer(endpoint=locked.url)
    with tracer.selection("what now") as selection, selection.call("over-trace"):
        pass
    assert tracer.flush()
    events = tmp_path / "events.jsonl"
    events.write_text('{"type": "call", "skill_id": "imported", "event_id": "i"}\n')
    arguments = ("import", events, "--format", "events", "--data-dir", locked.data_dir, "--project", "shop")
    assert pickwise_json(*arguments)["accepted"] == 1
    locked.refresh()
    assert skills_called(locked) == ["imported", "over-grpc", "over-http", "over-trace"]
    monkeypatch.delenv("PICKWISE_API_KEY")
    with pytest.raises(AssertionError, match="PICKWISE_API_KEY"):
        pickwise_json(*arguments)
    with pytest.raises(AssertionError, match="role ingest"):
        pickwise_json(*arguments, env={"PICKWISE_API_KEY": keys["read"]["key"]})


def test_the_end_of_a_key_reaches_a_running_service(locked: Service, keys: dict[str, Any]) -> None:
    def status(key: str) -> int:
        return httpx.get(f"{locked.url}/v1/report", headers={"Authorization": f"Bearer {key}"}).status_code

    def until(key: str, wanted: int) -> None:
        deadline = time.monotonic() + 30
        while status(key) != wanted:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    assert status(keys["read"]["key"]) == 200
    late = pickwise_json("keys", "create", "--role", "read", "--data-dir", locked.data_dir, "--expires", "1h")
    until(late["key"], 200)
    for key in (late, *keys.values()):
        pickwise("keys", "revoke", key["id"], "--data-dir", locked.data_dir)
        until(key["key"], 401)
    assert httpx.get(f"{locked.url}/v1/report").status_code == 401
    assert httpx.get(f"{locked.url}/healthz").status_code == 200


def test_a_key_is_written_down_nowhere(serve: Callable[..., Service], keys: dict[str, Any]) -> None:
    """The whole folder, logs included, after every kind of use, also as text that agents might send."""
    service = serve("--no-dashboard")
    ingest, read = keys["ingest"]["key"], keys["read"]["key"]
    secrets = [made["key"].rpartition("_")[2] for made in keys.values()]
    wrong = "pw_" + "0" * 12 + "_" + secrets[0]
    bearers = [{"Authorization": f"Bearer {key}"} for key in (ingest, read, keys["admin"]["key"], wrong)]
    text = f"why is {ingest} refused?"
    for headers in bearers:
        for path in ("/v1/report", "/v1/weights", "/metrics", "/v1/metrics/acceptance_rate", "/none"):
            service.client.get(path, headers=headers)
            service.client.get(path, headers=headers, params={"project": "other"})
        service.client.post("/v1/traces", content=b"\xff", headers=headers | {"Content-Type": "application/x-protobuf"})
        selection = {"type": "selection", "query": text, "candidates": [{"skill_id": "a"}], "session_id": "s"}
        call = {"type": "call", "skill_id": "a", "ok": False, "error_message": text, "arguments": {"key": ingest}}
        service.client.post("/v1/events", json=[selection, call], headers=headers)
        with grpc.insecure_channel(service.addresses["grpc"]) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary(EXPORT, bytes, bytes)(b"\xff", metadata=(("authorization", headers["Authorization"]),))
    assert service.client.post("/v1/refresh", headers=bearers[0]).status_code == 200
    told = service.client.get("/metrics", headers=bearers[2]).text
    doctor = pickwise("doctor", "--data-dir", service.data_dir, "--json", env={"PICKWISE_API_KEY": ingest}, check=False)
    listed = pickwise("keys", "list", "--data-dir", service.data_dir, "--json")
    query = "select query from selections"
    assert {row["query"] for row in pickwise_json("sql", query, "--data-dir", service.data_dir)} == {
        "why is [api_key] refused?"
    }
    service.stop()
    files = [path for path in service.data_dir.rglob("*") if path.is_file()]
    assert len(files) > 5
    for secret in secrets:
        assert secret not in told + doctor + listed
        assert [path for path in files if secret.encode() in path.read_bytes()] == []
    used = pickwise_json("keys", "list", "--data-dir", service.data_dir)
    assert all(key["last_used_at"] for key in used)
