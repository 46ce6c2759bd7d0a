"""``pickwise collect`` says where it listens, ends when told to at any time, and names a port that it can't have."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import pytest
from filelock import FileLock

from collector.lake import Lake
from collector.lock import holder
from collector.service import Collector
from collector.wal import Wal
from pickwise.settings import Settings

COLLECT = [sys.executable, "-m", "pickwise.cli", "collect"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_tells_its_addresses_and_its_end(tmp_path: Path, number: signal.Signals) -> None:
    command = [*COLLECT, "--data-dir", str(tmp_path), "--http-port", "0", "--grpc-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = "".join(process.stdout.readline() for _ in range(5))
        url = re.search(r"http +(http://127\.0\.0\.1:\d+)\n", said)
        assert url is not None, said
        assert httpx.get(f"{url[1]}/healthz", timeout=20).is_success
        assert re.search(r"grpc +127\.0\.0\.1:[1-9]\d*\n", said)
        assert str(tmp_path) in said
        process.send_signal(number)
        _, remarks = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "stopping: committing what was acknowledged" in remarks


def start(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    """A command whose start has taken the folder."""
    command = [sys.executable, "-m", "pickwise.cli", *words, "--data-dir", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--http-port", "0", "--grpc-port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    within(60, lambda: holder(tmp_path) or process.poll() is not None)
    assert process.poll() is None
    return process


def within(seconds: float, what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("words", [["collect"], ["serve", "--no-dashboard", "--no-jobs"]], ids=["collect", "serve"])
def test_a_signal_breaks_off_a_start_that_waits(tmp_path: Path, words: list[str], number: signal.Signals) -> None:
    with FileLock(tmp_path / ".control.lock"):  # as another process that migrates the control state
        process = start(tmp_path, *words)
        held = holder(tmp_path)
        assert held is not None
        process.send_signal(number)
        said, remarks = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "is up" not in said
    assert "Traceback" not in remarks
    assert not psutil.pid_exists(held.pid)
    assert holder(tmp_path) is None
    assert not (tmp_path / "lock").exists()


def test_a_start_that_is_broken_off_loses_nothing_of_the_log(tmp_path: Path) -> None:
    total = 40_000
    fill_log(tmp_path, total)
    for _ in range(3):
        process = start(tmp_path, "collect")
        process.terminate()
        _, remarks = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "Traceback" not in remarks
        assert holder(tmp_path) is None
    collector = Collector(Settings(data_dir=tmp_path))
    collector.start()
    collector.stop()
    events = Lake(tmp_path).read("calls")["event_id"]
    assert (len(events), events.n_unique()) == (total, total)


def fill_log(data_dir: Path, total: int) -> None:
    """What a service that was killed had acknowledged."""
    wal = Wal(data_dir / "wal", queue_bytes=2**26, backlog_bytes=2**31, floor_seq=-1)
    for first in range(0, total, 1_000):
        events = [
            {"type": "call", "event_id": f"e{i}", "call_id": f"c{i}", "skill_id": "s", "ok": True}
            for i in range(first, first + 1_000)
        ]
        body = msgspec.json.encode(events)
        wal.append("events", "shop", "json", body, events=1_000).result(20)
    wal.close()


@pytest.mark.parametrize("flag", ["--http-port", "--grpc-port"])
def test_a_taken_port_is_one_line_with_its_flag(tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ports = {"--http-port": "0", "--grpc-port": "0"} | {flag: port}
        command = [*COLLECT, "--data-dir", str(tmp_path), *(word for pair in ports.items() for word in pair)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: port {port} ")
    assert line.endswith(f"give another with {flag}")
