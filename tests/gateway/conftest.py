"""A started collector behind the whole HTTP surface, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from collector.service import Collector
from gateway.app import create_app
from pickwise.settings import Settings, load_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(data_dir=tmp_path / "data")


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    collector = Collector(settings)
    collector.start()
    try:
        with TestClient(create_app(settings, collector)) as client:
            yield client
    finally:
        collector.stop()
