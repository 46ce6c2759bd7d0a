"""The states of alerts: how one follows from another, and the book that keeps them over restarts.

One document an alert holds its state together with the changes that are not yet recorded or delivered, so that a
crash between any two steps loses none and repeats none.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from filelock import FileLock

from analytics.notify import Notification, Webhooks, alert_id, host_of
from analytics.rules import Rule
from analytics.silences import standing
from collector.control import Control
from collector.lake import Lake

log = logging.getLogger(__name__)

PREFIX = "alert/"
PENDING, FIRING, RESOLVED = "pending", "firing", "resolved"

#: A receiver that refuses for so long is given up, for this change.
GIVE_UP_AFTER = timedelta(hours=24)


@dataclass(frozen=True)
class Reading:
    """What a rule's metric says of one group now. ``value`` None: too few observations to say anything."""

    group: str
    value: float | None
    n: int
    note: str = ""
    #: The one skill that it is about, where it is about one.
    skill: str | None = None


class Outgoing(msgspec.Struct):
    """One change on its way: into the table, then to each receiver."""

    notification: Notification
    #: Whether receivers are told; pending states are not news.
    notify: bool
    queued_at: datetime
    recorded: bool = False
    #: Receivers that are done with: they took it, refused it for good, or need not hear of it.
    done: list[str] = []
    #: A silence keeps it back.
    held: bool = False


class AlertState(msgspec.Struct):
    """Where one alert stands. ``clear_since``: the condition is gone, but not yet for long enough. ``told``: the
    receivers that took it when it fired, each as (alert id, URL)."""

    project: str
    rule: str
    group: str
    state: str
    started_at: datetime
    #: What it was told with last; the end of an alert is told with the same.
    severity: str = "warning"
    clear_since: datetime | None = None
    outgoing: list[Outgoing] = []
    told: list[tuple[str, str]] = []

    @property
    def key(self) -> str:
        return f"{PREFIX}{self.project}/{self.rule}/{self.group}"

    @property
    def alert_id(self) -> str:
        return alert_id(self.project, self.rule, self.group, self.started_at)


def next_state(rule: Rule, alert: AlertState | None, breached: bool | None, now: datetime) -> str | None:
    """The state that follows, or None where nothing changes. ``breached`` None: no data."""
    open_state = alert.state if alert is not None and alert.state != RESOLVED else None
    if breached is None:
        if rule.no_data == "keep":
            return None
        breached = False
    if breached and alert is not None:
        alert.clear_since = None
    if open_state is None or alert is None:
        return None if not breached else (PENDING if rule.for_ else FIRING)
    if open_state == PENDING:
        if not breached:
            return RESOLVED
        return FIRING if now - alert.started_at >= rule.for_ else None
    if breached:
        return None
    alert.clear_since = alert.clear_since or now
    return RESOLVED if now - alert.clear_since >= rule.resolve else None


