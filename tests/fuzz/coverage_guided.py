"""The doors under Atheris, which keeps inputs that reach new lines: ``python -m tests.fuzz.coverage_guided SECONDS``.

Atheris is not among the development tools, as it has wheels for some versions of Python on Linux only: `pip install
atheris` first.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]  # only where it is installed
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

with atheris.instrument_imports(include=["collector", "pickwise"]):
    from collector.body import TooLarge
    from collector.events_in import BodyError, parse_events
    from pickwise.events import EVENT_TYPES
    from tests.fuzz.otlp import RECIPES, as_json
    from tests.fuzz.test_doors import check_otlp, tables


def look_at(data: bytes) -> None:
    """The first byte chooses the door."""
    door, body = data[:1], data[1:]
    match door[0] % 6 if door else 0:
        case 0:
            check_otlp("traces", body, "protobuf")
        case 1:
            check_otlp("traces", body, "json")
        case 2:
            check_otlp("logs", body, "protobuf")
        case 3:
            check_otlp("logs", body, "json")
        case number:
            layout: Any = "json" if number == 4 else "ndjson"
            try:
                parse_events(body, layout)
            except (BodyError, TooLarge):
                return
            tables("events", layout, body)


def seeds() -> Iterator[bytes]:
    """Requests to begin with, each behind the byte of its door: one of every kind of span that is mapped."""
    for number, recipe in enumerate(RECIPES):
        pairs = [KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in recipe.items()]
        request = ExportTraceServiceRequest()
        span = request.resource_spans.add().scope_spans.add().spans.add(attributes=pairs, name="x")
        span.trace_id, span.span_id, span.start_time_unix_nano = b"\1" * 16, b"\2" * 8, 1_770_000_000 * 10**9
        yield b"\0" + request.SerializeToString()
        yield b"\1" + json.dumps(as_json(request)).encode()
        logs = ExportLogsServiceRequest()
        record = logs.resource_logs.add().scope_logs.add().log_records.add(attributes=pairs)
        record.event_name = "gen_ai.evaluation.result" if number % 2 else "gen_ai.choice"
        yield b"\2" + logs.SerializeToString()
        yield b"\3" + json.dumps(as_json(logs)).encode()
    for name in EVENT_TYPES:
        event = {"type": name, "skill_id": "a", "kind": "label", "instance": "i", "state": "probe"}
        yield b"\4" + json.dumps([event]).encode()
        yield b"\5" + json.dumps(event).encode()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds()):
            (Path(folder) / str(number)).write_bytes(seed)
        limits = [f"-max_total_time={sys.argv[1]}", "-max_len=4096", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *limits, folder], look_at)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
