"""A promoted model before it ranks for everyone, and what live traffic says of it.

With the setting `canary_fraction` a newly promoted model ranks for that share of the sessions only, by hash of their
session id. At every refresh of the weights its `top1_acceptance_rate` and `failed_tool_rate` are compared with those of
the model that ranks for the others meanwhile:

- **taken back** when one of them is worse and their 95 % intervals lie apart: its own beyond the old one's. A value
  alone crosses the other's interval by chance, in one of four looks where the new one has few selections.
- **made full** when neither is worse by `canary_margin`, by the 95 % interval of the difference of two rates (Newcombe,
  Statistics in Medicine 1998, method 10), from `canary_min` selections of either on.
- **withdrawn** after 14 days without a verdict.

A model that ranks for everyone is watched for another 7 days and taken back by the same rule, against the figures of
the model before it in the 14 days before the change. Before the first model the score before any model ranked, which
needs none: it is what a bad first model gives way to, and ranked selections without a model are what it did.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from analytics.wilson import wilson
from pickwise.settings import Settings
from ranker.decay import DAY_S
from ranker.log import frame
from ranker.weights_document import Canary, ServedModel, WeightsDocument
from ranker.weights_store import Change, WeightsStore

if TYPE_CHECKING:
    import duckdb

LONGEST_S = 14 * DAY_S
WATCHED_S = 7 * DAY_S
BEFORE_S = 14 * DAY_S
#: Selections with a pick, and calls, of either version from which it can be taken back.
MIN_TAKEN_BACK = 100

Action = Literal["refresh", "promote", "canary", "graduate", "withdraw", "auto_rollback"]
#: What the first model is compared with, as evidence tells it.
NO_MODEL = "score before any model"
#: Actions after which the model in question was found wanting.
TAKEN_BACK = ("withdraw", "auto_rollback")

_LIVE = """
WITH decided AS (
    SELECT project, event_id, model_version, ranked AND len(listed_picks) > 0 AS judged
    FROM selections s
    WHERE project = $project AND model_version IS NOT DISTINCT FROM $version AND ($version IS NOT NULL OR ranked)
        AND epoch_us(time) BETWEEN $since AND $until - 1
        AND (environment IS NULL OR NOT list_contains($excluded, environment))
        AND NOT EXISTS (
            FROM candidates c WHERE c.project = s.project AND c.event_id = s.event_id AND c.team IS NOT NULL)
)
SELECT
    (SELECT count(*) FROM decided WHERE judged) AS judged,
    (SELECT count(*) FROM decided d JOIN candidates c USING (project, event_id)
     WHERE d.judged AND c.rank = 1 AND c.picked) AS top1,
    count(*) AS finished, count(*) FILTER (NOT c.ok) AS failed
FROM decided d JOIN calls c ON c.project = d.project AND c.selection_id = d.event_id
WHERE c.ok IS NOT NULL
"""


@dataclass(frozen=True)
class Rate:
    """A rate with its 95 % Wilson interval; ``value`` is None with n = 0."""

    hits: int
    n: int

    @property
    def value(self) -> float | None:
        return self.hits / self.n if self.n else None

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.hits, self.n)

    def opposite(self) -> Rate:
        return Rate(self.n - self.hits, self.n)

    def told(self) -> dict[str, Any]:
        low, high = self.interval
        return {"value": self.value, "n": self.n, "low": low, "high": high}


@dataclass(frozen=True)
class Live:
    """What one model version did to its selections."""

    top1_acceptance_rate: Rate
    failed_tool_rate: Rate

    def told(self) -> dict[str, Any]:
        return {
            "top1_acceptance_rate": self.top1_acceptance_rate.told(),
            "failed_tool_rate": self.failed_tool_rate.told(),
        }


@dataclass(frozen=True)
class Step:
    """What a refresh of the weights serves, and why the model or its share changed."""

    model: ServedModel | None
    canary: Canary | None
    action: Action = "refresh"
    evidence: dict[str, Any] | None = None


def chosen(canary: Canary | None, session_id: str) -> bool:
    """Whether the canary ranks for this session; never for one without an id.

    The first eight bytes of SHA-256 of ``VERSION:SESSION`` as a share of 2^64, below the fraction: another canary gets
    other sessions.
    """
    if canary is None or not session_id:
        return False
    digest = hashlib.sha256(f"{canary.version}:{session_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 < canary.fraction


def next_step(
    connection: duckdb.DuckDBPyConnection,
    settings: Settings,
    old: WeightsDocument | None,
    history: Sequence[Change],
    promote: ServedModel | None,
    stored: Callable[[str], ServedModel | None],
    now: float,
) -> Step:
    """What to serve next: after a promotion, and by what live traffic says.

    ``history``: changes of the pointer, oldest first; ``stored``: a model version as the weights name it, None where it
    can't be read.
    """
    model = old.model if old else None
    if promote is not None:
        return _promoted(promote, model, settings)
    if old is None or model is None:
        return Step(model, None)
    if old.canary is not None:
        return _canary_step(connection, settings, old.project, model, old.canary, history, stored, now)
    return _watched(connection, settings, old.project, model, history, stored, now)


def objection(data_dir: Path, project: str, version: str) -> str | None:
    """Why a model that the gate lets through isn't promoted now; None where nothing speaks against it."""
    store = WeightsStore(data_dir)
    try:
        running, history = store.document(project).canary, store.history(project)
    finally:
        store.close()
    if running is not None and running.version != version:
        return f"canary {running.version} is still being judged by live traffic"
    for change in history:
        if change["action"] in TAKEN_BACK and change["evidence"]["version"] == version:
            return "this very model was taken back before, see `pickwise weights history`"
    return None


