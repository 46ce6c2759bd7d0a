"""What holds for all dialects together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.facts import Facts
from collector.mapping import attributes as names
from collector.mapping import map_logs, map_span, map_traces
from collector.mapping.pickwise import problem
from collector.otlp import parse_traces
from collector.redact import Redactor
from collector.spans import LogRecord, Span, SpanEvent
from pickwise.settings import Settings
from tests.collector.frames_of import to_frames
from tests.collector.mapping.spans import SPAN, START, TRACE, mapped, span

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.tool.definitions": '[{"name": "get"}]'}


class Given(msgspec.Struct):
    """A request that holds these."""

    items: list[Span] = []
    logs: list[LogRecord] = []

    def spans(self) -> Iterator[Span]:
        return iter(self.items)

    def records(self) -> Iterator[LogRecord]:
        return iter(self.logs)


def log(**fields: object) -> LogRecord:
    attributes = {
        "gen_ai.evaluation.name": "relevance",
        "gen_ai.evaluation.score.value": 0.8,
        "gen_ai.evaluation.score.label": "pass",
    }
    given = {"trace_id": TRACE, "span_id": SPAN, "time_ns": START, "event_name": "gen_ai.evaluation.result"}
    return msgspec.convert({**given, "attributes": attributes, "resource": {}, "body": None, **fields}, LogRecord)


def test_the_resource_names_the_project() -> None:
    spans = [span(attributes=CHAT), span(attributes=CHAT, resource={"pickwise.project": "shop"}), span()]
    facts = map_traces(Given(spans), 1, Settings())
    assert {project: len(part.selections) for project, part in facts.items()} == {"": 1, "shop": 1}


def test_an_offer_without_a_time_has_that_of_receipt() -> None:
    facts = map_traces(Given([span(attributes=CHAT, start_ns=0)]), 77, Settings())[""]
    assert (facts.offered_skills[0].time, facts.selections[0].time) == (77, None)


def test_order_and_grouping_of_requests_change_nothing(shared: Path) -> None:
    paths = sorted((shared / "otlp/pydantic-ai-2.68.0/v5").glob("*traces*"))
    bodies = [path.read_bytes() for path in paths]

    def facts_of(order: list[bytes]) -> list[bytes]:
        found = Facts()
        for body in order:
            for part in map_traces(parse_traces(body, "protobuf"), 1, Settings()).values():
                found.extend(part)
        events = [*found.selections, *found.calls]
        return sorted({msgspec.json.encode(event) for event in events})

    expected = facts_of(bodies)
    assert facts_of(bodies[::-1]) == expected
    assert facts_of(bodies + bodies) == expected
    assert facts_of([b"".join(bodies)]) == expected  # concatenated protobuf messages are one request


def test_ids_do_not_collide_among_the_facts_of_one_span(shared: Path) -> None:
    for path in shared.glob("otlp/*/*traces*"):
        for item in parse_traces(path.read_bytes(), "protobuf").spans():
            facts = map_span(item, Settings())
            ids = [event.event_id for event in [*facts.selections, *facts.calls]] if facts else []
            assert len(ids) == len(set(ids))


KEYS = [value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)] + [
    *("pickwise.event", "pickwise.skill_id", "pickwise.intent", "pickwise.intent.domain", "pickwise.candidates"),
    *("llm.tools.0.tool.json_schema", "llm.input_messages.0.message.tool_call_id", "llm.input_messages.0.message.role"),
    *("llm.output_messages.0.message.tool_calls.0.tool_call.function.name", "llm.tools.x", "llm.tools.00"),
]
WORDS = st.sampled_from(
    [
        "chat",
        "execute_tool",
        "tools/call",
        "LLM",
        "TOOL",
        "CHAIN",
        "ai.toolCall",
        "ai.streamText.doStream",
        "call",
        "get",
    ]
)
PARTS = st.sampled_from(
    ["type", "name", "id", "parts", "content", "role", "function", "tool_call_id", "data", "output"]
)
VALUES = st.recursive(
    WORDS | st.text(max_size=5) | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PARTS, inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(KEYS), WORDS | VALUES | VALUES.map(lambda value: json.dumps(value)), max_size=8),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3),
)
def test_no_attribute_stops_a_mapper(attributes: dict[str, Any], others: dict[str, Any]) -> None:
    events = [SpanEvent(name, START, others) for name in ("exception", "pickwise.event", "gen_ai.evaluation.result")]
    item = span(attributes=attributes, events=events, resource=others, status_code=2)
    facts = map_traces(Given([item]), 1, Settings())
    redactor = Redactor(Settings(), b"k" * 32)
    for part in facts.values():
        to_frames("p", part, received_at=1, source_request="r", redactor=redactor)
    problem(item)


def test_an_evaluation_is_feedback() -> None:
    (verdict,) = map_logs(Given(logs=[log()]), 1, Settings())[""].feedback
    selection = mapped(CHAT).selections[0]
    assert (verdict.kind, verdict.value, verdict.source, verdict.annotator) == ("rating", 0.8, "judge", "relevance")
    assert (verdict.selection_id, verdict.trace_id) == (selection.event_id, TRACE)


def test_evaluations_under_older_names_and_without_a_score() -> None:
    older = log(
        event_name="", attributes={"event.name": "gen_ai.evaluation.result", "gen_ai.evaluation.score.label": "fail"}
    )
    empty = log(attributes={"gen_ai.evaluation.name": "x"})
    other = log(event_name="gen_ai.client.inference.operation.details")
    loose = log(trace_id=None, span_id=None, resource={"pickwise.project": "shop"})
    facts = map_logs(Given(logs=[older, empty, other, loose]), 1, Settings())
    assert [verdict.value for verdict in facts[""].feedback] == ["fail"]
    assert [verdict.selection_id for verdict in facts["shop"].feedback] == [None]


def test_an_evaluation_on_a_span_comes_with_what_the_span_says() -> None:
    event = SpanEvent("gen_ai.evaluation.result", START, {"gen_ai.evaluation.score.value": 1})
    facts = mapped(CHAT, events=[event])
    assert (len(facts.selections), len(facts.feedback)) == (1, 1)
    alone = mapped({}, events=[event])
    assert (len(alone.selections), len(alone.feedback)) == (0, 1)
