"""The collector's own counters: each declared once, documented, bounded, and true."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from collector.service import Collector
from collector.telemetry import Telemetry
from pickwise.settings import Settings

PAGE = Path(__file__).resolve().parents[2] / "docs/telemetry.md"


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    started = Collector(Settings(data_dir=tmp_path, flush_interval_s=600.0))
    started.start()
    yield started
    started.stop()


def send(collector: Collector, *events: dict[str, Any]) -> None:
    _, future = collector.submit_events(json.dumps(events).encode(), "json", "p")
    if future is not None:
        future.result(10)


def samples(telemetry: Telemetry) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(telemetry.exposition().decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_every_exposed_family_is_documented_with_its_labels(collector: Collector) -> None:
    page = PAGE.read_text()
    declared = {family.name: family for family in collector.telemetry.families}
    assert len(declared) == len(collector.telemetry.families)
    seen = set()
    for family in text_string_to_metric_families(collector.telemetry.exposition().decode()):
        if family.name.endswith("_created"):  # the library's own, when a series began
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert family.type == declared[name].type
        assert f"| `{name}` | {family.type} |" in page
        assert family.documentation == declared[name].meaning
        assert declared[name].meaning in page
        seen.add(name)
    assert seen == set(declared)
    for wanted in declared.values():
        assert all(f"`{label}`: " in page for label in wanted.labels)


def test_names_follow_the_conventions_of_prometheus() -> None:
    for family in Telemetry().families:
        assert family.name.startswith("pickwise_")
        assert family.name.endswith("_total") == (family.type == "counter")
        assert family.type != "histogram" or family.name.endswith("_seconds")
        assert not any(unit in family.name for unit in ("_ms", "_milliseconds", "_kb", "_mb"))


def test_what_is_not_declared_cannot_be_watched() -> None:
    with pytest.raises(ValueError, match="pickwise_unheard_of is not declared"):
        Telemetry().watch("pickwise_unheard_of", lambda: 1.0)


def test_queue_backlog_lag_commits_and_redactions(collector: Collector) -> None:
    before = time.time()
    call = {"type": "call", "skill_id": "s", "arguments": {"to": "Ada", "n": 1}}
    selection = {"type": "selection", "query": "write to ada@example.org", "candidates": [{"skill_id": "s"}]}
    send(collector, call | {"event_id": "a"}, selection | {"event_id": "b"})
    found = samples(collector.telemetry)
    assert found["pickwise_backlog_requests"] == 1
    assert found["pickwise_backlog_bytes"] > 100
    assert found["pickwise_lag_seconds_count"] == 0
    assert before <= found["pickwise_last_accepted_timestamp_seconds"] <= time.time()
    assert collector.refresh(20)
    send(collector, call | {"event_id": "a"})
    assert collector.refresh(20)
    found = samples(collector.telemetry)
    assert found["pickwise_backlog_requests"] == found["pickwise_queue_requests"] == found["pickwise_queue_bytes"] == 0
    assert found["pickwise_lag_seconds_count"] == 2
    assert found["pickwise_commit_seconds_count{table=calls}"] == 1
    assert found["pickwise_commit_seconds_sum{table=calls}"] > 0
    assert found["pickwise_rows_total{table=calls}"] == 1
    assert found["pickwise_duplicates_total{table=calls}"] == 1
    assert found["pickwise_redactions_total{kind=argument}"] >= 2
    assert found["pickwise_redactions_total{kind=email}"] >= 1


def test_refusals_are_counted_by_the_field_that_was_wrong(collector: Collector) -> None:
    send(collector, {"type": "call", "event_id": "x"}, {"type": "call", "skill_id": "s", "time": "soon"}, {"type": "?"})
    span = {"traceId": "12", "spanId": "b7ad6b7169203331", "name": "my secret: expected nothing"}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    parsed, _ = collector.submit_traces(body, "json", "p")
    assert parsed.rejected == 1
    text = collector.telemetry.exposition().decode()
    found = samples(collector.telemetry)
    assert found["pickwise_rejected_fields_total{field=time,kind=events}"] == 1
    assert found["pickwise_rejected_fields_total{field=type,kind=events}"] == 1
    assert found["pickwise_rejected_fields_total{field=traceId,kind=traces}"] == 1
    assert found["pickwise_rejected_total{kind=events}"] == 3
    assert "secret" not in text


def test_what_an_earlier_run_left_does_not_count_as_lag() -> None:
    telemetry = Telemetry()
    assert telemetry.visible(time.time_ns() - 3_600 * 10**9) >= 3_600
    assert samples(telemetry)["pickwise_lag_seconds_count"] == 0
    telemetry.visible(time.time_ns())
    assert samples(telemetry)["pickwise_lag_seconds_count"] == 1


def test_a_compaction_is_counted(tmp_path: Path) -> None:
    collector = Collector(Settings(data_dir=tmp_path, compact_every=1))
    collector.start()
    send(collector, {"type": "call", "skill_id": "s", "event_id": "a"})
    collector.stop()
    assert samples(collector.telemetry)["pickwise_compactions_total{outcome=done,table=calls}"] == 1


def test_a_collector_can_be_started_again(tmp_path: Path) -> None:
    collector = Collector(Settings(data_dir=tmp_path))
    for _ in range(2):
        collector.start()
        send(collector, {"type": "call", "skill_id": "s", "event_id": "a"})
        collector.stop()
    assert samples(collector.telemetry)["pickwise_accepted_total{kind=events}"] == 2
