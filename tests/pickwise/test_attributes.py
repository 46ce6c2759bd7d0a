"""Events survive the way through attributes, whatever they hold."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pickwise.attributes import EVENT, from_attributes, to_attributes
from pickwise.events import Call, Candidate, Event, Feedback, Intent, Route, Selection, Shadow, StageMs, decode_event

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30)
NAME = TEXT.filter(bool)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


COMMON = {
    "event_id": maybe(NAME),
    "time": maybe(st.integers(1, 2**62)),
    "trace_id": maybe(st.just("0af7651916cd43dd8448eb211c80319c")),
    "session_id": maybe(TEXT),
    "agent": maybe(TEXT),
}
SELECTIONS = st.builds(
    Selection,
    **COMMON,
    turn=maybe(st.integers(0, 99)),
    query=maybe(TEXT),
    candidates=st.lists(st.builds(Candidate, skill_id=NAME, score=maybe(NUMBER), source=maybe(TEXT)), max_size=4),
    ranked=maybe(st.booleans()),
    picks=maybe(st.lists(NAME, max_size=3)),
    intent=maybe(st.builds(Intent, domain=NAME, action=maybe(TEXT))),
    stage_ms=maybe(st.builds(StageMs, embed=NUMBER, total=maybe(NUMBER))),
    shadow=maybe(st.builds(Shadow, embedding_version=NAME, skill_ids=st.lists(TEXT, max_size=3))),
)
CALLS = st.builds(
    Call,
    **COMMON,
    skill_id=NAME,
    ok=maybe(st.booleans()),
    latency_ms=maybe(NUMBER),
    arguments=JSON,
    args_keys=maybe(st.lists(TEXT, max_size=3)),
)
FEEDBACK = st.builds(
    Feedback,
    **COMMON,
    kind=st.just("rating"),
    value=maybe(st.booleans() | NUMBER | TEXT),
    expected=maybe(st.lists(NAME, max_size=2)),
)
ROUTES = st.builds(Route, **COMMON, instance=TEXT, state=st.just("probe"), p99_ms=maybe(NUMBER))


@settings(deadline=None)
@given(SELECTIONS | CALLS | FEEDBACK | ROUTES)
def test_an_event_comes_back_as_it_went(event: Event) -> None:
    raw = from_attributes(dict(to_attributes(event)))
    assert raw is not None
    decoded, unknown = decode_event(raw)
    assert msgspec.to_builtins(decoded) == msgspec.to_builtins(event)
    assert unknown == 0


def test_the_forms_on_the_wire() -> None:
    event = Selection(
        query="cheap flights",
        candidates=[Candidate(skill_id="search", score=0.5)],
        picks=[],
        stage_ms=StageMs(embed=4.0),
        shadow=Shadow(skill_ids=["a", "b"]),
    )
    attributes = to_attributes(event)
    assert attributes["pickwise.event"] == "selection"
    assert attributes["pickwise.stage_ms.embed"] == 4.0
    assert attributes["pickwise.shadow.skill_ids"] == ["a", "b"]
    assert attributes["pickwise.picks"] == []  # given, and none: not the same as absent
    assert isinstance(attributes["pickwise.candidates"], str)
    assert "pickwise.ranked" not in attributes


def test_a_real_span_takes_every_form() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    event = Call(skill_id="search", arguments={"q": ["x", 1]}, args_keys=["q"], ok=True)
    with provider.get_tracer("t").start_as_current_span("call", attributes=to_attributes(event)):
        pass
    (span,) = exporter.get_finished_spans()
    raw = from_attributes(dict(span.attributes or {}))
    assert raw is not None
    assert decode_event(raw)[0] == event


@pytest.mark.parametrize("attributes", [{}, {"gen_ai.tool.name": "x"}, {"pickwise.query": "no type"}])
def test_attributes_of_others_are_no_event(attributes: dict[str, Any]) -> None:
    assert from_attributes(attributes) is None


def test_unknown_fields_stay_to_be_counted() -> None:
    raw = from_attributes({EVENT: "call", "pickwise.skill_id": "s", "pickwise.mood": "good", "other": 1})
    assert raw is not None
    assert decode_event(raw)[1] == 1