def live(
    connection: duckdb.DuckDBPyConnection,
    settings: Settings,
    project: str,
    version: str | None,
    since: float,
    until: float,
) -> Live:
    """The figures of a model version in [since, until), Unix seconds; None: of what was ranked without a model.

    Interleaved selections are nobody's.
    """
    given = {
        "project": project,
        "version": version,
        "since": int(since * 1e6),
        "until": int(until * 1e6),
        "excluded": settings.excluded_environments,
    }
    row = frame(connection, _LIVE, given).row(0, named=True)
    return Live(Rate(row["top1"], row["judged"]), Rate(row["failed"], row["finished"]))


def worse(new: Live, old: Live) -> list[str]:
    """Metrics of which the new one's interval lies beyond the old one's, on the bad side."""
    pairs = {
        "top1_acceptance_rate": (new.top1_acceptance_rate, old.top1_acceptance_rate),
        "failed_tool_rate": (new.failed_tool_rate.opposite(), old.failed_tool_rate.opposite()),
    }
    return [
        name
        for name, (one, other) in pairs.items()
        if min(one.n, other.n) >= MIN_TAKEN_BACK and one.interval[1] < other.interval[0]
    ]


def not_worse(new: Live, old: Live, settings: Settings) -> bool:
    """Whether neither metric is worse by the margin, with enough selections; calls count where there are any."""
    acceptance = new.top1_acceptance_rate, old.top1_acceptance_rate
    if min(rate.n for rate in acceptance) < settings.canary_min:
        return False
    calls = new.failed_tool_rate.opposite(), old.failed_tool_rate.opposite()
    pairs = [acceptance, calls] if max(rate.n for rate in calls) else [acceptance]
    return all(least_difference(*pair) > -settings.canary_margin for pair in pairs)


def least_difference(new: Rate, old: Rate) -> float:
    """Lower 95 % bound of new - old (Newcombe 1998, method 10); -1 where one of them has nothing."""
    if new.value is None or old.value is None:
        return -1.0
    below, above = new.value - new.interval[0], old.interval[1] - old.value
    return float(new.value - old.value - np.hypot(below, above))


def _promoted(promote: ServedModel, model: ServedModel | None, settings: Settings) -> Step:
    """A canary where there is a model to compare with and the setting asks for one; else in force at once."""
    if settings.canary_fraction > 0 and model is not None and model.version != promote.version:
        return Step(model, Canary(version=promote.version, fraction=settings.canary_fraction), "canary")
    return Step(promote, None, "promote")


def _canary_step(
    connection: duckdb.DuckDBPyConnection,
    settings: Settings,
    project: str,
    model: ServedModel,
    canary: Canary,
    history: Sequence[Change],
    stored: Callable[[str], ServedModel | None],
    now: float,
) -> Step:
    since = _stretch(history, lambda change: change.canary_version == canary.version)[0].at
    new, old = (live(connection, settings, project, version, since, now) for version in (canary.version, model.version))
    evidence = _evidence(canary.version, model.version, new, old, since)
    candidate = stored(canary.version)
    if candidate is None:
        return Step(model, None, "withdraw", evidence | {"reason": "the model can't be read"})
    if reasons := worse(new, old):
        return Step(model, None, "auto_rollback", evidence | {"reason": f"worse: {', '.join(reasons)}"})
    if not_worse(new, old, settings):
        return Step(candidate, None, "graduate", evidence | {"reason": f"not worse by {settings.canary_margin}"})
    if now - since > LONGEST_S:
        return Step(model, None, "withdraw", evidence | {"reason": "no verdict within 14 days"})
    return Step(model, canary)


def _watched(
    connection: duckdb.DuckDBPyConnection,
    settings: Settings,
    project: str,
    model: ServedModel,
    history: Sequence[Change],
    stored: Callable[[str], ServedModel | None],
    now: float,
) -> Step:
    stretch = _stretch(history, lambda change: change.model_version == model.version)
    switch, before = stretch[0], history[: len(history) - len(stretch)]
    if switch.action not in ("promote", "graduate") or now - switch.at > WATCHED_S:
        return Step(model, None)
    replaced = before[-1].model_version if before else None
    previous = stored(replaced) if replaced else None
    if replaced and previous is None:  # nothing to go back to
        return Step(model, None)
    new = live(connection, settings, project, model.version, switch.at, now)
    old = live(connection, settings, project, replaced, switch.at - BEFORE_S, switch.at)
    reasons = worse(new, old)
    if not reasons:
        return Step(model, None)
    evidence = _evidence(model.version, replaced or NO_MODEL, new, old, switch.at)
    return Step(previous, None, "auto_rollback", evidence | {"reason": f"worse: {', '.join(reasons)}"})


def _stretch(history: Sequence[Change], same: Callable[[Change], bool]) -> Sequence[Change]:
    """The newest changes, one after the other, that are the ``same``; at least the newest."""
    start = len(history) - 1
    while start > 0 and same(history[start - 1]):
        start -= 1
    return history[start:]


def _evidence(version: str, against: str, new: Live, old: Live, since: float) -> dict[str, Any]:
    return {"version": version, "against": against, "since": since, "new": new.told(), "old": old.told()}
