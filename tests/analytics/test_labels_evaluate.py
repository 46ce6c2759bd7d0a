"""Evaluations against labels: their numbers, their groups, and what fell since the last one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from analytics.labels import Label, LabelStore
from analytics.labels_evaluate import Judged, Registry, evaluate, is_searchable, labels_of, logged
from collector.control import Control
from tests.analytics.conftest import House, at
from tests.analytics.test_labels_metrics import label, labelled, told
from tests.analytics.test_metrics import selection

WHAT = {"weights_version": "w1"}


@pytest.fixture
def store(house: House) -> Iterator[LabelStore]:
    control = Control(house.folder)
    yield LabelStore(control)
    control.close()


@pytest.fixture
def connection(house: House) -> duckdb.DuckDBPyConnection:
    return house.connect()


def judged(query: str, *ranks: int | None, **fields: Any) -> Judged:
    return Judged(query=query, expected=tuple(f"s{i}" for i in range(len(ranks))), ranks=ranks, **fields)


def by_name(rows: list[dict[str, Any]]) -> dict[Any, float]:
    return {row["k"] or row["metric"]: row["value"] for row in rows}


def test_an_evaluation_by_hand(connection: duckdb.DuckDBPyConnection, store: LabelStore) -> None:
    found = evaluate(connection, store, "p", "discovery", [judged("a", 1), judged("b", 4, None)], WHAT)
    assert (found["n"], found["what"], found["previous"], found["fell"]) == (2, WHAT, None, [])
    # a: found at 1. b: one of two, at 4: recall 0 up to 3, then 1/2; 1/4; 1/log₂5 of 1 + 1/log₂3, 0.4307 ÷ 1.6309.
    assert by_name(found["metrics"]) == {
        1: 0.5,
        3: 0.5,
        5: 0.75,
        10: 0.75,
        "mrr": pytest.approx((1 + 0.25) / 2),
        "ndcg_at_10": pytest.approx((1 + 0.4307 / 1.6309) / 2, abs=1e-4),
    }
    assert [(row["metric"], row["k"]) for row in found["metrics"]] == [
        *(("recall_at_k", k) for k in (1, 3, 5, 10)),
        ("mrr", None),
        ("ndcg_at_10", None),
    ]
    assert all(row["n"] == 2 and row["low"] <= row["value"] <= row["high"] for row in found["metrics"])


def test_groups_are_those_that_are_known(connection: duckdb.DuckDBPyConnection, store: LabelStore) -> None:
    several = [
        judged("a", 1, language="en", cluster="travel"),
        judged("b", None, language="en"),
        judged("c", 2, language="zh"),
        judged("d", 3),
    ]
    found = evaluate(connection, store, "p", "discovery", several, WHAT)
    mrr = {row["language"]: (row["value"], row["n"]) for row in found["by_language"] if row["metric"] == "mrr"}
    assert mrr == {"en": (0.5, 2), "zh": (0.5, 1)}
    assert {(row["cluster"], row["n"]) for row in found["by_cluster"]} == {("travel", 1)}


def test_what_fell_is_told_against_the_last_evaluation_of_the_same_source(
    connection: duckdb.DuckDBPyConnection, store: LabelStore
) -> None:
    first = [judged("falls far", 1), judged("falls", 1, 2), judged("rises", 5), judged("stays", 2), judged("goes", 1)]
    evaluate(connection, store, "p", "discovery", first, WHAT)
    evaluate(connection, store, "p", "logged", [judged("falls", None)], WHAT)
    second = [judged("falls far", None), judged("falls", 1, 4), judged("rises", 1), judged("stays", 2)]
    more = judged("relabelled", 7)
    found = evaluate(connection, store, "p", "discovery", [*second, more], {"weights_version": "w2"})
    previous = found["previous"]
    assert (previous["what"], previous["n_shared"], previous["n_fell"], previous["n_rose"]) == (WHAT, 4, 2, 1)
    changes = [0 - 1, (1 + 0.4307) / 1.6309 - 1, 1 - 0.3869, 0]
    assert previous["ndcg_at_10_change"] == pytest.approx(sum(changes) / 4, abs=1e-4)
    assert previous["low"] <= previous["ndcg_at_10_change"] <= previous["high"]
    assert [row["query"] for row in found["fell"]] == ["falls far", "falls"]
    assert found["fell"][1] | {"ndcg_at_10": None} == {
        "query": "falls",
        "expected": ["s0", "s1"],
        "ranks_before": [1, 2],
        "ranks": [1, 4],
        "ndcg_at_10_before": 1.0,
        "ndcg_at_10": None,
    }
    # Once more the same: nothing moved.
    again = evaluate(connection, store, "p", "discovery", [*second, more], WHAT)
    assert (again["previous"]["n_shared"], again["previous"]["n_fell"], again["fell"]) == (5, 0, [])


def test_a_query_that_should_find_something_else_now_is_not_compared(
    connection: duckdb.DuckDBPyConnection, store: LabelStore
) -> None:
    evaluate(connection, store, "p", "discovery", [judged("a", 1)], WHAT)
    found = evaluate(connection, store, "p", "discovery", [judged("a", 1, None)], WHAT)
    assert (found["previous"]["n_shared"], found["previous"]["ndcg_at_10_change"], found["fell"]) == (0, None, [])


def test_nothing_judged_is_not_remembered(connection: duckdb.DuckDBPyConnection, store: LabelStore) -> None:
    found = evaluate(connection, store, "p", "logged", [], WHAT)
    assert (found["n"], found["metrics"]) == (0, [])
    assert store.last("p", "logged") is None


def test_the_label_of_a_query_is_the_imported_one_else_the_newest_told(house: House) -> None:
    house.events(
        selection("1", "a", query="p", language="de"),
        selection("2", "a", query="q"),
        selection("3", "a", query="judged"),
        told("old", "1", "x"),
        told("new", "1", "y", time=at(20)),
        told("other", "2", "x"),
        told("judge", "3", "x", source="judge"),
    )
    label(house, labelled("q", "z"))
    assert labels_of(house.connect(), "default") == [
        Label(query="p", expected=("y",), language="de"),
        Label(query="q", expected=("z",)),
    ]


def test_of_what_was_logged_the_newest_ranked_list_of_a_query_counts(house: House) -> None:
    house.events(
        selection("1", "a b", query="p"),
        selection("2", "x b a", query="p", time=at(60)),
        selection("3", "a", query="p", time=at(90), ranked=False),
        selection("4", "a", query="unlabelled"),
    )
    label(house, labelled("p", "a z", cluster="travel"), labelled("never asked", "a"))
    assert logged(house.connect(), "default") == [
        Judged(query="p", expected=("a", "z"), ranks=(3, None), cluster="travel")
    ]


def test_a_registry_tells_ids_from_names() -> None:
    registry = Registry(
        [
            {"skill_id": "mail/send", "name": "send"},
            {"skill_id": "a/get", "name": "get"},
            {"skill_id": "b/get", "name": "get"},
            {"skill_id": "plain"},
        ]
    )
    wanted = labelled("q", "send mail/send get plain missing")
    assert registry.unknown([wanted, wanted]) == ["get", "missing"]
    assert registry.judge(wanted, ["x", "plain", "mail/send", "plain"]) == Judged(
        query="q", expected=("get", "mail/send", "missing", "plain"), ranks=(None, 3, None, 2)
    )


def test_a_hash_is_no_query_to_search() -> None:
    assert not is_searchable(labelled("hash:" + "0f" * 16, "a"))
    assert is_searchable(labelled("hash: what is that", "a"))
