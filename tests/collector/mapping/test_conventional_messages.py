"""Messages just as the conventions have them are read by a reader of their own: the same as the general one reads."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.mapping.conversation import ToolCall, ToolResult
from collector.mapping.genai_events import messages

TEXTS = st.one_of(st.text(max_size=6), st.sampled_from(['{"error":"x"}', '{"isError":true}', "", '[{"a":1}]']))
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_call", "tool_call_response", "reasoning"])},
    optional={
        "content": TEXTS,
        "id": st.one_of(st.none(), TEXTS, st.just("<not specified>")),
        "name": st.one_of(st.none(), TEXTS),
        "arguments": st.one_of(st.none(), TEXTS, st.dictionaries(st.text(max_size=2), st.integers())),
        "response": st.one_of(st.none(), TEXTS, st.integers()),
        "is_error": st.booleans(),
        "error": st.one_of(st.none(), st.booleans(), TEXTS),
        "invalid": st.one_of(st.none(), TEXTS),
    },
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "weird"]), "parts": st.lists(PARTS, max_size=3)},
    optional={"finish_reason": st.one_of(st.none(), TEXTS), "content": TEXTS},
)


@settings(max_examples=1000, deadline=None)
@given(st.lists(MESSAGES, max_size=3))
def test_text_and_structure_are_read_alike(given_messages: list[dict[str, Any]]) -> None:
    # As structured values they take the general way.
    assert _told(json.dumps(given_messages)) == _told(given_messages)


def _told(value: Any) -> list[tuple[Any, ...]]:
    return [(m.role, m.text, *map(_plain, m.calls), *map(_plain, m.results)) for m in messages(value, "user")]


def _plain(told: ToolCall | ToolResult) -> tuple[str, dict[str, Any]]:
    kind = "call" if isinstance(told, ToolCall) else "result"
    return kind, msgspec.structs.asdict(told)


def test_the_usual_turn() -> None:
    call = {"type": "tool_call", "id": "c1", "name": "get", "arguments": {"a": 1}}
    answer = {"type": "tool_call_response", "id": "c1", "response": "12 rooms"}
    asked, called, answered = messages(
        json.dumps(
            [
                {"role": "user", "parts": [{"type": "text", "content": "hi"}, {"type": "text", "content": "there"}]},
                {"role": "assistant", "parts": [call], "finish_reason": "tool_call"},
                {"role": "tool", "parts": [answer]},
            ]
        ),
        "user",
    )
    assert (asked.role, asked.text) == ("user", "hi\nthere")
    assert [(c.name, c.call_id, c.arguments) for c in called.calls] == [("get", "c1", {"a": 1})]
    assert [(r.call_id, r.error) for r in answered.results] == [("c1", None)]
