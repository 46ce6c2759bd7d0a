"""Times as flags and URLs carry them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pickwise.events import EventError, as_datetime, parse_instant

NEW_YEAR = 1_767_225_600_000_000_000


@pytest.mark.parametrize(
    "text",
    [
        *("2026-01-01T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01 00:00:00Z", "1767225600000000000"),
        *("2026-01-01T02:00:00+02:00", "2026-01-01T02:00:00 02:00", "2026-01-01T02:00:00.000 02:00"),
        "2025-12-31T22:00:00-02:00",
    ],
)
def test_one_moment_in_many_forms(text: str) -> None:
    assert parse_instant(text) == NEW_YEAR


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "NaN", "²", "٣", "9" * 22, "9" * 5_000, "2026-01-01", "\0"])
def test_what_is_no_time_is_named(text: str) -> None:
    with pytest.raises(EventError, match="time: expected"):
        parse_instant(text)


def test_a_moment_is_cut_to_the_microsecond_as_rows_are() -> None:
    assert as_datetime(NEW_YEAR + 123_456_999) == datetime(2026, 1, 1, 0, 0, 0, 123_456, UTC)
