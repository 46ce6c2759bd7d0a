"""Picks that stick to the session's previous skill: a planted one, clean ones, and a slow twin of the metric."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from analytics import contamination, nightly
from analytics.query import metric
from analytics.text_vectors import load_text_vectors
from collector.tables import TABLES
from pickwise.settings import Settings
from tests.analytics.conftest import NOON, House, entry, fact, moment

DESCRIPTIONS = {
    "weather": "Tells the weather forecast of a city: rain, sun, temperature.",
    "flights": "Books a flight from one city to another.",
    "music": "Plays songs and albums of an artist.",
    "recipes": "Finds recipes and says how to cook a dish.",
}
ASKED = {
    "weather": "weather forecast for {}: rain or sun?",
    "flights": "book a flight to {}",
    "music": "play songs by the band {}",
    "recipes": "how do I cook {} soup, find a recipe",
}
WORDS = ["Paris", "Oslo", "Cairo", "Lima", "Quito", "Seoul", "Rome", "Accra", "Delhi", "Perth"]


def registry(project: str = "default") -> list[tuple[str, dict[str, Any]]]:
    return [entry(skill_id, project=project, description=text) for skill_id, text in DESCRIPTIONS.items()]


def turn(session: str, number: int, about: str, pick: str, seconds: float = 0, **fields: Any) -> dict[str, Any]:
    time = (NOON + timedelta(seconds=seconds + number)).isoformat()
    event = {"type": "selection", "event_id": f"{session}-{number}", "session_id": session, "time": time}
    query = ASKED[about].format(WORDS[hash_of(session, number) % len(WORDS)])
    offered = [{"skill_id": skill_id} for skill_id in DESCRIPTIONS]
    return event | {"query": query, "ranked": True, "candidates": offered, "picks": [pick]} | fields


def hash_of(session: str, number: int) -> int:
    return sum(map(ord, session)) + 7 * number


def clean(sessions: int = 70) -> list[dict[str, Any]]:
    """Sessions that ask for three things in turn and pick what was asked for: nothing repeats."""
    skills = list(DESCRIPTIONS)
    return [
        turn(f"clean{i}", j, skills[(i + j) % 4], skills[(i + j) % 4], seconds=i)
        for i in range(sessions)
        for j in range(3)
    ]


def night(house: House, days: float = 1, project: str = "default") -> dict[str, Any]:
    result = nightly.run(house.folder, Settings(data_dir=house.folder), now=NOON + timedelta(days=days))
    found: dict[str, Any] = result["projects"][project]
    return found


def rate(house: House, **options: Any) -> tuple[float | None, int]:
    (row,) = metric(house.connect(), "contamination_rate", **options)["rows"]
    return row["value"], row["n"]


def test_a_pick_that_sticks_to_the_last_skill_is_found(house: House) -> None:
    house.write(*registry()).events(*clean())
    house.events(
        # Asks for a recipe after the weather, and gets the weather again: contaminated.
        turn("stuck", 0, "weather", "weather"),
        turn("stuck", 1, "recipes", "weather"),
        # Asks for the weather again: a repeat that fits.
        turn("keen", 0, "weather", "weather"),
        turn("keen", 1, "weather", "weather"),
        # A wrong pick that repeats nothing.
        turn("wrong", 0, "recipes", "weather"),
        # A repeat that does not fit, but was the only thing to pick.
        turn("alone", 0, "music", "music"),
        turn("alone", 1, "flights", "music", candidates=[{"skill_id": "music"}]),
        # Told, not found out: what the session used before.
        turn("told", 0, "flights", "music", previous_skill_id="music"),
    )
    assert night(house)["similarities"] == 210 + 8
    # 218 picks: 210 clean ones and eight more; two of them stick to what was used before.
    assert rate(house) == (2 / 218, 218)
    rows = metric(house.connect(), "contamination_rate", by=["skill"])["rows"]
    hits = {row["skill"]: round(row["value"] * row["n"]) for row in rows}
    assert hits == {"weather": 1, "music": 1, "flights": 0, "recipes": 0}


def test_clean_sessions_raise_nothing(house: House) -> None:
    house.write(*registry()).events(*clean())
    night(house)
    assert rate(house) == (0.0, 210)


def test_fewer_than_200_other_picks_are_no_measure(house: House) -> None:
    house.write(*registry()).events(*clean(66), turn("stuck", 0, "weather", "weather"))
    house.events(turn("stuck", 1, "recipes", "weather"))
    night(house)
    assert rate(house) == (None, 0)  # 199 picks repeat nothing
    house.events(turn("one more", 0, "music", "music"))
    night(house, days=2)
    assert rate(house) == (1 / 201, 201)


def test_picks_of_more_than_28_days_ago_are_no_measure(house: House) -> None:
    house.write(*registry()).events(*clean())
    house.events(*(turn("late", i, "weather", "weather", seconds=29 * 86_400) for i in range(2)))
    night(house, days=31)
    assert rate(house) == (None, 0)
    assert rate(house, end=moment(28 * 86_400)) == (0.0, 210)


def test_a_pick_that_cannot_be_compared_is_left_out(house: House) -> None:
    house.write(*registry(), entry("mute")).events(
        *clean(),
        turn("no description", 0, "music", "mute"),
        turn("no such skill", 0, "music", "invented"),
        turn("no query", 0, "music", "music", query=None),
        turn("hashed", 0, "music", "music", query="hash:0123456789abcdef0123456789abcdef"),
    )
    assert night(house)["similarities"] == 210
    assert rate(house) == (0.0, 210)


def test_a_night_again_changes_nothing_and_late_facts_are_compared_anew(house: House) -> None:
    house.write(*registry()).events(*clean(5))
    assert night(house)["similarities"] == 15
    versions = house.lake.versions()
    assert night(house, days=2)["similarities"] == 0
    assert house.lake.versions() == versions
    # The same decision, told in full only now: another pick beside the first.
    late = turn("clean0", 2, "music", "music", seconds=0) | {"picks": ["music", "recipes"]}
    house.events(late)
    assert night(house, days=3)["similarities"] == 2
    rows = house.rows("select skill_id, previous_skill_id from pick_similarities where event_id = 'clean0-2'")
    assert {(row["skill_id"], row["previous_skill_id"]) for row in rows} == {
        ("music", "flights"),
        ("recipes", "flights"),
    }
    assert house.lake.read("pick_similarities").height == 16


def test_a_night_takes_so_many_queries_and_the_next_one_the_rest(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contamination, "MAX_QUERIES", 10)
    house.write(*registry()).events(*clean())
    total = house.row("select count(distinct query) as n from selections")["n"]
    compared = 0
    for days in range(1, 6):
        night(house, days=days)
        now = house.row("select count(distinct query) as n from pick_similarities join selections using (event_id)")[
            "n"
        ]
        assert now - compared == min(10, total - compared)
        compared = now
        assert night(house, days=days + 0.1)["similarities"] == 0  # the same night has no more room
    assert compared == total
    assert house.row("select count(*) as n from pick_similarities")["n"] == 210


def test_similarities_are_those_of_the_embedder(house: House) -> None:
    house.write(*registry()).events(turn("s", 0, "weather", "weather", query="will it rain in Oslo"))
    night(house)
    row = house.row("select * from pick_similarities")
    vectors = load_text_vectors("use").of(["will it rain in Oslo", *DESCRIPTIONS.values()])
    cosines = dict(zip(DESCRIPTIONS, vectors[1:] @ vectors[0], strict=True))
    assert row["similarity"] == pytest.approx(cosines.pop("weather"), abs=1e-5)
    assert row["best_unpicked"] == pytest.approx(max(cosines.values()), abs=1e-5)


def test_rows_of_selections_that_are_gone_go(house: House) -> None:
    house.write(*registry()).events(*clean(5))
    night(house)
    house.lake.replace("selections", pl.col("session_id") == "clean0")
    night(house, days=2)
    assert house.lake.read("pick_similarities").height == 12


# --- The same metric, counted slowly.


def random_world(chance: random.Random, project: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Selections, and rows of ``pick_similarities`` for most of their picks."""
    skills = list(DESCRIPTIONS)
    turns, rows = [], []
    for i in range(chance.choice([120, 600, 800])):
        pick, previous = chance.choice(skills), chance.choice([*skills, None])
        event = turn(f"s{i}", 0, pick, pick, seconds=chance.uniform(-40, 0) * 86_400)
        turns.append(event | {"previous_skill_id": previous, "model": chance.choice(["m", "n"])})
        if chance.random() < 0.9:
            rows.append(
                {"project": project, "event_id": event["event_id"], "skill_id": pick, "previous_skill_id": previous}
                | {"similarity": chance.random(), "best_unpicked": chance.choice([None, chance.random()])}
                | {"embedding_version": chance.choice(["v1", "v1", "v1", "v2"]), "basis": "b", "computed_at": NOON}
            )
            row_time = fact(event)[1]["time"]
            rows[-1] |= {"time": row_time, "date": row_time.date()}
    return turns, rows


