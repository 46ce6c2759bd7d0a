"""The jobs of a running service: an alert wakes someone up, weights follow the events, rank uses them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.analytics.receiver import Receiver
from tests.end_to_end.conftest import Service

CANDIDATES = [{"skill_id": "mail", "score": 0.9}, {"skill_id": "calendar", "score": 0.8}]


def within(seconds: float, what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.2)
    return found


def turns(count: int, **fields: Any) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for number in range(count):
        key = f"{fields.get('strategy', 'hybrid')}-{number}"
        common = {"session_id": key}
        events.append(
            common
            | {
                "type": "selection",
                "event_id": key,
                "query": "find a slot",
                "ranked": True,
                "candidates": CANDIDATES,
                "picks": ["calendar"],
                **fields,
            }
        )
        events.append(
            common
            | {"type": "call", "event_id": f"{key}-c", "call_id": key, "selection_id": key, "ok": number % 4 > 0}
            | {"skill_id": "calendar", "error_kind": None if number % 4 else "timeout"}
        )
    return events


def test_alerts_and_weights_of_a_running_service(
    serve: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver().serving() as receiver:
        monkeypatch.setenv("PICKWISE_WEBHOOK_URLS", json.dumps([receiver.url]))
        monkeypatch.setenv("PICKWISE_ALERT_INTERVAL_S", "1")
        monkeypatch.setenv("PICKWISE_WEIGHTS_REFRESH_S", "2")
        service = serve("--no-dashboard")
        empty = service.client.get("/v1/weights")
        assert empty.status_code == 200
        assert empty.json()["skills"] == {}

        assert service.client.post("/v1/events", json=turns(40)).json()["accepted"] == 80
        service.client.post("/v1/events", json=turns(5, strategy="bm25", fallback=True)).raise_for_status()

        fired = within(60, lambda: [a for a in receiver.taken if a["rule"] == "fallback_usage"])
        assert fired[0]["state"] == "firing"
        assert fired[0]["value"] == pytest.approx(5 / 45)
        assert fired[0]["n"] == 45
        (alert,) = [a for a in service.client.get("/v1/alerts").json()["alerts"] if a["state"] == "firing"]
        assert alert["rule"] == "fallback_usage"

        def learned() -> Any:
            document = service.client.get("/v1/weights").json()
            return document if "calendar" in document["skills"] else None

        document = within(30, learned)
        # 34 of 45 calls went well, weighed with the prior of its domain, (34 + 1) / (45 + 2).
        assert 0.7 < document["skills"]["calendar"]["success"] < 0.8
        etag = service.client.get("/v1/weights").headers["etag"]
        assert service.client.get("/v1/weights", headers={"If-None-Match": etag}).status_code == 304

        ranked = service.client.post("/v1/rank", json={"query": "find a slot", "candidates": CANDIDATES}).json()
        assert [c["skill_id"] for c in ranked["candidates"]] == ["mail", "calendar"]
        assert ranked["weights_version"] == document["version"]
        assert ranked["candidates"][0]["contributions"]
