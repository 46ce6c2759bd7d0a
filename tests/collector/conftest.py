"""One collector process that the tests of the ways in share, each as a project of its own; and collectors in a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.service import Collector
from pickwise.settings import Settings
from tests.collector.otlp_client import Sender
from tests.collector.test_service import Running, running


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Path]]:
    data_dir = tmp_path_factory.mktemp("served")
    with running(data_dir) as server:
        yield server, data_dir


@pytest.fixture
def sender(served: tuple[Running, Path]) -> Iterator[Sender]:
    opened = Sender(*served)
    yield opened
    opened.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Collector]]:
    """Starts collectors on one folder, one after the other; settings as keywords."""
    running_now: list[Collector] = []

    def started(**changes: Any) -> Collector:
        while running_now:
            running_now.pop().stop()
        collector = Collector(Settings(data_dir=tmp_path, **({"archive_days": 10_000} | changes)))
        collector.start()
        running_now.append(collector)
        return collector

    yield started
    for collector in running_now:
        collector.stop()
