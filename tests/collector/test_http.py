"""The ways in over HTTP, as OTLP and our contract describe them."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from collector.http import create_collector_app
from collector.lake import Lake
from collector.service import Collector
from pickwise.settings import Settings
from tests.collector.test_grpc_server import one_span
from tests.collector.test_service import running

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}
CALL = {"type": "call", "skill_id": "s", "event_id": "e1"}
JSON_SPAN = {
    "traceId": "ab" * 16,
    "spanId": "cd" * 8,
    "name": "execute_tool weather",
    "startTimeUnixNano": "1770000000000000000",
    "endTimeUnixNano": 1770000001000000000,
    "attributes": [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}},
        {"key": "gen_ai.tool.name", "value": {"stringValue": "weather"}},
    ],
}


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    started = Collector(Settings(data_dir=tmp_path, flush_interval_s=0.05))
    started.start()
    yield started
    started.stop()


@pytest.fixture
def client(collector: Collector) -> Iterator[TestClient]:
    with TestClient(create_collector_app(collector)) as opened:
        yield opened


def rows(client: TestClient, collector: Collector, table: str) -> list[dict[str, Any]]:
    assert client.post("/v1/refresh").status_code == 200
    return Lake(collector.settings.data_dir).read(table).rows(named=True)


def trace_json(*spans: dict[str, Any]) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


# -- OTLP ---------------------------------------------------------------------------------------------------------


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


@pytest.mark.parametrize(
    ("coding", "encode"),
    [
        ("identity", bytes),
        ("gzip", gzip.compress),
        ("GZIP", gzip.compress),
        ("gzip", lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:])),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
    ],
)
def test_traces_in_every_coding(client: TestClient, collector: Collector, coding: str, encode: Any) -> None:
    answer = client.post("/v1/traces", content=encode(one_span()), headers=PROTOBUF | {"content-encoding": coding})
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "application/x-protobuf", b"")
    assert [call["skill_id"] for call in rows(client, collector, "calls")] == ["weather"]


@pytest.mark.parametrize("media", ["application/json", "Application/JSON; charset=utf-8"])
def test_traces_as_json(client: TestClient, collector: Collector, media: str) -> None:
    answer = client.post("/v1/traces", content=trace_json(JSON_SPAN), headers={"content-type": media})
    assert (answer.status_code, answer.headers["content-type"], answer.json()) == (200, "application/json", {})
    assert [call["skill_id"] for call in rows(client, collector, "calls")] == ["weather"]


def test_a_bad_span_is_a_partial_success(client: TestClient, collector: Collector) -> None:
    answer = client.post("/v1/traces", content=trace_json(JSON_SPAN, JSON_SPAN | {"spanId": "xyz"}), headers=JSON)
    assert answer.status_code == 200
    partial = answer.json()["partialSuccess"]
    assert int(partial["rejectedSpans"]) == 1
    assert "spanId" in partial["errorMessage"]
    assert len(rows(client, collector, "calls")) == 1
    answer = client.post("/v1/traces", content=one_span() + one_span("bad", b"\1"), headers=PROTOBUF)
    assert ExportTraceServiceResponse.FromString(answer.content).partial_success.rejected_spans == 1


def test_two_media_types_are_one_too_many(client: TestClient) -> None:
    """Neither is chosen for the sender; that of twice the same is clear."""

    def answer(*media: str) -> Any:
        headers = [("content-type", one) for one in media]
        return client.post("/v1/traces", content=trace_json(JSON_SPAN), headers=headers)

    refused = answer("application/json", "application/x-protobuf")
    assert refused.status_code == 415
    assert "application/json, application/x-protobuf" in refused.text
    assert answer("application/json", "application/json; charset=utf-8").status_code == 200


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs"])
@pytest.mark.parametrize(("headers", "body"), [(PROTOBUF, b""), (JSON, b"{}"), (JSON, b"")])
def test_an_empty_request_is_good(client: TestClient, path: str, headers: dict[str, str], body: bytes) -> None:
    answer = client.post(path, content=body, headers=headers)
    assert (answer.status_code, answer.content) == (200, b"{}" if headers is JSON else b"")


BOMB = gzip.compress(b" " * (20 * 2**20 + 1))


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        (PROTOBUF, b"\xff\xff", 400),
        (JSON, b"{", 400),
        (JSON, b"[]", 400),
        (PROTOBUF | {"content-encoding": "gzip"}, b"not gzip", 400),
        (PROTOBUF | {"content-encoding": "gzip"}, gzip.compress(one_span(), mtime=0)[:-4], 400),
        (PROTOBUF | {"content-encoding": "br"}, b"x", 415),
        (JSON | {"content-encoding": "gzip, gzip"}, b"x", 415),
        ({"content-type": "application/json, application/x-protobuf"}, b"{}", 415),
        ({"content-type": "application/json; charset=utf-8, application/x-protobuf"}, b"{}", 415),
        ({"content-type": "text/plain"}, b"x", 415),
        ({}, b"x", 415),
        (PROTOBUF | {"content-encoding": "gzip"}, BOMB, 413),
        (JSON, b" " * (20 * 2**20 + 1), 413),
        (JSON | {"x-pickwise-project": "a/b"}, b"{}", 400),
        (JSON | {"x-pickwise-project": ".."}, b"{}", 400),
    ],
)
def test_refusals_are_a_status_in_the_request_encoding(
    client: TestClient, headers: dict[str, str], body: bytes, status: int
) -> None:
    answer = client.post("/v1/traces", content=body, headers=headers)
    assert answer.status_code == status
    if headers.get("content-type") == "application/x-protobuf":
        assert answer.headers["content-type"] == "application/x-protobuf"
        assert Status.FromString(answer.content).message
    else:
        assert answer.json()["message"]
    if status == 415:
        assert "gzip" in answer.headers["accept-encoding"]


def test_a_bomb_is_refused_without_being_held(client: TestClient) -> None:
    bomb = gzip.compress(b"\0" * 2**27, 1)
    assert len(bomb) < 2**20
    answer = client.post("/v1/traces", content=bomb, headers=PROTOBUF | {"content-encoding": "gzip"})
    assert answer.status_code == 413


def test_overload_is_503_with_retry_after(client: TestClient, collector: Collector) -> None:
    collector.wal.seal()
    for path, headers, body in (("/v1/traces", PROTOBUF, one_span()), ("/v1/events", JSON, json.dumps(CALL).encode())):
        answer = client.post(path, content=body, headers=headers)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    for ask in (client.get, client.head):  # load balancers do either
        assert ask("/readyz").status_code == 503
        assert ask("/healthz").status_code == 200


def test_the_project_comes_from_the_header_then_the_resource(client: TestClient, collector: Collector) -> None:
    document = json.loads(trace_json(JSON_SPAN))
    document["resourceSpans"][0]["resource"] = {
        "attributes": [{"key": "pickwise.project", "value": {"stringValue": "from-resource"}}]
    }
    client.post("/v1/traces", json=document)
    client.post("/v1/traces", json=document, headers={"x-pickwise-project": "from-header"})
    client.post("/v1/traces", content=trace_json(JSON_SPAN), headers=JSON)
    found = sorted(call["project"] for call in rows(client, collector, "calls"))
    assert found == ["default", "from-header", "from-resource"]


def test_the_standard_exporter_sends_spans(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        exporter = OTLPSpanExporter(endpoint=f"{server.url}/v1/traces", headers={"x-pickwise-project": "h"})
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        with provider.get_tracer("test").start_as_current_span("execute_tool weather") as span:
            span.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather"})
        provider.shutdown()
        assert httpx.post(f"{server.url}/v1/refresh", timeout=20).status_code == 200
        (call,) = Lake(tmp_path).read("calls").rows(named=True)
    assert (call["project"], call["skill_id"]) == ("h", "weather")


# -- native events ------------------------------------------------------------------------------------------------


def test_events_in_every_layout(client: TestClient, collector: Collector) -> None:
    for headers, body in (
        (JSON, json.dumps(CALL)),
        (JSON, json.dumps([CALL | {"event_id": "e2"}])),
        (NDJSON, json.dumps(CALL | {"event_id": "e3"}) + "\n" + json.dumps(CALL | {"event_id": "e4"})),
    ):
        answer = client.post("/v1/events", content=body, headers=headers)
        assert answer.status_code == 200
        assert answer.json()["rejected"] == []
    assert sorted(call["event_id"] for call in rows(client, collector, "calls")) == ["e1", "e2", "e3", "e4"]


def test_refused_events_are_named_among_the_good(client: TestClient, collector: Collector) -> None:
    body = [
        CALL,
        {"type": "call", "event_id": "mine"},
        {"type": "skill", "kind": 3},
        {"type": "skill", "skill_id": "s"},
    ]
    answer = client.post("/v1/events", json=body)
    assert answer.status_code == 200
    document = answer.json()
    assert document["accepted"] == 2
    assert [(refused["index"], refused["event_id"]) for refused in document["rejected"]] == [(1, "mine"), (2, None)]
    assert len(rows(client, collector, "calls")) == 1
    assert [skill["source"] for skill in rows(client, collector, "skills")] == ["declared"]


def test_nothing_acceptable_is_400(client: TestClient) -> None:
    for body in (b"nonsense", b'[{"type":"nope"}]', b'{"type":"skill"}'):
        assert client.post("/v1/events", content=body, headers=JSON).status_code == 400
    assert client.post("/v1/events", content=b"[]", headers=JSON).json() == {"accepted": 0, "rejected": []}


def test_the_project_of_an_event_is_not_trusted(client: TestClient, collector: Collector) -> None:
    client.post("/v1/events", json=CALL | {"project": "someone-else"}, headers={"x-pickwise-project": "mine"})
    assert [call["project"] for call in rows(client, collector, "calls")] == ["mine"]


def test_a_long_query_is_cut_and_flagged(client: TestClient, collector: Collector) -> None:
    client.post("/v1/events", json={"type": "selection", "query": "q" * 9_000})
    (found,) = rows(client, collector, "selections")
    assert (len(found["query"]), found["truncated"]) == (8_192, True)


def test_a_large_body_is_taken(client: TestClient, collector: Collector) -> None:
    lines = "\n".join(json.dumps(CALL | {"event_id": f"e{number}", "agent": "a" * 200}) for number in range(2_000))
    assert len(lines) > 256 * 1024
    assert client.post("/v1/events", content=lines, headers=NDJSON).json()["accepted"] == 2_000
    assert len(rows(client, collector, "calls")) == 2_000


def test_the_shared_events_and_their_registry(client: TestClient, collector: Collector, shared: Path) -> None:
    registry = (shared / "data" / "registry" / "livemcpbench.jsonl").read_bytes()
    assert client.put("/v1/registry", content=registry, headers=NDJSON).json()["accepted"] == 527
    events = (shared / "data" / "events" / "livemcpbench.jsonl").read_bytes()
    for _ in range(2):
        assert client.post("/v1/events", content=events, headers=NDJSON).json() == {"accepted": 909, "rejected": []}
    counts = {name: len(rows(client, collector, name)) for name in ("selections", "calls", "feedback")}
    assert counts == {"selections": 283, "calls": 531, "feedback": 95}


# -- registry -----------------------------------------------------------------------------------------------------


def test_the_registry_round_trip(client: TestClient) -> None:
    first = client.put("/v1/registry", json=[{"skill_id": "srv/a", "description": "does a"}, {"skill_id": "b"}])
    assert first.status_code == 200
    assert first.json()["accepted"] == 2
    finding = next(found for found in first.json()["findings"] if found["code"] == "no_description")
    assert (finding["skill_id"], finding["field"], finding["severity"]) == ("b", "description", "error")
    again = client.put("/v1/registry", json=[{"skill_id": "b"}, {"skill_id": "srv/a", "description": "does a"}])
    assert again.json()["registry_version"] == first.json()["registry_version"]
    assert client.post("/v1/registry", json={"skill_id": "c"}).json()["accepted"] == 1
    assert client.delete("/v1/registry/srv/a").status_code == 200
    assert client.delete("/v1/registry/srv/a").status_code == 404
    listed = client.get("/v1/registry").json()
    assert [skill["skill_id"] for skill in listed["skills"]] == ["b", "c"]
    assert listed["source"] == "declared"
    for at in ("2001-01-01T00:00:00Z", "2001-01-01T00:00:00+00:00", 978_307_200 * 10**9):
        past = client.get("/v1/registry", params={"at": at}).json()
        assert [skill["skill_id"] for skill in past["skills"]] == ["b", "srv/a"]


def test_registry_refusals(client: TestClient) -> None:
    answer = client.put("/v1/registry", json=[{"skill_id": "a"}, {"skill_id": "a"}, {"kind": "mcp"}])
    assert [(refused["index"], refused["skill_id"]) for refused in answer.json()["rejected"]] == [(1, "a"), (2, None)]
    assert client.put("/v1/registry", content=b"x", headers=JSON).status_code == 400
    assert client.put("/v1/registry", json=[{"kind": "mcp"}]).status_code == 400
    assert client.post("/v1/registry", json={"skill_id": "z"}, params={"strict": True}).status_code == 400
    for ask in (client.put, client.post):
        answer = ask("/v1/registry", json={"skill_id": "z"}, params={"strict": "x"})
        assert (answer.status_code, answer.json()["message"]) == (400, "strict: expected a valid boolean, got 'x'")
    assert client.get("/v1/registry", params={"at": "yesterday"}).status_code == 400
    assert [skill["skill_id"] for skill in client.get("/v1/registry").json()["skills"]] == ["a"]


def test_a_project_without_a_registry_lists_what_it_was_offered(client: TestClient) -> None:
    client.post("/v1/events", json={"type": "selection", "candidates": [{"skill_id": "b"}, {"skill_id": "a"}]})
    client.post("/v1/refresh")
    listed = client.get("/v1/registry").json()
    assert (listed["source"], [skill["skill_id"] for skill in listed["skills"]]) == ("observed", ["a", "b"])


# -- the service itself -------------------------------------------------------------------------------------------


def test_metrics_and_docs(client: TestClient) -> None:
    client.post("/v1/events", json=CALL | {"colour": "red"})
    client.post("/v1/events", json={"type": "nope"})
    text = client.get("/metrics").text
    for sample in (
        'pickwise_accepted_total{kind="events"} 1.0',
        'pickwise_rejected_total{kind="events"} 1.0',
        'pickwise_requests_total{outcome="accepted",way="http_events"} 1.0',
        'pickwise_requests_total{outcome="refused",way="http_events"} 1.0',
        "pickwise_unknown_fields_total 1.0",
        "pickwise_queue_bytes",
        "pickwise_backlog_bytes",
    ):
        assert sample in text
    assert "/v1/traces" in client.get("/openapi.json").json()["paths"]
    assert client.get("/readyz").json() == {"status": "ready"}


def test_a_small_body_that_grows_is_judged_outside_the_event_loop(
    client: TestClient, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[bool] = []
    submit = collector.submit_events

    def spy(*arguments: Any) -> Any:
        try:
            asyncio.get_running_loop()
            judged.append(True)
        except RuntimeError:
            judged.append(False)
        return submit(*arguments)

    monkeypatch.setattr(collector, "submit_events", spy)
    for body in (json.dumps(CALL).encode(), b"[" + b"0," * 2**20 + b"0]"):
        client.post("/v1/events", content=gzip.compress(body), headers=JSON | {"content-encoding": "gzip"})
    assert judged == [True, False]


@pytest.mark.parametrize("at", ["", "²", "9" * 5_000, "yesterday", "-1"])
def test_a_time_of_the_registry_that_is_none_is_named(client: TestClient, at: str) -> None:
    answer = client.get("/v1/registry", params={"at": at})
    assert (answer.status_code, answer.json()["message"].startswith("at: expected")) == (400, True)


@pytest.mark.parametrize("schema", ['{"$schema": [1]}', '{"properties": {"a": ' * 400 + "{}" + "}}" * 400])
def test_an_odd_schema_takes_no_neighbour_with_it(client: TestClient, schema: str) -> None:
    body = '[{"skill_id": "odd", "parameters_schema": ' + schema + '}, {"skill_id": "good"}]'
    assert client.post("/v1/registry", content=body, headers=JSON).status_code == 200
    assert "good" in [entry["skill_id"] for entry in client.get("/v1/registry").json()["skills"]]
