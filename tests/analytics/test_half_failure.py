"""Degraded spells of a router: recovered, lost, or still there."""

from __future__ import annotations

import polars as pl
import pytest

from analytics.half_failure import Episode, episodes
from tests.analytics.conftest import moment


def spells(now: float, *rows: tuple[float, str, str]) -> list[Episode]:
    schema = pl.Schema([("instance", pl.String), ("time", pl.Datetime("us", "UTC")), ("state", pl.String)])
    routes = pl.DataFrame([(who, moment(when), state) for when, who, state in rows], schema=schema, orient="row")
    return episodes(routes.with_columns(pl.lit("p99").alias("reason")), moment(now))


@pytest.mark.parametrize(("now", "half"), [(90, False), (90.001, True)])
def test_half_failure_begins_after_more_than_three_probes(now: float, half: bool) -> None:
    (spell,) = spells(now, (0, "a", "degraded"), (30, "a", "probe"), (60, "a", "probe"))
    assert (spell.half_failure, spell.ending) == (half, None)


def test_recovery_ends_it() -> None:
    (spell,) = spells(400, (0, "a", "degraded"), (120, "a", "recovered"))
    assert (spell.ending, spell.degraded_seconds, spell.half_failure) == ("recovered", 120, True)


def test_silence_for_more_than_five_minutes_ends_as_lost() -> None:
    rows = [(0.0, "a", "degraded"), (30.0, "a", "probe")]
    assert spells(330, *rows)[0].ending is None
    (spell,) = spells(331, *rows)
    assert (spell.ending, spell.degraded_seconds) == ("lost", 330)


def test_a_lost_instance_that_comes_back_starts_anew() -> None:
    first, second = spells(1010, (0, "a", "degraded"), (1000, "a", "degraded"))
    assert (first.ending, second.ending, second.degraded_seconds) == ("lost", None, 10)


def test_repeated_degraded_belongs_to_one_spell_and_instances_are_apart() -> None:
    found = spells(100, (0, "a", "degraded"), (50, "a", "degraded"), (20, "b", "degraded"), (40, "b", "recovered"))
    assert [(s.instance, s.degraded_seconds, s.ending) for s in found] == [("a", 100, None), ("b", 20, "recovered")]


def test_what_lies_ahead_is_not_known_yet() -> None:
    (spell,) = spells(50, (0, "a", "degraded"), (60, "a", "recovered"))
    assert spell.ending is None
