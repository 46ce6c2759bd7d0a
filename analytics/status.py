"""The status of every skill: what it is at any moment, and the changes that one more day of facts brings."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import duckdb
import polars as pl

from analytics.fetch import fetch
from analytics.status_rules import (
    DAY,
    EMPTY_HISTORY,
    FLAG_WINDOW,
    SURGE_DAYS,
    CallHistory,
    Case,
    Change,
    Standing,
    decide,
    micros,
    moment,
)
from collector.tables import REAL, TABLES, TEXT, TIME

STATUS_COLUMNS = pl.Schema(
    [
        ("skill_id", TEXT),
        ("status", TEXT),
        ("rollout_fraction", REAL),
        ("since", TIME),
        ("reason", TEXT),
    ]
)
#: Calls that are taken from the tables at once.
_BATCH = 1_000_000
#: A row carries the last microsecond of what it judged, so that it lies within its day.
TICK = 1

_REGISTRY = """
SELECT skill_id, source, authoritative, version, domain, is_active, valid_from, valid_to
FROM skills WHERE project = $project
ORDER BY skill_id, valid_from
"""
# Calls that say something about a skill: known ones, or any where the project has no registry to know them by.
_CALLS = """
SELECT coalesce(registry_skill_id, skill_id) AS skill_id, time, ok, error_kind
FROM calls
WHERE project = $project AND time >= $start AND time < $end
  AND (name_class IS NULL OR name_class = 'known')
  AND (environment IS NULL OR NOT list_contains($excluded, environment))
"""
_ROWS = """
SELECT skill_id, time, status, previous_status, reason, rollout_fraction, evidence
FROM skill_status WHERE project = $project ORDER BY time
"""


@dataclass(frozen=True)
class RegisteredSkill:
    """What the registry knew of a skill as of some moment (times in Unix microseconds)."""

    skill_id: str
    domain: str | None
    version_since: int | None
    #: When it was added, for a skill that came after the project's first registry; else None.
    added_at: int | None


def current_status(
    connection: duckdb.DuckDBPyConnection,
    project: str,
    at: datetime | None = None,
    changes: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Status of every active skill of the registry, and of every skill that ever changed, as of ``at`` (now).

    ``changes``: the rows of ``skill_status``, where they are newer than those of the connection.
    Columns: skill_id, status, rollout_fraction, since (null: always so), reason (null: never changed).
    """
    instant = micros(at or datetime.now(UTC))
    registered = registry_at(fetch(connection, _REGISTRY, project=project), instant)
    ledger = Ledger(fetch(connection, _ROWS, project=project) if changes is None else changes)
    known = registered.keys() | ledger.skills(instant)
    rows = [
        (skill_id, standing.status, standing.rollout_fraction, standing.since, standing.reason)
        for skill_id in sorted(known)
        for standing in [ledger.standing(skill_id, registered.get(skill_id), instant)]
    ]
    frame = pl.DataFrame(rows, schema=dict(STATUS_COLUMNS) | {"since": pl.Int64}, orient="row")
    return frame.with_columns(pl.from_epoch("since", time_unit="us").dt.replace_time_zone("UTC")).cast(STATUS_COLUMNS)


