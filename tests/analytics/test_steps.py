"""Steps: turns that only their run tells of. They stand where their trace has no turn, and give way to one."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from tests.analytics.conftest import Fact, House, at, fact, moment

TRACE = "a" * 32
MENU = [{"skill_id": "search"}, {"skill_id": "fetch"}]
OTHER = [{"skill_id": "mail"}]
SPAN = "1" * 16


def selection(role: str | None, event_id: str, seconds: float, **fields: Any) -> tuple[str, Fact]:
    wire = {"parent_span_id": fields.pop("parent", None)}
    if "ended" in fields:
        wire["ended_at"] = moment(fields.pop("ended"))
    base = {"type": "selection", "event_id": event_id, "time": at(seconds), "trace_id": TRACE, "ranked": False}
    return fact(base | {"strategy": "llm_direct"} | fields, role=role, **wire)


def turn(event_id: str, seconds: float, **fields: Any) -> tuple[str, Fact]:
    return selection(None, event_id, seconds, **fields)


def step(event_id: str, seconds: float, **fields: Any) -> tuple[str, Fact]:
    return selection("step", event_id, seconds, **fields)


def run(event_id: str, seconds: float, **fields: Any) -> tuple[str, Fact]:
    return selection("run", event_id, seconds, **fields)


def call(event_id: str, seconds: float, skill_id: str = "search", role: str = "run", **fields: Any) -> tuple[str, Fact]:
    ordinal = {"ordinal": fields.pop("ordinal", None)}
    base = {"type": "call", "event_id": event_id, "time": at(seconds), "skill_id": skill_id, "trace_id": TRACE}
    return fact(base | fields, role=role, **ordinal)


def proposal(event_id: str, seconds: float, selection_id: str, **fields: Any) -> tuple[str, Fact]:
    return call(event_id, seconds, role="propose", selection_id=selection_id, **{"ordinal": 0} | fields)


def selected(house: House) -> list[str]:
    return [row["event_id"] for row in house.rows("select event_id from selections order by time, event_id")]


def test_steps_are_selections_where_their_trace_tells_of_no_turn(house: House) -> None:
    house.write(step("s1", 0, candidates=MENU), step("s2", 1, candidates=MENU), run("r", 0, candidates=MENU, ended=9))
    assert selected(house) == ["s1", "s2"]
    house.write(turn("t", 5, candidates=MENU))
    assert selected(house) == ["t"]


def test_a_step_that_several_spans_tell_is_one(house: House) -> None:
    house.write(
        step("s", 0, candidates=MENU, span_id=SPAN),
        step("s", 1, candidates=MENU, span_id="2" * 16, agent="a", parent=SPAN),
        proposal("p", 0, "s", call_id="k", span_id=SPAN),
        proposal("p", 1, "s", call_id="k", span_id="2" * 16),
    )
    found = house.row("select event_id, agent, time, picks from selections")
    assert (found["event_id"], found["agent"], found["picks"]) == ("s", "a", ["search"])
    assert found["time"].isoformat() == moment(0).isoformat()
    assert len(house.rows("select * from calls")) == 1


def test_the_run_around_a_step_tells_what_was_offered_and_asked(house: House) -> None:
    house.write(
        run("outer", 0, candidates=MENU, span_id=SPAN, query="all", agent="lead", ended=9),
        run("inner", 1, candidates=OTHER, span_id="2" * 16, query="part", agent="aide", ended=3),
        step("s1", 0.5, parent=SPAN),
        step("s2", 2, parent="2" * 16),
        step("s3", 4, parent=SPAN),
    )
    found = house.rows("select event_id, n_candidates, query, agent from selections order by time")
    assert [tuple(row.values()) for row in found] == [
        ("s1", 2, "all", "lead"),
        ("s2", 1, "part", "aide"),
        ("s3", 2, "all", "lead"),
    ]


def test_the_runs_of_a_trace_tell_it_where_they_agree(house: House) -> None:
    house.write(run("r1", 0, candidates=MENU), run("r2", 1, candidates=MENU), run("r3", 1), step("s", 2))
    assert house.row("select n_candidates from selections")["n_candidates"] == 2
    house.write(run("r4", 3, candidates=OTHER))
    # The runs are all that tells of an offer now.
    assert "s" not in selected(house)
    house.write(proposal("p", 2, "s"))
    assert selected(house) == ["s"]
    assert house.row("select n_candidates from selections")["n_candidates"] == 0


def test_a_step_without_offer_and_call_is_no_selection(house: House) -> None:
    house.write(step("s", 0))
    assert selected(house) == []


@pytest.mark.parametrize("order", [*permutations(range(4))][::5])
def test_runs_without_ids_are_the_calls_of_the_steps_with_their_arguments_then_in_order(
    house: House, order: tuple[int, ...]
) -> None:
    """When each step was the run does not tell, so any of its steps may have made a call."""
    facts = [
        proposal("p1", 0, "s1", call_id="k1", arguments={"q": 1}),
        proposal("p2", 0.001, "s2", call_id="k2", arguments={"q": 2}),
        call("c1", 3, arguments={"q": 1}, ok=False),
        call("c2", 4, arguments={"q": 3}, ok=True),
    ]
    house.write(
        step("s1", 0, candidates=MENU),
        step("s2", 0.001, candidates=MENU),
        step("s3", 9, candidates=MENU),
        *(facts[place] for place in order),
    )
    found = house.rows("select call_id, selection_id, ok from calls order by call_id")
    assert [tuple(row.values()) for row in found] == [("k1", "s1", False), ("k2", "s2", True)]
    assert house.rows("select picks, closing from selections order by time") == [
        {"picks": ["search"], "closing": False},
        {"picks": ["search"], "closing": False},
        {"picks": [], "closing": True},
    ]


def test_the_result_of_a_call_without_an_id_is_known_by_its_place(house: House) -> None:
    house.write(
        step("s", 0, candidates=MENU),
        proposal("p0", 0, "s"),
        proposal("p1", 0, "s", ordinal=1),
        call("a1", 5, role="answer", selection_id="s", ordinal=1, ok=False, error_kind="timeout"),
        call("a0", 5, role="answer", selection_id="s", ordinal=0, ok=True),
    )
    found = house.rows("select ordinal, ok, error_kind from calls order by ordinal")
    assert [tuple(row.values()) for row in found] == [(0, True, None), (1, False, "timeout")]


def test_such_a_result_says_nothing_of_the_calls_of_turns(house: House) -> None:
    house.write(
        step("s", 0, candidates=MENU),
        turn("t", 1, candidates=MENU),
        proposal("p", 0, "s"),
        proposal("q", 1, "t", call_id="k"),
        call("a", 5, role="answer", selection_id="s", ordinal=0, ok=False),
    )
    assert house.rows("select call_id, ok from calls") == [{"call_id": "k", "ok": None}]


def test_a_refusal_without_a_name_is_that_of_the_only_call_that_did_not_run(house: House) -> None:
    house.write(
        turn("t", 0, candidates=MENU),
        proposal("p0", 0, "t", call_id="k0"),
        proposal("p1", 0, "t", call_id="k1", skill_id="fetch", ordinal=1),
        call("c", 1, ok=True),
    )
    # The wire's own events have names; a span's may not know it.
    table, row = call("a", 2, role="answer", ok=False, error_kind="invalid_arguments")
    house.write((table, row | {"skill_id": ""}))
    found = house.rows("select call_id, skill_id, ok, error_kind from calls order by call_id")
    assert [tuple(row.values()) for row in found] == [
        ("k0", "search", True, None),
        ("k1", "fetch", False, "invalid_arguments"),
    ]


def test_a_refusal_that_may_be_of_several_calls_is_of_none(house: House) -> None:
    table, row = call("a", 2, role="answer", ok=False)
    house.write(
        turn("t", 0, candidates=MENU),
        proposal("p0", 0, "t", call_id="k0"),
        proposal("p1", 0, "t", call_id="k1", skill_id="fetch", ordinal=1),
        (table, row | {"skill_id": ""}),
    )
    assert {row["ok"] for row in house.rows("select ok from calls")} == {None}
