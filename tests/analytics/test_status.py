"""Status rules with hand-computed examples, the registry they read, and the way out of every state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.status import StatusJudge, current_status, load_judge
from analytics.status_rules import DAY, SECOND, CallHistory, Case, Standing, decide, micros, observation_fraction
from collector.tables import TABLES
from tests.analytics.conftest import BEGINNING, House, entry

#: A midnight.
DAY_0 = micros(datetime(2026, 3, 2, tzinfo=UTC))
EXCLUDED = ["test", "staging", "eval", "ci"]

Call = tuple[int, bool | None, str | None]


def spread(start: int, good: int = 0, bad: int = 0, kind: str = "tool_error", step: int = SECOND) -> list[Call]:
    """Calls one after another from ``start``: first the failures."""
    outcomes: list[tuple[bool, str | None]] = [(False, kind)] * bad + [(True, None)] * good
    return [(start + i * step, ok, error) for i, (ok, error) in enumerate(outcomes)]


def case(calls: Sequence[Call], at: int, standing: Standing | None = None, **facts: Any) -> Case:
    history = (
        CallHistory.of(*(list(column) for column in zip(*calls, strict=True))) if calls else CallHistory.of([], [], [])
    )
    return Case(at=at, history=history, standing=standing or Standing(), **facts)


def verdict(found: Case) -> tuple[str, str] | None:
    change = decide(found)
    return None if change is None else (change.status, change.reason)


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [
        (0, 19, None),
        (0, 20, ("degraded", "failing")),
        (5, 15, ("degraded", "failing")),  # upper bound of 5/20: 0.4687
        (6, 14, None),  # of 6/20: 0.5190
    ],
)
def test_degraded_needs_twenty_calls_and_an_upper_bound_below_half(
    good: int, bad: int, expected: tuple[str, str] | None
) -> None:
    # Over six days: too thin for a surge.
    calls = spread(DAY_0, good, bad, step=DAY // 4)
    assert verdict(case(calls, DAY_0 + 6 * DAY)) == expected


def test_cancelled_and_unfinished_calls_are_left_out() -> None:
    quarter = DAY // 4
    calls = spread(DAY_0, bad=19, step=quarter) + spread(DAY_0, bad=30, kind="cancelled", step=quarter // 8)
    calls += [(DAY_0 + i, None, None) for i in range(5)]
    found = case(calls, DAY_0 + 6 * DAY)
    assert found.since_change.n == 19
    assert verdict(found) is None


@pytest.mark.parametrize(("invalid", "reason"), [(9, "failing"), (10, "arguments")])
def test_the_reason_is_arguments_from_half_of_the_failures_on(invalid: int, reason: str) -> None:
    calls = spread(DAY_0, bad=20 - invalid, step=DAY // 4)
    calls += spread(DAY_0 + 1, bad=invalid, kind="invalid_arguments", step=DAY // 4)
    assert verdict(case(calls, DAY_0 + 6 * DAY)) == ("degraded", reason)


def test_calls_older_than_seven_days_do_not_count() -> None:
    calls = spread(DAY_0, bad=20, step=DAY // 10)
    assert verdict(case(calls, DAY_0 + 7 * DAY)) is not None
    assert verdict(case(calls, DAY_0 + 7 * DAY + 1)) is None


def test_a_new_version_starts_the_count_anew() -> None:
    calls = spread(DAY_0, bad=20, step=DAY // 4)
    at = DAY_0 + 6 * DAY
    assert verdict(case(calls, at, version_since=DAY_0)) == ("degraded", "failing")
    assert verdict(case(calls, at, version_since=DAY_0 + 1)) is None


def test_the_last_change_starts_the_count_anew() -> None:
    calls = spread(DAY_0, bad=20, step=DAY // 4)
    standing = Standing("active", "recovered", 1.0, since=DAY_0 + 1, recorded=True)
    assert verdict(case(calls, DAY_0 + 6 * DAY, standing)) is None


def degraded(since: int, reason: str = "failing", **evidence: Any) -> Standing:
    return Standing("degraded", reason, 0.1, since=since, evidence=evidence, recorded=True)


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [
        (19, 0, None),
        (20, 0, ("active", "recovered")),
        (15, 5, ("active", "recovered")),  # lower bound of 15/20: 0.5313
        (14, 6, None),  # of 14/20: 0.4810
    ],
)
def test_recovery_needs_twenty_calls_and_a_lower_bound_of_half(
    good: int, bad: int, expected: tuple[str, str] | None
) -> None:
    calls = spread(DAY_0, bad=40) + spread(DAY_0 + DAY, good, bad)
    assert verdict(case(calls, DAY_0 + 2 * DAY, degraded(DAY_0 + DAY))) == expected


def test_recovery_looks_at_the_newest_fifty_calls() -> None:
    calls = spread(DAY_0, bad=200) + spread(DAY_0 + 1000 * SECOND, good=50)
    assert verdict(case(calls, DAY_0 + DAY, degraded(DAY_0))) == ("active", "recovered")
    # Thirty good of the newest fifty: 0.4618.
    calls = spread(DAY_0, bad=200) + spread(DAY_0 + 1000 * SECOND, good=30)
    assert verdict(case(calls, DAY_0 + DAY, degraded(DAY_0))) is None


@pytest.mark.parametrize(
    ("calls_a_day", "calls", "expected"),
    [
        (0, 19, None),
        (0, 20, ("degraded", "surge")),
        (10, 29, None),  # three times the median of ten
        (10, 30, ("degraded", "surge")),
    ],
)
def test_a_surge_is_measured_by_the_two_weeks_before(
    calls_a_day: int, calls: int, expected: tuple[str, str] | None
) -> None:
    before = [call for d in range(1, 15) for call in spread(DAY_0 - d * DAY, good=calls_a_day)]
    # Upper bound of success: 7/20 0.567, 12/30 0.577.
    good = calls * 2 // 5 if calls_a_day else calls * 7 // 20
    today = spread(DAY_0, good, calls - good)
    assert verdict(case(before + today, DAY_0 + DAY)) == expected


def test_silent_days_count_as_zero() -> None:
    # Seven of fourteen days silent: the median is (0 + 40) / 2 = 20, the volume 60.
    before = [call for d in range(1, 8) for call in spread(DAY_0 - d * DAY, good=40)]
    assert verdict(case(before + spread(DAY_0, good=15, bad=44), DAY_0 + DAY)) is None
    change = decide(case(before + spread(DAY_0, good=15, bad=45), DAY_0 + DAY))
    assert change is not None
    assert (change.reason, change.evidence["volume"]) == ("surge", 60)


def test_much_traffic_that_succeeds_is_no_surge() -> None:
    # Upper bound of 9/20: 0.6579.
    assert verdict(case(spread(DAY_0, good=9, bad=11), DAY_0 + DAY)) is None


def test_a_surge_ends_after_two_complete_days_below_its_volume() -> None:
    standing = degraded(DAY_0 + DAY, "surge", day="2026-03-02T00:00:00Z", volume=20)
    quiet = spread(DAY_0 + DAY, bad=9) + spread(DAY_0 + 2 * DAY, bad=9)
    assert verdict(case(quiet, DAY_0 + 3 * DAY - 1, standing)) is None
    assert verdict(case(quiet, DAY_0 + 3 * DAY, standing)) == ("active", "surge_over")
    loud = spread(DAY_0 + DAY, good=10, bad=10) + spread(DAY_0 + 2 * DAY, bad=1)
    assert verdict(case(loud, DAY_0 + 3 * DAY, standing)) is None


def test_a_surge_that_keeps_failing_is_failing() -> None:
    standing = degraded(DAY_0 + DAY, "surge", day="2026-03-02T00:00:00Z", volume=100)
    assert verdict(case(spread(DAY_0 + DAY, bad=20), DAY_0 + 3 * DAY, standing)) == ("degraded", "failing")


def test_a_recovered_skill_does_not_surge_for_the_calls_before() -> None:
    calls = spread(DAY_0, bad=100) + spread(DAY_0 + 200 * SECOND, good=50)
    standing = Standing("active", "recovered", 1.0, since=DAY_0 + 300 * SECOND, recorded=True)
    assert verdict(case(calls, DAY_0 + DAY, standing)) is None


@pytest.mark.parametrize(("days", "fraction"), [(0, 0), (2, 0), (3, 0.2), (4, 0.4), (6, 0.8), (7, 1.0)])
def test_a_new_skill_opens_up_day_by_day(days: int, fraction: float) -> None:
    assert observation_fraction(days) == fraction


def new(fraction: float = 0.0, reason: str = "new") -> Standing:
    return Standing("observation", reason, fraction, since=DAY_0, recorded=True)


def test_observation_ends_after_seven_days() -> None:
    change = decide(case([], DAY_0 + 7 * DAY, new(0.8), added_at=DAY_0))
    assert change is not None
    assert (change.status, change.reason, change.rollout_fraction) == ("active", "observed", 1.0)
    change = decide(case([], DAY_0 + 6 * DAY, new(0.6), added_at=DAY_0))
    assert change is not None
    assert (change.status, change.rollout_fraction) == ("observation", 0.8)


@pytest.mark.parametrize(
    ("bad", "domain_rate", "held"),
    [
        (3, None, True),  # lower bound of 3/10: 0.1078; limit 2 × max(0, 0.05) = 0.1
        (2, None, False),  # of 2/10: 0.0567
        (3, 0.06, False),  # limit 0.12
        (6, 0.06, True),  # of 6/10: 0.3127
    ],
)
def test_failing_more_than_twice_the_domain_holds_a_new_skill(bad: int, domain_rate: float | None, held: bool) -> None:
    calls = spread(DAY_0, good=10 - bad, bad=bad)
    change = decide(case(calls, DAY_0 + 4 * DAY, new(0.2), added_at=DAY_0, domain_failure_rate=domain_rate))
    assert change is not None
    assert (change.reason, change.rollout_fraction) == (("held", 0.2) if held else ("new", 0.4))


def test_a_hold_ends_when_the_bad_days_are_a_week_old() -> None:
    calls = spread(DAY_0, bad=10)
    assert verdict(case(calls, DAY_0 + 7 * DAY, new(0.0, "held"), added_at=DAY_0)) is None
    assert verdict(case(calls, DAY_0 + 8 * DAY, new(0.0, "held"), added_at=DAY_0)) == ("active", "observed")


def test_a_demotion_never_promotes() -> None:
    calls = spread(DAY_0, bad=40)
    assert verdict(case(calls, DAY_0 + DAY, new(0.0), added_at=DAY_0)) == ("observation", "held")
    assert verdict(case(calls, DAY_0 + 5 * DAY, new(0.6), added_at=DAY_0)) == ("degraded", "failing")


REGISTRY = {"source": "declared", "authoritative": True, "domain": None, "is_active": True}


def judge(calls: Sequence[Call], added_day: int | None = None, **changes: Any) -> StatusJudge:
    """A judge over one skill ``a`` (and a first registry with ``b``)."""
    start = BEGINNING if added_day is None else BEGINNING + timedelta(microseconds=added_day)
    rows = [
        REGISTRY | {"skill_id": "b", "version": None, "valid_from": BEGINNING, "valid_to": None},
        REGISTRY | {"skill_id": "a", "version": None, "valid_from": start, "valid_to": None} | changes,
    ]
    time = pl.Datetime("us", "UTC")
    registry = pl.DataFrame(rows, schema_overrides={"valid_from": time, "valid_to": time, "version": pl.String})
    frame = pl.DataFrame(
        [("a", BEGINNING + timedelta(microseconds=t), ok, kind) for t, ok, kind in calls],
        schema=pl.Schema([("skill_id", pl.String), ("time", time), ("ok", pl.Boolean), ("error_kind", pl.String)]),
        orient="row",
    )
    return StatusJudge(registry, frame, TABLES["skill_status"].to_frame())


def test_a_day_judged_twice_changes_nothing_the_second_time() -> None:
    found = judge(spread(DAY_0, bad=30))
    assert found.judge(DAY_0 + DAY)["status"].to_list() == ["degraded"]
    assert found.judge(DAY_0 + DAY).height == 0


def test_a_day_knows_only_what_happened_before_its_end() -> None:
    found = judge(spread(DAY_0 + DAY, bad=30))
    assert found.judge(DAY_0 + DAY).height == 0
    assert found.judge(DAY_0 + DAY + DAY).height == 1


outcome = st.sampled_from([(True, None), (False, "tool_error"), (False, "invalid_arguments"), (None, None)])
burst = st.tuples(st.integers(0, 14 * 24), st.integers(1, 60), outcome)


@settings(deadline=None, max_examples=30)
@given(st.lists(burst, max_size=8), st.booleans())
def test_every_state_is_left_when_good_calls_arrive(bursts: list[tuple[int, int, Any]], is_new: bool) -> None:
    """Whatever a fortnight did to a skill, it is active again after good days."""
    calls = [(DAY_0 + hour * 3600 * SECOND + i * SECOND, *found) for hour, count, found in bursts for i in range(count)]
    for day in range(15, 26):
        calls += spread(DAY_0 + day * DAY, good=25)
    found = judge(calls, added_day=DAY_0 if is_new else None)
    rows = [row for day in range(1, 27) for row in found.judge(DAY_0 + day * DAY).to_dicts()]
    fractions = [row["rollout_fraction"] for row in rows if row["status"] == "degraded"]
    assert all(fraction > 0 for fraction in fractions), "degraded demotes, it never hides"
    assert not rows or rows[-1]["status"] == "active"


# Over real tables.


def call_event(i: int, skill: str = "a", minutes: float = 1.0, **fields: Any) -> dict[str, Any]:
    time = datetime(2026, 3, 2, tzinfo=UTC) + timedelta(minutes=minutes * i)
    failed = {"ok": False, "error_kind": "tool_error"}
    return (
        {"type": "call", "event_id": f"{skill}{i}-{minutes}", "time": time.isoformat(), "skill_id": skill}
        | failed
        | fields
    )


def judged(house: House, day: datetime) -> list[dict[str, Any]]:
    at = micros(day)
    return load_judge(house.connect(), "default", at - DAY, at, EXCLUDED).judge(at).to_dicts()


def test_excluded_environments_raise_no_flag(house: House) -> None:
    house.write(entry("a"))
    house.events(*(call_event(i, environment="staging") for i in range(40)))
    assert judged(house, datetime(2026, 3, 3, tzinfo=UTC)) == []
    house.events(*(call_event(i, minutes=2, environment="production") for i in range(20)))
    (row,) = judged(house, datetime(2026, 3, 3, tzinfo=UTC))
    assert (row["skill_id"], row["status"], row["previous_status"]) == ("a", "degraded", "active")
    assert '"calls": 20' in row["evidence"]


def test_a_new_version_in_the_registry_is_found(house: House) -> None:
    changed_at = datetime(2026, 3, 2, 0, 10, tzinfo=UTC)
    house.write(entry("a", version="1"), entry("a", changed_at, version="2", seq=1), entry("b", version="1"))
    house.write(entry("b", changed_at, version="1", description="other words", seq=2))
    house.events(*(call_event(i, skill) for i in range(20) for skill in ("a", "b")))
    assert [row["skill_id"] for row in judged(house, datetime(2026, 3, 3, tzinfo=UTC))] == ["b"]


def test_calls_of_names_that_no_skill_bears_flag_nothing(house: House) -> None:
    house.write(entry("a"))
    house.events(*(call_event(i, "invented_name") for i in range(40)))
    assert judged(house, datetime(2026, 3, 3, tzinfo=UTC)) == []


def test_a_project_without_registry_is_judged_by_the_called_names(house: House) -> None:
    house.events(*(call_event(i) for i in range(40)))
    assert [row["skill_id"] for row in judged(house, datetime(2026, 3, 3, tzinfo=UTC))] == ["a"]


def test_current_status_of_first_and_later_skills(house: House) -> None:
    added = datetime(2026, 3, 2, tzinfo=UTC)
    house.write(entry("first"), entry("later", added, seq=1), entry("gone"), entry("gone", added, seq=2, op="retire"))
    house.write(entry("seen", added, source="observed"))
    found = current_status(house.connect(), "default", added + timedelta(days=1)).to_dicts()
    assert found == [
        {"skill_id": "first", "status": "active", "rollout_fraction": 1.0, "since": None, "reason": None},
        {"skill_id": "later", "status": "observation", "rollout_fraction": 0.0, "since": added, "reason": "new"},
    ]
    before = current_status(house.connect(), "default", added - timedelta(days=1))
    assert before["skill_id"].to_list() == ["first", "gone"]
