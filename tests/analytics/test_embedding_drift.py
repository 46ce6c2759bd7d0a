"""Drift between two index versions: by hand, against a slow twin, and as an alert."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from analytics.alerts import Evaluator
from analytics.query import metric
from analytics.report import report
from analytics.report_text import render_markdown
from pickwise.settings import Settings
from tests.analytics.conftest import House, at, fact, moment


def shadowed(event_id: str, shown: str, shadow: str | None, new: str = "v2", **fields: Any) -> dict[str, Any]:
    """``shown`` and ``shadow``: words, one a skill."""
    event: dict[str, Any] = {"type": "selection", "event_id": event_id, "time": at(0), "ranked": True}
    event |= {"candidates": [{"skill_id": skill} for skill in shown.split()], "embedding_version": "v1"}
    if shadow is not None:
        event["shadow"] = {"embedding_version": new, "skill_ids": shadow.split()}
    return event | fields


def drift(house: House, **options: Any) -> list[tuple[Any, ...]]:
    rows = metric(house.connect(), "embedding_drift", **options)["rows"]
    names = ("embedding_version", "shadow_embedding_version", "value", "rbo", "n")
    return [tuple(row[name] for name in names) for row in rows]


def test_equal_lists_have_all_in_common(house: House) -> None:
    house.events(
        shadowed("1", "a b c", "a b c"), shadowed("2", "a", "a"), shadowed("3", *[" ".join(map(str, range(40)))] * 2)
    )
    ((*pair, overlap, rbo, n),) = drift(house)
    assert (pair, overlap, n) == (["v1", "v2"], 1.0, 3)
    assert rbo == pytest.approx(1.0, abs=1e-12)


def test_lists_with_nothing_in_common(house: House) -> None:
    house.events(shadowed("1", "a b", "c d"), shadowed("2", "a b", ""))
    assert drift(house) == [("v1", "v2", 0.0, 0.0, 2)]


def test_by_hand(house: House) -> None:
    house.events(shadowed("1", "a b c", "b a d"))
    # Among the first 10, here 3: a and b, so 2 ÷ 3. In common at depths 1, 2, 3: 0, 2, 2, so
    # 0.1 ÷ 0.9 · (0 + 2/2 · 0.9² + 2/3 · 0.9³) + 2/3 · 0.9³ = 0.144 + 0.486 = 0.63.
    ((_, _, overlap, rbo, _),) = drift(house)
    assert overlap == pytest.approx(2 / 3)
    assert rbo == pytest.approx(0.63)


def test_lists_of_unequal_length_by_hand(house: House) -> None:
    house.events(shadowed("1", "a", "b a"))
    # s = 1, l = 2; in common at depth 1: 0, at 2: 1. What the short list would have gone on with is 0 (X_s = 0).
    # 0.1 ÷ 0.9 · (1/2 · 0.9²) + ((1 - 0) ÷ 2 + 0) · 0.9² = 0.045 + 0.405 = 0.45.
    ((_, _, overlap, rbo, _),) = drift(house)
    assert overlap == pytest.approx(1 / 2)
    assert rbo == pytest.approx(0.45)


def test_each_version_pair_is_by_itself(house: House) -> None:
    house.events(
        shadowed("1", "a b", "a b"),
        shadowed("2", "a b", "a b"),
        shadowed("3", "a b", "c d", new="v3"),
        shadowed("no shadow", "a b", None),
        shadowed("nothing shown", "", "a b"),
        shadowed("shuffled", "a b", "b a", randomized=True),
    )
    assert drift(house) == [("v1", "v2", 1.0, pytest.approx(1.0), 2), ("v1", "v3", 0.0, 0.0, 1)]
    assert drift(house, by=["shadow_embedding_version"]) == drift(house)
    found = metric(house.connect(), "embedding_drift", by=["strategy"])["rows"]
    assert [row["strategy"] for row in found] == [None, None]


def test_nothing_there_is_one_row_of_nothing(house: House) -> None:
    assert drift(house) == [(None, None, None, None, 0)]


def test_a_drifted_index_raises_the_shipped_alert(house: House) -> None:
    names = [f"skill{i}" for i in range(10)]
    same, other = " ".join(names), " ".join([*names[:3], *(f"new{i}" for i in range(7))])
    house.events(*(shadowed(f"good{i}", same, same, new="v2") for i in range(30)))
    house.events(*(shadowed(f"bad{i}", same, other, new="v3") for i in range(30)))
    evaluator = Evaluator(house.folder, Settings(data_dir=house.folder))
    for minutes in (1, 3):
        evaluator.evaluate(moment(60 * minutes))
    evaluator.close()
    fired = house.rows("select rule, grp, state, value, n from alerts where state = 'firing' order by rule")
    drifted = [row for row in fired if row["rule"] == "embedding_drift"]
    assert [(row["value"], row["n"]) for row in drifted] == [(pytest.approx(0.3), 30)]
    assert "v3" in drifted[0]["grp"]


def test_the_report_shows_the_pairs(house: House) -> None:
    house.events(*(shadowed(f"{i}", "a b", "c d") for i in range(30)), shadowed("x", "a b", "a b", new="v3"))
    found = report(house.connect(), start=moment(-60), end=moment(60))
    (shown,) = [m for decision in found["decisions"] for m in decision["metrics"] if m["metric"] == "embedding_drift"]
    assert (shown["value"], shown["n"], shown["status"]) == (0.0, 30, "bad")
    assert [row["shadow_embedding_version"] for row in shown["rows"]] == ["v2", "v3"]
    assert "v1 → v3 (rbo 1.000)" in render_markdown(found)
    assert any(finding["metric"] == "embedding_drift" for finding in found["look_first"])


# --- The same, counted slowly.


def slow_rbo(first: Sequence[str], second: Sequence[str], p: float = 0.9) -> float:
    """Webber, Moffat & Zobel 2010, equation 32, term by term."""
    short, long = sorted((first, second), key=len)
    shorter, longer = len(short), len(long)
    if shorter == 0:
        return 0.0

    def common(depth: int) -> int:
        return len(set(short[:depth]) & set(long[:depth]))

    x_s, x_l = common(shorter), common(longer)
    total = sum(common(d) / d * p**d for d in range(1, longer + 1))
    total += sum(x_s * (d - shorter) / (shorter * d) * p**d for d in range(shorter + 1, longer + 1))
    return (1 - p) / p * total + ((x_l - x_s) / longer + x_s / shorter) * p**longer


def slow_overlap(first: Sequence[str], second: Sequence[str]) -> float:
    return len(set(first[:10]) & set(second[:10])) / min(10, max(len(first), len(second)))


def test_random_lists_give_what_a_slow_count_gives(tmp_path: Path) -> None:
    house = House(tmp_path)
    chance = random.Random(9)
    skills = [f"s{i}" for i in range(60)]
    lists = {
        f"p{i}": (chance.choices(skills, k=chance.randrange(1, 60)), chance.choices(skills, k=chance.randrange(60)))
        for i in range(80)
    }
    house.write(
        *(fact(shadowed("x", " ".join(first), " ".join(second)), project) for project, (first, second) in lists.items())
    )
    connection = house.connect()
    for project, (first, second) in lists.items():
        # A skill that is listed twice counts at its better place.
        shown, shadow = list(dict.fromkeys(first)), list(dict.fromkeys(second))
        (row,) = metric(connection, "embedding_drift", project=project)["rows"]
        assert row["value"] == pytest.approx(slow_overlap(shown, shadow)), project
        assert row["rbo"] == pytest.approx(slow_rbo(shown, shadow)), project
        assert 0 <= row["rbo"] <= 1 + 1e-12


def test_rank_biased_overlap_weighs_the_head(house: House) -> None:
    house.events(
        shadowed("1", "a b c d e f", "b a c d e f", new="head"), shadowed("2", "a b c d e f", "a b c d f e", new="tail")
    )
    rows = {row["shadow_embedding_version"]: row for row in metric(house.connect(), "embedding_drift")["rows"]}
    assert rows["head"]["value"] == rows["tail"]["value"] == 1.0
    assert rows["head"]["rbo"] < rows["tail"]["rbo"] < 1.0


def test_a_window_holds_its_own(house: House) -> None:
    house.events(shadowed("1", "a", "a"), shadowed("2", "a", "b", time=at(100)))
    assert drift(house, end=moment(50)) == [("v1", "v2", 1.0, pytest.approx(1.0), 1)]
    assert drift(house, start=moment(0) + timedelta(seconds=50))[0][2] == 0.0
