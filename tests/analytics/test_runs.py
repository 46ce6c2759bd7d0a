"""Agent runs told as one: what they add to the turns of their trace, and when they are selections themselves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analytics.conftest import Fact, House, at, fact, moment

TRACE = "a" * 32
MENU = [{"skill_id": "search"}, {"skill_id": "fetch"}]


def turn(event_id: str, seconds: float, **fields: Any) -> tuple[str, Fact]:
    base = {"type": "selection", "event_id": event_id, "time": at(seconds), "trace_id": TRACE, "ranked": False}
    return fact(base | fields)


def run(
    event_id: str, seconds: float, ended: float | None = None, parent: str | None = None, **fields: Any
) -> tuple[str, Fact]:
    """A run that is not asked for more is the whole trace's, without a menu."""
    base = {"type": "selection", "event_id": event_id, "time": at(seconds), "trace_id": TRACE, "ranked": False}
    span: dict[str, Any] = {"ended_at": None if ended is None else moment(ended), "parent_span_id": parent}
    return fact(base | fields, role="run", **span)


def call(event_id: str, seconds: float, skill_id: str = "search", role: str = "run", **fields: Any) -> tuple[str, Fact]:
    wire = {name: fields.pop(name) for name in ("ordinal", "parent_span_id") if name in fields}
    base = {"type": "call", "event_id": event_id, "time": at(seconds), "skill_id": skill_id, "trace_id": TRACE}
    return fact(base | fields, role=role, **wire)


def selected(house: House) -> list[str]:
    return [row["event_id"] for row in house.rows("select event_id from selections order by time, event_id")]


def test_a_run_fills_what_the_turns_of_its_trace_leave_out(house: House) -> None:
    house.write(
        run("r", 0, 9, query="the user's words", session_id="z", agent="a", environment="production", release="1"),
        turn("t1", 1, candidates=MENU, model="m"),
        turn("t2", 2, candidates=MENU, query="its own", agent="b"),
        turn("elsewhere", 2, candidates=MENU, trace_id="b" * 32),
    )
    found = {row["event_id"]: row for row in house.rows("select * from selections")}
    assert set(found) == {"t1", "t2", "elsewhere"}
    names = ("query", "session_id", "agent", "model", "environment", "release")
    assert [found["t1"][name] for name in names] == ["the user's words", "z", "a", "m", "production", "1"]
    assert [found["t2"][name] for name in names] == ["its own", "z", "b", None, "production", "1"]
    assert [found["elsewhere"][name] for name in names] == [None] * 6


def test_of_several_runs_the_newest_before_a_turn_tells_else_the_oldest_after_it(house: House) -> None:
    house.write(
        run("r1", 2, query="first"),
        run("r2", 4, query="second", session_id="z"),
        run("r3", 6, agent="late"),
        *(turn(f"t{second}", second, candidates=MENU) for second in (1, 2, 3, 5, 7)),
    )
    found = house.rows("select query, session_id, agent from selections order by time")
    assert [row["query"] for row in found] == ["first", "first", "first", "second", "second"]
    assert {row["session_id"] for row in found} == {"z"}
    assert {row["agent"] for row in found} == {"late"}


def test_of_runs_that_begin_at_once_the_inner_one_tells(house: House) -> None:
    house.write(
        run("inner", 0, 5, query="inner"),
        run("outer", 0, 9, query="outer", session_id="z"),
        turn("t", 1, candidates=MENU),
    )
    found = house.row("select query, session_id from selections")
    assert (found["query"], found["session_id"]) == ("inner", "z")


def test_a_query_of_a_run_that_was_cut_stays_flagged(house: House) -> None:
    house.write(turn("t1", 1), turn("t2", 2, query="short"))
    table, row = run("r", 0, query="long")
    house.write((table, row | {"truncated": True}))
    found = house.rows("select truncated from selections order by time")
    assert [row["truncated"] for row in found] == [True, False]


def test_calls_without_a_selection_take_session_and_agent_from_the_runs_of_their_trace(house: House) -> None:
    house.write(
        run("r", 0, session_id="z", agent="a", model="m", environment="production", release="1"),
        call("c1", 1, ok=True),
        call("c2", 1, agent="b", session_id="y"),
        call("c3", 1, trace_id="b" * 32),
    )
    assert selected(house) == []
    found = {row["event_id"]: row for row in house.rows("select * from calls")}
    names = ("selection_id", "session_id", "agent", "model", "environment", "release")
    assert [found["c1"][name] for name in names] == [None, "z", "a", "m", "production", "1"]
    assert [found["c2"][name] for name in names] == [None, "y", "b", "m", "production", "1"]
    assert [found["c3"][name] for name in names] == [None] * 6


