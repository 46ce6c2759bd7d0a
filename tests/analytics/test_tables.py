"""Facts fold into rows: how, and that the order of their arrival never matters."""

from __future__ import annotations

import random
import re
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics.tables import PUBLIC, SqlError, Tables
from tests.analytics.conftest import NOON, Fact, House, at, entry, fact, moment, read_events
from tests.analytics.fact_worlds import WORLDS, in_projects

SELECTION = {"type": "selection", "event_id": "s1", "time": at(0), "trace_id": "a" * 32, "session_id": "z"}
MENU = [{"skill_id": "search"}, {"skill_id": "fetch"}]


def call(event_id: str, seconds: float, skill_id: str = "search", **fields: Any) -> dict[str, Any]:
    base = {"type": "call", "event_id": event_id, "time": at(seconds), "skill_id": skill_id, "trace_id": "a" * 32}
    return base | fields


def test_an_absent_lake_has_every_table_empty(house: House) -> None:
    for table in PUBLIC:
        assert house.rows(f"select project, time from {table}") == []


def test_the_docs_list_every_table_and_column(house: House) -> None:
    text = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()
    documented = {
        section.split("\n", 1)[0].strip(): [
            (name, kind) for name, kind in re.findall(r"^\| `(\w+)` \| ([A-Z\[\]]+) \|", section, re.MULTILINE)
        ]
        for section in text.split("\n## ")[1:]
    }
    assert set(documented) == set(PUBLIC)
    for table in PUBLIC:
        shape = [(row["column_name"], _kind(row["column_type"])) for row in house.rows(f"describe {table}")]
        assert documented[table] == shape, table


def _kind(duck: str) -> str:
    if duck.startswith("STRUCT"):
        return "STRUCT[]" if duck.endswith("[]") else "STRUCT"
    return {"TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ"}.get(duck, duck)


def test_a_value_beats_null_and_the_longer_the_shorter(house: House) -> None:
    house.events(
        SELECTION | {"query": "weather", "model": "m"},
        SELECTION | {"query": "weather in Rome", "candidates": MENU, "stage_ms": {"embed": 3.0}},
        SELECTION | {"stage_ms": {"rerank": 9.0}, "fallback": True},
    )
    found = house.row("select * from selections")
    assert found["query"] == "weather in Rome"
    assert (found["model"], found["n_candidates"], found["fallback"]) == ("m", 2, True)
    assert (found["stage_ms"]["embed"], found["stage_ms"]["rerank"]) == (3.0, 9.0)


def test_projects_do_not_mix(house: House) -> None:
    odd = "a b/c=d%20'天气"
    house.events(SELECTION).events(SELECTION | {"query": "theirs"}, project=odd)
    assert {row["project"]: row["query"] for row in house.rows("select project, query from selections")} == {
        "default": None,
        odd: "theirs",
    }


@pytest.mark.parametrize(
    ("fields", "ranked"),
    [
        ({"candidates": MENU}, False),
        ({"candidates": [{"skill_id": "a", "bm25": 0.0}]}, True),
        ({"candidates": MENU, "strategy": "dense"}, True),
        ({"candidates": MENU, "strategy": "llm_direct"}, False),
        ({"candidates": [{"skill_id": "a", "score": 1.0}], "ranked": False}, False),
    ],
)
def test_ranked_is_told_by_scores_or_by_a_retrieval(house: House, fields: dict[str, Any], ranked: bool) -> None:
    house.events(SELECTION | fields)
    assert house.row("select ranked from selections")["ranked"] is ranked


def test_picks_given_hold_and_absent_come_from_the_calls_in_order(house: House) -> None:
    house.events(
        SELECTION | {"candidates": MENU},
        SELECTION | {"event_id": "s2", "candidates": MENU, "picks": []},
        call("c1", 3, "fetch", selection_id="s1"),
        call("c2", 2, "search", selection_id="s1"),
        call("c3", 4, "fetch", selection_id="s1"),
        call("c4", 4, "other", selection_id="s1"),
        call("c5", 5, "search", selection_id="s2"),
    )
    found = {row["event_id"]: row for row in house.rows("select * from selections")}
    assert found["s1"]["picks"] == ["search", "fetch", "other"]
    assert found["s1"]["listed_picks"] == ["search", "fetch"]
    assert found["s2"]["picks"] == []


