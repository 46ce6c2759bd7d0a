"""When a skill's status changes: pure rules over its calls, first match wins.

Times are Unix microseconds. A rule sees only facts before ``at``, so that any past day can be judged anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.wilson import wilson

Status = Literal["active", "observation", "degraded"]
Reason = Literal["failing", "arguments", "surge", "recovered", "surge_over", "new", "held", "observed"]

SECOND = 1_000_000
DAY = 86_400 * SECOND

#: Window of the flagging rules; also how long a bad day can hold a new skill back.
FLAG_WINDOW = 7 * DAY
MIN_CALLS = 20
DEGRADED_BELOW = 0.5
DEGRADED_FRACTION = 0.1

SURGE_DAYS = 14
SURGE_FACTOR = 3
SURGE_MIN_CALLS = 20
SURGE_BELOW = 0.6
#: Complete days below the surge's volume that end it.
SURGE_QUIET_DAYS = 2

RECOVERY_CALLS = 50
RECOVERED_FROM = 0.5

OBSERVATION_DAYS = 7
#: Days at fraction 0 before a new skill is shown outside test environments.
OBSERVATION_CLOSED_DAYS = 2
OBSERVATION_STEP = 0.2
HOLD_FACTOR = 2
#: Failure rate that is normal in any domain; a domain without failures must not hold a skill for one.
HOLD_FLOOR = 0.05

CANCELLED = "cancelled"
INVALID_ARGUMENTS = "invalid_arguments"

Micros = NDArray[np.int64]


def micros(value: datetime) -> int:
    """Unix microseconds, exactly."""
    delta = value - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * SECOND + delta.microseconds


def moment(value: int) -> datetime:
    """The datetime of Unix microseconds; times before 1970 do not exist here."""
    return datetime.fromtimestamp(max(value, 0) // SECOND, UTC).replace(microsecond=max(value, 0) % SECOND)


def iso(value: int) -> str:
    return moment(value).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True)
class CallHistory:
    """The calls of one skill, by time. ``judged`` calls have an outcome that is the skill's or its interface's."""

    times: Micros
    judged_times: Micros
    judged_ok: NDArray[np.bool_]
    #: Error kind of each judged call, null where it succeeded or none was given.
    judged_kinds: pl.Series

    @classmethod
    def of(
        cls,
        times: Sequence[int] | pl.Series,
        ok: Sequence[bool | None] | pl.Series,
        kinds: Sequence[str | None] | pl.Series,
    ) -> CallHistory:
        """From parallel sequences in any order; ``ok`` None is a call that has not finished."""
        schema = {"time": pl.Int64, "ok": pl.Boolean, "error_kind": pl.String}
        calls = pl.DataFrame({"time": times, "ok": ok, "error_kind": kinds}, schema_overrides=schema)
        ordered = calls.sort("time", maintain_order=True)
        judged = ordered.filter(pl.col("ok").is_not_null() & pl.col("error_kind").ne_missing(CANCELLED))
        return cls(
            times=ordered["time"].to_numpy(),
            judged_times=judged["time"].to_numpy(),
            judged_ok=judged["ok"].to_numpy(),
            judged_kinds=judged["error_kind"].cast(pl.Categorical),
        )

    def count(self, start: int, end: int) -> int:
        """Calls in [start, end), finished or not."""
        return int(np.searchsorted(self.times, end) - np.searchsorted(self.times, start))

    def outcomes(self, start: int, end: int, newest: int | None = None) -> Outcomes:
        """Counts of the judged calls in [start, end), of the ``newest`` so many of them."""
        first, last = (int(np.searchsorted(self.judged_times, bound)) for bound in (start, end))
        if newest is not None:
            first = max(first, last - newest)
        ok = self.judged_ok[first:last]
        failed = self.judged_kinds[first:last].filter(pl.Series(~ok)).cast(pl.String).fill_null("other")
        kinds = dict(sorted(failed.replace("", "other").value_counts().iter_rows()))
        return Outcomes(start=start, end=end, n=len(ok), successes=int(ok.sum()), kinds=kinds)


EMPTY_HISTORY = CallHistory.of([], [], [])


@dataclass(frozen=True)
class Outcomes:
    """Judged calls of one window: their number, successes, and failures by kind."""

    start: int
    end: int
    n: int
    successes: int
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def failures(self) -> int:
        return self.n - self.successes

    @property
    def success_bounds(self) -> tuple[float, float]:
        return wilson(self.successes, self.n)

    @property
    def failure_low(self) -> float:
        return wilson(self.failures, self.n)[0]

    def evidence(self) -> dict[str, Any]:
        low, high = self.success_bounds
        return {
            "window": {"from": iso(self.start), "to": iso(self.end)},
            "calls": self.n,
            "successes": self.successes,
            "failures": self.failures,
            "kinds": self.kinds,
            "success_low": round(low, 6),
            "success_high": round(high, 6),
        }


@dataclass(frozen=True)
class Standing:
    """The status of a skill as of some moment."""

    status: Status = "active"
    reason: str | None = None
    rollout_fraction: float = 1.0
    #: Last change of the status (not of its fraction or reason); None: never changed.
    since: int | None = None
    #: Evidence of the newest row.
    evidence: dict[str, Any] = field(default_factory=dict)
    #: False for a standing that no row has recorded yet.
    recorded: bool = False


@dataclass(frozen=True)
class Case:
    """All that the rules look at for one skill and moment."""

    at: int
    history: CallHistory
    standing: Standing
    #: Start of the skill's newest version; None: it never changed.
    version_since: int | None = None
    #: First entry of a skill that is subject to observation.
    added_at: int | None = None
    #: Failure rate of the other skills of its domain over the flag window; None: no calls.
    domain_failure_rate: float | None = None

    def since(self, *bounds: int | None) -> int:
        return max((bound for bound in bounds if bound is not None), default=0)

    @property
    def since_change(self) -> Outcomes:
        start = self.since(self.at - FLAG_WINDOW, self.standing.since, self.version_since)
        return self.history.outcomes(start, self.at)

    @property
    def day_start(self) -> int:
        """Midnight of the day that ends at, or contains, the last microsecond before ``at``."""
        return (self.at - 1) // DAY * DAY


@dataclass(frozen=True)
class Change:
    status: Status
    reason: Reason
    rollout_fraction: float
    evidence: dict[str, Any]


def decide(case: Case) -> Change | None:
    """The change that the facts before ``case.at`` ask for, or None."""
    for rule in RULES:
        change = rule(case)
        if change is not None:
            return change
    return None


def _failing(case: Case) -> Change | None:
    """Enough calls, and surely most of them fail."""
    # Demotion never promotes: a new skill that is held below this fraction stays held.
    if case.standing.rollout_fraction <= DEGRADED_FRACTION and case.standing.status != "degraded":
        return None
    if case.standing.status == "degraded" and case.standing.reason != "surge":
        return None
    outcomes = case.since_change
    if outcomes.n < MIN_CALLS or outcomes.success_bounds[1] >= DEGRADED_BELOW:
        return None
    mostly_arguments = 2 * outcomes.kinds.get(INVALID_ARGUMENTS, 0) >= outcomes.failures
    reason: Reason = "arguments" if mostly_arguments else "failing"
    return Change("degraded", reason, DEGRADED_FRACTION, {"rule": "failing", **outcomes.evidence()})


def _surging(case: Case) -> Change | None:
    """Suddenly called far more than usual, and failing more than it should."""
    if case.standing.status != "active":
        return None
    day = case.day_start
    median = float(np.median(daily_counts(case.history, day - SURGE_DAYS * DAY, SURGE_DAYS)))
    volume = max(SURGE_MIN_CALLS, SURGE_FACTOR * median)
    # From the last change on: a skill that has just recovered must not fall back for the calls before.
    start = case.since(day, case.standing.since, case.version_since)
    calls = case.history.count(start, case.at)
    if calls < volume:
        return None
    outcomes = case.history.outcomes(start, case.at)
    if outcomes.success_bounds[1] >= SURGE_BELOW:
        return None
    evidence = {"rule": "surge", **outcomes.evidence(), "day": iso(day), "volume": volume, "median": median}
    return Change("degraded", "surge", DEGRADED_FRACTION, evidence | {"day_calls": calls})


def _recovered(case: Case) -> Change | None:
    """The newest calls since the change surely succeed at least half the time."""
    if case.standing.status != "degraded":
        return None
    start = case.since(case.standing.since, case.version_since)
    outcomes = case.history.outcomes(start, case.at, newest=RECOVERY_CALLS)
    if outcomes.n < MIN_CALLS or outcomes.success_bounds[0] < RECOVERED_FROM:
        return None
    return Change("active", "recovered", 1.0, {"rule": "recovery", **outcomes.evidence()})


def _surge_over(case: Case) -> Change | None:
    """The last two complete days stayed below the surge's volume."""
    if case.standing.status != "degraded" or case.standing.reason != "surge":
        return None
    evidence = case.standing.evidence
    day, volume = micros(datetime.fromisoformat(evidence["day"])), float(evidence["volume"])
    last_complete = case.at // DAY * DAY
    first_quiet = last_complete - SURGE_QUIET_DAYS * DAY
    if first_quiet < day + DAY:
        return None
    counts = daily_counts(case.history, first_quiet, SURGE_QUIET_DAYS)
    if max(counts) >= volume:
        return None
    window = {"from": iso(first_quiet), "to": iso(last_complete)}
    return Change(
        "active", "surge_over", 1.0, {"rule": "surge_over", "window": window, "daily_calls": counts, "volume": volume}
    )


