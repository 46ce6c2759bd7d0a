from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dashboard.state import DEFAULT_WINDOW, WINDOWS, window_start

NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def test_young_data_is_shown_whole() -> None:
    assert window_start(DEFAULT_WINDOW, days_ago(6), days_ago(0), NOW) is None


def test_old_data_is_shown_for_a_week() -> None:
    assert window_start(DEFAULT_WINDOW, days_ago(40), days_ago(0), NOW) == days_ago(7)


def test_imported_history_that_ended_long_ago_is_shown_whole() -> None:
    assert window_start(DEFAULT_WINDOW, days_ago(400), days_ago(300), NOW) is None


def test_no_data_has_no_start() -> None:
    assert window_start(DEFAULT_WINDOW, None, None, NOW) is None


def test_a_chosen_window_holds_whatever_the_data() -> None:
    for name, length in WINDOWS.items():
        if name != DEFAULT_WINDOW:
            expected = None if length is None else NOW - length
            assert window_start(name, days_ago(400), days_ago(300), NOW) == expected
