"""Webhooks against a real receiver: shape, signature, retries."""

from __future__ import annotations

import hashlib
import hmac
import logging
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from analytics import notify
from analytics.notify import Notification, Webhooks
from pickwise.settings import Settings
from tests.analytics.conftest import moment
from tests.analytics.receiver import Receiver

NOTIFICATION = Notification(
    project="shop",
    rule="fallback_usage",
    group="",
    state="firing",
    severity="warning",
    metric="fallback_rate",
    value=0.25,
    n=8,
    window_from=moment(-120),
    window_to=moment(0),
    started_at=moment(0),
    time=moment(0),
    message="the discovery layer answers from its degraded path",
    link="http://127.0.0.1:8501/?project=shop",
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serving() as found:
        yield found


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def webhooks(pauses: list[float]) -> Iterator[Webhooks]:
    found = Webhooks("s3cret", pause=pauses.append)
    yield found
    found.close()


def test_the_body_tells_rule_state_value_n_window_severity_and_link(receiver: Receiver, webhooks: Webhooks) -> None:
    assert webhooks.send(receiver.url, NOTIFICATION, moment(0)).delivered
    (body,) = receiver.taken
    assert {name: body[name] for name in ("project", "rule", "state", "severity", "value", "n")} == {
        "project": "shop",
        "rule": "fallback_usage",
        "state": "firing",
        "severity": "warning",
        "value": 0.25,
        "n": 8,
    }
    assert body["window"] == {"from": "2026-03-02T11:58:00Z", "to": "2026-03-02T12:00:00Z"}
    assert body["link"] == NOTIFICATION.link


def test_the_signature_covers_timestamp_and_body(receiver: Receiver, webhooks: Webhooks) -> None:
    webhooks.send(receiver.url, NOTIFICATION, moment(0))
    ((_, headers, body, _),) = receiver.posts
    signed = headers["x-pickwise-timestamp"].encode() + b"." + body
    assert headers["x-pickwise-signature"] == "sha256=" + hmac.new(b"s3cret", signed, hashlib.sha256).hexdigest()


def test_without_a_secret_nothing_is_signed(receiver: Receiver) -> None:
    webhooks = Webhooks(None)
    webhooks.send(receiver.url, NOTIFICATION, moment(0))
    webhooks.close()
    ((_, headers, _, _),) = receiver.posts
    assert "x-pickwise-signature" not in headers


@pytest.mark.parametrize("status", [503, 429])
def test_a_busy_receiver_is_tried_again_with_the_same_delivery_id(
    receiver: Receiver, webhooks: Webhooks, pauses: list[float], status: int
) -> None:
    receiver.answers = [status, status]
    assert webhooks.send(receiver.url, NOTIFICATION, moment(0)).delivered
    assert len(receiver.taken) == 1
    assert len({headers["x-pickwise-delivery"] for _, headers, _, _ in receiver.posts}) == 1
    assert pauses == [0.25, 0.5]


def test_a_refusal_is_not_repeated(receiver: Receiver, webhooks: Webhooks) -> None:
    receiver.answers = [400]
    answer = webhooks.send(receiver.url, NOTIFICATION, moment(0))
    assert (answer.delivered, answer.retry, answer.text, len(receiver.posts)) == (False, False, "HTTP 400", 1)


def test_a_receiver_that_is_down_rests_longer_each_time(webhooks: Webhooks) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/"
    now = moment(0)
    rests = []
    for _ in range(3):
        assert webhooks.send(url, NOTIFICATION, now).retry
        until = next(s for s in range(5, 4000, 5) if not webhooks.resting(url, now + timedelta(seconds=s)))
        rests.append(until)
        now += timedelta(seconds=until)
    assert rests == [10, 20, 40]


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "nonsense", "http://"])
def test_what_is_no_url_is_refused_and_named(webhooks: Webhooks, url: str) -> None:
    answer = webhooks.send(url, NOTIFICATION, moment(0))
    assert not answer.delivered
    assert not answer.retry


def test_slack_is_told_value_n_window_and_link(receiver: Receiver, webhooks: Webhooks) -> None:
    webhooks.send(f"slack+{receiver.url}", NOTIFICATION, moment(0))
    (slack,) = receiver.taken
    assert slack["text"].splitlines() == [
        "*FIRING* fallback_usage in shop (warning)",
        NOTIFICATION.message,
        "value 0.25, n = 8, 2026-03-02 11:58:00 to 2026-03-02 12:00:00 UTC",
        f"<{NOTIFICATION.link}|dashboard>",
    ]


def test_a_name_calls_nobody_in_slack(receiver: Receiver, webhooks: Webhooks) -> None:
    hostile = replace(NOTIFICATION, group="<!channel>\n<https://evil|click>", message="<@U1> & more")
    webhooks.send(f"slack+{receiver.url}", hostile, moment(0))
    (slack,) = receiver.taken
    assert "&lt;!channel&gt; &lt;https://evil|click&gt;" in slack["text"]
    assert "&lt;@U1&gt; &amp; more" in slack["text"]
    assert slack["text"].count("<") == 1


def test_alertmanager_knows_one_alert_from_firing_to_resolved(receiver: Receiver, webhooks: Webhooks) -> None:
    resolved = replace(NOTIFICATION, state="resolved", time=moment(60), value=None)
    webhooks.send(f"alertmanager+{receiver.url}", NOTIFICATION, moment(0))
    webhooks.send(f"alertmanager+{receiver.url}", resolved, moment(0))
    (firing,), (over,) = receiver.taken
    assert firing["labels"] == over["labels"]
    assert firing["labels"]["alertname"] == "fallback_usage"
    # Without an end it would be over some minutes later.
    assert (firing["startsAt"], firing["endsAt"]) == ("2026-03-02T12:00:00Z", "2027-03-02T12:00:00Z")
    assert (over["startsAt"], over["endsAt"]) == ("2026-03-02T12:00:00Z", "2026-03-02T12:01:00Z")
    assert (firing["annotations"]["value"], firing["annotations"]["n"]) == ("0.25", "8")
    assert firing["annotations"]["window"] == "2026-03-02T11:58:00Z/2026-03-02T12:00:00Z"
    assert firing["generatorURL"] == NOTIFICATION.link
    assert all(isinstance(value, str) for part in ("labels", "annotations") for value in over[part].values())


def test_no_log_holds_the_path_of_a_webhook(
    receiver: Receiver, webhooks: Webhooks, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        webhooks.send(receiver.url, NOTIFICATION, moment(0))
    assert "/hook" not in caplog.text
    assert notify.host_of("slack+https://me:secret@hooks.example.com/T0/B0") == "hooks.example.com"


def test_the_test_notification_reaches_each_receiver(receiver: Receiver, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, webhook_urls=[receiver.url, "http://127.0.0.1:9/secret-path"])
    lines = notify.test(settings)
    assert lines[0].endswith("delivered (HTTP 200)")
    assert "not delivered" in lines[1]
    assert "secret-path" not in lines[1]
    assert receiver.taken[0]["rule"] == "test"
    assert receiver.taken[0]["link"] == "http://127.0.0.1:8501/alerts?project=default"
