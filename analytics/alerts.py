"""Evaluates the alert rules: reads each rule's metric, moves its alerts from state to state, tells the receivers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
from filelock import Timeout

from analytics import alert_links
from analytics.alert_states import (
    FIRING,
    PENDING,
    RESOLVED,
    AlertBook,
    AlertState,
    Reading,
    locked,
    next_state,
)
from analytics.metrics.declarations import BY_NAME
from analytics.notify import Notification, Webhooks
from analytics.query import MetricError, metric
from analytics.report import show
from analytics.rules import DEGRADED_FOR, SECONDS_SINCE_EVENT, SKILL_STATUS, WATCHED, Rule, load_rules
from analytics.tables import Tables
from collector.control import Control
from collector.lake import Lake
from collector.lock import holder
from pickwise.settings import Settings

log = logging.getLogger(__name__)

#: Changes of a skill's status that a nightly run finds in history are recorded, but nobody is called for them.
NEWS_WITHIN = timedelta(days=2)

#: The newest degraded spell of each instance.
_SPELLS = """
SELECT instance, epoch(ended_at) - epoch(time) AS seconds, ending, reason
FROM degraded_spells_at($now::TIMESTAMPTZ) WHERE project = $project AND ended_at >= $start
QUALIFY row_number() OVER (PARTITION BY instance ORDER BY time DESC) = 1
"""
# An event came when it says, or when it was received, where that is later or its time still lies ahead: clocks differ.
_ACTIVITY = """
WITH events AS (
    SELECT time, received_at FROM selections WHERE project = $project AND time >= $start
    UNION ALL SELECT time, received_at FROM calls WHERE project = $project AND time >= $start
    UNION ALL SELECT time, received_at FROM routes WHERE project = $project AND time >= $start
)
SELECT max(least(greatest(if(time > $now, received_at, time), received_at), $now)), count(*) FROM events
"""


@dataclass(frozen=True)
class _Moment:
    """One project at one evaluation."""

    data_dir: Path
    connection: duckdb.DuckDBPyConnection
    project: str
    now: datetime


class Evaluator:
    """Evaluates the rules of a data folder, over and over. Open it once: it keeps connections and a cache."""

    def __init__(
        self,
        data_dir: Path,
        settings: Settings,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        link: str | None = None,
    ) -> None:
        """Raises RuleError when the rules cannot be used. ``link``: URL of the dashboard, if not where settings say."""
        self._dir = Path(data_dir)
        self._settings = settings
        self._clock = clock
        self._link = link or alert_links.dashboard_url(settings)
        self.rules = load_rules(settings.alert_rules)
        self._control = Control(self._dir)
        self._lake = Lake(self._dir)
        self._tables = Tables(self._dir)
        self._webhooks = Webhooks(settings.webhook_secret)

    def close(self) -> None:
        self._webhooks.close()
        self._control.close()

    def evaluate(self, now: datetime | None = None) -> list[Notification]:
        """One round over all projects; returns the changes that receivers are told (firing and resolved).

        A round that finds another process at work leaves it to that one.
        """
        now = now or self._clock()
        try:
            with locked(self._dir, timeout_s=0):
                book = AlertBook(self._control, self._lake)
                told = [change for project in self._tables.projects() for change in self._project(book, project, now)]
                book.record()
                quiet = {rule.name for rule in self.rules if rule.is_quiet(now)}
                book.deliver(self._webhooks, self._settings.webhook_urls, now, quiet)
                return told
        except Timeout:
            log.info("alerts are being evaluated by another process")
            return []

    def _project(self, book: AlertBook, project: str, now: datetime) -> Iterable[Notification]:
        moment = _Moment(self._dir, self._tables.connect(), project, now)
        last_event, _ = _activity(moment, max((rule.window for rule in self.rules), default=timedelta(0)))
        quiet_for = None if last_event is None else now - last_event
        for rule in self.rules:
            # A window without any event says nothing: no need to ask.
            is_empty = quiet_for is None or quiet_for > rule.window
            try:
                readings = [] if is_empty else read(rule, moment)
            except (MetricError, duckdb.Error):
                # The other rules go on; this one keeps its states.
                log.exception("rule %s cannot be evaluated for project %s", rule.name, project)
                continue
            yield from self._apply(book, rule, moment, readings)
        yield from self._retired_rules(book, moment)

    def _apply(self, book: AlertBook, rule: Rule, moment: _Moment, readings: list[Reading]) -> Iterable[Notification]:
        by_group = {reading.group: reading for reading in readings}
        open_groups = {a.group for a in book.alerts.values() if (a.project, a.rule) == (moment.project, rule.name)}
        for group in sorted(by_group.keys() | open_groups):
            reading = by_group.get(group, Reading(group, None, 0))
            alert = book.find(moment.project, rule.name, group)
            has_data = reading.value is not None and reading.n >= rule.min_n
            breached = rule.breached(reading.value) if has_data and reading.value is not None else None
            before = alert.state if alert is not None else None
            state = next_state(rule, alert, breached, moment.now)
            if state is None:
                if alert is not None:
                    book.save(alert)
                continue
            change = self._change(rule, moment, reading, alert, state)
            is_news = state == FIRING or (state == RESOLVED and before == FIRING)
            book.change(change, moment.now, notify=is_news)
            if is_news:
                yield change

    def _retired_rules(self, book: AlertBook, moment: _Moment) -> Iterable[Notification]:
        """An alert whose rule is gone from the file must not fire for ever."""
        names = {rule.name for rule in self.rules} | {SKILL_STATUS}
        for alert in [a for a in book.alerts.values() if a.project == moment.project and a.rule not in names]:
            if alert.state == RESOLVED:
                continue
            is_news = alert.state == FIRING
            change = _closing(alert, moment.now, alert_links.alerts(self._link, alert.project))
            book.change(change, moment.now, notify=is_news)
            if is_news:
                yield change

    def _change(
        self, rule: Rule, moment: _Moment, reading: Reading, alert: AlertState | None, state: str
    ) -> Notification:
        is_open = alert is not None and alert.state != RESOLVED
        start = moment.now - rule.window
        return Notification(
            project=moment.project,
            rule=rule.name,
            group=reading.group,
            state=state,
            severity=rule.severity,
            metric=rule.metric,
            value=reading.value,
            n=reading.n,
            window_from=start,
            window_to=moment.now,
            started_at=alert.started_at if alert is not None and is_open else moment.now,
            time=moment.now,
            message=_message(rule, reading, state, was_pending=alert is not None and alert.state == PENDING),
            link=alert_links.overview(self._link, moment.project, rule.window)
            if reading.skill is None
            else alert_links.skill(self._link, moment.project, reading.skill),
        )


def read(rule: Rule, moment: _Moment) -> list[Reading]:
    """What the rule's metric says of each of its groups. Raises MetricError for a metric that cannot be asked so."""
    if rule.metric == DEGRADED_FOR:
        return _half_failures(rule, moment)
    if rule.metric == SECONDS_SINCE_EVENT:
        return _silence(rule, moment)
    document = metric(
        moment.connection,
        rule.metric,
        project=moment.project,
        start=moment.now - rule.window,
        end=moment.now,
        by=rule.groupings,
    )
    rows = [row for row in document["rows"] if all(str(row.get(k)) == wanted for k, wanted in rule.match.items())]
    return [Reading(_group(rule.by, row), row.get(rule.field), int(row["n"]), skill=row.get("skill")) for row in rows]


