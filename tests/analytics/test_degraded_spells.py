"""Degraded spells of a router as known at a moment: recovered, lost, or still there."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.analytics.conftest import House, at, moment


class Spell(NamedTuple):
    instance: str
    seconds: float
    ending: str | None


def spells(house: House, now: float, *rows: tuple[float, str, str]) -> list[Spell]:
    house.events(*({"type": "route", "time": at(when), "instance": who, "state": state} for when, who, state in rows))
    query = """
        select instance, epoch(ended_at) - epoch(time), ending
        from degraded_spells_at($now::timestamptz) order by time, instance
    """
    return [Spell(*row) for row in house.connect().execute(query, {"now": moment(now)}).fetchall()]


def test_recovery_ends_it(house: House) -> None:
    assert spells(house, 400, (0, "a", "degraded"), (120, "a", "recovered")) == [("a", 120, "recovered")]


@pytest.mark.parametrize(("now", "seconds", "ending"), [(330, 330, None), (331, 330, "lost")])
def test_silence_for_more_than_five_minutes_ends_as_lost(
    house: House, now: float, seconds: float, ending: str | None
) -> None:
    assert spells(house, now, (0, "a", "degraded"), (30, "a", "probe")) == [("a", seconds, ending)]


def test_a_lost_instance_that_comes_back_starts_anew(house: House) -> None:
    found = spells(house, 1010, (0, "a", "degraded"), (1000, "a", "degraded"))
    assert found == [("a", 300, "lost"), ("a", 10, None)]


def test_repeated_degraded_belongs_to_one_spell_and_instances_are_apart(house: House) -> None:
    rows = [(0.0, "a", "degraded"), (50.0, "a", "degraded"), (20.0, "b", "degraded"), (40.0, "b", "recovered")]
    assert spells(house, 100, *rows) == [("a", 100, None), ("b", 20, "recovered")]


def test_what_lies_ahead_is_not_known_yet(house: House) -> None:
    assert spells(house, 50, (0, "a", "degraded"), (60, "a", "recovered")) == [("a", 50, None)]
