"""Fixtures shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says nothing on a busy machine.
settings.register_profile("pickwise", deadline=None)
settings.load_profile("pickwise")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of the public trajectories, libraries and recorded exports, beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the shared test data at {SHARED}")
    return SHARED
