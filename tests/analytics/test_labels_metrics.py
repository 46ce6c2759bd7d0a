"""recall_at_k, mrr and ndcg_at_10: an example by hand, a slow twin in Python, and ir-measures (trec_eval)."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import ir_measures
import pytest
from ir_measures import RR, Qrel, R, ScoredDoc, nDCG

from analytics.labels import Label, LabelStore
from analytics.query import metric
from analytics.report import report
from analytics.report_text import render_markdown
from collector.control import Control
from tests.analytics.conftest import House, at, entry, fact, moment
from tests.analytics.test_metrics import Event, selection, value

DEPTHS = (1, 3, 5, 10)


def label(house: House, *labels: Label, project: str = "default") -> None:
    with closing(Control(house.folder)) as control:
        LabelStore(control).put(project, labels)


def labelled(query: str, expected: str, **fields: Any) -> Label:
    return Label(query=query, expected=tuple(expected.split()), **fields)


def told(event_id: str, selection_id: str, expected: str, **fields: Any) -> Event:
    """A label that came in as feedback."""
    event = {"type": "feedback", "event_id": event_id, "time": at(9), "kind": "label", "selection_id": selection_id}
    return event | {"expected": expected.split()} | fields


def recall(house: House, **options: Any) -> dict[Any, Any]:
    """(value, n) by k."""
    rows = metric(house.connect(), "recall_at_k", **options)["rows"]
    return {row["k"]: (row["value"], row["n"]) for row in rows}


def test_an_example_by_hand(house: House) -> None:
    house.events(
        selection("1", "a b c d", query="book a room"),
        selection("2", "x y c d", query="pay the bill\n"),
        selection("3", "x y", query="fly away"),
        selection("unranked", "a b", query="book a room", ranked=False),
        selection("unlabelled", "a b", query="what else"),
    )
    label(
        house,
        labelled("book a room", "b d"),
        labelled("pay the bill", "x"),
        labelled("fly away", "z"),
    )
    # Selection 1 lists b at 2 and d at 4, selection 2 lists x at 1, selection 3 lacks z. Three ranked selections have a
    # label. At k = 1: 0 of 2, 1 of 1, 0 of 1, so (0 + 1 + 0) ÷ 3. At 3: (1/2 + 1 + 0) ÷ 3. From 5 on: (1 + 1 + 0) ÷ 3.
    assert recall(house) == {
        1: (pytest.approx(1 / 3), 3),
        3: (pytest.approx(1.5 / 3), 3),
        5: (pytest.approx(2 / 3), 3),
        10: (pytest.approx(2 / 3), 3),
    }
    # The first expected skill stands at 2, at 1, and nowhere: (1/2 + 1 + 0) ÷ 3.
    assert value(house, "mrr") == (pytest.approx(1.5 / 3), 3)
    # Selection 1 gains 1/log₂3 + 1/log₂5 = 0.6309 + 0.4307, of at best 1/log₂2 + 1/log₂3 = 1.6309: 0.6509.
    first = (1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3))
    assert first == pytest.approx(0.6509, abs=1e-4)
    assert value(house, "ndcg_at_10") == (pytest.approx((first + 1 + 0) / 3), 3)


def test_more_than_ten_expected_skills_are_measured_against_the_best_ten(house: House) -> None:
    skills = [f"s{i}" for i in range(12)]
    house.events(selection("1", " ".join(skills), query="all"))
    label(house, labelled("all", " ".join(skills)))
    assert recall(house)[10] == (pytest.approx(10 / 12), 1)
    assert value(house, "ndcg_at_10") == (pytest.approx(1.0), 1)


def test_the_document_has_the_depths_and_the_bootstrap_interval(house: House) -> None:
    house.events(*(selection(f"s{i}", "a b", query=f"q{i}", model="m" if i % 2 else "n") for i in range(20)))
    label(house, *(labelled(f"q{i}", "a" if i < 10 else "z") for i in range(20)))
    rows = metric(house.connect(), "recall_at_k")["rows"]
    assert [list(row) for row in rows] == [["k", "value", "n", "low", "high"]] * 4
    assert [row["k"] for row in rows] == list(DEPTHS)
    # A share of 10 in 20: 0.5 ± 1.96 · √(0.25 ÷ 20) = 0.5 ± 0.22, in steps of 1/20.
    assert (rows[0]["low"], rows[0]["high"]) == (pytest.approx(0.3, abs=0.051), pytest.approx(0.7, abs=0.051))
    assert metric(house.connect(), "recall_at_k")["rows"] == rows
    assert metric(house.connect(), "recall_at_k", by=["k"])["rows"] == rows
    by_model = metric(house.connect(), "mrr", by=["model"])["rows"]
    assert [(row["model"], row["value"], row["n"]) for row in by_model] == [("m", 0.5, 10), ("n", 0.5, 10)]


def test_lists_of_one_query_are_drawn_together(house: House) -> None:
    house.events(*(selection(f"s{i}", "a", query=f"q{i % 4}") for i in range(40)))
    label(house, *(labelled(f"q{i}", "a" if i < 2 else "z") for i in range(4)))
    (row,) = metric(house.connect(), "mrr")["rows"]
    # 40 lists, but of 4 queries only: by chance all four drawn are found (1/16), or none.
    assert (row["value"], row["n"], row["low"], row["high"]) == (0.5, 40, 0.0, 1.0)


def test_recall_by_skill_asks_for_each_expected_skill(house: House) -> None:
    house.events(selection("1", "a b c", query="p"), selection("2", "c x y b", query="q"))
    label(house, labelled("p", "b"), labelled("q", "b z"))
    rows = metric(house.connect(), "recall_at_k", by=["skill"])["rows"]
    found = {(row["skill"], row["k"]): (row["value"], row["n"]) for row in rows}
    # b stands at 2 and at 4 of two lists that should have it; z is missing in its only one.
    assert [found["b", k] for k in DEPTHS] == [(0.0, 2), (0.5, 2), (1.0, 2), (1.0, 2)]
    assert [found["z", k] for k in DEPTHS] == [(0.0, 1)] * 4


def test_windows_and_languages(house: House) -> None:
    house.events(
        selection("1", "a b", query="p", language="de"),
        selection("2", "b a", query="p", time=at(3600)),
        selection("3", "b a", query="q", time=at(3600)),
    )
    label(house, labelled("p", "a"), labelled("q", "a", language="zh"))
    assert value(house, "mrr", start=moment(0), end=moment(60)) == (1.0, 1)
    assert value(house, "mrr", start=moment(3600)) == (0.5, 2)
    # A selection's own language, else that of the label.
    assert value(house, "mrr", ["language"]) == {"de": (1.0, 1), "zh": (0.5, 1), None: (0.5, 1)}


def test_feedback_labels_its_selection_before_a_label_of_the_query(house: House) -> None:
    house.events(
        selection("1", "a b", query="p"),
        selection("2", "a b", query="p"),
        selection("3", "a b"),
        told("f1", "1", "b"),
        told("old", "3", "a"),
        told("new", "3", "b", time=at(10)),
    )
    # Told alone: 1 and 3 expect b, at rank 2; the newest label of 3 holds. 2 has none of its own.
    assert value(house, "mrr") == (0.5, 2)
    label(house, labelled("p", "a"))
    assert value(house, "mrr") == (pytest.approx((0.5 + 1 + 0.5) / 3), 3)


def test_labels_of_judges_count_only_when_asked_for_and_nothing_better_is_there(house: House) -> None:
    house.events(
        selection("1", "a b", query="p"),
        selection("2", "a b", query="q"),
        told("f1", "1", "b", source="judge"),
        told("f2", "2", "b", source="judge"),
        told("f3", "2", "a", source="human", time=at(1)),
        told("nothing expected", "1", ""),
    )
    assert value(house, "mrr") == (1.0, 1)
    assert value(house, "mrr", judge=True) == (0.75, 2)
    label(house, labelled("p", "a"))
    assert value(house, "mrr", judge=True) == (1.0, 2)


def test_skills_are_the_same_by_id_and_by_a_name_that_only_one_bears(house: House) -> None:
    house.write(entry("mail/send", name="send"), entry("a/get", name="get"), entry("b/get", name="get"))
    house.events(selection("1", "x mail/send", query="p"), selection("2", "x get", query="q"))
    label(house, labelled("p", "send mail/send"), labelled("q", "a/get"))
    found = house.rows("select event_id, expected, ranks from judgements order by event_id")
    # `send` and `mail/send` are one skill; `get` may be either, so it is none of them.
    assert found == [
        {"event_id": "1", "expected": ["mail/send"], "ranks": [2]},
        {"event_id": "2", "expected": ["a/get"], "ranks": [None]},
    ]


def test_a_new_label_is_seen_without_a_new_event(house: House) -> None:
    house.events(selection("1", "a b", query="p"))
    assert value(house, "mrr") == (None, 0)
    label(house, labelled("p", "b"))
    assert value(house, "mrr") == (0.5, 1)
    label(house, labelled("p", "a"))
    assert value(house, "mrr") == (1.0, 1)


def test_the_report_judges_one_depth_and_shows_all(house: House) -> None:
    house.events(*(selection(f"s{i}", "a b c d e f", query=f"q{i}") for i in range(20)))
    label(house, *(labelled(f"q{i}", "b f") for i in range(20)))
    found = report(house.connect())
    measured = {
        m["metric"]: m for d in found["decisions"] for m in d["metrics"] if d["decision"] == "selection quality"
    }
    assert (measured["recall_at_k"]["value"], measured["recall_at_k"]["status"]) == (0.5, "bad")
    assert [(row["k"], row["value"]) for row in measured["recall_at_k"]["rows"]] == [
        (1, 0),
        (3, 0.5),
        (5, 0.5),
        (10, 1),
    ]
    (worst,) = [f for f in found["look_first"] if f["metric"] == "recall_at_k"]
    assert worst["skill"] == {"skill": "f", "count": 20, "n": 20}
    assert "k = 10" in render_markdown(found)
    assert (measured["mrr"]["value"], measured["mrr"]["status"]) == (0.5, "warn")


def test_without_labels_the_report_has_no_value(house: House) -> None:
    house.events(selection("1", "a b", query="p"))
    measured = {m["metric"]: m for d in report(house.connect())["decisions"] for m in d["metrics"]}
    for name in ("recall_at_k", "mrr", "ndcg_at_10"):
        assert (measured[name]["value"], measured[name]["n"], measured[name]["rows"]) == (None, 0, None)


# --- The same, measured slowly, and by a well-kept library.

SKILLS = [f"s{i}" for i in range(14)]
QUERIES = [f"query {i}" for i in range(8)]

#: Of one project: its selections, and the skills that each query should find.
World = tuple[list[Event], dict[str, list[str]]]


def random_world(chance: random.Random) -> World:
    events = [
        selection(
            f"s{i}",
            " ".join(chance.sample(SKILLS, chance.choice([0, 1, 5, 12, 14]))),
            query=chance.choice(QUERIES),
            ranked=chance.random() < 0.8,
        )
        for i in range(chance.randrange(25))
    ]
    expected = {
        query: chance.sample([*SKILLS, "z"], chance.choice([1, 1, 2, 5, 12]))
        for query in chance.sample(QUERIES, chance.randrange(len(QUERIES) + 1))
    }
    return events, expected


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> tuple[House, dict[str, World]]:
    house, chance = House(tmp_path_factory.mktemp("worlds")), random.Random(20260302)
    found = {f"p{i}": random_world(chance) for i in range(40)}
    house.write(*(fact(event, project) for project, (events, _) in found.items() for event in events))
    for project, (_, expected) in found.items():
        label(house, *(Label(query=q, expected=tuple(skills)) for q, skills in expected.items()), project=project)
    return house, found


def judged(world: World) -> list[tuple[str, list[str], list[str]]]:
    """(event_id, listed, expected) of the ranked selections that a label speaks of."""
    events, expected = world
    return [
        (event["event_id"], [candidate["skill_id"] for candidate in event["candidates"]], expected[event["query"]])
        for event in events
        if event["ranked"] and event["query"] in expected
    ]


def slow(listed: Sequence[str], expected: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for k in DEPTHS:
        found[f"recall {k}"] = sum(skill in listed[:k] for skill in expected) / len(expected)
    found["mrr"] = 0.0
    gained = best = 0.0
    for rank, skill in enumerate(listed, start=1):
        if skill in expected:
            found["mrr"] = found["mrr"] or 1 / rank
            gained += 1 / math.log2(rank + 1) if rank <= 10 else 0
    for rank in range(1, min(len(expected), 10) + 1):
        best += 1 / math.log2(rank + 1)
    return found | {"ndcg": gained / best}


def measured(house: House, project: str) -> dict[str, Any]:
    connection = house.connect()
    found: dict[str, Any] = {}
    for row in metric(connection, "recall_at_k", project=project)["rows"]:
        found[f"recall {row['k']}"] = row["value"], row["n"]
    for name, key in (("mrr", "mrr"), ("ndcg_at_10", "ndcg")):
        (row,) = metric(connection, name, project=project)["rows"]
        found[key] = row["value"], row["n"]
    return found


def test_random_lists_give_what_a_slow_measure_gives(worlds: tuple[House, dict[str, World]]) -> None:
    house, found = worlds
    assert sum(bool(judged(world)) for world in found.values()) > 20
    for project, world in found.items():
        values: dict[str, list[float]] = defaultdict(list)
        for _, listed, expected in judged(world):
            for name, one in slow(listed, expected).items():
                values[name].append(one)
        of_project = measured(house, project)
        for name, ones in values.items():
            assert of_project[name] == (pytest.approx(sum(ones) / len(ones)), len(ones)), (project, name)
        if not values:
            assert of_project == {"recall None": (None, 0), "mrr": (None, 0), "ndcg": (None, 0)}


def test_random_lists_give_what_ir_measures_gives(worlds: tuple[House, dict[str, World]]) -> None:
    house, found = worlds
    measures = {"mrr": RR, "ndcg": nDCG @ 10, **{f"recall {k}": R @ k for k in DEPTHS}}
    for project, world in found.items():
        lists = judged(world)
        if not any(listed for _, listed, _ in lists):
            continue
        qrels = [Qrel(name, skill, 1) for name, _, expected in lists for skill in expected]
        run = [ScoredDoc(name, skill, -float(rank)) for name, listed, _ in lists for rank, skill in enumerate(listed)]
        theirs = ir_measures.calc_aggregate(list(measures.values()), qrels, run)
        ours = measured(house, project)
        for name, measure in measures.items():
            assert ours[name] == (pytest.approx(theirs[measure]), len(lists)), (project, name)


def test_every_metric_against_labels_is_null_where_no_label_speaks(tmp_path: Path) -> None:
    house = House(tmp_path).events(selection("1", "a", query="p", ranked=False))
    label(house, labelled("p", "a"))
    assert value(house, "mrr") == (None, 0)
    assert value(house, "ndcg_at_10") == (None, 0)
    assert recall(house) == {None: (None, 0)}