def counted(rows: Sequence[dict[str, Any]]) -> tuple[float | None, int]:
    newest = max(row["time"] for row in rows)
    hits: list[bool] = []
    for version in ("v1", "v2"):
        of_version = [row for row in rows if row["embedding_version"] == version]
        others = [
            row["similarity"]
            for row in of_version
            if row["skill_id"] != row["previous_skill_id"] and row["time"] > newest - timedelta(days=28)
        ]
        if len(others) < 200:
            continue
        tenth = float(np.quantile(others, 0.1))
        for row in of_version:
            repeats = row["skill_id"] == row["previous_skill_id"]
            better = row["best_unpicked"] is not None and row["similarity"] < row["best_unpicked"]
            hits.append(repeats and row["similarity"] < tenth and better)
    return (sum(hits) / len(hits) if hits else None), len(hits)


def test_random_picks_give_what_a_slow_count_gives(tmp_path: Path) -> None:
    house = House(tmp_path)
    chance = random.Random(28)
    worlds = {f"p{i}": random_world(chance, f"p{i}") for i in range(12)}
    house.write(*(fact(event, project) for project, (turns, _) in worlds.items() for event in turns))
    every = [row for _, rows in worlds.values() for row in rows]
    house.lake.append("pick_similarities", pl.DataFrame(every, schema=TABLES["pick_similarities"], strict=False))
    connection = house.connect()
    seen = []
    for project, (_, rows) in worlds.items():
        (row,) = metric(connection, "contamination_rate", project=project)["rows"]
        value, n = counted(rows)
        assert (row["value"], row["n"]) == (pytest.approx(value) if value is not None else None, n), project
        seen.append(value)
    assert None in seen
    assert any(seen)
