from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import formats

GAP = "\u00a0"


@pytest.mark.parametrize(
    ("value", "n", "shown"),
    [
        (None, 0, "–"),
        (float("nan"), 5, "–"),
        (0.0, 300, f"0{GAP}%"),
        (1.0, 300, f"100{GAP}%"),
        (0.6596, 282, f"66.0{GAP}%"),
        (0.6596, 12, f"66{GAP}%"),
        (0.02, None, f"2{GAP}%"),
        (0.005, None, f"0.5{GAP}%"),
    ],
)
def test_a_share_shows_decimals_only_where_they_are_known(value: float | None, n: int | None, shown: str) -> None:
    assert formats.share(value, n) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.42, f"0.4{GAP}ms"),
        (361.83, f"362{GAP}ms"),
        (1240.0, f"1.24{GAP}s"),
        (12_400.0, f"12.4{GAP}s"),
        (180_000.0, f"3{GAP}min"),
    ],
)
def test_milliseconds_become_seconds_and_minutes(value: float | None, shown: str) -> None:
    assert formats.milliseconds(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, f"0{GAP}s"),
        (59.6, f"1{GAP}min"),
        (6480, f"1{GAP}h 48{GAP}min"),
        (86_400 + 60, f"1{GAP}d"),
        (3601, f"1{GAP}h"),
    ],
)
def test_a_duration_names_its_two_largest_units(seconds: float, shown: str) -> None:
    assert formats.duration(seconds) == shown


def test_a_change_of_a_share_is_in_points() -> None:
    assert formats.change(0.52, 0.5, "fraction") == f"+2.0{GAP}pp"
    assert formats.change(0.5, 0.52, "fraction") == f"−2.0{GAP}pp"
    assert formats.change(0.5, 0.5001, "fraction") == f"±0{GAP}pp"
    assert formats.change(None, 0.5, "fraction") == ""
    assert formats.change(300.0, 100.0, "ms") == f"+200{GAP}ms"


def test_a_range_within_one_day_names_it_once() -> None:
    start = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
    assert formats.span(start, start + timedelta(hours=2)) == "2 Mar 2026, 09:30–11:30 UTC"
    assert formats.span(start, start + timedelta(days=1)) == "2 Mar 09:30 – 3 Mar 2026 09:30 UTC"
    assert formats.span(None, None) == "–"


@given(st.floats(allow_nan=True, allow_infinity=True) | st.none(), st.integers(0, 10**9))
def test_no_number_breaks_a_format(value: float | None, n: int) -> None:
    for unit in ("fraction", "ms", "s", "tokens", "spells", "picks"):
        assert formats.with_unit(value, unit, n)
        assert isinstance(formats.change(value, 1.0, unit), str)
