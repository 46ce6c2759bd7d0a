"""Webhooks: what is posted when an alert changes its state, how it is signed, and when it is tried again."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from analytics import alert_links
from analytics.plain import plain
from pickwise.events import derive_event_id
from pickwise.settings import Settings

log = logging.getLogger(__name__)

SIGNATURE_HEADER = "X-Pickwise-Signature"
TIMESTAMP_HEADER = "X-Pickwise-Timestamp"
DELIVERY_HEADER = "X-Pickwise-Delivery"

#: Tries within one delivery; a receiver that stays away is tried again at later evaluations.
ATTEMPTS = 3
FIRST_PAUSE_S = 0.25
#: One slow receiver must not hold up the evaluation of the rules.
TIMEOUT_S = 5.0

#: How long a receiver that failed is left alone, doubling from failure to failure.
FIRST_REST = timedelta(seconds=10)
LONGEST_REST = timedelta(minutes=30)

#: Alertmanager takes an alert for over some minutes after it was last told of it, unless it was told when it ends. We
#: tell once that it fires and once that it is over.
UNTIL_TOLD = timedelta(days=365)

SLACK = "slack+"
ALERTMANAGER = "alertmanager+"


def alert_id(project: str, rule: str, group: str, started_at: datetime) -> str:
    """What names an alert from its first state to its last."""
    return derive_event_id(project, rule, group, started_at.isoformat())


@dataclass(frozen=True)
class Notification:
    """One change of an alert's state, as its receivers see it."""

    project: str
    rule: str
    group: str
    state: str
    severity: str
    metric: str
    value: float | None
    n: int
    window_from: datetime
    window_to: datetime
    started_at: datetime
    time: datetime
    message: str
    link: str

    @property
    def alert_id(self) -> str:
        """The same for all states that one alert goes through."""
        return alert_id(self.project, self.rule, self.group, self.started_at)

    @property
    def delivery_id(self) -> str:
        """The same for every try to deliver this change: receivers drop what they have seen."""
        return derive_event_id(self.alert_id, self.state, self.time.isoformat() if self.rule == "skill_status" else "")

    def document(self) -> dict[str, Any]:
        return {
            "id": self.delivery_id,
            "alert_id": self.alert_id,
            "project": self.project,
            "rule": self.rule,
            "group": self.group,
            "state": self.state,
            "severity": self.severity,
            "metric": self.metric,
            "value": self.value,
            "n": self.n,
            "window": {"from": _iso(self.window_from), "to": _iso(self.window_to)},
            "started_at": _iso(self.started_at),
            "time": _iso(self.time),
            "message": self.message,
            "link": self.link,
        }


@dataclass(frozen=True)
class Answer:
    """How one receiver answered. ``retry``: it may take the notification later."""

    delivered: bool
    retry: bool
    text: str


class Webhooks:
    """Posts notifications to receivers over one pool of connections."""

    def __init__(self, secret: str | None, pause: Callable[[float], None] = time.sleep) -> None:
        # It writes the whole address of every request, and the path of a webhook is a secret.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._secret = secret
        self._pause = pause
        self._client = httpx.Client(timeout=TIMEOUT_S, follow_redirects=False)
        self._rests: dict[str, tuple[int, datetime]] = {}

    def close(self) -> None:
        self._client.close()

    def resting(self, url: str, now: datetime) -> bool:
        """True while a receiver that failed is left alone."""
        return url in self._rests and now < self._rests[url][1]

    def send(self, url: str, notification: Notification, now: datetime) -> Answer:
        """Post, up to three times while the answer is 429, 5xx or a broken connection, with doubling pauses."""
        answer = self._post(url, notification)
        for attempt in range(ATTEMPTS - 1):
            if not answer.retry:
                break
            self._pause(FIRST_PAUSE_S * 2**attempt)
            answer = self._post(url, notification)
        if answer.retry:
            failures = self._rests.get(url, (0, now))[0]
            self._rests[url] = (failures + 1, now + min(FIRST_REST * 2 ** min(failures, 20), LONGEST_REST))
        else:
            self._rests.pop(url, None)
        return answer

    def _post(self, url: str, notification: Notification) -> Answer:
        target, body = shaped(url, notification)
        headers = {"Content-Type": "application/json", DELIVERY_HEADER: notification.delivery_id}
        headers |= signed(self._secret, body, int(time.time()))
        try:
            response = self._client.post(target, content=body, headers=headers)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            return Answer(False, False, f"not a URL to post to: {error}")
        except httpx.TimeoutException:
            return Answer(False, True, f"no answer within {TIMEOUT_S:g} s")
        except httpx.TransportError as error:
            return Answer(False, True, f"no connection: {error}")
        retry = response.status_code == httpx.codes.TOO_MANY_REQUESTS or response.is_server_error
        return Answer(response.is_success, retry, f"HTTP {response.status_code}")


