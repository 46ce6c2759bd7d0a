"""Quotas: nothing more passes over time than was granted, and no batch is too large to ever come in."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import quotas
from collector.keys import ApiKey
from collector.quotas import BURST_S, Meter, QuotaExceeded

DAY = datetime(2026, 5, 1, 23, 59, 30, tzinfo=UTC)


class Clock:
    """Both clocks of the module, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = DAY.timestamp()
        clock = self

        class Moment(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
                return datetime.fromtimestamp(clock.now, tz)

        monkeypatch.setattr(quotas, "datetime", Moment)
        monkeypatch.setattr(quotas, "time", SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now))


def key(**quota: Any) -> ApiKey:
    return ApiKey(id="i", project="p", name="", roles=("ingest",), secret_hash="", created_at=0.0, **quota)


def exceeded(meter: Meter, of: ApiKey) -> tuple[str, int] | None:
    try:
        meter.check(of)
    except QuotaExceeded as error:
        return error.quota, error.retry_after_s
    return None


def test_a_debt_is_paid_before_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    granted = key(events_per_second=2.0)
    meter = Meter(granted)
    assert exceeded(meter, granted) is None
    meter.charge(granted, 120, 0)  # 20 were saved up
    assert exceeded(meter, granted) == ("events_per_second", 51)
    clock.now += 50
    assert exceeded(meter, granted) == ("events_per_second", 1)
    clock.now += 1
    assert exceeded(meter, granted) is None


def test_a_day_ends_at_midnight_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    granted = key(bytes_per_day=100)
    meter = Meter(granted)
    meter.charge(granted, 0, 99)
    assert exceeded(meter, granted) is None
    meter.charge(granted, 0, 1)
    assert exceeded(meter, granted) == ("bytes_per_day", 30)
    clock.now += 30
    assert exceeded(meter, granted) is None
    assert meter.bytes_today == 0


def test_what_was_used_before_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    today, before = DAY.date().isoformat(), "2026-04-30"
    for day, refused in ((today, True), (before, False)):
        granted = key(bytes_per_day=100, used_day=day, used_bytes=100)
        assert (exceeded(Meter(granted), granted) is not None) is refused


def test_without_quotas_nothing_is_refused() -> None:
    free = key()
    meter = Meter(free)
    meter.charge(free, 10**9, 10**12)
    assert exceeded(meter, free) is None


@given(
    rate=st.floats(0.1, 1_000),
    steps=st.lists(st.tuples(st.floats(0, 30), st.integers(1, 5_000)), min_size=1, max_size=60),
)
def test_over_time_no_more_passes_than_was_granted(rate: float, steps: list[tuple[float, int]]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        clock = Clock(monkeypatch)
        granted = key(events_per_second=rate)
        meter = Meter(granted)
        start, passed, last = clock.now, 0, 0
        for wait, events in steps:
            clock.now += wait
            if exceeded(meter, granted) is None:
                meter.charge(granted, events, 0)
                passed, last = passed + events, events
        burst = max(1.0, BURST_S * rate)
        assert passed - last <= burst + rate * (clock.now - start) + 1e-6 * passed
        for _ in itertools.count():  # and what was told helps: the sender gets in after the waits that it was told
            found = exceeded(meter, granted)
            if found is None:
                break
            clock.now += found[1]