def test_candidates_are_ranked_picked_and_skipped(house: House) -> None:
    listed = [{"skill_id": s, "score": 1.0} for s in ("a", "b", "a", "c", "d")]
    house.events(SELECTION | {"candidates": listed, "picks": ["c"]})
    found = house.rows("select skill_id, rank, picked, skipped from candidates order by rank")
    assert [tuple(row.values()) for row in found] == [
        ("a", 1, False, True),
        ("b", 2, False, True),
        ("c", 4, True, False),
        ("d", 5, False, False),
    ]
    assert house.row("select n_candidates from selections")["n_candidates"] == 4


def test_an_unranked_order_has_no_skips(house: House) -> None:
    house.events(SELECTION | {"candidates": MENU, "picks": ["fetch"]})
    assert {row["skipped"] for row in house.rows("select skipped from candidates")} == {None}


def test_a_final_answer_closes_its_turn(house: House) -> None:
    house.events(
        SELECTION | {"candidates": MENU},
        call("c1", 1, selection_id="s1"),
        SELECTION | {"event_id": "s2", "time": at(2), "candidates": MENU},
        SELECTION | {"event_id": "s3", "time": at(2), "candidates": MENU, "ranked": True},
        SELECTION | {"event_id": "s4", "time": at(2), "candidates": MENU, "trace_id": "b" * 32},
    )
    found = house.rows("select event_id from selections where closing")
    assert [row["event_id"] for row in found] == ["s2"]


def test_without_a_trace_nothing_is_a_final_answer(house: House) -> None:
    house.events(
        SELECTION | {"trace_id": None, "candidates": MENU},
        call("c1", 1, trace_id=None, session_id="z"),
        SELECTION | {"event_id": "s2", "time": at(2), "trace_id": None, "candidates": MENU},
    )
    assert house.rows("select event_id from selections where closing") == []


def test_a_call_finds_the_selection_that_names_its_id_before_the_one_that_offers_its_skill(house: House) -> None:
    house.events(
        SELECTION | {"candidates": MENU},
        SELECTION | {"event_id": "s2", "time": at(5), "candidates": MENU},
        call("run1", 6, call_id="k1"),
        call("run2", 7, call_id="k2"),
        call("run3", 4),
    )
    house.write(fact(call("p1", 1, call_id="k1", selection_id="s1"), role="propose", ordinal=0))
    found = {row["event_id"]: row["selection_id"] for row in house.rows("select event_id, selection_id from calls")}
    assert found == {"run1": "s1", "run2": "s2", "run3": "s1"}


def test_a_reused_call_id_belongs_to_the_newest_selection_that_named_it(house: House) -> None:
    house.events(SELECTION, SELECTION | {"event_id": "s2", "time": at(10)})
    house.write(
        fact(call("p1", 0, call_id="k", selection_id="s1"), role="propose"),
        fact(call("p2", 10, call_id="k", selection_id="s2"), role="propose"),
        fact(call("r1", 1, call_id="k", ok=True), role="run"),
        fact(call("r2", 11, call_id="k", ok=False), role="run"),
        # The second turn's prompt quotes the first turn's result: same instant, same id.
        fact(call("a1", 10, call_id="k", ok=True), role="answer"),
    )
    found = house.rows("select selection_id, ok, len(phases) as facts from calls order by started_at")
    assert [tuple(row.values()) for row in found] == [("s1", True, 3), ("s2", False, 2)]