def _half_failures(rule: Rule, moment: _Moment) -> list[Reading]:
    """How long each instance has been degraded, seconds; 0 once its spell has ended."""
    parameters = {"project": moment.project, "start": moment.now - rule.window, "now": moment.now}
    return [
        Reading(instance, 0.0, 1, ending) if ending else Reading(instance, seconds, 1, reason or "")
        for instance, seconds, ending, reason in moment.connection.execute(_SPELLS, parameters).fetchall()
    ]


def _silence(rule: Rule, moment: _Moment) -> list[Reading]:
    last_event, n = _activity(moment, rule.window)
    if last_event is None:
        return []
    seconds = (moment.now - last_event).total_seconds()
    is_deaf = rule.breached(seconds) and holder(moment.data_dir) is None
    return [Reading("", seconds, n, "no collector runs on this data folder" if is_deaf else "")]


def _activity(moment: _Moment, window: timedelta) -> tuple[datetime | None, int]:
    """When the project's newest event of the window came, and how many there were."""
    parameters = {"project": moment.project, "start": moment.now - window, "now": moment.now}
    ((newest, n),) = moment.connection.execute(_ACTIVITY, parameters).fetchall()
    return newest, int(n)


def raise_status_changes(book: AlertBook, project: str, changes: pl.DataFrame, now: datetime, link: str) -> int:
    """Alerts for changes of skills' statuses (rows of ``skill_status``); returns how many were raised.

    A step of a new skill's rollout is not a change of its status and raises none.
    """
    raised = 0
    for row in changes.sort("time").iter_rows(named=True):
        is_step = row["status"] == row["previous_status"] and row["reason"] == "new"
        if is_step:
            continue
        found = book.find(project, SKILL_STATUS, row["skill_id"])
        is_open = found is not None and found.state == FIRING
        notification = _status_notification(project, row, found if is_open else None, link)
        # A surge that turns out to be plain failing is recorded, but was told already.
        is_news = row["status"] != row["previous_status"] or row["reason"] == "held"
        notify = is_news and now - row["time"] <= NEWS_WITHIN
        if found is not None and is_open and notification.severity != found.severity:
            # Another severity is another alert: receivers know an alert by it too.
            book.change(replace(notification, state=RESOLVED, severity=found.severity), now, notify)
            notification = replace(notification, started_at=notification.time)
        book.change(notification, now, notify)
        raised += 1
    return raised


