from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.discovery.service import Service, service


@pytest.fixture
def server() -> Iterator[Service]:
    with service() as running:
        yield running
