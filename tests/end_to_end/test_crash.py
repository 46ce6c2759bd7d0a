"""kill -9 under load: what was acknowledged is there after the restart, once."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable

import httpx
import psutil

from collector.lock import holder
from tests.end_to_end.conftest import Service, pickwise_json

THREADS, BATCH, KILLS = 4, 20, 3


def test_acknowledged_events_survive_kill_9(serve: Callable[..., Service]) -> None:
    service = serve("--no-dashboard", "--no-jobs")
    acknowledged: set[str] = set()
    sent: set[str] = set()
    stop = threading.Event()

    def load(thread: int) -> None:
        number = 0
        with httpx.Client(base_url=service.url, timeout=5) as client:
            while not stop.is_set():
                ids = [f"{thread}-{number}-{i}" for i in range(BATCH)]
                number += 1
                sent.update(ids)
                body = [{"type": "call", "event_id": i, "call_id": i, "skill_id": "s", "ok": True} for i in ids]
                try:
                    answer = client.post("/v1/events", json=body)
                except httpx.TransportError:
                    time.sleep(0.05)
                    continue
                if answer.status_code == 200 and answer.json()["accepted"] == BATCH:
                    acknowledged.update(ids)

    threads = [threading.Thread(target=load, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for _ in range(KILLS):
        time.sleep(1.2)
        found = holder(service.data_dir)
        assert found is not None
        os.kill(found.pid, signal.SIGKILL)
        _wait_ready(service)
    stop.set()
    for thread in threads:
        thread.join()
    service.refresh()
    service.stop()

    rows = pickwise_json("sql", "select event_id, count(*) n from calls group by 1", "--data-dir", service.data_dir)
    stored = {row["event_id"]: row["n"] for row in rows}
    assert len(acknowledged) > 500
    assert acknowledged <= stored.keys() <= sent
    assert set(stored.values()) == {1}


def _wait_ready(service: Service) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if service.client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the collector was not restarted")


def test_who_sends_while_the_collector_restarts_waits_for_it(serve: Callable[..., Service]) -> None:
    service = serve("--no-dashboard", "--no-jobs")
    found = holder(service.data_dir)
    assert found is not None
    process = psutil.Process(found.pid)
    process.kill()
    process.wait(10)
    body = [{"type": "call", "event_id": "e", "call_id": "e", "skill_id": "s", "ok": True}]
    answer = httpx.post(f"{service.url}/v1/events", json=body, timeout=60)
    assert answer.json()["accepted"] == 1
    again = holder(service.data_dir)
    assert again is not None
    assert again.pid != found.pid


def test_sigterm_ends_everything_cleanly_and_in_time(serve: Callable[..., Service]) -> None:
    service = serve()
    body = [{"type": "call", "skill_id": "s", "ok": True, "event_id": f"e{i}"} for i in range(100)]
    service.client.post("/v1/events", content=json.dumps(body), headers={"content-type": "application/json"})
    assert service.stop() < 20
    assert service.process.returncode == 0
    assert holder(service.data_dir) is None
    (row,) = pickwise_json("sql", "select count(*) n from calls", "--data-dir", service.data_dir)
    assert row["n"] == 100
