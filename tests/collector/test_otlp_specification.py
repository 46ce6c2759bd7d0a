"""The OTLP specification rule by rule, over real HTTP and gRPC; each test cites the section that it checks."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from isal import igzip
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.collector.otlp_client import (
    JSON,
    LOGS,
    METRICS,
    PROTOBUF,
    TRACES,
    Sender,
    json_request,
    json_span,
    request,
    section,
    span,
)

PATHS = ("/v1/traces", "/v1/logs", "/v1/metrics")
EMPTY_JSON = (b"", b"{}", b'{"resourceSpans": []}', b'{"resourceSpans": [{"scopeSpans": [{"spans": []}]}]}')
EMPTY_PROTOBUF = (b"", b"\x0a\x00", b"\x0a\x02\x12\x00")


def metrics_request() -> ExportMetricsServiceRequest:
    made = ExportMetricsServiceRequest()
    scope = made.resource_metrics.add().scope_metrics.add()
    for value in (1, 2):
        scope.metrics.add(name="tokens").sum.data_points.add(as_int=value)
    scope.metrics.add(name="latency").histogram.data_points.add(count=3)
    return made


def logs_request() -> bytes:
    made = ExportLogsServiceRequest()
    record = made.resource_logs.add().scope_logs.add().log_records.add(event_name="something")
    record.time_unix_nano = 1_770_000_000 * 10**9
    record.body.string_value = "text"
    return made.SerializeToString()


# -- requests -----------------------------------------------------------------------------------------------------


@section("OTLP/HTTP Request")
@pytest.mark.parametrize("coding", ["identity", "gzip", "deflate"])
def test_bodies_may_be_compressed(sender: Sender, coding: str) -> None:
    encode: Any = {"identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress}[coding]
    assert sender.post_protobuf(encode(request(span("a"))), **{"content-encoding": coding}).is_full_success
    assert sender.post_json(encode(json_request(json_span("b"))), **{"content-encoding": coding}).is_full_success
    assert sender.skills() == ["a", "b"]


@section("OTLP/HTTP Request")
@pytest.mark.parametrize("size", [20 * 2**20 + 1, 2**28])
def test_a_body_beyond_20_mib_is_413_before_and_after_decompression(sender: Sender, size: int) -> None:
    bomb = igzip.compress(bytes(size), 1)
    before = sender.forget_peak()
    assert sender.post_protobuf(bomb, **{"content-encoding": "gzip"}).status == 413
    assert sender.post_json(bomb, **{"content-encoding": "gzip"}).status == 413
    if size < 2**25:
        assert sender.post_protobuf(bytes(size)).status == 413
    assert sender.peak_mib() - before < 100
    assert sender.post_protobuf(request(span())).is_full_success


@section("OTLP/HTTP Request")
def test_a_body_of_20_mib_is_taken(sender: Sender) -> None:
    body = request(*[span(f"s{number}", trace_state="x" * 1_000_000) for number in range(20)])
    assert 19 * 2**20 < len(body) < 20 * 2**20
    assert sender.post_protobuf(body).is_full_success
    assert len(sender.skills()) == 20


@section("OTLP/HTTP Request")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_telemetry_is_sent_by_post(sender: Sender, path: str, method: str) -> None:
    answer = sender.request(method, path)
    assert (answer.status_code, "POST" in answer.headers["allow"]) == (405, True)


@section("OTLP/HTTP Request")
def test_a_slash_behind_the_path_is_the_same_path(sender: Sender) -> None:
    assert sender.post_protobuf(request(span("a")), "/v1/traces/").is_full_success
    assert sender.post_protobuf(logs_request(), "/v1/logs/").is_full_success
    assert sender.skills() == ["a"]


@section("OTLP/HTTP Request")
def test_a_body_may_come_in_chunks_of_unknown_total(sender: Sender) -> None:
    body = request(*[span(f"s{number}") for number in range(500)])
    chunks = (body[start : start + 777] for start in range(0, len(body), 777))
    answer = sender.post("/v1/traces", chunks, PROTOBUF)
    assert "content-length" not in answer.request.headers
    assert answer.status_code == 200
    assert len(sender.skills()) == 500
    endless = (bytes(2**20) for _ in range(64))
    assert sender.post("/v1/traces", endless, PROTOBUF).status_code == 413


# -- encodings ----------------------------------------------------------------------------------------------------


@section("Binary Protobuf Encoding")
@pytest.mark.parametrize("media", ["application/x-protobuf", "Application/X-Protobuf", "application/x-protobuf; v=1"])
def test_protobuf_by_its_media_type(sender: Sender, media: str) -> None:
    answer = sender.post("/v1/traces", request(span()), {"content-type": media})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-protobuf")
    assert sender.skills() == ["good"]


@section("JSON Protobuf Encoding")
@pytest.mark.parametrize("media", ["application/json", "APPLICATION/JSON", 'application/json;charset="utf-8"'])
def test_json_by_its_media_type(sender: Sender, media: str) -> None:
    answer = sender.post("/v1/traces", json_request(json_span()), {"content-type": media})
    assert (answer.status_code, answer.headers["content-type"], answer.json()) == (200, "application/json", {})
    assert sender.skills() == ["good"]


@section("JSON Protobuf Encoding")
def test_ids_are_hex_in_any_case(sender: Sender) -> None:
    upper = json_span("upper", traceId="5B8EFFF798038103D269B633813FC60C", spanId="EEE19B7EC3C1B174")
    base64 = json_span("base64", traceId="W47/95gDgQPSabYzgT/GDA==", spanId="7uGbfsPBsXQ=")
    answer = sender.post_json(json_request(upper, base64, json_span()))
    assert (answer.status, answer.rejected) == (200, 1)
    assert "execute_tool base64" in answer.message
    assert "traceId: expected 32 hex digits" in answer.message
    found = {row["skill_id"]: row["trace_id"] for row in sender.rows()}
    assert found == {"upper": "5b8efff798038103d269b633813fc60c", "good": "0af7651916cd43dd8448eb211c80319c"}


@section("JSON Protobuf Encoding")
def test_enums_are_integers_and_names_do_no_harm(sender: Sender) -> None:
    spans = [
        json_span("number", status={"code": 2}),
        json_span("name", kind="SPAN_KIND_CLIENT", status={"code": "STATUS_CODE_ERROR"}),
        json_span("newer", kind="SPAN_KIND_OF_TOMORROW", status={"code": 99}),
        json_span("none", kind=None),
    ]
    assert sender.post_json(json_request(*spans)).is_full_success
    assert {row["skill_id"]: row["ok"] for row in sender.rows()} == {
        "number": False,
        "name": False,
        "newer": True,
        "none": True,
    }


@section("JSON Protobuf Encoding")
def test_fields_of_unknown_names_are_as_if_absent(sender: Sender) -> None:
    odd = json_span("odd", colour={"deep": [1, {"x": None}]}, trace_id="snake case is not a name")
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [odd], "y": 1}], "z": []}], "w": "?"}).encode()
    assert sender.post_json(body).is_full_success
    assert sender.skills() == ["odd"]
    answer = sender.post_json(b'{"resource_spans": []}')
    assert (answer.status, answer.rejected) == (200, 0)
    assert "expected resourceSpans" in answer.message


@section("JSON Protobuf Encoding")
def test_64_bit_integers_are_strings_or_numbers(sender: Sender) -> None:
    for start in ("1770000000000000000", 1_770_000_000_000_000_000):
        assert sender.post_json(json_request(json_span(startTimeUnixNano=start))).is_full_success
    assert {row["time"].year for row in sender.rows()} == {2026}
    assert len({row["time"] for row in sender.rows()}) == 1


@section("Future Versions and Interoperability")
def test_unknown_fields_of_protobuf_are_ignored(sender: Sender) -> None:
    newer = request(span("newer")) + b"\xfa\x3e\x03new" + b"\xf8\x3e\x07"
    assert sender.post_protobuf(newer).is_full_success
    assert sender.skills() == ["newer"]


# -- responses ----------------------------------------------------------------------------------------------------


@section("OTLP/HTTP Response")
def test_an_answer_has_the_media_type_of_its_request(sender: Sender) -> None:
    for headers in (PROTOBUF, JSON):
        for body in (b"", b"\xff"):
            answer = sender.post("/v1/traces", body, headers)
            assert answer.headers["content-type"] == headers["content-type"]


@section("OTLP/HTTP Response: Full Success")
@pytest.mark.parametrize("path", PATHS)
def test_an_empty_request_succeeds(sender: Sender, path: str) -> None:
    key = {"/v1/traces": b"resourceSpans", "/v1/logs": b"resourceLogs", "/v1/metrics": b"resourceMetrics"}[path]
    for body in EMPTY_JSON:
        assert sender.post_json(body.replace(b"resourceSpans", key), path).is_full_success
    for body in EMPTY_PROTOBUF:
        assert sender.post_protobuf(body, path).is_full_success


@section("OTLP/gRPC Response: Full Success")
@pytest.mark.parametrize("method", [TRACES, LOGS, METRICS])
def test_an_empty_export_succeeds(sender: Sender, method: str) -> None:
    for body in EMPTY_PROTOBUF:
        assert sender.export(body, method).is_full_success


@section("Empty Telemetry Envelopes")
def test_envelopes_without_contents_beside_full_ones(sender: Sender) -> None:
    assert sender.post_protobuf(b"\x0a\x00" + request(span()) + b"\x0a\x02\x12\x00").is_full_success
    assert sender.skills() == ["good"]


@section("OTLP/HTTP Response: Full Success")
def test_success_leaves_partial_success_unset(sender: Sender) -> None:
    assert sender.post("/v1/traces", request(span()), PROTOBUF).content == b""
    assert sender.post("/v1/traces", json_request(json_span()), JSON).json() == {}


@section("OTLP/HTTP Response: Partial Success")
def test_refused_spans_are_counted_and_the_reason_is_said(sender: Sender) -> None:
    bad = [span("bad", span_id=b"short"), span("worse", trace_id=bytes(16))]
    bad_json = [json_span("bad", spanId="short"), json_span("worse", traceId="0" * 32)]
    for answer in (
        sender.post_protobuf(request(*bad, span("a"))),
        sender.post_json(json_request(*bad_json, json_span("b"))),
    ):
        assert (answer.status, answer.rejected) == (200, 2)
        assert "execute_tool bad" in answer.message
        assert "execute_tool worse" in answer.message
    assert sender.skills() == ["a", "b"]


@section("OTLP/gRPC Response: Partial Success")
def test_refused_spans_of_an_export(sender: Sender) -> None:
    answer = sender.export(request(span("bad", span_id=b"short"), span()))
    assert (answer.status, answer.rejected) == (200, 1)
    assert "span_id: expected 8 bytes" in answer.message
    assert sender.skills() == ["good"]


@section("OTLP/HTTP Response: Partial Success")
def test_a_warning_comes_with_nothing_rejected(sender: Sender) -> None:
    numbers = [{"key": "n", "value": {"doubleValue": "NaN"}}, {"key": "i", "value": {"doubleValue": "-Infinity"}}]
    both = json_span("json", attributes=[*json_span("json")["attributes"], *numbers])
    odd = span("protobuf")
    for value in (float("nan"), float("inf"), float("-inf")):
        odd.attributes.add(key=f"v{value}").value.double_value = value
    before = sender.counted("pickwise_nonfinite_total")
    for answer, count in (
        (sender.post_json(json_request(both, json_span())), 2),
        (sender.post_protobuf(request(odd, span())), 3),
        (sender.export(request(odd, span())), 3),
    ):
        assert (answer.status, answer.rejected) == (200, 0)
        assert answer.message == f"{count} NaN or infinite numbers became null"
    assert sender.counted("pickwise_nonfinite_total") - before == 8
    assert sender.skills() == ["good", "good", "good", "json", "protobuf"]


@section("OTLP/HTTP Response: Failures")
@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/v1/traces", b"\xff\xff", {}, 400),
        ("/v1/traces", b"x", {"content-encoding": "br"}, 415),
        ("/v1/traces", b"x", {"content-encoding": "gzip, gzip"}, 415),
        ("/v1/traces", b"not gzip", {"content-encoding": "gzip"}, 400),
        ("/v1/traces", gzip.compress(b"cut short", mtime=0)[:-6], {"content-encoding": "gzip"}, 400),
        ("/v1/traces", bytes(20 * 2**20 + 1), {}, 413),
        ("/v1development/profiles", b"", {}, 404),
    ],
)
def test_a_failure_is_a_status_message(
    sender: Sender, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = sender.post(path, body, PROTOBUF | headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/x-protobuf")
    assert Status.FromString(answer.content).message


@section("OTLP/HTTP Response: Failures")
@pytest.mark.parametrize("media", ["text/plain", "application/protobuf", "x", ""])
def test_an_unknown_media_type_is_415_in_json(sender: Sender, media: str) -> None:
    answer = sender.post("/v1/traces", b"", {"content-type": media})
    assert (answer.status_code, answer.headers["content-type"]) == (415, "application/json")
    assert "application/x-protobuf" in answer.json()["message"]


@section("OTLP/HTTP Response: Bad Data")
def test_what_cannot_be_decoded_is_400_with_details(sender: Sender) -> None:
    answer = sender.post("/v1/traces", b"\x0a\xff", PROTOBUF)
    assert answer.status_code == 400
    detail = BadRequest()
    assert Status.FromString(answer.content).details[0].Unpack(detail)
    assert "not a trace request" in detail.field_violations[0].description
    document = sender.post("/v1/traces", b"{", JSON).json()
    assert document["details"][0]["@type"].endswith("google.rpc.BadRequest")
    assert "not JSON" in document["message"]


@section("OTLP/gRPC Response: Failures")
def test_a_failure_of_an_export_has_a_code_that_is_not_retried(sender: Sender) -> None:
    assert sender.export(b"\x0a\xff").status == "INVALID_ARGUMENT"
    assert sender.export(b"", SERVICE_OF_TOMORROW).status == "UNIMPLEMENTED"


SERVICE_OF_TOMORROW = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"


@section("OTLP/gRPC Request")
def test_messages_are_taken_to_20_mib_compressed_or_not(sender: Sender) -> None:
    body = request(*[span(f"s{number}", trace_state="x" * 1_000_000) for number in range(6)])
    assert len(body) > 5 * 2**20
    assert sender.export(body).is_full_success
    assert sender.export(request(span("zipped")), compression=grpc.Compression.Gzip).is_full_success
    assert len(sender.skills()) == 7
    before = sender.forget_peak()
    for compression in (None, grpc.Compression.Gzip, grpc.Compression.Deflate):
        assert sender.export(bytes(2**26), compression=compression).status == "RESOURCE_EXHAUSTED"
    assert sender.peak_mib() - before < 100


@section("OTLP/gRPC Service and Protobuf Definitions")
def test_logs_have_a_service_of_their_own(sender: Sender) -> None:
    assert sender.export(logs_request(), LOGS).is_full_success


@section("OTLP/HTTP Request")
@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs"])
def test_another_signal_is_answered_with_a_hint(sender: Sender, path: str) -> None:
    method, other, belongs = (TRACES, logs_request(), "/v1/logs")
    if path == "/v1/logs":
        method, other, belongs = (LOGS, request(span()), "/v1/traces")
    key = b"resourceLogs" if path == "/v1/traces" else b"resourceSpans"
    for answer, status in (
        (sender.post_protobuf(other, path), 400),
        (sender.export(other, method), "INVALID_ARGUMENT"),
        (sender.post_json(b'{"%s": [{}]}' % key, path), 400),
        (sender.post_protobuf(metrics_request().SerializeToString(), path), 400),
    ):
        assert answer.status == status
        assert (belongs in answer.message) != ("OTEL_METRICS_EXPORTER" in answer.message)


@section("OTLP/HTTP Request")
def test_another_signal_in_the_same_json_is_left_with_a_hint(sender: Sender) -> None:
    body = json.loads(json_request(json_span())) | {"resourceLogs": [{"scopeLogs": []}]}
    answer = sender.post_json(json.dumps(body).encode())
    assert answer == (200, 0, "resourceLogs belongs to /v1/logs")
    assert sender.skills() == ["good"]


@section("OTLP/HTTP Response: Partial Success")
def test_metrics_are_refused_so_that_no_exporter_fails_or_tries_again(sender: Sender) -> None:
    made = metrics_request()
    document = {
        "resourceMetrics": [
            {"scopeMetrics": [{"metrics": [{"name": "a", "gauge": {"dataPoints": [{"asInt": "1"}, {"asInt": "2"}]}}]}]}
        ]
    }
    for answer, count in (
        (sender.post_protobuf(made.SerializeToString(), "/v1/metrics"), 3),
        (sender.export(made.SerializeToString(), METRICS), 3),
        (sender.post_json(json.dumps(document).encode(), "/v1/metrics"), 2),
    ):
        assert (answer.status, answer.rejected) == (200, count)
        assert "OTEL_METRICS_EXPORTER=none" in answer.message


@section("Request Acknowledgements: Duplicate Data")
def test_what_is_sent_again_counts_once(sender: Sender) -> None:
    body = request(*[one for one in (span("a"), span("b")) for _ in range(2)])
    for _ in range(2):
        assert sender.post_protobuf(body).is_full_success
    assert sender.export(body).is_full_success
    assert sender.skills() == ["a", "b"]


@section("OTLP/HTTP Connection")
def test_both_encodings_come_in_by_one_port_and_connection(sender: Sender) -> None:
    for _ in range(3):
        assert sender.post_protobuf(request(span("a"))).is_full_success
        assert sender.post_json(json_request(json_span("b"))).is_full_success