def test_without_an_offer_it_is_an_off_list_pick_of_the_newest_selection(house: House) -> None:
    house.events(
        SELECTION | {"candidates": MENU},
        SELECTION | {"event_id": "s2", "time": at(1), "candidates": MENU},
        SELECTION | {"event_id": "s3", "time": at(1), "trace_id": "b" * 32, "candidates": [{"skill_id": "mail"}]},
        call("c1", 2, "stray"),
        call("c2", 2, "mail", session_id="z"),
        call("c3", 2, "mail", trace_id="c" * 32),
    )
    found = {row["event_id"]: row for row in house.rows("select * from calls")}
    assert (found["c1"]["selection_id"], found["c1"]["off_list"]) == ("s2", True)
    assert (found["c2"]["selection_id"], found["c2"]["off_list"]) == ("s3", False)
    assert (found["c3"]["selection_id"], found["c3"]["off_list"]) == (None, None)


def test_a_pick_from_an_empty_list_is_off_the_list(house: House) -> None:
    house.events(SELECTION | {"candidates": [], "ranked": True}, call("c1", 1, selection_id="s1"))
    assert house.row("select off_list from calls")["off_list"] is True


def test_phases_and_later_phases_after_another_turn_are_one_call(house: House) -> None:
    house.events(
        SELECTION | {"candidates": MENU},
        call("i", 1, call_id="k", phase="invoke", ok=True),
        SELECTION | {"event_id": "s2", "time": at(2), "candidates": MENU},
        call("e", 3, call_id="k", phase="exec", ok=True, latency_ms=250.0),
        call("o", 4, call_id="k", phase="output", ok=False, error_kind="timeout"),
    )
    found = house.row("select * from calls")
    assert (found["selection_id"], found["ok"], found["error_kind"]) == ("s1", False, "timeout")
    assert found["latency_ms"] == 250.0
    assert [phase["phase"] for phase in found["phases"]] == ["invoke", "exec", "output"]


def test_an_invoked_call_is_not_finished(house: House) -> None:
    house.events(call("i", 1, call_id="k", phase="invoke", ok=True))
    assert house.row("select ok from calls")["ok"] is None


def test_the_last_attempt_decides(house: House) -> None:
    house.events(
        call("1", 1, call_id="k", attempt=1, ok=False, error_kind="invalid_arguments"),
        call("2", 2, call_id="k", attempt=2, ok=True),
    )
    found = house.row("select ok, error_kind, attempts from calls")
    assert tuple(found.values()) == (True, None, 2)


def test_a_run_inside_a_run_is_the_same_call(house: House) -> None:
    house.events(SELECTION | {"candidates": MENU})
    house.write(
        fact(call("p", 0, call_id="k", selection_id="s1"), role="propose"),
        fact(call("tool", 1, call_id="k", span_id="1" * 16, ok=True)),
        fact(call("mcp", 1.1, span_id="2" * 16, ok=False, error_kind="timeout"), parent_span_id="1" * 16),
        fact(call("sub", 1.2, "fetch", call_id="k2", span_id="3" * 16), parent_span_id="1" * 16),
    )
    found = house.rows("select call_id, skill_id, ok, len(phases) as facts from calls order by call_id")
    assert [tuple(row.values()) for row in found] == [("k", "search", False, 3), ("k2", "fetch", None, 1)]


def test_runs_without_ids_pair_with_proposals_by_arguments_then_by_order(house: House) -> None:
    house.events(SELECTION | {"candidates": MENU})
    house.write(
        fact(call("p1", 0, call_id="k1", selection_id="s1", arguments={"q": 1}), role="propose", ordinal=0),
        fact(call("p2", 0, call_id="k2", selection_id="s1", arguments={"q": 2}), role="propose", ordinal=1),
        fact(call("p3", 0, call_id="k3", selection_id="s1"), role="propose", ordinal=2),
        fact(call("p4", 0, call_id="k4", selection_id="s1"), role="propose", ordinal=3),
        fact(call("r0", 1, call_id="k4", ok=True)),
        fact(call("r1", 2, arguments={"q": 2}, ok=True)),
        fact(call("r2", 3, arguments={"q": 1}, ok=False)),
        fact(call("r3", 4, ok=True)),
        fact(call("r4", 5, ok=True)),
    )
    found = house.rows("select call_id, event_id from calls order by started_at")
    assert [tuple(row.values()) for row in found] == [
        ("k4", "r0"),
        ("k2", "r1"),
        ("k1", "r2"),
        ("k3", "r3"),
        (None, "r4"),
    ]