def _status_notification(project: str, row: dict[str, Any], open_alert: AlertState | None, link: str) -> Notification:
    is_over = row["status"] == "active"
    severity = "warning" if row["status"] == "degraded" else "info"
    evidence = json.loads(row["evidence"])
    calls, successes = evidence.get("calls", 0), evidence.get("successes", 0)
    return Notification(
        project=project,
        rule=SKILL_STATUS,
        group=row["skill_id"],
        state=RESOLVED if is_over else FIRING,
        severity=open_alert.severity if open_alert is not None and is_over else severity,
        metric="success_rate",
        value=successes / calls if calls else None,
        n=calls,
        window_from=datetime.fromisoformat(evidence["window"]["from"]),
        window_to=datetime.fromisoformat(evidence["window"]["to"]),
        started_at=row["time"] if open_alert is None else open_alert.started_at,
        time=row["time"],
        message=f"{row['skill_id']} is {row['status']} ({row['reason']}): {successes} of {calls} calls succeeded,"
        f" rollout fraction {row['rollout_fraction']:g}",
        link=alert_links.skill(link, project, row["skill_id"]),
    )


def _closing(alert: AlertState, now: datetime, link: str) -> Notification:
    return Notification(
        project=alert.project,
        rule=alert.rule,
        group=alert.group,
        state=RESOLVED,
        severity=alert.severity,
        metric="",
        value=None,
        n=0,
        window_from=now,
        window_to=now,
        started_at=alert.started_at,
        time=now,
        message="the rule was removed",
        link=link,
    )


def _group(by: Sequence[str], row: dict[str, Any]) -> str:
    """One grouping: its value; several: ``name=value`` pairs."""
    if len(by) == 1:
        return str(row[by[0]])
    return ", ".join(f"{name}={row[name]}" for name in by)


def _message(rule: Rule, reading: Reading, state: str, was_pending: bool) -> str:
    subject = f"{rule.description or rule.name}{f' ({reading.group})' if reading.group else ''}"
    if state == RESOLVED and was_pending:
        return f"{subject}: over before it fired"
    if reading.value is None:
        return f"{subject}: {rule.metric} has no data (n = {reading.n})"
    unit = "s" if rule.metric in WATCHED else BY_NAME[rule.metric].unit
    limit = f"{rule.comparison} {show(rule.threshold, unit)}"
    standing = f"no longer {limit}" if state == RESOLVED else limit
    note = f"; {reading.note}" if reading.note else ""
    return f"{subject}: {rule.metric} is {show(reading.value, unit)}, {standing} (n = {reading.n}){note}"