def test_a_session_that_only_a_run_tells_finds_the_selection_of_a_call(house: House) -> None:
    house.write(
        run("r1", 0, session_id="z"),
        turn("t", 1, candidates=MENU),
        run("r2", 2, session_id="z", trace_id="b" * 32),
        call("c", 3, trace_id="b" * 32),
    )
    assert house.row("select selection_id from calls")["selection_id"] == "t"


def test_a_run_with_a_menu_is_a_selection_where_no_turn_is_told(house: House) -> None:
    house.write(
        run("r", 0, 9, candidates=MENU, query="q", session_id="z"),
        call("p", 0, "search", "propose", call_id="k1", selection_id="r", ordinal=0),
        call("p2", 0, "teleport", "propose", call_id="k2", selection_id="r", ordinal=1),
        call("c", 3, call_id="k1", ok=True),
        call("d", 4, "stray", ok=True),
    )
    found = house.row("select * from selections")
    assert (found["event_id"], found["query"], found["n_candidates"], found["ranked"]) == ("r", "q", 2, False)
    assert (found["picks"], found["closing"]) == (["search", "teleport", "stray"], False)
    calls = {row["skill_id"]: row for row in house.rows("select * from calls")}
    assert {row["selection_id"] for row in calls.values()} == {"r"}
    assert {row["session_id"] for row in calls.values()} == {"z"}
    assert [(calls[s]["ok"], calls[s]["off_list"]) for s in ("search", "teleport", "stray")] == [
        (True, False),
        (False, True),
        (True, True),
    ]
    assert calls["teleport"]["error_kind"] == "not_found"
    assert [calls[s]["name_class"] for s in ("search", "teleport", "stray")] == ["known", "unknown", "unknown"]


def test_a_run_is_no_selection_beside_a_turn_or_without_a_menu(house: House) -> None:
    house.write(run("r1", 0, candidates=MENU), turn("t", 5), run("r2", 0, trace_id="b" * 32))
    assert selected(house) == ["t"]
    assert house.row("select n_candidates from selections")["n_candidates"] == 0


def test_an_event_told_as_a_turn_and_as_a_run_is_a_turn(house: House) -> None:
    house.write(run("t", 0, query="q"), turn("t", 0, candidates=MENU))
    assert selected(house) == ["t"]
    assert house.row("select query from selections")["query"] == "q"


def test_of_runs_around_each_other_the_inner_one_is_the_selection(house: House) -> None:
    house.write(
        run("workflow", 0, 9, candidates=MENU, query="q", span_id="1" * 16),
        run("task", 1, 8, candidates=MENU, session_id="z", span_id="2" * 16, parent="1" * 16),
        run("agent", 2, 7, candidates=MENU, agent="a"),
    )
    found = house.row("select * from selections")
    assert [found[name] for name in ("event_id", "query", "session_id", "agent")] == ["agent", "q", "z", "a"]


def test_one_run_told_twice_is_one_selection_the_better_informed(house: House) -> None:
    house.write(run("b", 0, 9, candidates=MENU, query="q"), run("a", 0, 9, candidates=MENU))
    assert selected(house) == ["b"]


def test_runs_after_each_other_are_selections_each_with_its_own_calls(house: House) -> None:
    house.write(
        run("crew", 0, 9, candidates=[*MENU, {"skill_id": "mail"}], span_id="1" * 16),
        run("r1", 1, 3, candidates=MENU, query="one"),
        run("r2", 4, 6, candidates=MENU, query="two"),
        call("c1", 2),
        call("c2", 5),
    )
    assert selected(house) == ["r1", "r2"]
    found = house.rows("select event_id, selection_id from calls order by event_id")
    assert [row["selection_id"] for row in found] == ["r1", "r2"]


@pytest.mark.parametrize(
    "second",
    [
        {"parent": "f" * 16},  # siblings
        {"parent": "1" * 16},  # the same agent with another query
    ],
    ids=["siblings", "same agent"],
)
def test_runs_beside_each_other_are_selections_each(house: House, second: dict[str, Any]) -> None:
    house.write(
        run("r1", 0, 9, "f" * 16, candidates=MENU, query="one", agent="a"),
        run("r2", 1, 8, candidates=MENU, query="two", agent="a", **second),
    )
    assert selected(house) == ["r1", "r2"]


def test_parallel_workflows_give_way_to_their_own_runs(house: House) -> None:
    house.write(
        run("w1", 0, 9, "f" * 16, candidates=MENU, span_id="1" * 16),
        run("w2", 0.1, 8, "f" * 16, candidates=MENU, span_id="2" * 16),
        run("a1", 0.2, 8.5, "1" * 16, candidates=MENU),
        run("a2", 0.3, 7, "2" * 16, candidates=MENU),
    )
    assert selected(house) == ["a1", "a2"]


