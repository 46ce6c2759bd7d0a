"""Webhooks against a real receiver: shape, signature, retries."""

from __future__ import annotations

import hashlib
import hmac
import json
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
    link="http://127.0.0.1:4318/v1/metrics/fallback_rate",
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


def test_slack_and_alertmanager_shapes(receiver: Receiver, webhooks: Webhooks) -> None:
    resolved = replace(NOTIFICATION, state="resolved", time=moment(60))
    webhooks.send(f"slack+{receiver.url}", NOTIFICATION, moment(0))
    webhooks.send(f"alertmanager+{receiver.url}", NOTIFICATION, moment(0))
    webhooks.send(f"alertmanager+{receiver.url}", resolved, moment(0))
    slack, firing, over = (json.loads(body) for _, _, body, _ in receiver.posts)
    assert "FIRING" in slack["text"]
    assert NOTIFICATION.link in slack["text"]
    assert firing[0]["labels"]["alertname"] == "fallback_usage"
    assert "endsAt" not in firing[0]
    assert (over[0]["startsAt"], over[0]["endsAt"]) == ("2026-03-02T12:00:00Z", "2026-03-02T12:01:00Z")


def test_the_test_notification_reaches_each_receiver(receiver: Receiver, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, webhook_urls=[receiver.url, "http://127.0.0.1:9/secret-path"])
    lines = notify.test(settings)
    assert lines[0].endswith("delivered (HTTP 200)")
    assert "not delivered" in lines[1]
    assert "secret-path" not in lines[1]
    assert receiver.taken[0]["rule"] == "test"