def test_an_answer_alone_never_makes_a_call(house: House) -> None:
    house.write(fact(call("a", 1, call_id="k", ok=True), role="answer"))
    assert house.rows("select * from calls") == []


def test_a_proposal_that_never_ran_and_was_not_on_the_menu_failed(house: House) -> None:
    house.events(
        SELECTION | {"candidates": MENU},
        SELECTION | {"event_id": "s2", "candidates": [{"skill_id": "search", "score": 1.0}]},
    )
    house.write(
        fact(call("p1", 1, "invented", call_id="k1", selection_id="s1"), role="propose"),
        fact(call("p2", 1, "search", call_id="k2", selection_id="s1"), role="propose"),
        fact(call("p3", 1, "elsewhere", call_id="k3", selection_id="s2"), role="propose"),
    )
    found = {row["call_id"]: (row["ok"], row["error_kind"]) for row in house.rows("select * from calls")}
    assert found == {"k1": (False, "not_found"), "k2": (None, None), "k3": (None, None)}


NAMES = {
    "known by id": ("files/read_file", 10, "known"),
    "known by name": ("read_file", 10, "known"),
    "another prefix": ("disk/read_file", 10, "unknown"),
    "before the retirement": ("old_tool", 10, "known"),
    "after the retirement": ("old_tool", 30, "retired"),
    "before it was added": ("new_tool_of_march", 10, "unknown"),
    "after it was added": ("new_tool_of_march", 30, "known"),
    "case and separators": ("ReadFile", 10, "near_miss"),
    "two edits in eight": ("read_fiel", 10, "near_miss"),
    "a short name": ("cot", 10, "unknown"),
    "borne by two": ("shared_name", 10, "near_miss"),
    "invented": ("teleport", 10, "unknown"),
}


@pytest.mark.parametrize("case", NAMES, ids=str)
def test_names_are_judged_as_of_the_call(house: House, case: str) -> None:
    called, seconds, expected = NAMES[case]
    house.write(
        entry("files/read_file", name="read_file"),
        entry("old_tool"),
        entry("cat"),
        entry("x/shared", name="shared_name"),
        entry("y/shared", name="shared_name"),
        entry("old_tool", moment(20), op="retire", seq=1),
        entry("new_tool_of_march", moment(20), seq=1),
        entry("observed_only", source="observed"),
    )
    house.events(call("c", seconds, called))
    assert house.row("select name_class from calls")["name_class"] == expected


def test_a_project_without_a_registry_learns_from_what_was_offered(house: House) -> None:
    house.events(call("early", -5), SELECTION | {"candidates": MENU}, call("c1", 1), call("c2", 1, "invented"))
    house.write(entry("mail", moment(10), source="observed"))
    house.events(call("c3", 5, "mail"), call("c4", 15, "mail"))
    found = {row["event_id"]: row["name_class"] for row in house.rows("select * from calls")}
    assert found == {"early": None, "c1": "known", "c2": "unknown", "c3": "unknown", "c4": "known"}
    assert {row["source"] for row in house.rows("select source from skills")} == {"observed"}


BARE = '{"skill_id":"search"}'
DEFINITION = '{"description": "d", "skill_id": "search"}'
#: When a definition of `search` came (seconds), beside its offer by name alone at 0; then the entries in time.
OFFERED = {
    "no definition": (None, [BARE]),
    "a definition earlier": (-5, [DEFINITION]),
    "a definition at once": (0, [DEFINITION]),
    "a definition later": (5, [BARE, DEFINITION]),
}


