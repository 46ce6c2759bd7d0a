"""Messages of the usual form come out as the walk through values of any form leaves them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector import protocol_objects as shapes
from collector.redact import Redactor
from collector.redact_messages import redact_message, redact_plain
from collector.redact_values import UserText, ValueRedactor
from pickwise.settings import Settings

_QUERY = "what is it?"
_TEXTS = st.sampled_from(
    [_QUERY, "", "mail bob@example.com", "{no json", '{"role": "user", "content": "inner"}', "[1]", "x" * 600]
) | st.text(max_size=8)
_LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS
)
_KEYS = st.sampled_from(
    ["role", "type", "content", "parts", "id", "name", "arguments", "response", "tool_call_id", "source", "kwargs"]
)
_ROLES = st.sampled_from(["user", "assistant", "tool", "system", "User", "human", "function", "ai", "constructor"])
_TYPES = st.sampled_from(["text", "tool_call", "tool_call_response", "reasoning", "tool_result", "tool_use"])
_ANYTHING = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(_KEYS, inner | _ROLES | _TYPES, max_size=5)
        | st.fixed_dictionaries({"id": st.lists(_ROLES, max_size=2), "kwargs": inner, "type": _TYPES})
        | st.fixed_dictionaries({"source": st.just("user"), "content": inner})
    ),
    max_leaves=12,
)


def _form(fields: dict[str, Any], **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Objects of these fields in any order."""
    made = st.fixed_dictionaries(fields, optional=optional)
    return made.flatmap(lambda found: st.permutations(list(found.items())).map(dict))


_IDS = st.sampled_from(["c1", "c2", "13812345678"]) | _LEAVES
_PARTS = st.one_of(
    _form({"type": st.just("text"), "content": _TEXTS}),
    _form({"type": st.just("text"), "content": _ANYTHING}, name=_LEAVES),
    _form(
        {
            "type": st.just("tool_call"),
            "id": _IDS,
            "name": _TEXTS,
            "arguments": st.dictionaries(st.text(max_size=3), _ANYTHING, max_size=3) | _ANYTHING,
        }
    ),
    _form({"type": st.just("tool_call_response"), "id": _IDS, "response": _ANYTHING}),
    _form({"type": st.just("tool_call_response"), "id": _IDS, "result": _ANYTHING}, name=_TEXTS),
    _form({"type": _TYPES, "content": _TEXTS}),
    _ANYTHING,
)
_MESSAGES = st.one_of(
    _form({"role": st.sampled_from(["user", "assistant", "tool", "system"]), "parts": st.lists(_PARTS, max_size=3)}),
    _form({"role": _ROLES | _LEAVES, "parts": st.lists(_PARTS, max_size=2)}, finish_reason=_TEXTS | _ANYTHING),
    _ANYTHING,
)


def values() -> ValueRedactor:
    found = ValueRedactor(Redactor(Settings(), b"k" * 32))
    found.queries = frozenset([_QUERY])
    return found


def kept(redactor: ValueRedactor, value: Any, role: str) -> Any:
    holder: list[Any] = [None]
    text = UserText()
    redactor.put(holder, 0, value, role, text)
    text.put_back(Redactor(Settings(), b"k" * 32))
    return holder[0]


@settings(max_examples=400, deadline=None)
@given(st.lists(_MESSAGES, max_size=4), st.booleans(), st.sampled_from(["", "user", "tool"]))
def test_as_text_or_as_values_the_same_is_kept(messages: list[Any], is_ascii: bool, role: str) -> None:
    usual, walked = values(), values()
    as_text = kept(usual, json.dumps(messages, ensure_ascii=is_ascii), role)
    assert as_text == msgspec.json.encode(kept(walked, messages, role)).decode()
    assert usual.has_masked_label == walked.has_masked_label


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(_KEYS, _ANYTHING | _ROLES | _TYPES, max_size=6), st.sampled_from(["", "user", "tool"]))
def test_a_frame_that_is_remembered_is_that_of_the_object(value: dict[str, Any], around: str) -> None:
    assert shapes.frame_of(value, around) == shapes._frame(value, around)
    assert shapes.frame_of(value, around) == shapes._frame(value, around)


@settings(max_examples=400, deadline=None)
@given(st.lists(_MESSAGES, max_size=4), st.lists(st.frozensets(_TEXTS, max_size=2), min_size=2, max_size=4))
def test_messages_that_come_again_are_kept_as_if_they_were_new(
    messages: list[Any], queries: list[frozenset[str]]
) -> None:
    remembering = values()
    for index, asked in enumerate(queries):
        walked = values()
        for redactor in (remembering, walked):
            redactor.queries, redactor.has_masked_label = asked, False
        shown = messages[: index + 1] + messages[:index]
        as_text = kept(remembering, json.dumps(shown), "")
        assert as_text == msgspec.json.encode(kept(walked, shown, "")).decode()
        assert remembering.has_masked_label == walked.has_masked_label


def test_a_conversation_repeats_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    redacted = 0

    def counted(*given: Any) -> Any:
        nonlocal redacted
        redacted += 1
        return redact_plain(*given)

    monkeypatch.setattr("collector.redact_values.redact_plain", counted)
    told: list[Any] = []
    redactor = values()
    for turn in range(20):
        told.append({"role": "user", "parts": [{"type": "text", "content": f"question {turn} of bob@example.com"}]})
        told.append({"role": "assistant", "parts": [{"type": "text", "content": f"answer {turn}"}]})
        text = kept(redactor, json.dumps(told), "")
        assert f"question {turn} of [email]" in text
        assert text.count("question") == 1
    assert redacted == len(told)


@pytest.mark.parametrize("text", ['[{"a":1e999}]', '[{"role":"user","parts":[]},{"a":01}]', "[1,", "[" * 5_000])
def test_what_is_no_json_is_described(text: str) -> None:
    assert kept(values(), text, "") == f"string({len(text)})"


def test_the_usual_messages_take_the_short_way() -> None:
    call = {"type": "tool_call", "id": "c", "name": "f", "arguments": {"a": "secret"}}
    usual: list[Any] = [
        {"role": "system", "parts": [{"type": "text", "content": "You are"}]},
        {"role": "user", "parts": [{"content": "hello", "type": "text"}]},
        {"role": "assistant", "parts": [call], "finish_reason": "tool_call"},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": [1]}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "result": "secret"}]},
    ]
    assert all(redact_message(message, values(), UserText()) for message in usual)
    assert [message["parts"][0] for message in usual[2:]] == [
        {"type": "tool_call", "id": "c", "name": "f", "arguments": {"a": "string(6)"}},
        {"type": "tool_call_response", "id": "c", "response": "array(1)"},
        {"type": "tool_call_response", "id": "c", "result": "string(6)"},
    ]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "parts": [{"type": "text", "content": "a result"}]},
        {"role": "tool", "parts": []},
        {"role": "user", "parts": "text"},
        {"role": ["user"], "parts": []},
        {"role": "user", "parts": [], "name": "bob"},
        {"role": "user", "parts": [], "finish_reason": None},
        "user",
    ],
    ids=str,
)
def test_a_message_of_another_form_stays_as_it_is(message: Any) -> None:
    before = json.dumps(message)
    assert not redact_message(message, values(), UserText())
    assert json.dumps(message) == before
