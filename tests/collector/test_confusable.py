"""Names that look alike, and descriptions that say alike."""

from __future__ import annotations

import math

import pytest

from collector.confusable import confusable_pairs, fold_name


def entry(skill_id: str, description: str) -> dict[str, str]:
    return {"skill_id": skill_id, "description": description}


def test_case_and_separators_fold() -> None:
    assert fold_name("Get-Forecast") == fold_name("get_forecast") == fold_name("getForecast")


def test_similarity_is_the_weighted_jaccard_index() -> None:
    entries = [
        entry("a", "alpha beta gamma delta"),
        entry("b", "alpha beta gamma epsilon"),
        entry("c", "one two three four"),
    ]
    ((similarity, left, right),) = confusable_pairs(entries, minimum=0.3)
    shared, own = math.log(4 / 3) + 1, math.log(4 / 2) + 1  # said by two of three, and by one
    assert similarity == pytest.approx(3 * shared / (3 * shared + 2 * own))
    assert (left["skill_id"], right["skill_id"]) == ("a", "b")


def test_what_all_say_counts_less() -> None:
    same = "get a value for a given stock symbol"
    template = [entry(f"t{i}", f"{same} word{i}") for i in range(20)]
    rare = [entry("x", "quartz lattice gamma delta xeric"), entry("y", "quartz lattice gamma delta yonder")]
    pairs = {(p.left["skill_id"], p.right["skill_id"]): p.similarity for p in confusable_pairs([*template, *rare], 0.1)}
    assert pairs["x", "y"] > pairs["t0", "t1"]


def test_pairs_can_be_limited_to_some_skills_and_the_limit_counts_only_those() -> None:
    twins = [entry(f"s{i}", f"alpha{i // 2} beta{i // 2} gamma{i // 2} delta{i // 2}") for i in range(20)]
    assert len(confusable_pairs(twins)) == 10
    (pair,) = confusable_pairs(twins, limit=1, concerning={"s19"})
    assert (pair.left["skill_id"], pair.right["skill_id"]) == ("s18", "s19")


def test_chinese_descriptions_are_compared_too() -> None:
    pairs = confusable_pairs(
        [entry("a", "查询指定城市的天气预报"), entry("b", "查询指定城市的天气情况预报"), entry("c", "订购一张火车票")]
    )
    assert [(p.left["skill_id"], p.right["skill_id"]) for p in pairs] == [("a", "b")]
