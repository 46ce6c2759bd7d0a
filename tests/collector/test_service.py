"""A real collector process: killed under load, started again, and everything acknowledged is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from collector.lake import Lake
from collector.lock import FolderHeld, holder
from collector.service import Collector
from pickwise.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


class Running(NamedTuple):
    process: subprocess.Popen[str]
    url: str
    grpc_port: int


@contextmanager
def running(data_dir: Path) -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.collector.serve", str(data_dir)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        ports = json.loads(process.stdout.readline())
        yield Running(process, f"http://127.0.0.1:{ports['http']}", ports["grpc"])
    finally:
        if process.poll() is None:
            process.terminate()
        assert process.wait(20) in (0, -signal.SIGKILL)


def post_until_dead(url: str, worker: int, acknowledged: list[str]) -> None:
    with httpx.Client(base_url=url, timeout=10) as client:
        for request in range(10**6):
            ids = [f"{worker}-{request}-{index}" for index in range(5)]
            events = [{"type": "call", "event_id": name, "skill_id": "s"} for name in ids]
            try:
                answer = client.post("/v1/events", json=events)
            except httpx.TransportError:
                return
            if answer.status_code == 200:
                acknowledged.extend(ids)


def test_everything_acknowledged_survives_kill_9_once(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    with running(tmp_path) as server:
        threads = [
            threading.Thread(target=post_until_dead, args=(server.url, worker, acknowledged)) for worker in range(4)
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 30
        while len(acknowledged) < 2_000 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(server.process.pid, signal.SIGKILL)
        for thread in threads:
            thread.join()
    assert len(acknowledged) >= 2_000
    with running(tmp_path) as server:
        assert httpx.post(f"{server.url}/v1/refresh", timeout=30).status_code == 200
    stored = Lake(tmp_path).read("calls")["event_id"].to_list()
    assert len(stored) == len(set(stored))
    assert set(acknowledged) <= set(stored)


def test_a_second_collector_is_refused_and_sigterm_ends_the_first_cleanly(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        event = {"type": "call", "event_id": "e", "skill_id": "s"}
        assert httpx.post(f"{server.url}/v1/events", json=event).json() == {"accepted": 1, "rejected": []}
        found = holder(tmp_path)
        assert found is not None
        assert (found.pid, found.grpc_port) == (server.process.pid, server.grpc_port)
        with pytest.raises(FolderHeld, match=str(server.process.pid)):
            Collector(Settings(data_dir=tmp_path)).start()
    assert server.process.returncode == 0
    assert holder(tmp_path) is None
    assert Lake(tmp_path).read("calls").height == 1
    assert list((tmp_path / "wal").iterdir()) == []


def test_the_registry_is_there_after_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        collector = Collector(Settings(data_dir=tmp_path))
        collector.start()
        parsed, _ = collector.submit_events(b'{"type":"skill","skill_id":"a","description":"does a"}', "json", "")
        assert collector.submit_skills(parsed, "") == (1, [])
        assert [entry["skill_id"] for entry in collector.registry.entries("default")] == ["a"]
        collector.stop()
    assert Lake(tmp_path).read("skills").height == 1


def test_a_failed_start_gives_the_folder_back(tmp_path: Path) -> None:
    (tmp_path / "wal").mkdir()
    (tmp_path / "wal" / f"{1:020d}.wal").write_bytes(b"not a segment of ours")
    with pytest.raises(RuntimeError, match="not a segment"):
        Collector(Settings(data_dir=tmp_path)).start()
    assert holder(tmp_path) is None


def test_a_collector_that_is_not_started_says_so(tmp_path: Path) -> None:
    collector = Collector(Settings(data_dir=tmp_path))
    assert collector.trouble == "the collector is not started"
    with pytest.raises(RuntimeError, match="not started"):
        collector.append("events", "p", "json", b"{}")
    collector.stop()


def test_whatever_depth_the_door_takes_the_flusher_reads(tmp_path: Path) -> None:
    collector = Collector(Settings(data_dir=tmp_path))
    collector.start()
    names = []
    try:
        for depth in range(860, 1_000):
            span = {
                "traceId": f"{depth:032x}",
                "spanId": f"{depth:016x}",
                "name": "execute_tool x",
                "attributes": [
                    {"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}},
                    {"key": "gen_ai.tool.name", "value": {"stringValue": f"x{depth}"}},
                ],
                "unknown": 0,
            }
            body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
            deep = body.replace('"unknown": 0', '"unknown": ' + "[" * depth + "]" * depth).encode()
            # In a fresh thread: it has more stack left than the flusher's.
            with ThreadPoolExecutor(1) as door:
                parsed, _ = door.submit(collector.submit_traces, deep, "json", "").result()
            assert parsed.rejected == 0
            names.append(f"x{depth}")
        assert collector.refresh(30)
    finally:
        collector.stop()
    assert sorted(Lake(tmp_path).read("calls")["skill_id"]) == names
    assert not (tmp_path / "rejected").exists()