@pytest.mark.parametrize("case", OFFERED)
def test_a_name_that_was_offered_has_an_entry_and_hides_no_definition(house: House, case: str) -> None:
    seconds, expected = OFFERED[case]
    house.events(SELECTION | {"candidates": MENU})
    if seconds is not None:
        house.write(entry("search", moment(seconds), source="observed", description="d"))
    found = house.rows("select entry from skills where skill_id = 'search' order by valid_from")
    assert [row["entry"] for row in found] == expected


def test_without_registry_or_offers_there_is_no_class(house: House) -> None:
    house.events(call("c1", 1))
    assert house.row("select name_class from calls")["name_class"] is None


def test_the_registry_keeps_its_history(house: House) -> None:
    house.write(
        entry("a", domain="one"),
        entry("a", moment(5), seq=3, domain="three"),
        entry("a", moment(5), seq=2, domain="two"),
        entry("a", moment(9), seq=4, op="retire"),
    )
    found = house.rows("select domain, is_active, valid_to from skills order by valid_from")
    assert [(row["domain"], row["is_active"]) for row in found] == [("one", True), ("three", True), ("three", False)]
    assert found[1]["valid_to"] == moment(9)


def test_unknown_arguments_are_those_that_the_schema_lacks(house: House) -> None:
    schema = {"type": "object", "properties": {"q": {}, "limit": {}}}
    house.write(entry("search", parameters_schema=schema), entry("free", parameters_schema={"type": "object"}))
    house.events(call("c1", 1, args_keys=["limit", "size"]), call("c2", 2, "free", args_keys=["x"]))
    found = {row["event_id"]: row["unknown_arguments"] for row in house.rows("select * from calls")}
    assert found == {"c1": ["size"], "c2": None}


def test_feedback_finds_its_selection(house: House) -> None:
    verdict = {"type": "feedback", "kind": "rejected", "time": at(9)}
    house.events(
        SELECTION | {"picks": ["search"]},
        SELECTION | {"event_id": "s2", "time": at(5), "picks": []},
        call("c", 1, call_id="k", selection_id="s1"),
        verdict | {"event_id": "given", "selection_id": "s2"},
        verdict | {"event_id": "by call", "call_id": "k"},
        verdict | {"event_id": "by trace", "trace_id": "a" * 32},
        verdict | {"event_id": "by session", "session_id": "z"},
        verdict | {"event_id": "lost", "session_id": "other"},
    )
    found = {row["event_id"]: row["target_selection_id"] for row in house.rows("select * from feedback")}
    assert found == {"given": "s2", "by call": "s1", "by trace": "s1", "by session": "s1", "lost": None}


def test_the_newest_portrait_of_a_day_counts(house: House) -> None:
    row = {"project": "default", "date": NOON.date(), "time": NOON, "skill_id": "a"}
    house.lake.append("portraits", pl.DataFrame([row | {"computed_at": moment(1), "calls": 1}]))
    house.lake.append("portraits", pl.DataFrame([row | {"computed_at": moment(2), "calls": 2}]))
    assert [found["calls"] for found in house.rows("select calls from portraits")] == [2]


def test_a_connection_keeps_its_state_and_the_next_sees_the_lake_move(house: House) -> None:
    house.events(SELECTION)
    before = house.connect()
    same = house.connect()
    house.events(SELECTION | {"event_id": "s2"})
    after = Tables(house.folder).connect()
    count = "select count(*) from selections"
    assert [c.execute(count).fetchall()[0][0] for c in (before, same, after)] == [1, 1, 2]


