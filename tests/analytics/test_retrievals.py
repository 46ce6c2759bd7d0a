"""Searches that rank what a later turn of their trace was offered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analytics.conftest import Fact, House, at, fact, moment
from tests.analytics.test_runs import call, run, selected, turn

TRACE = "a" * 32
MENU = [{"skill_id": name} for name in ("a", "b", "c", "d")]


def listed(scores: dict[str, float], kind: str) -> list[dict[str, Any]]:
    return [{"skill_id": name, kind: score} for name, score in scores.items()]


def retrieval(event_id: str, began: float, ended: float | None = None, **fields: Any) -> tuple[str, Fact]:
    base = {"type": "selection", "event_id": event_id, "time": at(began), "trace_id": TRACE}
    return fact(base | fields, role="retrieval", ended_at=None if ended is None else moment(ended))


def dense(event_id: str, began: float, ended: float, scores: dict[str, float], **fields: Any) -> tuple[str, Fact]:
    took = {"dense": (ended - began) * 1000}
    fields = {"strategy": "dense", "stage_ms": took, "candidates": listed(scores, "dense")} | fields
    return retrieval(event_id, began, ended, **fields)


def bm25(event_id: str, began: float, ended: float, scores: dict[str, float]) -> tuple[str, Fact]:
    stages = {"sparse": (ended - began) * 1000}
    return retrieval(event_id, began, ended, strategy="bm25", stage_ms=stages, candidates=listed(scores, "bm25"))


def rerank(event_id: str, began: float, ended: float, scores: dict[str, float], **fields: Any) -> tuple[str, Fact]:
    stages = {"rerank": (ended - began) * 1000}
    found = listed(scores, "rerank")
    return retrieval(event_id, began, ended, strategy="rerank", stage_ms=stages, candidates=found, **fields)


def shown(house: House, event_id: str = "t") -> list[tuple[Any, ...]]:
    query = f"select skill_id, score, bm25, dense, rerank from candidates where event_id = '{event_id}' order by rank"
    return [tuple(row.values()) for row in house.rows(query)]


def test_a_retrieval_orders_the_menu_of_the_turn_after_it(house: House) -> None:
    house.write(
        dense("r", 0, 1, {"c": 0.9, "unoffered": 0.8, "b": 0.7}, query="found by", embedding_version="e1"),
        turn("t", 2, candidates=MENU, strategy="llm_direct"),
    )
    assert shown(house) == [
        ("c", None, None, 0.9, None),
        ("b", None, None, 0.7, None),
        ("a", None, None, None, None),
        ("d", None, None, None, None),
    ]
    found = house.row("select * from selections")
    assert (found["event_id"], found["ranked"], found["strategy"]) == ("t", True, "dense")
    assert (found["query"], found["embedding_version"]) == ("found by", "e1")
    stages = {stage: took for stage, took in found["stage_ms"].items() if took is not None}
    assert stages == {"dense": 1000.0, "total": 1000.0}


def test_what_the_turn_knows_itself_stays(house: House) -> None:
    house.write(
        dense("r", 0, 1, {"c": 0.9}, query="found by"),
        turn("t", 2, candidates=MENU, strategy="custom", query="asked", stage_ms={"llm_select": 7.0, "dense": 1.0}),
        run("run", 0, query="the user's words"),
        turn("t2", 3, candidates=MENU),
    )
    found = {row["event_id"]: row for row in house.rows("select * from selections")}
    assert (found["t"]["query"], found["t"]["strategy"], found["t"]["ranked"]) == ("asked", "custom", True)
    assert (found["t"]["stage_ms"]["dense"], found["t"]["stage_ms"]["llm_select"]) == (1.0, 7.0)
    assert found["t2"]["query"] == "the user's words"


@pytest.mark.parametrize(
    "fields",
    [
        {"ranked": True},
        {"ranked": None, "strategy": "bm25"},
        {"randomized": True},
        {"trace_id": "b" * 32},
        {"trace_id": None},
        {"time": at(0.5)},  # the search was still going on
        {"candidates": [{"skill_id": "x"}]},
        {"candidates": []},
    ],
    ids=str,
)
def test_no_other_selection_is_touched(house: House, fields: dict[str, Any]) -> None:
    table, row = turn("t", 2, **{"candidates": MENU} | fields)
    house.write((table, row))
    columns = "candidates, ranked, strategy, query, stage_ms"
    before = house.row(f"select {columns} from selections")
    house.write(dense("r", 0, 1, {"c": 0.9}, query="found by"))
    assert house.row(f"select {columns} from selections") == before
    assert selected(house) == ["t"]


def test_documents_that_name_no_offered_skill_change_nothing(house: House) -> None:
    house.write(
        dense("tools", 0, 1, {"b": 0.5}),
        dense("documents", 1, 2, {"doc-17": 0.9}, query="about cats"),
        turn("t", 3, candidates=MENU),
    )
    assert shown(house)[0] == ("b", None, None, 0.5, None)
    found = house.row("select * from selections")
    assert (found["query"], found["stage_ms"]["total"]) == (None, 1000.0)
    assert {row["skill_id"] for row in house.rows("select skill_id from skills")} == {"a", "b", "c", "d"}


def test_a_retrieval_holds_until_the_next_one(house: House) -> None:
    house.write(
        turn("t0", 0, candidates=MENU),
        dense("r1", 1, 2, {"b": 0.5}),
        turn("t1", 3, candidates=MENU),
        turn("t2", 4, candidates=MENU),
        dense("r2", 5, 6, {"d": 0.6}),
        turn("t3", 7, candidates=MENU),
    )
    assert [shown(house, event_id)[0][0] for event_id in ("t0", "t1", "t2", "t3")] == ["a", "b", "b", "d"]
    assert [row["ranked"] for row in house.rows("select ranked from selections order by time")] == [
        False, True, True, True,
    ]  # fmt: skip
    # The second search is another one: nothing of the first is left.
    assert shown(house, "t3")[1:] == [(name, None, None, None, None) for name in ("a", "b", "c")]


def test_a_rerank_orders_and_both_score(house: House) -> None:
    house.write(
        dense("found", 0, 1, {"a": 0.9, "b": 0.8, "c": 0.7}, query="q"),
        rerank("ranked", 1, 1.5, {"c": 3.0, "a": 2.0}),
        turn("t", 2, candidates=MENU),
    )
    assert shown(house) == [
        ("c", None, None, 0.7, 3.0),
        ("a", None, None, 0.9, 2.0),
        ("b", None, None, 0.8, None),
        ("d", None, None, None, None),
    ]
    found = house.row("select * from selections")
    assert (found["strategy"], found["query"]) == ("dense", "q")
    assert (found["stage_ms"]["dense"], found["stage_ms"]["rerank"]) == (1000.0, 500.0)
    assert found["stage_ms"]["total"] == 1500.0


def test_a_rerank_alone_is_a_ranking(house: House) -> None:
    house.write(rerank("ranked", 1, 1.5, {"c": 3.0}), turn("t", 2, candidates=MENU))
    assert shown(house)[0] == ("c", None, None, None, 3.0)
    assert house.row("select strategy from selections")["strategy"] == "rerank"


def test_a_rerank_of_several_arms(house: House) -> None:
    house.write(
        bm25("stale", 0, 1, {"d": 9.0}),
        turn("t1", 1.5, candidates=MENU),
        bm25("sparse", 2, 3, {"a": 5.0, "b": 4.0}),
        dense("vectors", 3, 5, {"b": 0.8, "c": 0.7}),
        dense("documents", 5, 6, {"doc": 1.0}),
        rerank("ranked", 6, 7, {"b": 2.0, "a": 1.0}),
        turn("t", 8, candidates=MENU),
    )
    assert shown(house) == [
        ("b", None, 4.0, 0.8, 2.0),
        ("a", None, 5.0, None, 1.0),
        ("c", None, None, 0.7, None),
        ("d", None, None, None, None),
    ]
    found = house.row("select * from selections where event_id = 't'")
    assert found["strategy"] == "hybrid"
    stages = {stage: took for stage, took in found["stage_ms"].items() if took is not None}
    assert stages == {"sparse": 1000.0, "dense": 2000.0, "rerank": 1000.0, "total": 4000.0}


def test_a_second_rerank_has_its_own_retrieval(house: House) -> None:
    house.write(
        bm25("found1", 0, 1, {"d": 9.0}),
        rerank("ranked1", 1, 2, {"d": 3.0}),
        dense("found2", 2, 3, {"d": 0.8, "a": 0.7}),
        rerank("ranked2", 3, 4, {"a": 2.0, "d": 1.0}),
        turn("t", 5, candidates=MENU),
    )
    assert shown(house)[:2] == [("a", None, None, 0.7, 2.0), ("d", None, None, 0.8, 1.0)]


def test_a_search_with_others_within_it_is_one(house: House) -> None:
    # As frameworks tell of a retriever that compresses: around the search and the rerank that it consists of.
    house.write(
        dense("around", 0, 5, {"c": 0.0, "a": 0.0}, query="q", candidates=[{"skill_id": "c"}, {"skill_id": "a"}]),
        bm25("arm1", 0, 1, {"a": 7.0, "b": 6.0}),
        dense("arm2", 1, 3, {"c": 0.9}),
        rerank("ranked", 3, 4, {"c": 2.0, "a": 1.0}),
        turn("t", 6, candidates=MENU),
    )
    assert shown(house) == [
        ("c", None, None, 0.9, 2.0),
        ("a", None, 7.0, None, 1.0),
        ("b", None, 6.0, None, None),
        ("d", None, None, None, None),
    ]
    found = house.row("select * from selections")
    stages = {stage: took for stage, took in found["stage_ms"].items() if took is not None}
    assert stages == {"sparse": 1000.0, "dense": 2000.0, "rerank": 1000.0, "total": 5000.0}
    assert (found["strategy"], found["query"]) == ("hybrid", "q")


def test_a_turn_that_tells_no_menu_was_offered_what_was_found(house: House) -> None:
    house.write(
        dense("r", 0, 1, {"c": 0.9, "b": 0.7}),
        dense("documents", 1, 2, {"doc": 0.9}),
        turn("t", 3),
        call("p", 3, "b", "propose", selection_id="t", ordinal=0),
    )
    assert shown(house) == [("c", None, None, 0.9, None), ("b", None, None, 0.7, None)]
    found = house.row("select ranked, picks, listed_picks from selections")
    assert tuple(found.values()) == (True, ["b"], ["b"])
    assert house.row("select off_list, name_class from calls") == {"off_list": False, "name_class": "known"}


def test_a_run_without_turns_is_ranked_by_the_searches_within_it(house: House) -> None:
    house.write(
        run("run", 0, 9, candidates=MENU),
        dense("r", 1, 2, {"c": 0.9}),
        call("x", 3, "c", ok=True),
    )
    assert shown(house, "run")[0] == ("c", None, None, 0.9, None)
    assert house.row("select ranked, picks from selections") == {"ranked": True, "picks": ["c"]}


def test_a_name_that_no_menu_has_is_not_found_although_the_menu_was_ranked(house: House) -> None:
    house.write(
        dense("r", 0, 1, {"c": 0.9}),
        turn("t", 2, candidates=MENU),
        turn("t2", 2, trace_id="b" * 32),
        dense("r2", 0, 1, {"c": 0.9}, trace_id="b" * 32),
        call("p", 2, "invented", "propose", call_id="k", selection_id="t"),
        call("p2", 2, "c", "propose", call_id="k", selection_id="t2", trace_id="b" * 32),
        call("p3", 2, "invented", "propose", call_id="k2", selection_id="t2", trace_id="b" * 32),
    )
    found = {row["event_id"]: row for row in house.rows("select * from calls")}
    assert (found["p"]["ok"], found["p"]["error_kind"], found["p"]["off_list"]) == (False, "not_found", True)
    # What was found need not be all that there is.
    assert (found["p3"]["ok"], found["p3"]["error_kind"], found["p3"]["off_list"]) == (None, None, True)


def test_a_final_answer_closes_although_an_earlier_search_ranked_its_menu(house: House) -> None:
    house.write(
        dense("r1", 0, 1, {"c": 0.9}),
        turn("t1", 2, candidates=MENU),
        call("p1", 2, "c", "propose", call_id="k", selection_id="t1"),
        call("c1", 3, "c", call_id="k", ok=True),
        turn("t2", 4, candidates=MENU),
        dense("r2", 5, 6, {"b": 0.9}),
        turn("t3", 7, candidates=MENU),
    )
    found = house.rows("select event_id, ranked, closing from selections order by time")
    assert [tuple(row.values()) for row in found] == [
        ("t1", True, False),
        ("t2", False, True),
        ("t3", True, False),  # nothing of what was just found would do
    ]


def test_candidates_of_a_ranked_menu_are_skipped(house: House) -> None:
    house.write(dense("r", 0, 1, {"c": 0.9, "b": 0.7}), turn("t", 2, candidates=MENU, picks=["b"]))
    found = house.rows("select skill_id, picked, skipped from candidates order by rank")
    assert [tuple(row.values()) for row in found] == [
        ("c", False, True),
        ("b", True, False),
        ("a", False, False),
        ("d", False, False),
    ]


def test_a_skill_that_a_search_found_twice_counts_at_its_better_rank(house: House) -> None:
    found = [{"skill_id": "c", "dense": 0.9}, {"skill_id": "b", "dense": 0.8}, {"skill_id": "c", "dense": 0.1}]
    house.write(dense("r", 0, 1, {}, candidates=found), turn("t", 2, candidates=MENU))
    assert [(row[0], row[3]) for row in shown(house)[:2]] == [("c", 0.9), ("b", 0.8)]