class Ledger:
    """All recorded changes of one project's skills; new ones are added as they are decided."""

    def __init__(self, rows: pl.DataFrame) -> None:
        """``rows``: skill_id, time, status, previous_status, reason, rollout_fraction, evidence (JSON)."""
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows.sort("time").iter_rows(named=True):
            self._rows[row["skill_id"]].append(row | {"time": micros(row["time"])})

    def skills(self, at: int) -> set[str]:
        return {skill_id for skill_id, rows in self._rows.items() if rows[0]["time"] < at}

    def standing(self, skill_id: str, registered: RegisteredSkill | None, at: int) -> Standing:
        """The skill's standing as its rows before ``at`` tell it; without rows, as the registry implies it."""
        rows = [row for row in self._rows.get(skill_id, ()) if row["time"] < at]
        added_at = registered.added_at if registered is not None else None
        if not rows:
            return Standing() if added_at is None else Standing("observation", "new", 0.0, since=added_at)
        newest = rows[-1]
        changes = [row["time"] for row in rows if row["status"] != row["previous_status"]]
        since = changes[-1] if changes else rows[0]["time"]
        return Standing(
            status=newest["status"],
            reason=newest["reason"],
            rollout_fraction=newest["rollout_fraction"],
            since=added_at if newest["status"] == "observation" and added_at is not None else since,
            evidence=json.loads(newest["evidence"] or "{}"),
            recorded=True,
        )

    def add(self, skill_id: str, before: Standing, change: Change, time: int) -> dict[str, Any]:
        """Record a change; returns its row (``time`` in microseconds)."""
        row = {
            "skill_id": skill_id,
            "time": time,
            "status": change.status,
            # The first row of a new skill is a change too: nothing was recorded before it.
            "previous_status": before.status if before.recorded or before.status == "active" else None,
            "reason": change.reason,
            "rollout_fraction": change.rollout_fraction,
            "evidence": json.dumps(change.evidence, sort_keys=True),
        }
        rows = self._rows[skill_id]
        rows.append(row)
        rows.sort(key=lambda item: item["time"])
        return row


class StatusJudge:
    """Judges a project's skills day by day over facts loaded once."""

    def __init__(self, registry: pl.DataFrame, calls: pl.DataFrame, rows: pl.DataFrame) -> None:
        """Frames with the columns of the views: skills' history, calls (skill_id, time, ok, error_kind), changes."""
        self._registry = registry
        self._ledger = Ledger(rows)
        self._histories = {
            str(key[0]): CallHistory.of(group["time"], group["ok"], group["error_kind"])
            for key, group in calls.with_columns(pl.col("time").dt.epoch("us")).group_by("skill_id")
        }

    def judge(self, at: int) -> pl.DataFrame:
        """Changes as of ``at``, from facts before it, as rows of ``skill_status`` without project and date."""
        registered = registry_at(self._registry, at)
        # Without a registry, and without offers to learn one from, the called names are all there is.
        skills = sorted(registered) if self._registry.height else sorted(self._histories)
        rows = [row for skill_id in skills for row in self._judge_skill(skill_id, registered, at)]
        schema = pl.Schema((name, TABLES["skill_status"][name]) for name in _CHANGE_COLUMNS)
        frame = pl.DataFrame(rows, schema=schema.copy() | {"time": pl.Int64})
        return frame.with_columns(pl.from_epoch("time", time_unit="us").dt.replace_time_zone("UTC")).cast(schema)

    def restless(self, at: int) -> bool:
        """True where time alone may change a status: a surge that ebbs, a new skill that opens up."""
        registered = registry_at(self._registry, at)
        known = registered.keys() | self._ledger.skills(at)
        standings = (self._ledger.standing(skill_id, registered.get(skill_id), at) for skill_id in known)
        return any(s.status == "observation" or (s.status, s.reason) == ("degraded", "surge") for s in standings)

    def _judge_skill(self, skill_id: str, registered: dict[str, RegisteredSkill], at: int) -> Iterable[dict[str, Any]]:
        skill = registered.get(skill_id)
        history = self._histories.get(skill_id, EMPTY_HISTORY)
        standing = self._ledger.standing(skill_id, skill, at)
        if standing.status == "active" and not history.count(at - FLAG_WINDOW, at):
            return
        case = Case(
            at=at,
            history=history,
            standing=standing,
            version_since=skill.version_since if skill else None,
            added_at=skill.added_at if skill else None,
        )
        if standing.status == "observation" and skill is not None:
            case = replace(case, domain_failure_rate=self._domain_failure_rate(skill, registered, at))
        change = decide(case)
        if change is not None:
            yield self._ledger.add(skill_id, standing, change, at - TICK)

    def _domain_failure_rate(
        self, skill: RegisteredSkill, registered: dict[str, RegisteredSkill], at: int
    ) -> float | None:
        """Of the domain's other skills: a new skill must not raise the bar that it is held to."""
        peers = [s for s in registered.values() if s.domain == skill.domain and s.skill_id != skill.skill_id]
        found = [
            self._histories[s.skill_id].outcomes(at - FLAG_WINDOW, at) for s in peers if s.skill_id in self._histories
        ]
        n = sum(outcomes.n for outcomes in found)
        return sum(outcomes.failures for outcomes in found) / n if n else None


