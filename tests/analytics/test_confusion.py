"""Confusion: what is picked instead of a skill that stands first, by hand and against a slow count."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from analytics import portrait
from analytics.confusion import confusions
from collector.confusable import confusable_pairs
from pickwise.cli import app
from tests.analytics.conftest import House, entry, moment
from tests.analytics.slow_metrics import Slow
from tests.analytics.test_metrics import selection
from tests.analytics.worlds import REGISTRY, world, write_worlds

RAIN = "Tells whether it will rain in a city tomorrow."
SNOW = "Tells whether it will snow in a city today."
OVERLAP = 5 / (5 + 4 * (math.log(3 / 2) + 1))


@pytest.fixture
def weather(house: House) -> House:
    house.write(
        entry("w/rain", name="rain", description=RAIN),
        entry("snow", description=SNOW),
        entry("radar", description="Shows a radar."),
    )
    return house.events(
        selection("picked", "rain snow", "w/rain"),
        selection("passed over", "w/rain snow radar", "snow"),
        selection("again", "rain snow radar", "radar snow"),
        selection("off the list", "w/rain snow", "hail"),
        selection("second", "snow w/rain", "w/rain"),
        selection("no pick", "w/rain snow", ""),
        selection("unranked", "w/rain snow", "snow", ranked=False),
    )


def pairs(house: House, **options: Any) -> list[tuple[Any, ...]]:
    rows = confusions(house.connect(), **options)
    return [tuple(row[name] for name in ("skill_id", "first", "instead", "n")) for row in rows]


def test_by_hand(weather: House) -> None:
    # `rain`, by whichever name, led four ranked selections with a pick. Once it was picked; snow was picked instead
    # twice, radar and hail once each. snow led one, in which rain was picked.
    assert pairs(weather) == [
        ("w/rain", 4, "snow", 2),
        ("snow", 1, "w/rain", 1),
        ("w/rain", 4, "hail", 1),
        ("w/rain", 4, "radar", 1),
    ]
    assert pairs(weather, skill_id="snow") == [("snow", 1, "w/rain", 1)]
    assert pairs(weather, limit=1) == [("w/rain", 4, "snow", 2)]
    assert pairs(weather, start=moment(1)) == pairs(weather, project="other") == []


def test_the_overlap_is_that_of_the_review(weather: House) -> None:
    found = {(row["skill_id"], row["instead"]): row["overlap"] for row in confusions(weather.connect())}
    # tell, whether, it, will, rain, citi, tomorrow against tell, whether, it, will, snow, citi, today: 5 terms are in
    # both and weigh ln(3/3) + 1 = 1, 4 are in one and weigh ln(3/2) + 1:
    # 5 ÷ (5 + 5.62).
    assert found["w/rain", "snow"] == found["snow", "w/rain"] == pytest.approx(OVERLAP)
    entries = [{"skill_id": name, "description": text} for name, text in (("rain", RAIN), ("snow", SNOW))]
    assert [pair.similarity for pair in confusable_pairs(entries, minimum=0.1)] == [pytest.approx(OVERLAP)]
    # radar says too little, hail isn't registered.
    assert found["w/rain", "radar"] is found["w/rain", "hail"] is None


def test_descriptions_without_a_common_term_overlap_by_0_and_equal_ones_by_1(house: House) -> None:
    house.write(entry("a", description=RAIN), entry("b", description="播放一首音乐"), entry("c", description=RAIN))
    house.events(selection("1", "a b c", "b"), selection("2", "a b c", "c"))
    assert {row["instead"]: row["overlap"] for row in confusions(house.connect())} == {"b": 0.0, "c": 1.0}


def test_a_skills_portrait_has_its_own(weather: House) -> None:
    found = portrait.skill(weather.connect(), "default", "w/rain")
    assert found is not None
    assert found["confused_with"] == [
        {"skill_id": "snow", "n": 2, "first": 4, "overlap": pytest.approx(OVERLAP)},
        {"skill_id": "hail", "n": 1, "first": 4, "overlap": None},
        {"skill_id": "radar", "n": 1, "first": 4, "overlap": None},
    ]


def test_the_command(weather: House) -> None:
    folder = ["--data-dir", str(weather.folder)]
    done = CliRunner().invoke(app, ["confusion", "--skill", "snow", "--json", *folder])
    assert json.loads(done.stdout) == [
        {"skill_id": "snow", "instead": "w/rain", "n": 1, "first": 1, "overlap": pytest.approx(OVERLAP)}
    ]
    assert "radar" in CliRunner().invoke(app, ["confusion", *folder], env={"COLUMNS": "200"}).stdout
    assert "No ranked selection" in CliRunner().invoke(app, ["confusion", "--project", "other", *folder]).stdout


def test_random_events_give_what_a_slow_count_gives(tmp_path: Path) -> None:
    sizes = {"selection": 200, "call": 100, "feedback": 0, "route": 0}
    made = world(random.Random(5), sizes, REGISTRY)
    house, slow = write_worlds(House(tmp_path), {"default": made}), Slow(made)
    first: Counter[str] = Counter()
    instead: Counter[tuple[str, str]] = Counter()
    for s in slow.decided():
        if s.candidates:
            top = slow.meant(s.candidates[0].name, s.seconds)
            picks = {slow.meant(pick, s.seconds) for pick in s.picks}
            first[top] += 1
            instead.update((top, pick) for pick in picks if top not in picks)
    assert len(instead) > 20
    assert sorted(pairs(house, limit=1000)) == sorted((top, first[top], pick, n) for (top, pick), n in instead.items())
