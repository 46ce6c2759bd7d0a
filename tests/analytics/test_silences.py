"""Hours of the week, and silences that an operator asks for."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from analytics import silences
from analytics.silences import Silence, parse_hours
from collector.control import Control
from tests.analytics.conftest import moment


@pytest.mark.parametrize(
    ("hours", "covered", "open_again"),
    [
        ("22:00-06:00", ["2026-03-02T22:00", "2026-03-03T05:59"], ["2026-03-02T21:59", "2026-03-02T06:00"]),
        ("09:00-17:00", ["2026-03-02T09:00", "2026-03-08T16:59"], ["2026-03-02T08:59", "2026-03-02T17:00"]),
        ("sat,sun 00:00-24:00", ["2026-03-07T00:00", "2026-03-08T23:59"], ["2026-03-06T23:59", "2026-03-09T00:00"]),
        ("fri 22:00-06:00", ["2026-03-06T22:00", "2026-03-07T05:59"], ["2026-03-06T05:59", "2026-03-07T22:00"]),
        ("12:00-12:00", ["2026-03-02T12:00", "2026-03-03T11:59"], []),
    ],
)
def test_hours_of_the_week(hours: str, covered: list[str], open_again: list[str]) -> None:
    found = parse_hours(hours)
    assert all(found.cover(datetime.fromisoformat(f"{time}:00+00:00")) for time in covered)
    assert not any(found.cover(datetime.fromisoformat(f"{time}:00+00:00")) for time in open_again)


def test_hours_are_those_of_utc() -> None:
    assert parse_hours("22:00-23:00").cover(datetime.fromisoformat("2026-03-03T00:30:00+02:00"))


@pytest.mark.parametrize("hours", ["", "22-6", "25:00-26:00", "24:00-06:00", "22:00-24:30", "so 00:00-24:00", "mon"])
def test_what_are_no_hours(hours: str) -> None:
    with pytest.raises(ValueError, match="expected hours"):
        parse_hours(hours)


def test_a_silence_covers_what_it_names() -> None:
    whole = Silence(project="p", start=moment(0), end=moment(60))
    one = Silence(project="p", rule="r", group="", start=moment(0), end=moment(60))
    assert whole.covers("p", "any", "g", moment(0))
    assert not whole.covers("other", "any", "g", moment(0))
    assert not whole.covers("p", "any", "g", moment(60))
    assert one.covers("p", "r", "", moment(1))
    assert not one.covers("p", "r", "g", moment(1))
    assert not one.covers("p", "s", "", moment(1))


def test_silences_are_kept_until_they_end(tmp_path: Path) -> None:
    with closing(Control(tmp_path)) as control:
        long, short = (Silence(project="p", start=moment(0), end=moment(s)) for s in (60, 30))
        other = Silence(project="p", rule="r", start=moment(0), end=moment(40))
        for silence in (long, other):
            silences.add(control, silence)
        assert silences.standing(control, moment(1)) == [other, long]
        # The same start of the same thing is the same silence, with a new end.
        silences.add(control, short)
        assert silences.standing(control, moment(1)) == [short, other]
        assert silences.standing(control, moment(0) + timedelta(seconds=30)) == [other]
        assert silences.remove(control, other.id)
        assert not silences.remove(control, other.id)
        assert control.items("silence/") == {}
