"""Query clusters: found through the nightly job, named, the same every night, and never more than a night's worth."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from analytics import clusters, nightly
from analytics.clusters_names import MIN_SESSIONS, Asked, named, words
from analytics.query import metric
from analytics.text_vectors import load_text_vectors
from collector.tables import TABLES
from pickwise.settings import Settings
from tests.analytics.conftest import House

DAY = datetime(2026, 3, 2, tzinfo=UTC)
WEATHER = [
    "what is the weather in Paris tomorrow",
    "weather forecast for Berlin this weekend",
    "will it rain in London tomorrow, what does the weather forecast say",
    "show me the weather in Madrid today",
    "is the weather in Rome sunny tomorrow",
    "weather forecast for Oslo next week",
]
FLIGHTS = [
    "book a flight to Tokyo next Monday",
    "book a cheap flight from Boston to Denver",
    "book me a flight to Lisbon in May",
    "book a return flight to Cairo",
    "book a flight to Seoul on Friday",
    "book a flight to Dublin tonight",
]
INVOICES = [
    "帮我开一张发票",
    "这个月的发票怎么报销",
    "查询上个月的发票记录",
    "发票抬头写错了怎么修改",
    "请把电子发票发到我的邮箱",
    "我要下载去年的发票",
]
RECIPES = [
    "推荐一道四川菜的做法",
    "红烧肉怎么做，给我菜谱",
    "有没有简单的家常菜谱",
    "糖醋排骨的菜谱和做法",
    "麻婆豆腐这道菜怎么做",
    "晚饭做什么菜，给我一份菜谱",
]


def asking(query: str | None, number: int, pick: str = "a", start: datetime = DAY, **fields: Any) -> dict[str, Any]:
    """A ranked selection that offered a, then b; each is a session of its own."""
    time = (start + timedelta(minutes=number)).isoformat()
    event = {"type": "selection", "event_id": f"{start:%d}-{number}", "session_id": f"s{number}", "time": time}
    return (
        event
        | {"query": query, "ranked": True, "candidates": [{"skill_id": "a"}, {"skill_id": "b"}], "picks": [pick]}
        | fields
    )


def night(house: House, after: float = 1.1, embedder: str = "use", **options: Any) -> dict[str, Any]:
    settings = Settings(data_dir=house.folder, embedder=embedder)
    result = nightly.run(house.folder, settings, now=DAY + timedelta(days=after), **options)
    found: dict[str, Any] = result["projects"]["default"]
    return found


def placed(house: House) -> dict[str, str | None]:
    """The cluster of each query that is still asked."""
    rows = house.rows(
        "select distinct s.query, q.cluster_id from selections s"
        " join query_clusters q on q.project = s.project and q.query_key = md5(s.query)"
    )
    return {row["query"]: row["cluster_id"] for row in rows}


def together(house: House, queries: list[str]) -> set[str | None]:
    found = placed(house)
    return {found[query] for query in queries}


@pytest.mark.parametrize("embedder", ["use", "words"])
def test_a_weak_topic_is_found_by_its_cluster(house: House, embedder: str) -> None:
    """Whoever asks about the weather or recipes passes over rank 1; nobody else does."""
    topics = [(WEATHER, "b"), (FLIGHTS, "a"), (INVOICES, "a"), (RECIPES, "b")]
    asked = [(query, pick) for queries, pick in topics for query in queries]
    house.events(*(asking(query, i, pick) for i, (query, pick) in enumerate(asked)))
    assert night(house, embedder=embedder)["queries"] == 24
    weak, sound = {*WEATHER, *RECIPES}, {*FLIGHTS, *INVOICES}
    of_cluster: dict[str | None, set[str]] = {}
    for query, cluster_id in placed(house).items():
        of_cluster.setdefault(cluster_id, set()).add(query)
    told = {row["cluster"]: row for row in metric(house.connect(), "mismatch_rate", by=["cluster"])["rows"]}
    assert sum(row["n"] for row in told.values()) == 24
    named_clusters = {cluster_id: row for cluster_id, row in told.items() if cluster_id is not None}
    for cluster_id, row in named_clusters.items():
        assert row["n"] == len(of_cluster[cluster_id])
        assert row["value"] == len(of_cluster[cluster_id] & weak) / row["n"]
    if embedder == "use":  # words alone don't see what rain has to do with the weather
        assert {row["value"] for row in named_clusters.values()} == {0.0, 1.0}
        assert len(named_clusters) == 4
        names: dict[float, set[str]] = {row["value"]: set() for row in named_clusters.values()}
        for row in named_clusters.values():
            names[row["value"]].update(row["cluster_name"].split(", "))
        assert {"weather", "菜谱"} <= names[1.0]
        assert {"flight", "发票"} <= names[0.0]
    assert any(of_cluster[cluster_id] <= weak for cluster_id in named_clusters)
    assert any(of_cluster[cluster_id] <= sound for cluster_id in named_clusters)


def test_calls_belong_to_the_cluster_of_their_selection(house: House) -> None:
    house.events(*(asking(query, i) for i, query in enumerate([*WEATHER, *FLIGHTS])))
    house.events(
        *(
            {
                "type": "call",
                "event_id": f"c{i}",
                "time": (DAY + timedelta(hours=1, minutes=i)).isoformat(),
                "skill_id": "a",
                "selection_id": f"{DAY:%d}-{i}",
                "ok": i < len(WEATHER),
            }
            for i in range(12)
        ),
        {"type": "call", "event_id": "stray", "time": DAY.isoformat(), "skill_id": "a", "ok": True},
    )
    night(house)
    rows = metric(house.connect(), "failed_tool_rate", by=["cluster"])["rows"]
    (weather,), (flights,) = together(house, WEATHER), together(house, FLIGHTS)
    found = {row["cluster"]: (row["value"], row["n"]) for row in rows}
    assert found == {weather: (0.0, 6), flights: (1.0, 6), None: (0.0, 1)}


def test_ids_stay_and_new_queries_join(house: House) -> None:
    first = [*WEATHER[:4], *FLIGHTS[:4], *INVOICES[:4]]
    house.events(*(asking(query, i) for i, query in enumerate(first)))
    night(house)
    before = placed(house)
    names = {row["cluster_id"]: row["cluster_name"] for row in house.rows("from query_clusters")}
    later = [*WEATHER[4:], *FLIGHTS[4:], *INVOICES[4:], *RECIPES]
    house.events(*(asking(query, i, start=DAY + timedelta(days=1)) for i, query in enumerate(later)))
    assert night(house, after=2.1)["queries"] == len(later)
    after = placed(house)
    assert {query: after[query] for query in before} == before
    for topic in (WEATHER, FLIGHTS, INVOICES):
        assert together(house, topic) == {before[topic[0]]}
    (recipes,) = together(house, RECIPES)
    assert recipes not in before.values()
    renamed = {row["cluster_id"]: row["cluster_name"] for row in house.rows("from query_clusters")}
    assert {cluster_id: renamed[cluster_id] for cluster_id in names} == names


def test_a_night_again_changes_nothing(house: House) -> None:
    house.events(*(asking(query, i) for i, query in enumerate([*WEATHER, *RECIPES])))
    night(house)
    versions = house.lake.versions()
    assert night(house)["queries"] == 0
    assert night(house, after=1.2, date=DAY.date())["queries"] == 0
    assert house.lake.versions() == versions


def test_a_night_that_died_in_the_middle_ends_the_same(house: House, tmp_path_factory: pytest.TempPathFactory) -> None:
    """It had written the clusters, and not yet which queries are in them."""
    other = House(tmp_path_factory.mktemp("other"))
    for found in (house, other):
        found.events(*(asking(query, i) for i, query in enumerate([*WEATHER, *FLIGHTS])))
        night(found)
    whole = placed(other)
    house.lake.replace("query_clusters", pl.lit(True))
    night(house, after=1.2)
    assert placed(house) == whole


def test_a_night_takes_so_many_queries_and_the_next_one_the_rest(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "MAX_QUERIES", 5)
    old, new = [*WEATHER, *FLIGHTS[:2]], FLIGHTS[2:]
    house.events(*(asking(query, i) for i, query in enumerate(old)))
    house.events(*(asking(query, i, start=DAY + timedelta(days=1)) for i, query in enumerate(new)))
    assert night(house, after=2.1)["queries"] == 5
    assert set(new) <= set(placed(house))  # the newest day first
    assert night(house, after=2.2)["queries"] == 0  # the same night
    assert night(house, after=3.1)["queries"] == 5
    assert night(house, after=4.1)["queries"] == 2
    assert set(placed(house)) == {*old, *new}


def test_five_thousand_is_the_bound() -> None:
    assert clusters.MAX_QUERIES == 5_000


def test_queries_that_were_not_kept_have_none(house: House) -> None:
    house.events(asking("hash:0123456789abcdef0123456789abcdef", 1), asking(None, 2), asking(" ", 3))
    assert night(house)["queries"] == 0
    assert house.rows("from query_clusters") == []


def test_a_query_that_says_nothing_has_a_row_and_no_cluster(house: House) -> None:
    house.events(asking("what is it", 1), *(asking(query, 2 + i) for i, query in enumerate(WEATHER)))
    night(house, embedder="words")
    assert placed(house)["what is it"] is None
    assert night(house, after=2.1, embedder="words")["queries"] == 0


def test_versions_never_meet(house: House) -> None:
    """With another embedder every query is clustered anew, and nothing of the old clusters is left."""
    house.events(*(asking(query, i) for i, query in enumerate([*WEATHER, *FLIGHTS])))
    night(house, embedder="words")
    before = set(placed(house).values())
    assert night(house, after=2.1)["queries"] == 12
    assert len({row["embedding_version"] for row in house.rows("from query_clusters")}) == 1
    assert house.lake.read("clusters")["embedding_version"].n_unique() == 1
    assert len(together(house, WEATHER)) == 1
    assert house.lake.read("query_clusters").height == 12
    assert before != set(placed(house).values())


def test_no_query_stands_in_the_tables(house: House) -> None:
    """Only words that three sessions said are in a name; the rest are hashes and numbers."""
    queries = [f"{query} zanzibar" if i == 0 else query for i, query in enumerate(WEATHER)]
    house.events(*(asking(query, i) for i, query in enumerate(queries)))
    night(house)
    rows = [*house.lake.read("query_clusters").to_dicts(), *house.lake.read("clusters").drop("centroid").to_dicts()]
    text = json.dumps(rows, default=str)
    assert "weather" in text
    assert "zanzibar" not in text
    assert "paris" not in text.lower()


def test_a_topic_of_one_session_has_no_name(house: House) -> None:
    house.events(*(asking(query, i, session_id="only") for i, query in enumerate(WEATHER)))
    night(house)
    assert {row["cluster_name"] for row in house.rows("from query_clusters")} == {None}


def test_what_left_the_selections_leaves_the_clusters(house: House) -> None:
    house.events(*(asking(query, i) for i, query in enumerate([*WEATHER, *FLIGHTS])))
    night(house)
    house.lake.replace("selections", pl.col("query").is_in(WEATHER))
    night(house, after=2.1)
    assert house.lake.read("query_clusters").height == len(FLIGHTS)
    assert house.lake.read("clusters").height == 1


def test_names_tell_clusters_apart() -> None:
    asked = [
        Asked(cluster_id, f"please show me the {word} report {cluster_id}", [f"{cluster_id}{i}"])
        for cluster_id, word in (("x", "sales"), ("y", "weather"))
        for i in range(MIN_SESSIONS)
    ]
    found = named(asked, {"x": None, "y": None, "empty": None})
    # `show` and `report` are in both clusters alike and weigh less: sales 3 of 3, report 3 of 6.
    assert found["x"] is not None
    assert found["x"].split(", ")[0] == "sales"
    assert found["y"] is not None
    assert found["y"].split(", ")[0] == "weather"
    assert found["empty"] is None


def test_a_name_stays_until_too_few_say_its_words() -> None:
    asked = [Asked("x", "rain today", [f"s{i}"]) for i in range(3)] + [Asked("x", "snow", [f"t{i}"]) for i in range(9)]
    assert named(asked, {"x": "rain"}) == {"x": "rain"}
    assert named(asked[1:], {"x": "rain"}) == {"x": "snow"}


def test_a_session_that_says_it_often_says_it_once() -> None:
    assert named([Asked("x", f"rain {i}", ["s"]) for i in range(9)], {"x": None}) == {"x": None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("please show the Weather", ["weather"]),
        ("getUserAddress v2", ["user", "address"]),
        ("帮我查天气", ["查天", "天气"]),
        ("查 invoice", ["invoice"]),
    ],
)
def test_words_of_a_name(text: str, expected: list[str]) -> None:
    assert list(words(text)) == expected


@pytest.mark.parametrize(("name", "purity"), [("metatool_en", 0.35), ("acebench_zh", 0.12)])
def test_published_queries_cluster_by_what_they_need(shared: Path, name: str, purity: float) -> None:
    """Of two queries of one cluster, how many need the same tool: by chance 1 in 100 and fewer."""
    lines = (shared / f"data/ranking/{name}_queries.jsonl").read_text().splitlines()
    rows = [row for line in lines[:: max(len(lines) // 400, 1)] if (row := json.loads(line))["relevant"]]
    points = load_text_vectors("use").of([row["query"] for row in rows])
    known = TABLES["clusters"].to_frame()
    placed = np.array(clusters._place(points, [str(i) for i in range(len(rows))], known, clusters._OF_MEANING))
    tools = np.array([row["relevant"][0] for row in rows])
    same = [np.mean(tools[placed == placed[i]] == tools[i]) for i in range(len(rows))]
    assert np.mean(same) > purity
    assert len(set(placed)) < len(rows) * 0.7
