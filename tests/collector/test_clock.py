"""Times in the wrong unit are told from those that are right, and from small ones."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from collector.clock import LAST_NS, time_problem, wrong_unit
from collector.events_in import parse_events
from pickwise.events import as_datetime

NOW = 1_770_000_000


def test_the_last_moment_is_in_2261() -> None:
    assert as_datetime(LAST_NS) == datetime(2262, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("time", "unit"),
    [
        (NOW, "seconds"),
        (NOW * 10**3 + 7, "milliseconds"),
        (NOW * 10**6 + 7, "microseconds"),
        (NOW * 10**9 + 7, None),
        (0, None),
        (1, None),
        (10**9, None),
        (2 * 10**9, None),
        (10**15, None),
        (LAST_NS - 1, None),
    ],
)
def test_units(time: int, unit: str | None) -> None:
    assert wrong_unit(time) == unit
    problem = time_problem("time", time)
    assert problem is None if unit is None else unit in (problem or "")


@pytest.mark.parametrize("time", [-1, LAST_NS, 2**63 - 1, 10**400])
def test_times_beyond_the_calendar(time: int) -> None:
    assert "expected Unix nanoseconds, before 2262" in (time_problem("startTimeUnixNano", time) or "")


def test_a_native_event_in_milliseconds_is_refused_by_name() -> None:
    lines = [b'{"type": "call", "skill_id": "a", "time": %d}' % time for time in (NOW * 10**3, NOW * 10**9)]
    parsed = parse_events(b"\n".join(lines), "ndjson")
    assert parsed.accepted == 1
    assert parsed.rejected[0].reason == (
        "time: expected Unix nanoseconds, got 1770000000000, which looks like milliseconds"
    )
