"""Implicit feedback: asking again, and calling again with other arguments."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from analytics.implicit import _jaccard, derive, similarity
from tests.analytics.conftest import House, at, moment


def ask(seconds: float, query: str | None, session: str = "s", **fields: Any) -> dict[str, Any]:
    base = {"type": "selection", "event_id": f"{session}{seconds}", "time": at(seconds), "session_id": session}
    return base | {"query": query, "ranked": True, "candidates": [{"skill_id": "a"}], "picks": ["a"]} | fields


def call(seconds: float, keys: Sequence[str], ok: bool = True, **fields: Any) -> dict[str, Any]:
    base = {"type": "call", "event_id": f"c{seconds}", "time": at(seconds), "session_id": "s", "skill_id": "a"}
    return (
        base | {"ok": ok, "args_keys": list(keys), "latency_ms": 10.0, "error_kind": None if ok else "timeout"} | fields
    )


def told(house: House, start: float = -3600, end: float = 86_400) -> list[tuple[str, str | None]]:
    frame = derive(house.connect(), "default", moment(start), moment(end), moment(end))
    return sorted((row["kind"], row["selection_id"]) for row in frame.iter_rows(named=True))


@pytest.mark.parametrize(
    ("first", "second", "seconds", "expected"),
    [
        ("what's the weather in Paris tomorrow", "weather forecast Paris for tomorrow please", 60, True),
        ("帮我查一下明天北京的天气", "明天北京天气怎么样", 60, True),
        ("what's the weather in Paris tomorrow", "book me a flight to Tokyo", 60, False),
        ("what's the weather in Paris tomorrow", "what's the weather in Paris tomorrow", 120, True),
        ("what's the weather in Paris tomorrow", "what's the weather in Paris tomorrow", 121, False),
    ],
)
def test_asking_the_same_again_soon(house: House, first: str, second: str, seconds: float, expected: bool) -> None:
    house.events(ask(0, first), ask(seconds, second))
    assert told(house) == ([("reasked", "s0")] if expected else [])


@pytest.mark.parametrize("query", [None, "", "hash:0123456789abcdef0123456789abcdef"])
def test_a_query_that_was_not_kept_is_left_out(house: House, query: str | None) -> None:
    house.events(ask(0, query), ask(10, query))
    assert told(house) == []


def test_another_session_asks_for_itself(house: House) -> None:
    house.events(ask(0, "weather in Paris", "s"), ask(10, "weather in Paris", "t"))
    assert told(house) == []


def test_the_decisions_of_one_trace_are_one_turn(house: House) -> None:
    trace = {"trace_id": "a" * 32}
    # An agent that searches three times for one user, and the user's next turn.
    house.events(ask(0, "weather in Paris", **trace), ask(5, "weather in Paris today", **trace))
    house.events(ask(10, "weather in Paris", picks=[], **trace))
    assert told(house) == []
    house.events(ask(60, "weather in Paris", trace_id="b" * 32))
    # It is about the last decision that picked something.
    assert told(house) == [("reasked", "s5")]


def test_a_conversation_in_one_trace_still_has_turns(house: House) -> None:
    shared: dict[str, Any] = {"trace_id": "a" * 32, "ranked": False}
    house.events(ask(0, "weather in Paris", **shared), ask(5, "weather in Paris", **shared))
    house.events(ask(60, "weather in Paris now", **shared))
    assert told(house) == [("reasked", "s5")]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (call(0, ["q"]), call(10, ["q", "limit"]), True),
        (call(0, ["q"]), call(10, ["q"]), False),
        (call(0, ["q"], ok=False), call(10, ["q", "limit"]), False),
        (call(0, ["q"]), call(10, ["q", "limit"], skill_id="b"), False),
        (call(0, ["q"]), call(10, ["q", "limit"], session_id="t"), False),
        # Side by side: it began before the first one ended.
        (call(0, ["q"], latency_ms=20_000.0), call(10, ["q", "limit"]), False),
        (call(0, ["q"], selection_id="x"), call(10, ["q", "limit"], selection_id="x"), False),
    ],
)
def test_calling_again_with_other_arguments(
    house: House, first: dict[str, Any], second: dict[str, Any], expected: bool
) -> None:
    house.events(first, second)
    assert [kind for kind, _ in told(house)] == (["arguments_edited"] if expected else [])


def test_rows_are_complete_and_derived_once(house: House) -> None:
    house.events(
        ask(0, "weather in Paris", agent="g", model="m", environment="production"), ask(30, "weather in Paris")
    )
    rows = derive(house.connect(), "default", moment(-60), moment(60), moment(60))
    (row,) = rows.to_dicts()
    expected = {"source": "implicit", "kind": "reasked", "selection_id": "s0", "session_id": "s", "agent": "g"}
    assert {name: row[name] for name in expected} == expected
    assert row["time"] == moment(30)
    house.lake.append("feedback", rows)
    assert told(house) == []
    assert house.row("select target_selection_id, source from feedback") == {
        "target_selection_id": "s0",
        "source": "implicit",
    }
    assert house.row("select count(*) as n from feedback")["n"] == 1


def test_midnight_splits_no_pair(house: House) -> None:
    house.events(ask(43_190, "weather in Paris"), ask(43_210, "weather in Paris"))
    midnight = moment(43_200)
    assert derive(house.connect(), "default", midnight - timedelta(days=1), midnight, midnight).height == 0
    assert derive(house.connect(), "default", midnight, midnight + timedelta(days=1), midnight).height == 1


def test_without_an_embedder_terms_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "torch":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    same: NDArray[np.bool_] = similarity("not-installed")(
        [("weather in Paris tomorrow", "tomorrow's weather, Paris"), ("weather in Paris", "cancel my order")]
    )
    assert same.tolist() == [True, False]


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_share_of_terms_is_symmetric_and_a_fraction(first: str, second: str) -> None:
    assert 0 <= _jaccard(first, second) == _jaccard(second, first) <= 1
