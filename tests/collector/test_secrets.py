"""Nothing secret is kept: planted in every recorded export, looked for in every file of the data folder."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.lake import Lake
from collector.service import Collector
from pickwise.settings import Settings
from tests.collector.disk import holding

#: Known by their form, wherever they stand.
PATTERNED = (
    "planted.person@secret.example",
    "sk-planted0123456789abcdefXYZ",
    "4111 1111 1111 1111",
    "planted-bearer-0123456789",
    "hunter2-planted",
)
_TEXT = (
    f"write to {PATTERNED[0]}, key {PATTERNED[1]}, card {PATTERNED[2]}, Authorization: Bearer {PATTERNED[3]},"
    f" password: {PATTERNED[4]} thanks"
)
#: Known by nothing but their place: the value of an argument.
ARGUMENT = "Kryptonopolisville"
_ARGUMENTS = {"args", "arguments", "tool_arguments", "tool_call_args", "call_args"}
#: What these hold are arguments where it is a flat object.
_INPUTS = {"input", "input.value", "value", "kwargs"}
#: Flat objects with one of these are calls, messages or tasks.
_OTHER = frozenset({"content", "id", "name", "task", "tool_call_id", "type"})


def _planted(key: str, value: Any, in_arguments: bool = False) -> Any:
    """A decoded JSON value with secrets in its texts and in the values of arguments."""
    in_arguments = in_arguments or _holds_arguments(key, value)
    if isinstance(value, dict):
        return {name: _planted(name, item, in_arguments) for name, item in value.items()}
    if isinstance(value, list):
        return [_planted(key, item, in_arguments) for item in value]
    if not isinstance(value, str):
        return value
    if value[:1] in ("{", "["):
        try:
            return json.dumps(_planted(key, json.loads(value), in_arguments))
        except ValueError:
            pass
    if in_arguments:
        return value if key == "tool_call_id" else ARGUMENT
    return f"{value} {_TEXT}" if " " in value and value not in _PLACEHOLDERS else value


#: Values of labels that look like text.
_PLACEHOLDERS = {"(merged tools)", "<not specified>"}


def _holds_arguments(key: str, value: Any) -> bool:
    name = key.rpartition(".")[2]
    if name in _ARGUMENTS or key in _ARGUMENTS:
        return True
    if isinstance(value, str) and value[:1] == "{":
        with suppress(ValueError):
            value = json.loads(value)
    flat = isinstance(value, dict) and not any(isinstance(item, dict | list) for item in value.values())
    return flat and (key in _INPUTS or name in _INPUTS) and _OTHER.isdisjoint(value)


def _plant(key: str, value: str) -> str:
    planted: str = _planted(key, value)
    return planted


def _values(attributes: Iterable[Any]) -> None:
    """Plant into OTLP attributes in their JSON form, in place."""
    for attribute in attributes:
        _any_value(attribute["key"], attribute.get("value", {}))


def _any_value(key: str, value: dict[str, Any]) -> None:
    if "stringValue" in value:
        value["stringValue"] = _plant(key, value["stringValue"])
    for item in value.get("arrayValue", {}).get("values", []):
        _any_value(key, item)
    for item in value.get("kvlistValue", {}).get("values", []):
        inner = item["key"] if key.rpartition(".")[2] not in _ARGUMENTS else "arguments"
        _any_value(inner, item.get("value", {}))


def planted(body: bytes, name: str) -> tuple[bytes, str]:
    """A recorded request with secrets in it, as OTLP/JSON, and which of the two ways it goes."""
    kind = "logs" if "-logs" in name else "traces"
    message = ExportLogsServiceRequest() if kind == "logs" else ExportTraceServiceRequest()
    document: dict[str, Any]
    if name.endswith(".json"):
        document = json.loads(body)
    else:
        message.ParseFromString(body)
        document = json_format.MessageToDict(message)
        _hex_ids(document)
    for scopes in document.get("resourceSpans", document.get("resourceLogs", [])):
        for scope in scopes.get("scopeSpans", scopes.get("scopeLogs", [])):
            for item in scope.get("spans", scope.get("logRecords", [])):
                _values(item.get("attributes", []))
                for event in item.get("events", []):
                    _values(event.get("attributes", []))
                if "message" in item.get("status", {}):
                    item["status"]["message"] += f" {_TEXT}"
                _any_value("body", item.get("body", {}))
    return json.dumps(document).encode(), kind


def _hex_ids(value: Any) -> None:
    """Protobuf's own JSON has ids in base64, OTLP's in hex."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("traceId", "spanId", "parentSpanId") and isinstance(item, str):
                value[key] = base64.b64decode(item).hex()
            else:
                _hex_ids(item)
    elif isinstance(value, list):
        for item in value:
            _hex_ids(item)


def _send(collector: Collector, body: bytes, kind: str) -> None:
    submit: Callable[..., Any] = collector.submit_logs if kind == "logs" else collector.submit_traces
    parsed, future = submit(body, "json", "")
    assert not parsed.rejected, parsed.message
    if future is not None:
        future.result(20)


def test_no_planted_secret_is_on_the_disk_after_the_commit(shared: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    collector = Collector(Settings(data_dir=data_dir))
    collector.start()
    sent = 0
    try:
        for file in sorted((shared / "otlp").rglob("*")):
            if file.suffix in (".bin", ".json"):
                body, kind = planted(file.read_bytes(), file.name)
                sent += body.count(PATTERNED[0].encode()) + body.count(ARGUMENT.encode())
                _send(collector, body, kind)
        assert collector.refresh(60)
    finally:
        collector.stop()
    assert sent > 3_000
    assert Lake(data_dir).read("selections").height > 300
    assert any((data_dir / "archive").rglob("*.zst"))
    assert not (data_dir / "rejected").exists()
    assert holding(data_dir, *PATTERNED, ARGUMENT) == {}


@pytest.mark.parametrize(
    "event",
    [
        {"type": "selection", "event_id": "s", "query": f"please {_TEXT}", "fallback_reason": f"because {_TEXT}"},
        {"type": "call", "event_id": "c", "skill_id": "s", "arguments": {"city": ARGUMENT, "n": [ARGUMENT]}},
        {"type": "call", "event_id": "e", "skill_id": "s", "error_message": f"failed: {_TEXT}", "ok": False},
        {"type": "feedback", "event_id": "f", "kind": "label", "value": f"wrong, {_TEXT}"},
        {"type": "route", "event_id": "r", "instance": "i", "state": "degraded", "reason": f"slow: {_TEXT}"},
    ],
    ids=lambda event: str(event["type"]),
)
def test_native_events_keep_no_secret_either(tmp_path: Path, event: dict[str, Any]) -> None:
    collector = Collector(Settings(data_dir=tmp_path))
    collector.start()
    _, future = collector.submit_events(json.dumps(event).encode(), "json", "p")
    assert future is not None
    future.result(20)
    assert collector.refresh(20)
    collector.stop()
    assert holding(tmp_path, *PATTERNED, ARGUMENT) == {}
    assert holding(tmp_path, str(event["event_id"]))


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    """The test above is worth something: where nothing is redacted, it finds the words in the packed files."""
    collector = Collector(Settings(data_dir=tmp_path))
    collector.start()
    event = {"type": "selection", "event_id": "s", "query": "an innocent word", "session_id": "session-of-someone"}
    _, future = collector.submit_events(json.dumps(event).encode(), "json", "p")
    assert future is not None
    future.result(20)
    assert collector.refresh(20)
    collector.stop()
    assert set(holding(tmp_path, "an innocent word", "session-of-someone")) == {
        "an innocent word",
        "session-of-someone",
    }