class AlertBook:
    """All open alerts of a data folder. Use it only inside ``locked``."""

    def __init__(self, control: Control, lake: Lake) -> None:
        self._control = control
        self._lake = lake
        self._stored = {
            PREFIX + rest: msgspec.json.encode(value) for rest, value in sorted(control.items(PREFIX).items())
        }
        self.alerts = {key: msgspec.json.decode(value, type=AlertState) for key, value in self._stored.items()}

    def find(self, project: str, rule: str, group: str) -> AlertState | None:
        return self.alerts.get(f"{PREFIX}{project}/{rule}/{group}")

    def change(self, notification: Notification, now: datetime, notify: bool = True) -> None:
        """Enter the state that the notification tells, and keep it for recording and delivery."""
        found = self.find(notification.project, notification.rule, notification.group)
        alert = found or AlertState(
            notification.project, notification.rule, notification.group, "", notification.time, notification.severity
        )
        alert.state = notification.state
        alert.started_at = notification.started_at
        alert.severity = notification.severity
        alert.clear_since = None
        alert.outgoing = [*alert.outgoing, Outgoing(notification, notify, now)]
        self.alerts[alert.key] = alert
        self.save(alert)

    def save(self, alert: AlertState) -> None:
        """Store the alert if it differs from what is stored; one that is over and delivered is forgotten."""
        if alert.state == RESOLVED and not alert.outgoing:
            self._control.put(alert.key, None)
            self._stored.pop(alert.key, None)
            self.alerts.pop(alert.key, None)
            return
        encoded = msgspec.json.encode(alert)
        if self._stored.get(alert.key) != encoded:
            self._control.put(alert.key, msgspec.json.decode(encoded))
            self._stored[alert.key] = encoded

    def record(self) -> None:
        """Append the changes that are not yet in the table ``alerts``."""
        waiting = [out for alert in self.alerts.values() for out in alert.outgoing if not out.recorded]
        if not waiting:
            return
        rows = pl.DataFrame([_row(out.notification) for out in waiting])
        # A crash after the append and before the mark leaves rows that are there already.
        known = self._lake.read("alerts").select("alert_id", "state", "time")
        fresh = rows.join(known, on=["alert_id", "state", "time"], how="anti")
        if fresh.height:
            self._lake.append("alerts", fresh)
        for out in waiting:
            out.recorded = True
        for alert in list(self.alerts.values()):
            self.save(alert)

    def deliver(
        self, webhooks: Webhooks, urls: Sequence[str], now: datetime, quiet: Collection[str] = (), only: str = ""
    ) -> None:
        """Post what each receiver still misses, of all rules or ``only`` of one, oldest first.

        After a failure the receiver rests, and its queue stays. That an alert of the rules ``quiet``, or one that an
        operator silenced, fires is kept back until that is over.
        """
        alerts = [alert for alert in self.alerts.values() if only in ("", alert.rule)]
        self._hold(alerts, now, quiet)
        for url in urls:
            for alert, out in _queue(alerts, url):
                if _is_unheard(alert, out, url):
                    self._drop(alert, out, url)
                    continue
                if webhooks.resting(url, now):
                    break
                answer = webhooks.send(url, out.notification, now)
                if answer.retry:
                    log.warning("webhook %s: %s; will be tried again", host_of(url), answer.text)
                    break
                if not answer.delivered:
                    log.error("webhook %s: %s; given up for %s", host_of(url), answer.text, out.notification.rule)
                elif out.notification.state == FIRING:
                    alert.told.append((out.notification.alert_id, url))
                out.done.append(url)
                self.save(alert)
        self._settle(alerts, urls, now)

    def _hold(self, alerts: list[AlertState], now: datetime, quiet: Collection[str]) -> None:
        silences = standing(self._control, now)
        for alert in alerts:
            what = alert.project, alert.rule, alert.group
            is_silent = alert.rule in quiet or any(silence.covers(*what, now) for silence in silences)
            for out in alert.outgoing:
                if out.held and not is_silent:
                    out.queued_at = now  # its day to be delivered begins
                out.held = is_silent and out.notification.state == FIRING
            self.save(alert)

    def _drop(self, alert: AlertState, over: Outgoing, url: str) -> None:
        """Let the receiver hear neither of the end of an alert nor, any more, of the alert."""
        for out in alert.outgoing:
            if out.notification.alert_id == over.notification.alert_id and url not in out.done:
                out.done.append(url)
        self.save(alert)

    def _settle(self, alerts: list[AlertState], urls: Sequence[str], now: datetime) -> None:
        """Drop what every receiver has, and what none took for a day."""
        for alert in alerts:
            alert.outgoing = [out for out in alert.outgoing if _is_open(out, urls, now)]
            open_ids = {alert.alert_id, *(out.notification.alert_id for out in alert.outgoing)}
            alert.told = [(alert_id, url) for alert_id, url in alert.told if alert_id in open_ids]
            self.save(alert)


def _queue(alerts: list[AlertState], url: str) -> list[tuple[AlertState, Outgoing]]:
    waiting = [(alert, out) for alert in alerts for out in alert.outgoing if out.notify and out.recorded]
    missing = [(alert, out) for alert, out in waiting if url not in out.done and not out.held]
    return sorted(missing, key=lambda pair: (pair[1].notification.time, pair[0].key))


def _is_unheard(alert: AlertState, out: Outgoing, url: str) -> bool:
    """Whether it tells that an alert is over of which the receiver was never told."""
    return out.notification.state == RESOLVED and (out.notification.alert_id, url) not in alert.told


def _is_open(out: Outgoing, urls: Sequence[str], now: datetime) -> bool:
    missing = [url for url in urls if url not in out.done] if out.notify else []
    if out.recorded and not missing:
        return False
    if out.recorded and not out.held and now - out.queued_at > GIVE_UP_AFTER:
        log.error("alert %s: not delivered to %s within a day", out.notification.rule, host_of(missing[0]))
        return False
    return True


@contextmanager
def locked(data_dir: Path, timeout_s: float) -> Iterator[None]:
    """Only one process works on the alerts of a data folder. Raises filelock.Timeout."""
    with FileLock(Path(data_dir) / ".alerts.lock", timeout=timeout_s):
        yield


def _row(notification: Notification) -> dict[str, Any]:
    return {
        "project": notification.project,
        "date": notification.time.astimezone(UTC).date(),
        "time": notification.time,
        "alert_id": notification.alert_id,
        "rule": notification.rule,
        "grp": notification.group,
        "state": notification.state,
        "severity": notification.severity,
        "metric": notification.metric,
        "value": notification.value,
        "n": notification.n,
        "window_from": notification.window_from,
        "window_to": notification.window_to,
        "started_at": notification.started_at,
        "message": notification.message,
    }
