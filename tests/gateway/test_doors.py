"""Every door: which key opens it, and that none leads into another project."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from fastapi import FastAPI
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from starlette.testclient import TestClient

from collector.control import Control
from collector.grpc_server import start_grpc_server
from collector.keys import ROLES, KeyStore
from collector.lake import Lake
from collector.service import Collector
from gateway.app import create_app
from pickwise.settings import Settings
from ranker import weights

DOCS = Path(__file__).resolve().parents[2] / "docs"
SERVICE = "/opentelemetry.proto.collector.{0}.v1.{1}Service/Export"
TRACES, LOGS = SERVICE.format("trace", "Trace"), SERVICE.format("logs", "Logs")
PROTOBUF = {"content-type": "application/x-protobuf"}
#: Words of project `theirs` that must not be read with a key of another.
THEIR_WORDS = ("their-skill", "their-selection", "their question")


@dataclass
class Doors:
    """A running service with keys of two projects."""

    collector: Collector
    app: FastAPI
    client: TestClient
    channel: grpc.Channel
    keys: dict[str, str]

    def headers(self, key: str, **more: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[key]}"} | more

    def key(self, **fields: Any) -> str:
        """A key that is good at once."""
        control = Control(self.collector.settings.data_dir)
        text = KeyStore(control).create(**({"project": "own", "roles": ["ingest"]} | fields))[1]
        control.close()
        self.collector.access.ring.reload()
        return text

    def export(self, method: str, body: bytes, *metadata: tuple[str, str]) -> bytes:
        answer: bytes = self.channel.unary_unary(method, bytes, bytes)(body, metadata=metadata, timeout=20)
        return answer

    def rows(self, table: str) -> list[dict[str, Any]]:
        assert self.collector.refresh(20)
        return Lake(self.collector.settings.data_dir).read(table).rows(named=True)


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    settings = Settings(data_dir=tmp_path_factory.mktemp("doors"), flush_interval_s=0.05)
    collector = Collector(settings)
    collector.start()
    app = create_app(settings, collector)
    server, port = start_grpc_server(collector, "127.0.0.1", 0)
    try:
        with TestClient(app) as client, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            opened = Doors(collector, app, client, channel, {})
            for role in ROLES:
                opened.keys[role] = opened.key(roles=[role])
            opened.keys["theirs"] = opened.key(project="theirs", roles=["admin"])
            _seed(opened)
            yield opened
    finally:
        server.stop(1).wait()
        collector.stop()


def _seed(doors: Doors) -> None:
    """Something to steal."""
    candidates = [{"skill_id": "their-skill", "score": 0.5}]
    events: list[dict[str, Any]] = [
        {"type": "selection", "event_id": "their-selection", "query": "their question", "candidates": candidates},
        {"type": "call", "event_id": "c", "skill_id": "their-skill", "ok": False, "error_kind": "timeout"},
        {"type": "skill", "skill_id": "their-skill", "description": "does their question"},
    ]
    answer = doors.client.post("/v1/events", json=events, headers=doors.headers("theirs"))
    assert answer.json() == {"accepted": 3, "rejected": []}
    assert doors.client.post("/v1/refresh", headers=doors.headers("theirs")).status_code == 200
    weights.refresh(doors.collector.settings.data_dir, doors.collector.settings, "theirs")


# -- the table of the docs, which is what the doors do --------------------------------------------------------------


def documented() -> dict[tuple[str, str], str]:
    """The role of each endpoint, as docs/security.md says."""
    rows = re.findall(r"^\| `([A-Z]+) (\S+)` \| ([^|]+) \|$", (DOCS / "security.md").read_text(), re.MULTILINE)
    return {(method, path): roles.strip() for method, path, roles in rows}


def served(routes: Any) -> Iterator[tuple[str, str]]:
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from served(inner.routes)
            continue
        for method in route.methods - {"HEAD"}:
            yield method, re.sub(r":path}", "}", route.path)


ENDPOINTS = sorted(documented().items())


def ask(doors: Doors, endpoint: tuple[str, str], **options: Any) -> Any:
    method, path = endpoint
    path = path.replace("{name}", "acceptance_rate").replace("{skill_id}", "x").replace("{event_id}", "x")
    content = None if method in ("GET", "DELETE") else b'{"dry_run": true}'
    headers = {"content-type": "application/json"} | options.pop("headers", {})
    return doors.client.request(method, path, content=content, headers=headers, **options)


def test_the_docs_name_every_route(doors: Doors) -> None:
    paths = {(method, path.rstrip("/")) for method, path in served(doors.app.routes)}
    assert paths == set(documented())


def test_every_route_of_the_application_asks_for_a_key(doors: Doors) -> None:
    for method, path in served(doors.app.routes):
        answer = ask(doors, (method, path))
        is_open = documented()[method, path.rstrip("/")] == "no key"
        assert (answer.status_code == 401) is not is_open, (method, path)
        if not is_open:
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "pickwise keys create" in answer.text


@pytest.mark.parametrize(("endpoint", "roles"), ENDPOINTS)
@pytest.mark.parametrize("role", ROLES)
def test_a_key_opens_what_the_docs_say(doors: Doors, endpoint: tuple[str, str], roles: str, role: str) -> None:
    answer = ask(doors, endpoint, headers=doors.headers(role))
    assert answer.status_code not in (401, 500), answer.text
    allowed = roles == "no key" or role == "admin" or role in roles.split(" or ")
    assert (answer.status_code == 403) is not allowed, answer.text


@pytest.mark.parametrize(("endpoint", "roles"), [row for row in ENDPOINTS if row[1] != "no key"])
def test_another_project_is_403_everywhere(doors: Doors, endpoint: tuple[str, str], roles: str) -> None:
    for options in (
        {"headers": doors.headers("admin", **{"x-pickwise-project": "theirs"})},
        {"headers": doors.headers("admin"), "params": {"project": "theirs"}},
    ):
        answer = ask(doors, endpoint, **options)
        assert (answer.status_code, roles != "no key") == (403, True)
        assert "theirs" in answer.text
    both = doors.headers("admin", **{"x-pickwise-project": "own"})
    assert ask(doors, endpoint, headers=both, params={"project": "theirs"}).status_code == 400
    assert ask(doors, endpoint, headers=both, params={"project": "own"}).status_code not in (401, 403)


def test_refusals_are_in_the_form_of_the_route(doors: Doors) -> None:
    answer = doors.client.post("/v1/traces", content=b"", headers=PROTOBUF)
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/x-protobuf")
    assert Status.FromString(answer.content).code == grpc.StatusCode.UNAUTHENTICATED.value[0]
    assert doors.client.post("/v1/events", json={}).json()["code"] == grpc.StatusCode.UNAUTHENTICATED.value[0]
    forbidden = doors.client.get("/v1/report", headers=doors.headers("ingest")).json()
    assert "expected a key with the role read" in forbidden["detail"]


# -- across projects ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/v1/selections/their-selection",
        "/v1/skills/their-skill",
        "/v1/report?by=skill",
        "/v1/metrics/failed_tool_rate?by=skill",
        "/v1/registry",
        "/v1/registry?at=2100-01-01T00:00:00Z",
        "/v1/alerts",
        "/v1/weights",
        "/metrics",
        "/readyz",
        "/openapi.json",
    ],
)
def test_nothing_of_another_project_is_read(doors: Doors, path: str) -> None:
    mine = doors.client.get(path, headers=doors.headers("admin"))
    said = mine.text if mine.status_code == 200 else ""
    assert [word for word in THEIR_WORDS if word in said] == []
    theirs = doors.client.get(path, headers=doors.headers("theirs"))
    if "their" in path:
        assert (mine.status_code, theirs.status_code) == (404, 200)
    if path == "/v1/weights":
        assert "their-skill" in theirs.json()["skills"]


def test_the_registry_of_another_project_is_not_written(doors: Doors) -> None:
    headers = doors.headers("admin")
    assert doors.client.delete("/v1/registry/their-skill", headers=headers).status_code == 404
    assert doors.client.put("/v1/registry", json=[{"skill_id": "mine"}], headers=headers).status_code == 200
    listed = doors.client.get("/v1/registry", headers=doors.headers("theirs")).json()
    assert [entry["skill_id"] for entry in listed["skills"]] == ["their-skill"]


def spans(*named: str | None, on_span: bool = False) -> ExportTraceServiceRequest:
    """One call a resource; a resource (or its span) names the project."""
    request = ExportTraceServiceRequest()
    for index, project in enumerate(named):
        group = request.resource_spans.add()
        span = group.scope_spans.add().spans.add(
            name=f"call {index}", trace_id=b"\2" * 16, span_id=bytes([index + 1]) * 8, start_time_unix_nano=10**18
        )
        for key, value in (("gen_ai.operation.name", "execute_tool"), ("gen_ai.tool.name", f"tool-{project}")):
            span.attributes.add(key=key).value.string_value = value
        if project is not None:
            place = span.attributes if on_span else group.resource.attributes
            place.add(key="pickwise.project").value.string_value = project
    return request


def as_json(request: ExportTraceServiceRequest) -> bytes:
    groups = []
    for group in request.resource_spans:
        (span,) = group.scope_spans[0].spans
        attributes = [{"key": a.key, "value": {"stringValue": a.value.string_value}} for a in span.attributes]
        named = [{"key": a.key, "value": {"stringValue": a.value.string_value}} for a in group.resource.attributes]
        ids = {"traceId": span.trace_id.hex(), "spanId": span.span_id.hex(), "name": span.name}
        body = ids | {"startTimeUnixNano": str(span.start_time_unix_nano), "attributes": attributes}
        groups.append({"resource": {"attributes": named}, "scopeSpans": [{"spans": [body]}]})
    return json.dumps({"resourceSpans": groups}).encode()


@pytest.mark.parametrize("on_span", [False, True])
@pytest.mark.parametrize("wire", ["protobuf", "json", "grpc"])
def test_a_span_of_another_project_is_refused_and_its_neighbours_stay(doors: Doors, wire: str, on_span: bool) -> None:
    key = doors.key(project=f"p-{wire}-{on_span}")
    mine = f"p-{wire}-{on_span}"
    request = spans(None, mine, "theirs", on_span=on_span)
    if wire == "grpc":
        answer = ExportTraceServiceResponse.FromString(
            doors.export(TRACES, request.SerializeToString(), ("authorization", f"Bearer {key}"))
        )
        refused, why = answer.partial_success.rejected_spans, answer.partial_success.error_message
    else:
        content = request.SerializeToString() if wire == "protobuf" else as_json(request)
        headers = {"authorization": f"Bearer {key}", "content-type": f"application/{'x-' * (wire != 'json')}{wire}"}
        said = doors.client.post("/v1/traces", content=content, headers=headers)
        assert said.status_code == 200
        partial = said.json()["partialSuccess"] if wire == "json" else None
        parsed = ExportTraceServiceResponse.FromString(said.content).partial_success if partial is None else None
        refused = int(partial["rejectedSpans"]) if partial else parsed.rejected_spans if parsed else -1
        why = partial["errorMessage"] if partial else parsed.error_message if parsed else ""
    assert refused == 1
    assert "call 2" in why
    assert "another project" in why
    stored = [(row["project"], row["skill_id"]) for row in doors.rows("calls")]
    assert sorted(row for row in stored if row[0] == mine) == sorted([(mine, f"tool-{mine}"), (mine, "tool-None")])
    assert ("theirs", "tool-theirs") not in stored


def test_a_log_record_of_another_project_is_refused(doors: Doors) -> None:
    request = ExportLogsServiceRequest()
    for project in ("own", "theirs"):
        group = request.resource_logs.add()
        group.resource.attributes.add(key="pickwise.project").value.string_value = project
        record = group.scope_logs.add().log_records.add(event_name="gen_ai.evaluation.result", trace_id=b"\3" * 16)
        for key, value in (("gen_ai.evaluation.name", "relevance"), ("gen_ai.evaluation.score.label", project)):
            record.attributes.add(key=key).value.string_value = value
    answer = doors.export(LOGS, request.SerializeToString(), *doors.headers("ingest").items())
    partial = ExportLogsServiceResponse.FromString(answer).partial_success
    assert (partial.rejected_log_records, "another project" in partial.error_message) == (1, True)
    kept = [row["project"] for row in doors.rows("feedback") if row["trace_id"] == "03" * 16]
    assert kept == ["own"]


def test_an_event_of_another_project_is_refused(doors: Doors) -> None:
    def call(event_id: str, **fields: Any) -> dict[str, Any]:
        return {"type": "call", "skill_id": "s", "event_id": event_id} | fields

    body = [
        call("e1"),
        call("e2", project="own"),
        call("e3", project="theirs"),
        {"type": "skill", "skill_id": "planted", "project": "theirs"},
    ]
    answer = doors.client.post("/v1/events", json=body, headers=doors.headers("ingest"))
    assert answer.json()["accepted"] == 2
    assert [(refused["index"], refused["event_id"]) for refused in answer.json()["rejected"]] == [(2, "e3"), (3, None)]
    assert "expected own, the key's" in answer.json()["rejected"][0]["reason"]
    found = {row["event_id"]: row["project"] for row in doors.rows("calls")}
    assert (found["e1"], found["e2"], found.get("e3")) == ("own", "own", None)
    assert "planted" not in [row["skill_id"] for row in doors.rows("skills")]
    only = doors.client.post("/v1/events", json=call("e4", project="theirs"), headers=doors.headers("ingest"))
    assert only.status_code == 400


# -- gRPC -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [TRACES, LOGS, SERVICE.format("metrics", "Metrics")])
@pytest.mark.parametrize(
    ("key", "project", "code"),
    [
        (None, None, grpc.StatusCode.UNAUTHENTICATED),
        ("nonsense", None, grpc.StatusCode.UNAUTHENTICATED),
        ("read", None, grpc.StatusCode.PERMISSION_DENIED),
        ("ingest", "theirs", grpc.StatusCode.PERMISSION_DENIED),
        ("ingest", "a b", grpc.StatusCode.INVALID_ARGUMENT),
        ("ingest", "own", None),
        ("admin", None, None),
    ],
)
def test_grpc_asks_alike(
    doors: Doors, method: str, key: str | None, project: str | None, code: grpc.StatusCode | None
) -> None:
    metadata = [] if key is None else [("authorization", f"Bearer {doors.keys.get(key, key)}")]
    metadata += [] if project is None else [("x-pickwise-project", project)]
    if code is None:
        assert doors.export(method, b"", *metadata) == b""
        return
    with pytest.raises(grpc.RpcError) as refused:
        doors.export(method, spans(None).SerializeToString(), *metadata)
    assert refused.value.code() is code


# -- quotas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quota", [{"events_per_second": 0.1}, {"bytes_per_day": 10}])
def test_over_the_quota_is_429_with_retry_after(doors: Doors, quota: dict[str, Any]) -> None:
    """OTLP specification, "OTLP/HTTP Throttling"."""
    headers = {"authorization": f"Bearer {doors.key(**quota)}"} | PROTOBUF
    body = spans(None, None).SerializeToString()
    assert doors.client.post("/v1/traces", content=body, headers=headers).status_code == 200
    answer = doors.client.post("/v1/traces", content=body, headers=headers)
    assert answer.status_code == 429
    assert next(iter(quota)) in Status.FromString(answer.content).message
    assert 1 <= int(answer.headers["retry-after"]) <= 86_400
    assert doors.client.post("/v1/events", json=[], headers={"authorization": headers["authorization"]}).json()["code"]


def test_over_the_quota_is_resource_exhausted_with_retry_info(doors: Doors) -> None:
    """OTLP specification, "OTLP/gRPC Throttling": RESOURCE_EXHAUSTED is retryable with RetryInfo only."""
    key = ("authorization", f"Bearer {doors.key(events_per_second=0.1)}")
    doors.export(TRACES, spans(None, None).SerializeToString(), key)
    with pytest.raises(grpc.RpcError) as refused:
        doors.export(TRACES, b"", key)
    error: Any = refused.value
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    trailers = dict(error.trailing_metadata())
    retry = RetryInfo()
    assert Status.FromString(trailers["grpc-status-details-bin"]).details[0].Unpack(retry)
    assert retry == RetryInfo.FromString(trailers["google.rpc.retryinfo-bin"])
    assert retry.retry_delay.seconds >= 1


def test_a_refused_body_counts_against_the_bytes(doors: Doors) -> None:
    headers = {"authorization": f"Bearer {doors.key(bytes_per_day=10)}", "content-type": "application/json"}
    assert doors.client.post("/v1/events", content=b"x" * 11, headers=headers).status_code == 400
    assert doors.client.post("/v1/events", content=b"[]", headers=headers).status_code == 429
