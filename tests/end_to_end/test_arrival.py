"""Spans that arrive in any order, split over requests, minutes late or twice end in the same rows."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf.json_format import Parse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from analytics.tables import Tables
from tests.end_to_end.recordings import Request, names, project_of, requests_of, take

#: When and by which request a row came, and keys that each installation or project makes for itself.
_OWN = {"project", "received_at", "source_request", "args_digest"}
_ROWS = ("selections", "candidates", "calls", "feedback", "mismatches")


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1))
def test_arrival_changes_no_row(shared: Path, tmp_path_factory: Any, seed: int) -> None:
    rng = random.Random(seed)
    folder = tmp_path_factory.mktemp("arrival")
    recordings = names(shared)
    orderly = [(project_of(name), request) for name in recordings for request in requests_of(shared, name)]
    take(folder / "orderly", orderly)
    scattered = [
        (project_of(name), request) for name in recordings for request in _scattered(requests_of(shared, name), rng)
    ]
    rng.shuffle(scattered)
    # Half of it minutes after the rest: the rows that the first half made are on disk by then.
    middle = len(scattered) // 2
    take(folder / "scattered", scattered[:middle])
    take(folder / "scattered", scattered[middle:])
    for table in _ROWS:
        assert _rows(folder / "scattered", table) == _rows(folder / "orderly", table), table


def _rows(folder: Path, table: str) -> list[dict[str, Any]]:
    rows = Tables(folder).sql(f"select * from {table}")
    kept = [{name: value for name, value in row.items() if name not in _OWN} | {"of": row["project"]} for row in rows]
    return sorted(kept, key=repr)


def _scattered(requests: list[Request], rng: random.Random) -> Iterator[Request]:
    """The spans and log records of a recording, shuffled, one to five a request, a third of them sent twice."""
    for signal, message, groups, scopes, records in (
        ("traces", ExportTraceServiceRequest, "resource_spans", "scope_spans", "spans"),
        ("logs", ExportLogsServiceRequest, "resource_logs", "scope_logs", "log_records"),
    ):
        singles = [
            single
            for request in requests
            if request.signal == signal
            for single in _singles(_parsed(request, message), message, groups, scopes, records)
        ]
        singles += rng.sample(singles, len(singles) // 3)
        rng.shuffle(singles)
        while singles:
            size = rng.randint(1, 5)
            part, singles = singles[:size], singles[size:]
            together = message()
            for single in part:
                together.MergeFrom(single)
            yield Request(signal, "protobuf", together.SerializeToString())


def _parsed(request: Request, message: Callable[[], Any]) -> Any:
    if request.encoding == "protobuf":
        parsed = message()
        parsed.ParseFromString(request.body)
        return parsed
    return Parse(_with_base64_ids(request.body), message())


def _with_base64_ids(body: bytes) -> bytes:
    """OTLP/JSON has hex ids, where the JSON of protobuf has base64: this reads them alike."""

    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [convert(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: base64.b64encode(bytes.fromhex(item)).decode()
            if key in ("traceId", "spanId", "parentSpanId") and isinstance(item, str)
            else convert(item)
            for key, item in value.items()
        }

    return json.dumps(convert(json.loads(body))).encode()


def _singles(parsed: Any, message: Callable[[], Any], groups: str, scopes: str, records: str) -> Iterator[Any]:
    """One request a record, each with its resource and scope."""
    for group in getattr(parsed, groups):
        for scope in getattr(group, scopes):
            for record in getattr(scope, records):
                single = message()
                own = getattr(single, groups).add()
                own.resource.CopyFrom(group.resource)
                inner = getattr(own, scopes).add()
                inner.scope.CopyFrom(scope.scope)
                getattr(inner, records).add().CopyFrom(record)
                yield single
