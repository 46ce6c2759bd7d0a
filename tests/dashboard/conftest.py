"""A seeded data folder, a running dashboard over it, and a real browser."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium import webdriver

import dashboard
from bench import screenshot
from tests.dashboard.seeding import seed

APP = Path(dashboard.__file__).with_name("app.py")
TURNS = 240
_STARTS_WITHIN_S = 40


@dataclass(frozen=True)
class Seeded:
    """A data folder and the events that were written to it."""

    data_dir: Path
    events: list[dict[str, Any]]

    def of_type(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == name]


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Seeded:
    """The library and a day and a half of turns; no job has run."""
    folder = tmp_path_factory.mktemp("seeded")
    return Seeded(folder, seed(folder, TURNS))


@contextmanager
def running(data_dir: Path) -> Iterator[str]:
    """A dashboard over the folder on a free port; its address."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = ["--server.address=127.0.0.1", f"--server.port={port}", "--server.headless=true"]
    process = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", str(APP), *flags, "--server.fileWatcherType=none"],
        env=os.environ | {"PICKWISE_DATA_DIR": str(data_dir)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{url}/_stcore/health", process)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while True:
        try:
            if httpx.get(url, timeout=1).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            assert process.poll() is None, "the dashboard did not start"
            assert time.monotonic() < deadline, "the dashboard did not answer in time"
        time.sleep(0.1)


@pytest.fixture(scope="session")
def browser() -> Iterator[webdriver.Chrome]:
    if not shutil.which("chromium") or not Path(screenshot.CHROMEDRIVER).exists():
        pytest.skip("needs Debian's chromium and chromium-driver: make browser")
    with screenshot.browser() as driver:
        yield driver


@pytest.fixture(scope="session")
def seeded_url(seeded: Seeded) -> Iterator[str]:
    with running(seeded.data_dir) as url:
        yield url


@pytest.fixture(scope="session")
def empty_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("empty")) as url:
        yield url


@pytest.fixture
def visit(browser: webdriver.Chrome) -> Callable[[str], webdriver.Chrome]:
    """Opens a page, waits until it is drawn, and makes sure that no traceback is on it."""

    def open_url(url: str) -> webdriver.Chrome:
        screenshot.open_page(browser, url, settle_s=0.1)
        exceptions = browser.find_elements("css selector", '[data-testid="stException"]')
        assert not exceptions, exceptions[0].text
        return browser

    return open_url
