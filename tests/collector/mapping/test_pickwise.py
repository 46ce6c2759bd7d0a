"""Events of ours on spans and span events."""

from __future__ import annotations

from collector.mapping import map_span
from collector.mapping.pickwise import problem
from collector.spans import SpanEvent
from pickwise.attributes import to_attributes
from pickwise.events import Call, Candidate, Feedback, Route, Selection
from pickwise.settings import Settings
from tests.collector.mapping.spans import SPAN, START, TRACE, mapped, only_call, span


def test_a_span_completes_what_its_event_leaves_out() -> None:
    resource = {"deployment.environment.name": "production", "service.version": "2"}
    call = only_call(dict(to_attributes(Call(skill_id="get", ok=True))), resource=resource)
    assert (call.role, call.trace_id, call.span_id, call.time, call.latency_ms) == ("run", TRACE, SPAN, START, 5.0)
    assert (call.environment, call.release, call.event_id) == ("production", "2", None)


def test_what_the_event_says_holds() -> None:
    event = Call(skill_id="get", time="2026-01-01T00:00:00Z", latency_ms=1.0, trace_id="a" * 32, environment="test")
    call = only_call(dict(to_attributes(event)), resource={"deployment.environment.name": "production"})
    assert (call.time, call.latency_ms, call.trace_id, call.environment) == (event.time, 1.0, "a" * 32, "test")


def test_several_events_on_one_span() -> None:
    events = [
        Selection(query="q", candidates=[Candidate(skill_id="a", score=1.0)], ranked=True, event_id="s1"),
        Call(skill_id="a", phase="validate", ok=True),
        Call(skill_id="a", phase="exec", latency_ms=3.0),
        Feedback(kind="accepted", selection_id="s1"),
        Route(instance="i", state="degraded"),
    ]
    carried = [SpanEvent("pickwise.event", START + i, dict(to_attributes(event))) for i, event in enumerate(events)]
    facts = mapped({}, events=[*carried, SpanEvent("other", START, {"pickwise.event": "call"})])
    assert (len(facts.selections), len(facts.calls), len(facts.feedback), len(facts.routes)) == (1, 2, 1, 1)
    assert facts.selections[0].candidates[0].score == 1.0
    assert facts.selections[0].ranked is True
    assert [(call.time, call.latency_ms) for call in facts.calls] == [(START + 1, None), (START + 2, 3.0)]


def test_our_attributes_come_before_other_conventions() -> None:
    attributes = dict(to_attributes(Selection(query="ours"))) | {"gen_ai.operation.name": "chat"}
    assert mapped(attributes).selections[0].query == "ours"


def test_a_problem_names_the_field() -> None:
    assert problem(span(attributes={"pickwise.event": "call"})) is not None
    assert "pickwise.type: expected one of" in str(problem(span(attributes={"pickwise.event": "nonsense"})))
    assert "pickwise.type" in str(problem(span(attributes={"pickwise.event": ["call"]})))
    mixed = {"pickwise.event": "selection", "pickwise.intent": "x", "pickwise.intent.domain": "d"}
    assert problem(span(attributes=mixed)) is None
    assert problem(span(attributes={"gen_ai.operation.name": "chat"})) is None
    assert map_span(span(attributes={}), Settings()) is None
