"""The nightly job: portraits, implicit feedback, query clusters and the status of every skill, for days that need it;
then chains, of all that is kept.

Every step compares with what is stored and appends only what is new, so a run may be repeated, or die anywhere and be
started again. Days that facts arrived for since the last run (late ones, imports, replays) are done again.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
from deltalake.exceptions import DeltaError

from analytics import chains, clusters, contamination, implicit, portraits, status
from analytics.alert_links import dashboard_url
from analytics.alert_states import AlertBook, locked
from analytics.alerts import raise_status_changes
from analytics.notify import Webhooks
from analytics.rollups import Span, rows_of, sums
from analytics.rules import SKILL_STATUS
from analytics.status_rules import micros
from analytics.tables import Tables
from analytics.text_vectors import TextVectors, load_text_vectors
from collector.control import Control
from collector.lake import Lake
from collector.tables import TABLES
from pickwise.settings import Settings

log = logging.getLogger(__name__)

JOB = "nightly"
#: Longest wait for an evaluation of the alert rules that is under way.
ALERTS_WAIT_S = 120.0
#: With nothing to wait for but time, a status is settled after so many more days: a hold of 7 days, then a week of
#: observation, then the two quiet days of a surge.
SETTLED_AFTER_DAYS = 21

Progress = Callable[[str], None]
#: No event is older, see ``pickwise.events.parse_time``.
_FIRST_DAY = date(1970, 1, 1)


class DayNotBegun(ValueError):  # noqa: N818 - the caller's mistake
    """The night of a day that lies ahead was asked for."""


_FINGERPRINTS = """
WITH contents AS (
    {contents}
)
SELECT date '1970-01-01' + (epoch_us(hour_) // 86400000000)::INT AS date,
    sum(n)::BIGINT || '-' || bit_xor(content) AS fingerprint
FROM contents WHERE hour_ < $until GROUP BY date
"""


@dataclass(frozen=True)
class _Run:
    """What all steps of one project's run share."""

    data_dir: Path
    settings: Settings
    project: str
    now: datetime
    control: Control
    lake: Lake
    #: One state of the tables for all steps: none of them reads what another one writes, but for the status of skills.
    connection: duckdb.DuckDBPyConnection
    tell: Progress

    def end_of(self, day: date) -> datetime:
        """The end of a day, or now while it lasts."""
        return min(_midnight(day + timedelta(days=1)), self.now)


def run(
    data_dir: Path,
    settings: Settings,
    *,
    project: str | None = None,
    date: date | None = None,
    progress: Progress | None = None,
    now: datetime | None = None,
) -> dict[str, Any]:
    """Run the nightly job and return what it did, by project.

    Without ``date``: every day that was missed or has new facts, and today up to ``now``. With it: that day alone.
    Without ``project``: all. Raises JobRunning when another process is in the job of a project, and DayNotBegun.
    """
    moment = now or datetime.now(UTC)
    if date is not None and not _FIRST_DAY <= date <= moment.date():
        raise DayNotBegun(f"date: expected a day from {_FIRST_DAY} to {moment.date()}, got {date}")
    control, tables = Control(data_dir), Tables(data_dir)
    results: dict[str, Any] = {}
    try:
        for name in [project] if project is not None else tables.projects():
            with control.job(JOB, name, (date or moment.date()).isoformat()) as outcome:
                tell = _teller(name, progress)
                # Opened inside the job: what another run has just written must be seen.
                connection = tables.connect()
                step = _Run(Path(data_dir), settings, name, moment, control, Lake(data_dir), connection, tell)
                outcome |= _run_project(step, date)
                results[name] = outcome
    finally:
        control.close()
    return {"at": moment.isoformat(), "projects": results}


def _run_project(run: _Run, only: date | None) -> dict[str, Any]:
    started = time.monotonic()
    contents = fingerprints(run.connection, run.project, run.now)
    days = [only] if only is not None else _due(run, contents)
    run.tell(f"{len(days)} days to look at")
    vectors = load_text_vectors(run.settings.embedder)
    found: dict[str, Any] = {
        "days": [day.isoformat() for day in days],
        "portraits": _portraits(run, days),
        "feedback": _feedback(run, days),
        "queries": _clusters(run, vectors, only),
        "similarities": _similarities(run, vectors, contents, only),
        "status_changes": _statuses(run, days, follow=only is None),
        "chains": _chains(run) if only is None else 0,
    }
    _tidy(run)
    run.control.put(_memory_key(run.project), _memory(run, contents, only))
    seconds = round(time.monotonic() - started, 3)
    run.tell(
        f"{found['portraits']} portraits, {found['feedback']} pieces of feedback, {found['queries']} queries clustered,"
        f" {found['similarities']} picks compared, {len(found['status_changes'])} status changes,"
        f" {found['chains']} chains in {seconds:.1f} s"
    )
    return found | {"seconds": seconds}


def _due(run: _Run, fingerprints: dict[str, str]) -> list[date]:
    """Days whose facts changed since they were done, and all that passed since the last run."""
    memory = run.control.get(_memory_key(run.project)) or {"days": {}, "through": None}
    changed = {date.fromisoformat(day) for day, content in fingerprints.items() if memory["days"].get(day) != content}
    today = run.now.date()
    through = date.fromisoformat(memory["through"]) if memory["through"] else today
    return sorted(changed | {today - timedelta(days=i) for i in range(max((today - through).days, 0) + 1)})


def _portraits(run: _Run, days: list[date]) -> int:
    rows = portraits.changed(run.connection, run.project, days, run.now, run.now)
    if rows.height:
        run.lake.append("portraits", rows)
    return rows.height


def _feedback(run: _Run, days: list[date]) -> int:
    """Implicit feedback, told by events of these days."""
    similar = implicit.similarity(run.settings.embedder)
    derived = [
        implicit.derive(run.connection, run.project, _midnight(day), run.end_of(day), run.now, similar) for day in days
    ]
    rows = pl.concat(derived) if derived else pl.DataFrame()
    if rows.height:
        run.lake.append("feedback", rows)
    return rows.height


def _clusters(run: _Run, vectors: TextVectors, only: date | None) -> int:
    """Cluster new queries, of that day or of all, and name clusters; how many queries."""
    of_project = pl.col("project") == run.project
    stored = run.lake.select("clusters", of_project)
    window = (_midnight(_FIRST_DAY), run.now) if only is None else (_midnight(only), run.end_of(only))
    queries, grown = clusters.cluster(run.connection, stored, run.project, window, run.now, vectors)
    placed = pl.concat([run.lake.select("query_clusters", of_project), queries])
    named = clusters.renamed(run.connection, placed, pl.concat([stored, grown]), run.project, run.now)
    clusters.write(run.lake, queries, grown, named)
    return queries.height


def _similarities(run: _Run, vectors: TextVectors, fingerprints: dict[str, str], only: date | None) -> int:
    """Compare picks with their queries, of days that changed since that was done for all of them; how many picks."""
    memory_key = f"similarities/{run.project}"
    memory = run.control.get(memory_key) or {}
    states = {date.fromisoformat(day): f"{content} {vectors.version}" for day, content in fingerprints.items()}
    days = [day for day, state in states.items() if memory.get(day.isoformat()) != state and only in (None, day)]
    rows, compared = contamination.compare(run.connection, run.project, days, run.now, vectors)
    if rows.height:
        run.lake.append("pick_similarities", rows)
    kept = {day: state for day, state in memory.items() if day in fingerprints}
    done = {day.isoformat(): states[day] for day in compared if day != run.now.date()}
    run.control.put(memory_key, kept | done)
    return rows.height


def _tidy(run: _Run) -> None:
    """Drop what the steps above no longer need; another process at the same files only puts it off."""
    try:
        clusters.tidy(run.connection, run.lake, run.project)
        contamination.tidy(run.connection, run.lake, run.project)
    except DeltaError as error:
        log.warning("nightly %s: old rows are dropped the next time: %s", run.project, error)


def _statuses(run: _Run, days: list[date], follow: bool) -> list[dict[str, Any]]:
    """Judge the days in order and record every change; with ``follow`` also quiet days until nothing is unsettled."""
    if not days:
        return []
    judge = status.load_judge(
        run.connection,
        run.project,
        micros(_midnight(days[0])),
        micros(run.now),
        run.settings.excluded_environments,
    )
    frames = []
    for day in _with_quiet_days(judge, days, run) if follow else days:
        changes = judge.judge(micros(run.end_of(day)))
        if changes.height:
            frames.append(changes)
    rows = TABLES["skill_status"].to_frame()
    if frames:
        stamps = pl.lit(run.project).alias("project"), pl.col("time").dt.date().alias("date")
        rows = pl.concat(frames).with_columns(*stamps)
        run.lake.append("skill_status", rows)
    _raise_alerts(run)
    for change in rows.iter_rows(named=True):
        run.tell(
            f"{change['skill_id']}: {change['previous_status']} -> {change['status']}"
            f" ({change['reason']}, rollout {change['rollout_fraction']:g}) as of {change['time']:%Y-%m-%d %H:%M}"
        )
    return [_told(change) for change in rows.iter_rows(named=True)]


def _chains(run: _Run) -> int:
    """Find the chains anew; whether they are feasible depends on the status that skills have just got."""
    excluded = run.settings.excluded_environments
    try:
        return chains.renew(run.connection, run.lake, run.project, run.now, excluded)
    except DeltaError as error:
        log.warning("nightly %s: chains are written the next time: %s", run.project, error)
        return 0


def _with_quiet_days(judge: status.StatusJudge, days: list[date], run: _Run) -> Iterable[date]:
    """The days, and between them those on which time alone may change a status."""
    for day, following in zip(days, [*days[1:], run.now.date() + timedelta(days=1)], strict=True):
        yield day
        for i in range(1, min((following - day).days, SETTLED_AFTER_DAYS + 1)):
            quiet = day + timedelta(days=i)
            if not judge.restless(micros(run.end_of(quiet))):
                break
            yield quiet


def _raise_alerts(run: _Run) -> None:
    """An alert for every recorded change that has none: also for those of a run that died before it raised them."""
    of_project = pl.col("project") == run.project
    raised = run.lake.read("alerts").filter(of_project, pl.col("rule") == SKILL_STATUS).select("grp", "time")
    changes = run.lake.read("skill_status").filter(of_project)
    missing = changes.join(raised, left_on=["skill_id", "time"], right_on=["grp", "time"], how="anti")
    if not missing.height:
        return
    with locked(run.data_dir, ALERTS_WAIT_S):
        book = AlertBook(run.control, run.lake)
        raise_status_changes(book, run.project, missing, run.now, dashboard_url(run.settings))
        book.record()
        webhooks = Webhooks(run.settings.webhook_secret)
        try:
            book.deliver(webhooks, run.settings.webhook_urls, run.now, only=SKILL_STATUS)
        finally:
            webhooks.close()


def fingerprints(connection: duckdb.DuckDBPyConnection, project: str, until: datetime) -> dict[str, str]:
    """What each day holds, by date, up to the day of ``until``: any row that comes, goes or changes changes it."""
    contents = " UNION ALL BY NAME ".join(
        f"({sums(connection, rows_of(table), ('hour',), Span(None, None))})" for table in ("selections", "calls")
    )
    query = _FINGERPRINTS.format(contents=contents)
    found = connection.execute(query, {"project": project, "until": until}).fetchall()
    return {day.isoformat(): content for day, content in found}


def _memory(run: _Run, fingerprints: dict[str, str], only: date | None) -> dict[str, Any]:
    """What the next run compares with. Today is not over: its content is never remembered as done."""
    today = run.now.date().isoformat()
    before = run.control.get(_memory_key(run.project)) or {"days": {}, "through": None}
    done = {day: content for day, content in fingerprints.items() if day != today}
    if only is None:
        return {"days": done, "through": today}
    one = {day: content for day, content in done.items() if day == only.isoformat()}
    return {"days": before["days"] | one, "through": before["through"]}


def _memory_key(project: str) -> str:
    return f"nightly/{project}"


def _told(change: dict[str, Any]) -> dict[str, Any]:
    names = ("skill_id", "previous_status", "status", "reason", "rollout_fraction")
    evidence = json.loads(change["evidence"])
    return {name: change[name] for name in names} | {"time": change["time"].isoformat(), "evidence": evidence}


def _teller(project: str, progress: Progress | None) -> Progress:
    def tell(text: str) -> None:
        log.info("nightly %s: %s", project, text)
        if progress is not None:
            progress(f"{project}: {text}")

    return tell


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
