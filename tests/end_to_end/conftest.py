"""A whole service in its own processes, on free ports and a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

CLI = [sys.executable, "-m", "pickwise.cli"]


class Service:
    """A running ``pickwise serve``."""

    def __init__(self, data_dir: Path, *flags: str) -> None:
        self.data_dir = data_dir
        ports = ["--http-port", "0", "--grpc-port", "0", "--dashboard-port", "0"]
        self.process = subprocess.Popen(
            [*CLI, "serve", "--data-dir", str(data_dir), *ports, "--json", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = self.process.stdout.readline()
            if not line:
                assert self.process.stderr is not None
                raise RuntimeError(f"serve did not start: {self.process.stderr.read()}")
            text += line
        self.addresses: dict[str, str] = json.loads(text)
        self.url = self.addresses["http"]
        self.client = httpx.Client(base_url=self.url, timeout=60)

    def refresh(self) -> None:
        self.client.post("/v1/refresh").raise_for_status()

    def metric(self, name: str, **parameters: str) -> dict[str, Any]:
        """The only row of an ungrouped metric."""
        rows: list[dict[str, Any]] = self.rows(name, **parameters)
        assert len(rows) == 1
        return rows[0]

    def rows(self, name: str, **parameters: str) -> list[dict[str, Any]]:
        answer = self.client.get(f"/v1/metrics/{name}", params=parameters)
        answer.raise_for_status()
        found: list[dict[str, Any]] = answer.json()["rows"]
        return found

    def stop(self) -> float:
        """SIGTERM; the seconds until it ended."""
        import time

        self.client.close()
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            for stream in (self.process.stdout, self.process.stderr):
                if stream:
                    stream.close()
        return time.monotonic() - started


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts services that end with the test."""
    started: list[Service] = []

    def start(*flags: str, data_dir: Path | None = None) -> Service:
        service = Service(data_dir or tmp_path / "data", *flags)
        started.append(service)
        return service

    yield start
    for service in started:
        if service.process.poll() is None:
            service.stop()


@pytest.fixture
def service(serve: Callable[..., Service]) -> Service:
    """Collector and API alone."""
    return serve("--no-dashboard", "--no-jobs")


def pickwise(*arguments: object, env: dict[str, str] | None = None, check: bool = True) -> str:
    """Run a command; its standard output."""
    done = subprocess.run(
        [*CLI, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | (env or {}),
    )
    assert not check or done.returncode == 0, f"{arguments}: {done.stderr[-3000:]}"
    return done.stdout


def pickwise_json(*arguments: object, env: dict[str, str] | None = None) -> Any:
    return json.loads(pickwise(*arguments, "--json", env=env))