def _observed(case: Case) -> Change | None:
    """A new skill opens up day by day, unless it fails far more than its domain."""
    standing = case.standing
    if standing.status != "observation" or case.added_at is None:
        return None
    days = (case.at - case.added_at) // DAY
    outcomes = case.history.outcomes(case.since(case.at - FLAG_WINDOW, case.added_at, case.version_since), case.at)
    limit = HOLD_FACTOR * max(case.domain_failure_rate or 0.0, HOLD_FLOOR)
    held = outcomes.failure_low > limit
    evidence = {
        "rule": "observation",
        **outcomes.evidence(),
        "days": days,
        "failure_low": round(outcomes.failure_low, 6),
        "hold_above": round(limit, 6),
    }
    if days >= OBSERVATION_DAYS and not held:
        return Change("active", "observed", 1.0, evidence)
    fraction = standing.rollout_fraction if held else observation_fraction(days)
    reason: Reason = "held" if held else "new"
    if standing.recorded and (fraction, reason) == (standing.rollout_fraction, standing.reason):
        return None
    return Change("observation", reason, fraction, evidence)


#: A degraded skill's way out comes before any new charge.
RULES: tuple[Callable[[Case], Change | None], ...] = (_recovered, _failing, _surging, _surge_over, _observed)


def observation_fraction(days: int) -> float:
    """Share of the traffic outside test environments that a new skill is shown to after so many whole days."""
    return round(min(1.0, max(0.0, OBSERVATION_STEP * (days - OBSERVATION_CLOSED_DAYS))), 6)


def daily_counts(history: CallHistory, first_day: int, days: int) -> list[int]:
    """Calls of each of ``days`` days from ``first_day`` on; silent days are 0."""
    return [history.count(first_day + i * DAY, first_day + (i + 1) * DAY) for i in range(days)]