_CHANGE_COLUMNS = ("skill_id", "time", "status", "previous_status", "reason", "rollout_fraction", "evidence")


def load_judge(
    connection: duckdb.DuckDBPyConnection, project: str, first: int, last: int, excluded: Sequence[str]
) -> StatusJudge:
    """A judge for any moment in (first, last] (Unix microseconds), with all the facts that it needs."""
    rows = fetch(connection, _ROWS, project=project)
    window = {"start": moment(_earliest_needed(rows, first)), "end": moment(last)}
    calls = _calls(connection, project=project, excluded=list(excluded), **window)
    return StatusJudge(fetch(connection, _REGISTRY, project=project), calls, rows)


def _calls(connection: duckdb.DuckDBPyConnection, **parameters: Any) -> pl.DataFrame:
    """Names as categories, taken some calls at a time: the texts of a month of calls would be gigabytes."""
    names = pl.col("skill_id", "error_kind").cast(pl.Categorical)
    batches = connection.sql(_CALLS, params=parameters).to_arrow_reader(_BATCH)
    parts = [pl.DataFrame(pl.from_arrow(batch)).select(names, "ok", "time") for batch in batches]
    return pl.concat(parts) if parts else fetch(connection, _CALLS, **parameters)


def _earliest_needed(rows: pl.DataFrame, first: int) -> int:
    """Surges look 14 days back; recovery looks back to the change, however long ago it was."""
    needed = first - (SURGE_DAYS + 1) * DAY
    open_changes = rows.filter(pl.col("status") == "degraded")["time"].min()
    return needed if open_changes is None else min(needed, micros(open_changes))  # type: ignore[arg-type]


def registry_at(history: pl.DataFrame, at: int) -> dict[str, RegisteredSkill]:
    """The active skills as of ``at``, from the registry's history.

    ``history``: skill_id, source, authoritative, version, domain, is_active, valid_from, valid_to. A skill counts as
    added when its first entry is a declared one that came after the project's first declared entries.
    """
    seen = history.with_columns(
        pl.col("valid_from").dt.epoch("us").fill_null(0), pl.col("valid_to").dt.epoch("us").fill_null(at + 1)
    ).filter(pl.col("valid_from") < at)
    first_registry = seen.filter(pl.col("source") == "declared")["valid_from"].min()
    found: dict[str, RegisteredSkill] = {}
    for key, entries in seen.group_by("skill_id"):
        skill = _registered(str(key[0]), entries.sort("valid_from").to_dicts(), first_registry, at)
        if skill is not None:
            found[skill.skill_id] = skill
    return found


def _registered(skill_id: str, entries: list[dict[str, Any]], first_registry: Any, at: int) -> RegisteredSkill | None:
    ruling = [entry for entry in entries if entry["authoritative"]]
    if not ruling or not ruling[-1]["is_active"] or ruling[-1]["valid_to"] < at:
        return None
    newest = ruling[-1]
    versions = [entry["valid_from"] for previous, entry in pairwise(ruling) if entry["version"] != previous["version"]]
    first = entries[0]
    is_added = first["source"] == "declared" and first_registry is not None and first["valid_from"] > first_registry
    return RegisteredSkill(
        skill_id=skill_id,
        domain=newest["domain"],
        version_since=versions[-1] if versions else None,
        added_at=first["valid_from"] if is_added else None,
    )