def test_threads_share_the_tables(house: House) -> None:
    house.events(SELECTION)
    counts: list[int] = []

    def read() -> None:
        counts.append(house.connect().execute("select count(*) from selections").fetchall()[0][0])

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1] * 8


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("select * from nothing_here", "nothing_here does not exist"),
        ("selec 1", "syntax error"),
        ("", "expected one statement, got 0"),
        ("select 1; select 2", "expected one statement, got 2"),
        ("drop table calls", "only reading"),
        ("copy calls to 'x.csv'", "only reading"),
        ("set threads = 9", "only reading"),
        ("select * from read_text('/etc/passwd')", "disabled by configuration"),
        ("select * from 'x.parquet'", "disabled by configuration"),
    ],
)
def test_sql_only_reads_and_says_what_is_wrong(house: House, query: str, reason: str) -> None:
    with pytest.raises(SqlError, match=reason):
        house.tables.sql(query)


def test_columns_of_the_same_name_are_all_there(house: House) -> None:
    found = house.rows("select 1 as a, 2 as a, 3 as a_1, 4 as b, 5 as a")
    assert found == [{"a": 1, "a_1": 2, "a_1_1": 3, "b": 4, "a_2": 5}]


# --- The order of arrival never matters.


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds=WORLDS, seed=st.integers(0, 2**16))
def test_shuffled_and_repeated_facts_fold_into_the_same_tables(
    tmp_path_factory: pytest.TempPathFactory, worlds: list[list[tuple[str, Fact]]], seed: int
) -> None:
    facts = in_projects(worlds)
    chance = random.Random(seed)
    arrived = facts + chance.choices(facts, k=len(facts) // 2)
    chance.shuffle(arrived)
    expected = House(tmp_path_factory.mktemp("orderly")).write(*facts).contents()
    found = House(tmp_path_factory.mktemp("shuffled")).write(*arrived).contents()
    for table in PUBLIC:
        assert found[table] == expected[table], table


def test_facts_split_over_many_commits_fold_into_the_same_tables(tmp_path: Path) -> None:
    facts = [
        fact(SELECTION | {"candidates": MENU}),
        fact(call("p", 0, call_id="k", selection_id="s1"), role="propose"),
        fact(call("r", 1, call_id="k", ok=True, latency_ms=5.0)),
        fact(call("r", 1, call_id="k", ok=True, latency_ms=5.0)),
        fact(call("a", 9, call_id="k", ok=False), role="answer"),
        entry("search", name="search"),
    ]
    together = House(tmp_path / "together").write(*facts)
    apart = House(tmp_path / "apart")
    for one in reversed(facts):
        apart.write(one)
    for table in PUBLIC:
        assert together.rows(f"from {table} order by all") == apart.rows(f"from {table} order by all")
    assert together.row("select ok, latency_ms from calls") == {"ok": False, "latency_ms": 5.0}


def test_livemcpbench_folds_as_published(livemcp: House) -> None:
    found = livemcp.row(
        """
        select count(*) as selections, count(*) filter (n_candidates = 0) as without_candidates,
            count(*) filter (n_picks = 0) as without_a_pick, count(*) filter (len(listed_picks) > 0) as accepted,
            count(*) filter (len(listed_picks) < n_picks) as off_list
        from selections
        """
    )
    assert found == {
        "selections": 283,
        "without_candidates": 1,
        "without_a_pick": 97,
        "accepted": 186,
        "off_list": 6,
    }
    calls = livemcp.row(
        "select count(*) as n, count(*) filter (not ok) as failed,"
        " count(*) filter (name_class <> 'known') as strange from calls"
    )
    assert calls == {"n": 531, "failed": 118, "strange": 3}
    assert livemcp.row("select count(*) filter (value = 1) as good, count(*) as n from feedback") == {
        "good": 67,
        "n": 95,
    }


def test_importing_twice_changes_nothing(shared: Path, tmp_path: Path) -> None:
    events = read_events(shared / "data/events/livemcpbench.jsonl")[:200]
    once = House(tmp_path / "once").events(*events)
    twice = House(tmp_path / "twice").events(*events).events(*reversed(events))
    for table in ("selections", "candidates", "calls", "feedback"):
        assert once.rows(f"from {table} order by all") == twice.rows(f"from {table} order by all")
