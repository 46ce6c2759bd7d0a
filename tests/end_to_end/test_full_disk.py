"""A disk that is really full: refused with 503 and Retry-After, nothing acknowledged is lost, and it mends itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from collector.lake import Lake
from collector.lock import holder

DISK_MIB = 48
TEXT = "x" * 200


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(place)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system of its own can't be mounted here (Linux and root are needed)")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def service(disk: Path) -> Iterator[httpx.Client]:
    command = [sys.executable, "-m", "pickwise.cli", "collect", "--data-dir", str(disk / "data"), "--no-grpc"]
    process = subprocess.Popen([*command, "--http-port", "0"], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while (held := holder(disk / "data")) is None or held.http_port is None:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with httpx.Client(base_url=f"http://127.0.0.1:{held.http_port}", timeout=60) as client:
        yield client
    process.terminate()
    assert process.wait(60) == 0


def send(client: httpx.Client, number: int) -> httpx.Response:
    """A request of 100 calls, 30 kB."""
    calls = [
        {"type": "call", "event_id": f"{number}-{i}", "skill_id": "s", "ok": False, "error_message": TEXT}
        for i in range(100)
    ]
    return client.post("/v1/events", content=json.dumps(calls), headers={"Content-Type": "application/json"})


def fill(ballast: Path) -> None:
    """Take what is left of the disk, to the last byte."""
    with ballast.open("ab", buffering=0) as file:
        for size in (2**20, 4096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue


def test_a_full_disk_refuses_and_recovers_by_itself(disk: Path, service: httpx.Client) -> None:
    acknowledged = []
    refused: list[httpx.Response] = []
    ballast = disk / "ballast"
    for number in range(400):
        if number == 20:
            fill(ballast)  # what was just acknowledged is not committed yet
        answer = send(service, number)
        if answer.status_code == 200:
            acknowledged.append(number)
        else:
            refused.append(answer)
        if len(refused) == 10:
            break
    assert len(acknowledged) >= 20
    assert {answer.status_code for answer in refused} == {503}
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in refused)
    assert "the disk is full" in refused[0].text
    assert service.get("/healthz").status_code == 200, "and whoever asks is answered"
    os.truncate(ballast, 0)
    deadline = time.monotonic() + 60
    while send(service, 1_000).status_code != 200:
        assert time.monotonic() < deadline, "nobody restarted it, and it must not be needed"
        time.sleep(0.2)
    while service.post("/v1/refresh").status_code != 200:
        assert time.monotonic() < deadline
    stored = Lake(disk / "data").read("calls")["event_id"].to_list()
    assert len(stored) == len(set(stored))
    assert set(stored) == {f"{number}-{i}" for number in (*acknowledged, 1_000) for i in range(100)}