def test_a_run_whose_own_skill_was_called_stays(house: House) -> None:
    orchestrator = run("outer", 0, 9, candidates=[{"skill_id": "delegate"}, *MENU])
    house.write(orchestrator, run("inner", 2, 8, candidates=MENU))
    assert selected(house) == ["inner"]
    house.write(call("c1", 1, "delegate"), call("c2", 3))
    assert selected(house) == ["outer", "inner"]
    found = house.rows("select selection_id from calls order by started_at")
    assert [row["selection_id"] for row in found] == ["outer", "inner"]


def test_runs_with_nothing_in_common_are_selections_each(house: House) -> None:
    house.write(run("outer", 0, 9, candidates=[{"skill_id": "delegate"}]), run("inner", 2, 8, candidates=MENU))
    assert selected(house) == ["outer", "inner"]


def test_a_run_without_a_trace_stands_alone(house: House) -> None:
    house.write(
        run("r1", 0, candidates=MENU, trace_id=None),
        run("r2", 0, candidates=MENU, trace_id=None),
        turn("t", 0, trace_id=None),
    )
    assert selected(house) == ["r1", "r2", "t"]


# --- Calls that a run retells although it is no selection.


def calls_of(house: House) -> list[tuple[Any, ...]]:
    found = house.rows("select call_id, skill_id, selection_id, ok from calls order by started_at, call_id, skill_id")
    return [tuple(row.values()) for row in found]


def test_retold_calls_are_the_calls_of_their_turns(house: House) -> None:
    house.write(
        run("r", 0, 9, candidates=MENU),
        turn("t1", 1, candidates=MENU),
        turn("t2", 4, candidates=MENU),
        call("p1", 1, "search", "propose", call_id="k", selection_id="t1", ordinal=0),
        call("p2", 4, "fetch", "propose", call_id="k", selection_id="t2", ordinal=0),  # ids are reused
        call("c1", 2, "search", call_id="k", ok=True),
        call("c2", 5, "fetch", call_id="k", ok=False),
        call("r1", 0, "search", "propose", call_id="k", selection_id="r", ordinal=0, arguments={"q": 1}),
        call("r2", 0, "fetch", "propose", call_id="k", selection_id="r", ordinal=1, arguments={"u": 2}),
    )
    assert calls_of(house) == [("k", "search", "t1", True), ("k", "fetch", "t2", False)]
    assert [row["args_keys"] for row in house.rows("select args_keys from calls order by started_at")] == [["q"], ["u"]]
    assert house.rows("select picks, closing from selections order by time") == [
        {"picks": ["search"], "closing": False},
        {"picks": ["fetch"], "closing": False},
    ]


def test_retold_calls_without_ids_are_those_with_their_arguments_then_by_order(house: House) -> None:
    house.write(
        run("r", 0, 9),
        turn("t1", 1, candidates=MENU),
        turn("t2", 4, candidates=MENU),
        call("c1", 2, ok=True, arguments={"q": 1}),
        call("c2", 5, ok=True, arguments={"q": 2}),
        call("c3", 6, ok=True),
        call("r0", 0, "search", "propose", selection_id="r", ordinal=0, arguments={"q": 2}),
        call("r1", 0, "search", "propose", selection_id="r", ordinal=1, arguments={"q": 1}),
        call("r2", 0, "search", "propose", selection_id="r", ordinal=2, arguments={"q": 3}),
        call("r3", 0, "fetch", "propose", selection_id="r", ordinal=3),
    )
    assert calls_of(house) == [
        (None, "fetch", "t1", None),  # what nothing else tells of: the first turn after its run began
        (None, "search", "t1", True),
        (None, "search", "t2", True),
        (None, "search", "t2", True),
    ]
    found = house.rows("select event_id, arguments from calls where skill_id = 'search' order by started_at")
    assert [row["arguments"] for row in found] == ['{"q": 1}', '{"q": 2}', '{"q": 3}']


def test_retold_calls_with_ids_are_runs_without(house: House) -> None:
    house.write(
        run("r", 0, 9),
        turn("t", 1, candidates=MENU),
        turn("t2", 3, candidates=MENU),
        call("c", 4, ok=True),
        call("p", 0, "search", "propose", call_id="k", selection_id="r", ordinal=0),
        call("p2", 0, "nothing", "propose", call_id="k2", selection_id="r", ordinal=1),
        call("a2", 3, "nothing", "answer", call_id="k2", ok=False, error_kind="not_found"),
    )
    assert calls_of(house) == [("k2", "nothing", "t", False), ("k", "search", "t2", True)]