def signed(secret: str | None, body: bytes, timestamp: int) -> dict[str, str]:
    """Headers that prove origin and age: HMAC-SHA256 over ``timestamp.body``. Without a secret there are none."""
    if not secret:
        return {}
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {TIMESTAMP_HEADER: str(timestamp), SIGNATURE_HEADER: f"sha256={digest}"}


def shaped(url: str, notification: Notification) -> tuple[str, bytes]:
    """The address to post to, and the body in the shape that the URL's prefix asks for."""
    if url.startswith(SLACK):
        return url.removeprefix(SLACK), msgspec.json.encode({"text": slack_text(notification)})
    if url.startswith(ALERTMANAGER):
        return url.removeprefix(ALERTMANAGER), msgspec.json.encode([alertmanager_alert(notification)])
    return url, msgspec.json.encode(notification.document())


def slack_text(notification: Notification) -> str:
    """Slack's text; what it would take for a mention or a link is escaped."""
    of_what = f"{notification.rule} {notification.group}".rstrip()
    lines = [
        f"*{notification.state.upper()}* {_slack(of_what)} in {_slack(notification.project)} ({notification.severity})",
        _slack(notification.message),
        f"{_measured(notification)}",
        f"<{_slack(notification.link)}|dashboard>",
    ]
    return "\n".join(lines)


def _slack(text: str) -> str:
    return escape(plain(text), quote=False)


def _measured(notification: Notification) -> str:
    value = "no value" if notification.value is None else f"value {notification.value:.4g}"
    begin, end = (f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}" for time in _window(notification))
    return f"{value}, n = {notification.n}, {begin} to {end} UTC"


def _window(notification: Notification) -> tuple[datetime, datetime]:
    return notification.window_from, notification.window_to


def alertmanager_alert(notification: Notification) -> dict[str, Any]:
    """One alert of Alertmanager's API v2 (POST /api/v2/alerts). Its labels are the same from firing to resolved."""
    begin, end = map(_iso, _window(notification))
    value = {} if notification.value is None else {"value": f"{notification.value:.6g}"}
    is_over = notification.state == "resolved"
    return {
        "labels": {
            "alertname": notification.rule,
            "project": notification.project,
            "group": notification.group,
            "severity": notification.severity,
        },
        "annotations": {"summary": notification.message, "n": str(notification.n), "window": f"{begin}/{end}"} | value,
        "startsAt": _iso(notification.started_at),
        "endsAt": _iso(notification.time if is_over else notification.time + UNTIL_TOLD),
        "generatorURL": notification.link,
    }


def host_of(url: str) -> str:
    """What may be logged of a webhook's URL: its path is often a secret, so is a password."""
    target = urlsplit(url.removeprefix(SLACK).removeprefix(ALERTMANAGER))
    return target.netloc.rpartition("@")[2] or "?"


def test(settings: Settings) -> list[str]:
    """Post a test notification to every configured receiver; one line a receiver, in their order."""
    now = datetime.now(UTC)
    notification = Notification(
        project="default",
        rule="test",
        group="",
        state="firing",
        severity="info",
        metric="test",
        value=1.0,
        n=1,
        window_from=now - timedelta(minutes=1),
        window_to=now,
        started_at=now,
        time=now,
        message="This is a test of the webhook. Nothing is wrong.",
        link=alert_links.alerts(alert_links.dashboard_url(settings), "default"),
    )
    webhooks = Webhooks(settings.webhook_secret)
    try:
        answers = [(url, webhooks.send(url, notification, now)) for url in settings.webhook_urls]
    finally:
        webhooks.close()
    return [
        f"{host_of(url)}: {'delivered' if answer.delivered else 'not delivered'} ({answer.text})"
        for url, answer in answers
    ]


#: pytest collects functions of this name from modules that import it.
test.__test__ = False  # type: ignore[attr-defined]


def _iso(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
