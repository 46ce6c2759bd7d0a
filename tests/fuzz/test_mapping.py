"""Every attribute that some mapper reads, holding what nobody expects: no rule fails on it."""

from __future__ import annotations

from typing import Any

import pytest

from collector.mapping import map_log, map_span
from collector.spans import LogRecord, Span, SpanEvent
from pickwise.settings import Settings
from tests.fuzz.otlp import NAMES, RECIPES

SETTINGS = Settings()
ODD: list[Any] = [
    *(None, True, 5, -2.5, "", "x", "[]", "{}", "[1,null,[]]", [], ["a", 1, None], [[]], {}),
    {"name": []},
    {"a": {"b": [1]}},
    '{"name":{},"id":[],"arguments":5}',
    '[{"role":[],"parts":{}},{"role":"assistant","tool_calls":[5,{"function":[]}]}]',
]
#: What makes patterns go back and forth, and parsers go deep.
LONG = [
    *("[" + "1" * 10_000 + "!", "'" + r"\'" * 10_000, '"' + r"\"" * 10_000, "[{" * 10_000, "{'a': " * 10_000),
    *("Tool(name='" * 5_000, "<x: '" * 10_000, "text='" * 10_000, "-" * 10_000, " " * 10_000 + "!", "E(" * 10_000),
    *("[[]," * 300_000 + "[]]", "\n- server_name: x" * 5_000, "Error: Error: " * 5_000, "a." * 10_000),
]
EVENTS = ["exception", "gen_ai.evaluation.result", "pickwise.event", "gen_ai.choice"]
RECORDS = ["", "gen_ai.evaluation.result", "gen_ai.choice", "gen_ai.client.inference.operation.details"]


def span(attributes: dict[str, Any], *events: SpanEvent) -> Span:
    return Span(
        trace_id="1" * 32,
        span_id="1" * 16,
        parent_span_id=None,
        name="execute_tool x",
        kind=1,
        start_ns=1_770_000_000 * 10**9,
        end_ns=1_770_000_001 * 10**9,
        status_code=0,
        status_message="",
        attributes=attributes,
        events=list(events),
        resource={},
        scope_name="",
        scope_version="",
    )


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: next(iter(recipe), "none"))
def test_attributes_of_a_span(recipe: dict[str, str]) -> None:
    for key in {*recipe, *NAMES}:
        for odd in ODD:
            map_span(span(recipe | {key: odd}), SETTINGS)


@pytest.mark.parametrize("text", LONG, ids=lambda text: text[:12].strip())
def test_long_texts_of_nothing(text: str) -> None:
    for recipe in RECIPES:
        for key in recipe:
            map_span(span(recipe | {key: text}), SETTINGS)


@pytest.mark.parametrize("name", EVENTS)
def test_attributes_of_an_event(name: str) -> None:
    for recipe in RECIPES[:2]:
        for key in NAMES:
            for odd in ODD:
                map_span(span(dict(recipe), SpanEvent(name, 5, {key: odd})), SETTINGS)


@pytest.mark.parametrize("name", RECORDS)
def test_a_log_record(name: str) -> None:
    for odd in ODD:
        for attributes in ({}, *({key: odd} for key in NAMES)):
            record = LogRecord(
                trace_id="1" * 32,
                span_id="1" * 16,
                time_ns=5,
                event_name=name,
                body=odd,
                attributes=attributes,
                resource=attributes,
            )
            map_log(record, SETTINGS)
