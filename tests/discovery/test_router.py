"""The router: health, and degrade and recover as a pair."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.router import MIN_REQUESTS, Router


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Told:
    def __init__(self) -> None:
        self.states: list[str] = []
        self.fields: list[dict[str, Any]] = []

    def __call__(self, instance: str, state: str, **fields: Any) -> None:
        assert instance == "r"
        self.states.append(state)
        self.fields.append(fields)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def router(told: Told, clock: Clock) -> Router:
    return Router("r", told, probe_s=30.0, clock=clock)


def drive(router: Router, count: int, latency_ms: float = 10.0, ok: bool = True) -> None:
    for _ in range(count):
        router.record("dense", latency_ms, ok)


def test_a_healthy_path_stays(router: Router, told: Told) -> None:
    drive(router, 500)
    assert router.choose() == "dense"
    assert told.states == []


def test_few_requests_say_too_little(router: Router, told: Told) -> None:
    drive(router, MIN_REQUESTS - 1, ok=False)
    assert told.states == []
    drive(router, 1, ok=False)
    assert told.states == ["degraded"]


def test_errors_above_one_percent_degrade(router: Router, told: Told) -> None:
    drive(router, 198)
    drive(router, 2, ok=False)
    assert told.states == []  # 2 of 200 is exactly 1 %
    drive(router, 1, ok=False)
    assert told.states == ["degraded"]
    assert "errors 1.5%" in told.fields[0]["reason"]


def test_one_or_two_bad_requests_are_no_outage(router: Router, told: Told) -> None:
    drive(router, 1, ok=False)
    drive(router, 1, latency_ms=5_000.0)
    drive(router, 40)
    assert told.states == []
    drive(router, 1, ok=False)
    assert told.states == ["degraded"]


def test_a_slow_p99_degrades(router: Router, told: Told) -> None:
    drive(router, 100)
    drive(router, 3, latency_ms=900.0)
    assert told.states == ["degraded"]
    assert "p99" in told.fields[0]["reason"]
    assert told.fields[0]["p99_ms"] > 300


def test_degraded_probes_every_30_seconds_and_recovers_as_a_pair(router: Router, told: Told, clock: Clock) -> None:
    drive(router, 50, ok=False)
    assert router.choose() == "keyword"
    clock.now += 29.9
    assert router.choose() == "keyword"
    clock.now += 0.2
    assert router.choose() == "probe"
    assert router.choose() == "keyword"  # one probe at a time
    router.record("probe", 5.0, ok=False)
    assert router.choose() == "keyword"
    clock.now += 30
    assert router.choose() == "probe"
    router.record("probe", 700.0, ok=True)  # good but slow
    clock.now += 30
    assert router.choose() == "probe"
    router.record("probe", 5.0, ok=True)
    assert router.choose() == "dense"
    assert told.states == ["degraded", "probe", "probe", "probe", "recovered"]
    drive(router, 100)
    assert told.states[-1] == "recovered"


def test_what_was_before_the_outage_is_forgotten(router: Router, told: Told, clock: Clock) -> None:
    drive(router, 50, ok=False)
    clock.now += 30
    assert router.choose() == "probe"
    router.record("probe", 5.0, ok=True)
    drive(router, 100)
    assert told.states.count("degraded") == 1


def test_late_results_of_requests_begun_before_the_outage_change_nothing(router: Router, told: Told) -> None:
    drive(router, 60, ok=False)
    assert told.states == ["degraded"]


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1_000), st.floats(0, 60)), max_size=300))
def test_states_alternate_whatever_happens(requests: list[tuple[bool, float, float]]) -> None:
    told, clock = Told(), Clock()
    router = Router("r", told, clock=clock)
    for ok, latency_ms, wait in requests:
        clock.now += wait
        path = router.choose()
        if path != "keyword":
            router.record(path, latency_ms, ok)
    changes = [state for state in told.states if state != "probe"]
    assert changes == (["degraded", "recovered"] * len(changes))[: len(changes)]
    assert (router.degraded_reason is not None) == (len(changes) % 2 == 1)
