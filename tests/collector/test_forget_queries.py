"""What jobs kept of a forgotten session's queries goes with it, and what others asked stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import md5
from pathlib import Path
from typing import Any

import polars as pl

from collector.lake import Lake
from collector.projects import project_folder
from collector.service import Collector
from collector.tables import TABLES
from collector.vector_files import VectorFile, vector_files
from tests.collector.disk import holding

TIME = datetime(2026, 9, 20, tzinfo=UTC)
ADA, BOB = "session-of-ada", "session-of-bob"


def send(collector: Collector, *asked: tuple[str, str]) -> None:
    """Selections by (session, query), each with its own id ``session/query``."""
    events = [
        {"type": "selection", "event_id": f"{session}/{query}", "session_id": session, "query": query}
        | {"time": TIME.isoformat(), "picks": ["a"]}
        for session, query in asked
    ]
    _, future = collector.submit_events(json.dumps(events).encode(), "json", "p")
    assert future is not None
    future.result(10)
    assert collector.refresh(20)


def key(query: str) -> str:
    return md5(query.encode()).hexdigest()


def append(lake: Lake, table: str, *rows: dict[str, Any]) -> None:
    stamps = {"project": "p", "date": TIME.date(), "time": TIME, "computed_at": TIME, "embedding_version": "v"}
    lake.append(table, pl.DataFrame([stamps | row for row in rows], schema=TABLES[table]))


def clustered(lake: Lake, cluster_id: str, name: str, *queries: str) -> None:
    append(lake, "clusters", {"cluster_id": cluster_id, "name": name, "queries": len(queries), "centroid": [1.0]})
    append(lake, "query_clusters", *({"query_key": key(query), "cluster_id": cluster_id} for query in queries))


def forget(collector: Collector, session: str) -> None:
    collector.forget("p", session).result(60)


def left(lake: Lake) -> dict[str, set[str]]:
    """The queries' keys by cluster."""
    rows = lake.read("query_clusters")
    assert set(rows["cluster_id"]) == set(lake.read("clusters")["cluster_id"])
    return {c: set(rows.filter(pl.col("cluster_id") == c)["query_key"]) for c in set(rows["cluster_id"])}


def test_its_queries_leave_and_a_large_cluster_stays_without_a_name(
    start: Callable[..., Collector], tmp_path: Path
) -> None:
    collector, lake = start(), Lake(tmp_path)
    send(collector, (ADA, "her keys"), (ADA, "keys"), *((BOB, query) for query in ("keys", "door", "lock", "latch")))
    clustered(lake, "big", "keysword", "her keys", "keys", "door", "lock")
    clustered(lake, "untouched", "latchword", "latch")
    forget(collector, ADA)
    assert left(lake) == {"big": {key("keys"), key("door"), key("lock")}, "untouched": {key("latch")}}
    names = dict(lake.read("clusters").select("cluster_id", "name").iter_rows())
    assert names == {"big": None, "untouched": "latchword"}
    assert holding(tmp_path, key("her keys"), "keysword", "her keys") == {}


def test_a_cluster_that_was_hers_goes(start: Callable[..., Collector], tmp_path: Path) -> None:
    """Also one in which few others are left: its centroid would tell of her."""
    collector, lake = start(), Lake(tmp_path)
    send(collector, (ADA, "her keys"), (ADA, "her door"), (BOB, "door"), (BOB, "lock"))
    clustered(lake, "hers", "keysword", "her keys")
    clustered(lake, "mostly hers", "doorword", "her door", "door")
    clustered(lake, "bob's", "lockword", "lock")
    forget(collector, ADA)
    assert left(lake) == {"bob's": {key("lock")}}
    assert holding(tmp_path, key("her keys"), key("her door"), "keysword", "doorword") == {}


def test_similarities_of_its_picks_go(start: Callable[..., Collector], tmp_path: Path) -> None:
    collector, lake = start(), Lake(tmp_path)
    send(collector, (ADA, "keys"), (BOB, "keys"))
    append(
        lake,
        "pick_similarities",
        *({"event_id": f"{who}/keys", "skill_id": "a", "similarity": 0.5} for who in (ADA, BOB)),
    )
    forget(collector, ADA)
    assert lake.read("pick_similarities")["event_id"].to_list() == [f"{BOB}/keys"]
    assert holding(tmp_path, f"{ADA}/keys") == {}


def test_doing_it_again_or_for_nobody_changes_nothing(start: Callable[..., Collector], tmp_path: Path) -> None:
    collector, lake = start(), Lake(tmp_path)
    send(collector, (ADA, "her keys"), *((BOB, query) for query in ("keys", "door", "lock")))
    clustered(lake, "big", "keysword", "her keys", "keys", "door", "lock")
    forget(collector, ADA)
    before = lake.read("clusters"), left(lake)
    for session in (ADA, "nobody's"):
        forget(collector, session)
        assert lake.read("clusters").equals(before[0])
        assert left(lake) == before[1]


def test_a_project_without_clusters_is_forgotten_as_well(start: Callable[..., Collector], tmp_path: Path) -> None:
    collector = start()
    send(collector, (ADA, "her keys"))
    forget(collector, ADA)
    assert holding(tmp_path, "her keys") == {}


def test_vectors_of_what_nobody_else_asked_go_and_recalls_artefacts_with_them(
    start: Callable[..., Collector], tmp_path: Path
) -> None:
    collector = start()
    send(collector, (ADA, "hers alone"), (ADA, "asked by both"), (BOB, "asked by both"), (BOB, "of bob"))
    queries = ["hers alone", "asked by both", "of bob"]
    for version in ("a/1", "b/1"):
        VectorFile.of(tmp_path, version).keep({query: f"vector of {query}".encode() for query in queries})
    for project in ("p", "q"):
        (folder := project_folder(tmp_path, "recall", project)).mkdir(parents=True)
        (folder / "1.arrow").write_bytes(b"a success")
    forget(collector, ADA)
    assert [sorted(store.read(queries)) for store in vector_files(tmp_path)] == [["asked by both", "of bob"]] * 2
    assert holding(tmp_path, "vector of hers alone", "hers alone") == {}
    assert holding(tmp_path, "a success") == {"a success": ["recall/q/1.arrow"]}