def test_runs_around_each_other_retell_the_same_calls(house: House) -> None:
    lists = [
        call(f"{source}{n}", start, "search", "propose", call_id=call_id, selection_id=source, ordinal=n)
        for source, start in (("outer", 0), ("middle", 1), ("inner", 2))
        for n, call_id in enumerate(("k", None, None))
    ]
    house.write(
        run("outer", 0, 9, candidates=MENU),
        run("middle", 1, 8, candidates=MENU),
        run("inner", 2, 7, candidates=MENU),
        *lists,
    )
    assert calls_of(house) == [("k", "search", "inner", None)] + [(None, "search", "inner", None)] * 2
    house.write(turn("t", 3, candidates=MENU))  # now all three are retold
    assert calls_of(house) == [("k", "search", "t", None)] + [(None, "search", "t", None)] * 2


def test_calls_that_each_agent_retells_are_found_within_its_run(house: House) -> None:
    house.write(
        run("r1", 0, 3),
        run("r2", 4, 9),
        turn("t1", 1, candidates=MENU),
        turn("t2", 5, candidates=MENU),
        call("c1", 2, ok=True),
        call("c2", 6, ok=False),
        call("p2", 4, "search", "propose", selection_id="r2", ordinal=0, arguments={"q": 2}),
        call("p1", 0, "search", "propose", selection_id="r1", ordinal=0, arguments={"q": 1}),
    )
    found = house.rows("select event_id, arguments from calls order by started_at")
    assert [tuple(row.values()) for row in found] == [("c1", '{"q": 1}'), ("c2", '{"q": 2}')]


def test_a_verdict_on_a_run_that_is_no_selection_is_one_on_its_trace(house: House) -> None:
    verdict = {"type": "feedback", "kind": "rating", "value": 1, "time": at(9), "trace_id": TRACE}
    house.write(run("r", 0, 9), turn("t", 1, candidates=MENU, picks=["search"]))
    house.write(fact(verdict | {"event_id": "f", "selection_id": "r"}))
    found = house.row("select selection_id, target_selection_id from feedback")
    assert tuple(found.values()) == ("r", "t")


def test_without_any_run_the_views_for_runs_are_left_out_and_nothing_else_differs(house: House) -> None:
    facts = [
        turn("t1", 1, candidates=MENU, session_id="z"),
        call("p1", 1, "search", "propose", call_id="k", selection_id="t1", ordinal=0),
        call("c1", 2, call_id="k", ok=True),
        call("c2", 3, "stray"),
        turn("t2", 4, candidates=MENU),
    ]
    house.write(*facts)
    tables = ("selections", "candidates", "calls", "skills")
    before = {table: house.rows(f"from {table} order by all") for table in tables}
    table, row = run("r", 0, candidates=MENU, trace_id="b" * 32)
    house.write((table, row | {"project": "other"}))
    after = {table: house.rows(f"from {table} where project = 'default' order by all") for table in tables}
    assert after == before
    assert house.row("select event_id from selections where project = 'other'")["event_id"] == "r"


def offered(house: House) -> dict[str, list[str]]:
    return {
        row["event_id"]: row["menu"]
        for row in house.rows(
            "select s.event_id, list(c.skill_id order by c.rank) filter (c.skill_id is not null) as menu"
            " from selections s left join candidates c using (project, event_id) group by all"
        )
    }


def test_turns_take_the_menu_that_only_their_run_tells(house: House) -> None:
    house.write(
        run("r", 0, 9, candidates=MENU),
        turn("within", 1),
        turn("after", 20),
        turn("elsewhere", 1, trace_id="b" * 32),
    )
    assert offered(house) == {"within": ["search", "fetch"], "after": None, "elsewhere": None}


def test_a_turn_that_tells_its_menu_tells_it_for_its_trace(house: House) -> None:
    house.write(run("r", 0, 9, candidates=MENU), turn("told", 1, candidates=MENU[:1]), turn("untold", 2))
    assert offered(house) == {"told": ["search"], "untold": None}


def test_runs_that_disagree_offer_turns_nothing(house: House) -> None:
    house.write(run("r", 0, 9, candidates=MENU), run("inner", 1, 8, candidates=MENU[:1]), turn("t", 2))
    assert offered(house) == {"t": None}


def test_no_call_is_off_a_list_that_nobody_told(house: House) -> None:
    house.write(
        turn("untold", 1),
        turn("nothing offered", 2, ranked=True),
        turn("told", 3, candidates=MENU),
        *(
            call(f"c {of}", 4, "other", role="run", selection_id=of, trace_id=None)
            for of in ("untold", "nothing offered", "told")
        ),
    )
    rows = house.rows("select selection_id, off_list from calls")
    assert {row["selection_id"]: row["off_list"] for row in rows} == {
        "untold": None,
        "nothing offered": True,
        "told": True,
    }
