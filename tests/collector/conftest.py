"""One collector process that the tests of the ways in share, each as a project of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
