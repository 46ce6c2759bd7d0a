"""A rule that a span is not shown to would not have known it: marks change nothing but the time that mapping takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.facts import Facts
from collector.mapping import RULES, rules_asked
from collector.mapping import attributes as names
from collector.mapping.openllmetry import _FLATTENED
from collector.mapping.rules import marked, marks_of, rules_for
from collector.otlp import TraceBody
from collector.spans import Span, SpanEvent
from pickwise.settings import Settings
from tests.collector.mapping.spans import START, span
from tests.end_to_end.recordings import names as recordings
from tests.end_to_end.recordings import requests_of

SETTINGS = Settings()
#: What rules look for in a value, and in the name and the scope of a span.
WORDS = [
    *(
        "chat",
        "execute_tool",
        "invoke_agent",
        "retrieval",
        "rerank",
        "tools/call",
        "tools/list",
        "LLM",
        "TOOL",
        "CHAIN",
    ),
    *("AGENT", "RETRIEVER", "RERANKER", "llm", "tool", "retriever", "chain", "task", "workflow", "agent", "completion"),
    *("ai.toolCall", "ai.streamText.doStream", "ai.streamText", "selection", "call", "final_answer", ""),
    *(
        '{"contents": []}',
        '[{"name": "get"}]',
        '[{"role": "user", "content": "hi"}]',
        '{"calling": {}, "tool_string": ""}',
    ),
]
SCOPES = [
    *("", "agent", "autogen-core", "opentelemetry.instrumentation.langchain", "openinference.instrumentation.haystack"),
    *("openinference.instrumentation.smolagents", "openinference.instrumentation.crewai", "langsmith"),
]
#: The names that some rule is marked with, those that rules read, and those of lists that are flattened.
NAMES = [
    *sorted(marks_of(RULES)),
    *(value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)),
    *("llm.tools.0.tool.json_schema", "llm.input_messages.0.message.role", "gen_ai.prompt.0.tool_calls.0.name"),
    *("gen_ai.completion.1.role", "llm.request.functions.0.parameters", "retrieval.documents.0.document.id", "other"),
]
KNOWN_EVENTS = ["pickwise.event", "db.query.result", "db.search.result"]
#: Spans that some rule knows by little.
KNOWN: list[dict[str, Any]] = [
    {},
    {"pickwise.event": "call", "pickwise.skill_id": "get"},
    *({"openinference.span.kind": kind} for kind in ("RETRIEVER", "RERANKER", "LLM", "TOOL", "AGENT")),
    {"openinference.span.kind": "CHAIN", "crew_key": "x"},
    {"openinference.span.kind": "TOOL", "input.value": '{"calling": {}, "tool_string": ""}'},
    {"openinference.span.kind": "TOOL", "tool.name": "final_answer"},
    *({"gen_ai.operation.name": operation} for operation in ("retrieval", "rerank", "chat", "invoke_agent")),
    {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get"},
    {"mcp.method.name": "tools/call"},
    {"mcp.method.name": "tools/list", "gen_ai.tool.definitions": '[{"name": "get"}]'},
    *({"langsmith.span.kind": kind, "gen_ai.prompt": "{}"} for kind in ("llm", "tool", "chain", "retriever")),
    *({"traceloop.span.kind": kind} for kind in ("tool", "workflow", "agent")),
    {"traceloop.span.kind": "task", "traceloop.entity.output": '{"tool_output": "x"}', "tool.name": "get"},
    {"llm.request.type": "chat"},
    *({name: "x"} for name in sorted(_FLATTENED)),
    {"gcp.vertex.agent.llm_request": '{"contents": []}'},
    {"messaging.operation": "process", "message": "{}"},
    *({"ai.operationId": operation} for operation in ("ai.toolCall", "ai.streamText.doStream", "ai.streamText")),
]
VALUES = st.sampled_from(WORDS) | st.integers() | st.none() | st.lists(st.sampled_from(WORDS), max_size=2)
OTHERS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4)
ATTRIBUTES = st.builds(lambda a, b, c: a | b | c, st.sampled_from(KNOWN), st.sampled_from([{}, *KNOWN]), OTHERS)
EVENTS = st.builds(
    SpanEvent,
    st.sampled_from([*sorted(marks_of(RULES)), "exception", "gen_ai.choice"]) | st.sampled_from(KNOWN_EVENTS),
    st.just(START),
    ATTRIBUTES,
)


def unasked(item: Span) -> list[Any]:
    """The rules that a span is not shown to, but that know it."""
    asked = rules_asked(item)
    return [rule for rule in RULES if rule not in asked and rule(item, SETTINGS) is not None]


@settings(max_examples=500, deadline=None)
@given(
    ATTRIBUTES,
    st.lists(EVENTS, max_size=2),
    st.sampled_from(SCOPES),
    st.sampled_from(["POST", "execute_tool get", "tools/call get", "Step 1", ""]),
    st.sampled_from([0, 2]),
)
def test_spans_of_mixed_dialects(
    attributes: dict[str, Any], events: list[SpanEvent], scope: str, name: str, status: int
) -> None:
    item = span(attributes=attributes, events=events, scope_name=scope, name=name, status_code=status)
    assert unasked(item) == []


def test_recorded_spans_and_what_is_left_when_each_attribute_is_away(shared: Path) -> None:
    seen: set[tuple[str, ...]] = set()
    for recording in recordings(shared):
        for request in (request for request in requests_of(shared, recording) if request.signal == "traces"):
            for item in TraceBody(request.body, request.encoding).spans():
                assert unasked(item) == []
                kind = (item.scope_name, *item.attributes)
                if kind in seen:
                    continue
                seen.add(kind)
                for key in [*item.attributes]:
                    item.attributes = {name: value for name, value in item.attributes.items() if name != key}
                    assert unasked(item) == []
    assert len(seen) > 100


def test_most_spans_are_shown_to_no_rule_at_all() -> None:
    assert rules_asked(span(attributes={"http.request.method": "POST", "url.full": "https://x"})) == ()
    assert len(rules_asked(span(attributes={"gen_ai.operation.name": "chat"}))) < 6


def test_rules_stay_in_their_order_and_one_without_marks_is_always_asked() -> None:
    def anything(_span: Span, _settings: Settings) -> Facts | None:
        return None

    @marked("a", "b")
    def first(_span: Span, _settings: Settings) -> Facts | None:
        return None

    @marked("b")
    def second(_span: Span, _settings: Settings) -> Facts | None:
        return None

    rules = (second, anything, first)
    assert marks_of(rules) == {"a", "b"}
    assert rules_for(rules, frozenset({"b"})) == rules
    assert rules_for(rules, frozenset({"a"})) == (anything, first)
    assert rules_for(rules, frozenset()) == (anything,)
