"""Recorded exports of today's agent SDKs, sent over the real transports, give each recording's own truth.

The scenario behind every recording is the same six turns (see the README beside them). Where a figure is not stated
there, it was counted by hand: tests/collector/mapping/test_recordings.py says how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.end_to_end.conftest import Service, pickwise_json

RECORDINGS = {
    "pydantic-ai-2.68.0/v5": {"calls": 9, "failed": 4, "hallucinated": 1, "selections": 14, "without_pick": 6},
    "pydantic-ai-2.68.0/v5-grpc": {"calls": 9, "failed": 4, "hallucinated": 1, "selections": 14, "without_pick": 6},
    "openai-agents-0.24.0+openinference-instrumentation-openai-agents-2.6.0/responses-api": {
        "calls": 10,
        "failed": 4,
        "hallucinated": 1,
        "selections": 14,
        "without_pick": 5,
    },
    "ai-sdk-6.0.326/json-generate": {
        "calls": 8,
        "failed": 4,
        "hallucinated": 1,
        "selections": 13,
        "without_pick": 6,
    },
    "langgraph-1.2.24+openinference-instrumentation-langchain-0.1.80": {
        "calls": 8,
        "failed": 4,
        "hallucinated": 1,
        "selections": 11,
        "without_pick": 4,
    },
}
COUNTS = """
select (select count(*) from calls) calls,
       (select count(*) from calls where not ok) failed,
       (select count(*) from calls where name_class in ('unknown', 'near_miss')) hallucinated,
       (select count(*) from selections) selections,
       (select count(*) from selections where n_picks = 0) without_pick
"""


def send(service: Service, files: Sequence[Path]) -> None:
    for file in files:
        if file.name.endswith("-grpc.bin"):
            with grpc.insecure_channel(service.addresses["grpc"]) as channel:
                export = channel.unary_unary(
                    "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
                    request_serializer=bytes,
                    response_deserializer=bytes,
                )
                export(file.read_bytes(), timeout=10)
            continue
        media = "application/json" if file.suffix == ".json" else "application/x-protobuf"
        path = "/v1/logs" if "-logs" in file.name else "/v1/traces"
        answer = service.client.post(path, content=file.read_bytes(), headers={"content-type": media})
        assert answer.status_code == 200, answer.text
    service.refresh()


def requests_of(shared: Path, name: str) -> list[Path]:
    found = sorted(path for path in (shared / "otlp" / name).iterdir() if path.suffix in {".bin", ".json"})
    assert found
    return found


def counts(service: Service) -> dict[str, int]:
    rows: list[dict[str, int]] = pickwise_json("sql", COUNTS, "--data-dir", service.data_dir)
    return rows[0]


def tables(service: Service) -> list[Any]:
    # When and by which request it came, and the digest whose key each installation makes for itself, may differ.
    drop = {"selections": "received_at, source_request", "calls": "received_at, args_digest"}
    return [
        pickwise_json(
            "sql", f"select * exclude ({drop[table]}) from {table} order by {key}", "--data-dir", service.data_dir
        )
        for table, key in (("selections", "event_id"), ("calls", "call_key"))
    ]


@pytest.mark.parametrize("name", RECORDINGS)
def test_recording_tells_its_truth(service: Service, shared: Path, name: str) -> None:
    send(service, requests_of(shared, name))
    assert counts(service) == RECORDINGS[name]
    row = service.metric("hallucinated_tool_rate")
    assert (round(row["value"] * row["n"]), row["n"]) == (RECORDINGS[name]["hallucinated"], RECORDINGS[name]["calls"])


@pytest.mark.parametrize("name", RECORDINGS)
def test_order_and_repetition_change_nothing(
    serve: Callable[..., Service], shared: Path, tmp_path: Path, name: str
) -> None:
    files = requests_of(shared, name)
    orderly = serve("--no-dashboard", "--no-jobs", data_dir=tmp_path / "orderly")
    send(orderly, files)
    once = tables(orderly)
    send(orderly, files)
    assert tables(orderly) == once
    backwards = serve("--no-dashboard", "--no-jobs", data_dir=tmp_path / "backwards")
    send(backwards, files[::-1])
    assert tables(backwards) == once
