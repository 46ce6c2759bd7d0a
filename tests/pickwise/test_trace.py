"""What the tracing helper promises, against a real receiver of OpenTelemetry."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from analytics.tables import Tables
from collector.facts import CallFact
from collector.service import Collector
from pickwise.events import Candidate, StageMs
from pickwise.settings import Settings
from pickwise.trace import SelectionTracer, error_kind_of
from tests.pickwise.receiver import OtlpReceiver, otlp_receiver


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as running:
        yield running


@pytest.fixture
def tracer(receiver: OtlpReceiver) -> Iterator[SelectionTracer]:
    made = SelectionTracer(endpoint=receiver.endpoint, agent="bot", model="m-1", environment="prod", release="2.0")
    yield made
    made.shutdown()


def whole_calls(receiver: OtlpReceiver) -> list[CallFact]:
    return [call for call in receiver.facts.calls if call.phase is None]


def test_a_selection_arrives_as_it_was_set(receiver: OtlpReceiver, tracer: SelectionTracer) -> None:
    with tracer.selection("refund order 7", session_id="s1", turn=3) as selection:
        with selection.stage("embed"):
            time.sleep(0.01)
        selection.add_stage("sparse", 1.5)
        selection.offer(
            [Candidate(skill_id="refund", score=0.9, bm25=3.0), {"skill_id": "cancel", "dense": 0.2}, "track"],
            strategy="hybrid",
        )
        selection.pick("refund")
        selection.fall_back("embedding failed")
        selection.set(weights_version="w1", no_match=False)
    assert tracer.flush()
    (event,) = receiver.facts.selections
    assert (event.query, event.session_id, event.turn) == ("refund order 7", "s1", 3)
    assert [candidate.skill_id for candidate in event.candidates] == ["refund", "cancel", "track"]
    assert (event.candidates[0].score, event.candidates[0].bm25, event.candidates[1].dense) == (0.9, 3.0, 0.2)
    assert (event.ranked, event.strategy, event.picks) == (True, "hybrid", ["refund"])
    assert (event.fallback, event.fallback_reason, event.weights_version) == (True, "embedding failed", "w1")
    assert (event.agent, event.model, event.environment, event.release) == ("bot", "m-1", "prod", "2.0")
    assert event.event_id == selection.selection_id
    assert event.stage_ms is not None
    assert event.stage_ms.embed is not None
    assert event.stage_ms.embed >= 10
    assert event.stage_ms.sparse == 1.5
    assert event.stage_ms.total is not None
    assert event.stage_ms.total >= event.stage_ms.embed


def test_picking_nothing_is_told_from_saying_nothing(receiver: OtlpReceiver, tracer: SelectionTracer) -> None:
    with tracer.selection("a") as selection:
        selection.pick()
    with tracer.selection("b"):
        pass
    tracer.flush()
    assert {event.query: event.picks for event in receiver.facts.selections} == {"a": [], "b": None}


def test_a_call_with_phases_is_of_its_selection_and_trace(receiver: OtlpReceiver, tracer: SelectionTracer) -> None:
    with tracer.selection("q", session_id="s") as selection:
        selection.offer(["t"])
    with selection.call("t", arguments={"a": 1}) as call:
        with call.phase("validate"):
            pass
        with call.phase("exec", latency_ms=40.0):
            pass
    tracer.flush()
    (event,) = receiver.facts.selections
    (whole,) = whole_calls(receiver)
    assert (whole.call_id, whole.selection_id, whole.session_id) == (call.call_id, event.event_id, "s")
    assert whole.trace_id == event.trace_id
    assert whole.ok is True
    assert whole.arguments == {"a": 1}
    assert whole.latency_ms is not None
    assert whole.latency_ms >= 40.0
    phases = {fact.phase: fact for fact in receiver.facts.calls if fact.phase is not None}
    assert set(phases) == {"validate", "exec"}
    assert phases["exec"].latency_ms == 40.0
    assert {fact.call_id for fact in receiver.facts.calls} == {call.call_id}


def test_an_exception_marks_the_call_and_its_phase_and_goes_on(receiver: OtlpReceiver, tracer: SelectionTracer) -> None:
    with tracer.selection("q") as selection:
        selection.offer(["t"])
    with pytest.raises(TimeoutError), selection.call("t") as call, call.phase("exec"):
        raise TimeoutError("no answer after 3 s")
    tracer.flush()
    whole, phase = sorted(receiver.facts.calls, key=lambda fact: fact.phase is not None)
    assert (whole.ok, whole.error_kind, whole.error_message) == (False, "timeout", "no answer after 3 s")
    assert (phase.phase, phase.ok, phase.error_kind) == ("exec", False, "timeout")


def test_an_exception_in_the_selection_block_still_sends_it(receiver: OtlpReceiver, tracer: SelectionTracer) -> None:
    with pytest.raises(ZeroDivisionError), tracer.selection("q"):
        raise ZeroDivisionError
    tracer.flush()
    assert len(receiver.facts.selections) == 1


def test_a_tool_that_reports_its_fault(receiver: OtlpReceiver, tracer: SelectionTracer) -> None:
    with tracer.selection("q") as selection:
        selection.offer(["t"])
    with selection.call("t", attempt=2) as call:
        call.fail("rate_limited", "slow down", retryable=True)
    tracer.flush()
    (fact,) = whole_calls(receiver)
    assert (fact.ok, fact.error_kind, fact.retryable, fact.attempt) == (False, "rate_limited", True, 2)


def test_feedback_and_routes(receiver: OtlpReceiver, tracer: SelectionTracer) -> None:
    tracer.feedback("wrong_skill", selection_id="x1", expected=["b"], source="human")
    tracer.feedback("rating", trace_id="ab" * 16, value=4.5)
    tracer.route("router-1", "degraded", reason="p99 420 ms", p99_ms=420.0, error_rate=0.0)
    tracer.flush()
    wrong, rating = receiver.facts.feedback
    assert (wrong.kind, wrong.selection_id, wrong.expected, wrong.source) == ("wrong_skill", "x1", ["b"], "human")
    assert (rating.trace_id, rating.value) == ("ab" * 16, 4.5)
    (route,) = receiver.facts.routes
    assert (route.instance, route.state, route.p99_ms) == ("router-1", "degraded", 420.0)


def test_given_times_are_kept(receiver: OtlpReceiver, tracer: SelectionTracer) -> None:
    then = 1_700_000_000_000_000_000
    with tracer.selection("old", time=then) as selection:
        selection.add_stage("total", 12.0)
        selection.offer(["t"])
    with selection.call("t", time=then + 5_000_000) as call, call.phase("exec", latency_ms=300.0):
        pass
    tracer.flush()
    (event,) = receiver.facts.selections
    (fact,) = whole_calls(receiver)
    assert event.time == then
    assert event.stage_ms == StageMs(total=12.0)
    assert (fact.time, fact.latency_ms) == (then + 5_000_000, 300.0)


def test_the_project_travels(receiver: OtlpReceiver) -> None:
    tracer = SelectionTracer(endpoint=receiver.endpoint, project="shop")
    with tracer.selection("q"):
        pass
    tracer.shutdown()
    assert len(receiver.by_project["shop"].selections) == 1


def test_a_provider_of_the_users_own_is_used() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = SelectionTracer(provider)
    with tracer.selection("q") as selection:
        selection.offer(["t"])
    with selection.call("t"):
        pass
    names = [span.name for span in exporter.get_finished_spans()]
    assert names == ["selection", "call"]


def test_telemetry_faults_never_reach_the_host(
    receiver: OtlpReceiver, tracer: SelectionTracer, caplog: pytest.LogCaptureFixture
) -> None:
    bad: Any = object()
    with caplog.at_level(logging.WARNING), tracer.selection("q", nonsense=1) as selection:
        selection.offer([bad])
        selection.set(turn=bad)
        selection.add_stage("coffee", 1.0)
        with selection.call("t", arguments={"when": bad}, mood="good"):
            pass
    tracer.feedback(bad, value=1.0)
    tracer.flush()
    assert "no field nonsense" in caplog.text
    assert "candidates could not be recorded" in caplog.text
    # What is no JSON travels as text; the call itself is not lost.
    assert len(whole_calls(receiver)) == 1


def test_a_collector_that_is_down_costs_the_host_nothing() -> None:
    tracer = SelectionTracer(endpoint="http://127.0.0.1:9")
    started = time.perf_counter()
    for number in range(200):
        with tracer.selection(f"q{number}") as selection:
            selection.offer(["t"])
    assert time.perf_counter() - started < 2.0


def test_hundreds_of_spans_a_second_all_arrive(receiver: OtlpReceiver, tracer: SelectionTracer) -> None:
    started = time.perf_counter()
    for number in range(1_000):
        with tracer.selection(f"q{number}") as selection:
            selection.offer([Candidate(skill_id=f"s{rank}", score=0.5) for rank in range(8)])
    took = time.perf_counter() - started
    assert tracer.flush(30.0)
    assert len({event.event_id for event in receiver.facts.selections}) == 1_000
    assert took < 5.0


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), "timeout"),
        (PermissionError(), "permission_denied"),
        (KeyboardInterrupt(), "cancelled"),
        (ValueError(), "exception"),
    ],
)
def test_error_kinds(error: BaseException, kind: str) -> None:
    assert error_kind_of(error) == kind


@pytest.mark.parametrize(
    ("status", "kind"), [(404, "http_4xx"), (429, "rate_limited"), (403, "permission_denied"), (503, "http_5xx")]
)
def test_error_kind_by_http_status(status: int, kind: str) -> None:
    request = httpx.Request("GET", "http://x")
    error = httpx.HTTPStatusError("", request=request, response=httpx.Response(status, request=request))
    assert error_kind_of(error) == kind


def test_an_exception_may_name_its_kind() -> None:
    class NamedError(RuntimeError):
        error_kind = "tool_error"

    class OddError(RuntimeError):
        error_kind = "no such kind"

    assert error_kind_of(NamedError()) == "tool_error"
    assert error_kind_of(OddError()) == "exception"


def test_a_call_is_one_row_in_the_tables(tmp_path: Path) -> None:
    """Whole event, two phases and a second attempt fold into one row."""
    provider = TracerProvider()
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = SelectionTracer(provider)
    with tracer.selection("q", session_id="s") as selection:
        selection.offer(["t"])
    with selection.call("t") as first:
        with first.phase("validate", latency_ms=1.0):
            pass
        first.fail("timeout", "slow", retryable=True)
    with selection.call("t", call_id=first.call_id, attempt=2) as second:
        with second.phase("validate", latency_ms=1.0):
            pass
        with second.phase("exec", latency_ms=30.0):
            pass

    body = encode_spans(exporter.get_finished_spans()).SerializeToString()
    collector = Collector(Settings(data_dir=tmp_path, flush_interval_s=0.1))
    collector.start()
    try:
        _, pending = collector.submit_traces(body, "protobuf", "")
        assert pending is not None
        pending.result(10)
        assert collector.refresh(10)
    finally:
        collector.stop()
    (row,) = Tables(tmp_path).sql("select skill_id, ok, attempts, latency_ms, len(phases) as phases from calls")
    assert (row["skill_id"], row["ok"], row["attempts"]) == ("t", True, 2)
    assert row["latency_ms"] >= 30.0
    assert row["phases"] >= 3
    (selected,) = Tables(tmp_path).sql("select query, picks from selections")
    assert selected == {"query": "q", "picks": ["t"]}
