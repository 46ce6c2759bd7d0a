"""Searches by router tools count once, and calls through proxy tools belong to the search that they came from."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.analytics.conftest import Fact, House, at, entry, fact

TRACE = "a" * 32
FOUND = [{"skill_id": "mail/send"}, {"skill_id": "mail/read"}]


def search(
    event_id: str, seconds: float, query: str = "mail", role: str | None = None, **fields: Any
) -> tuple[str, Fact]:
    event = {
        "type": "selection",
        "event_id": event_id,
        "time": at(seconds),
        "trace_id": TRACE,
        "query": query,
        "candidates": FOUND,
        "ranked": True,
        "strategy": "dense",
    }
    wire = {name: fields.pop(name) for name in ("ended_at", "parent_span_id") if name in fields}
    return fact(event | fields, role=role, **wire)


def call(event_id: str, seconds: float, role: str, skill_id: str = "mail/send", **fields: Any) -> tuple[str, Fact]:
    event = {"type": "call", "event_id": event_id, "time": at(seconds), "skill_id": skill_id, "trace_id": TRACE}
    wire = {"role": role, "parent_span_id": fields.pop("parent_span_id", None)}
    return fact(event | fields, **wire)


def timed(milliseconds: float) -> dict[str, Any]:
    return {"stage_ms": {"total": milliseconds}}


def searches(house: House) -> list[str]:
    return [row["event_id"] for row in house.rows("select event_id from selections order by time, event_id")]


def test_a_run_without_an_id_is_the_search_that_a_later_prompt_quotes(house: House) -> None:
    house.write(
        search("run-1", 0, role="search", **timed(500)),
        search("quote-1", 2),
        search("run-2", 10, role="search", **timed(500)),
        search("quote-2", 12),
    )
    assert searches(house) == ["quote-1", "quote-2"]
    times = house.rows(
        "select (time - timestamptz '2026-03-02 12:00:00+00')::varchar t, stage_ms.total ms from selections order by 1"
    )
    assert [row["ms"] for row in times] == [500, 500]
    assert [row["t"] for row in times] == ["00:00:00", "00:00:10"]


def test_a_run_without_an_id_is_the_one_around_it(house: House) -> None:
    house.write(
        search("first", 0, **timed(500)),
        search("inner", 0.1, role="search", **timed(300)),
        search("second", 10, **timed(500)),
        search("inner-2", 10.1, role="search", **timed(300)),
    )
    assert searches(house) == ["first", "second"]


def test_runs_within_each_other_are_one_search(house: House) -> None:
    house.write(
        search("server", 0.2, role="search", ended_at=None, **timed(100)),
        search("client", 0, role="search", **timed(500)),
    )
    # Without an end nothing is within another.
    assert searches(house) == ["client", "server"]


@pytest.mark.parametrize("order", range(3))
def test_runs_within_each_other_by_their_ends(house: House, order: int) -> None:
    from tests.analytics.conftest import moment

    facts = [
        search("client", 0, role="search", ended_at=moment(0.5), **timed(500)),
        search("send", 0.1, role="search", ended_at=moment(0.4), **timed(300)),
        search("server", 0.2, role="search", ended_at=moment(0.3), **timed(100)),
        search("again", 9, role="search", ended_at=moment(9.5), **timed(500)),
    ]
    random.Random(order).shuffle(facts)
    house.write(*facts)
    assert searches(house) == ["client", "again"]


def test_other_queries_and_model_turns_are_left_alone(house: House) -> None:
    house.write(
        search("run", 0, role="search", **timed(500)),
        search("other", 1, "post"),
        search("turn", 1, strategy="llm_direct", ranked=False),
    )
    assert searches(house) == ["run", "other", "turn"]


def test_spans_within_a_routers_run_are_no_calls(house: House) -> None:
    house.write(
        search("s", 0, **timed(500)),
        call("route", 0, "search", "mcp__x__route", span_id="1" * 16),
        call("client", 0.1, "run", "route", span_id="2" * 16, parent_span_id="1" * 16, ok=True),
        call("server", 0.2, "run", "route", span_id="3" * 16, parent_span_id="2" * 16, ok=True),
        call("helper", 0.2, "run", "embed", span_id="4" * 16, parent_span_id="2" * 16, ok=True),
        call("own", 0.2, "run", "route", span_id="5" * 16, parent_span_id="2" * 16, ok=True, arguments={"a": 1}),
        call("far", 0.2, "run", "route", span_id="6" * 16, ok=True),
    )
    rows = house.rows("select event_id from calls order by event_id")
    assert [row["event_id"] for row in rows] == ["far", "helper", "own"]


def test_what_goes_through_a_proxy_belongs_to_the_selection_of_its_proposal(house: House) -> None:
    house.write(
        entry("mail/send"),
        search("s1", 0),
        call("p", 2, "propose", call_id="k", arguments={"to": "Ada"}),
        # A search beside it finds the same skill before the call runs and before its answer is quoted.
        search("s2", 3),
        call("r", 4, "run", call_id="k", ok=True, arguments={"to": "Ada"}),
        call("a", 6, "answer", call_id="k", ok=True),
    )
    assert house.rows("select selection_id, ok, skill_id from calls") == [
        {"selection_id": "s1", "ok": True, "skill_id": "mail/send"}
    ]


def test_an_id_that_is_used_again_goes_with_its_own_proposal(house: House) -> None:
    house.write(
        search("s1", 0),
        call("p1", 1, "propose", call_id="k"),
        call("r1", 2, "run", call_id="k", ok=True),
        search("s2", 3),
        call("p2", 4, "propose", call_id="k"),
        call("a1", 4, "answer", call_id="k", ok=True),
        call("r2", 5, "run", call_id="k", ok=False),
    )
    rows = house.rows("select selection_id, ok from calls order by selection_id")
    assert rows == [{"selection_id": "s1", "ok": True}, {"selection_id": "s2", "ok": False}]


def test_who_saw_no_arguments_knows_the_proxys_name_only(house: House) -> None:
    house.write(
        search("s", 0),
        call("r", 2, "run", call_id="k", span_id="1" * 16, ok=True, arguments={"to": "Ada"}),
        call("inner", 2, "run", "a-proxy-with-a-long-name", span_id="2" * 16, parent_span_id="1" * 16, ok=True),
    )
    assert house.rows("select skill_id, off_list from calls") == [{"skill_id": "mail/send", "off_list": False}]
