"""Large bodies leave the process when they are done with."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import sys, psutil
from collector.allocator import give_large_blocks_back
if sys.argv[1] == "yes":
    give_large_blocks_back()
bytes(20 * 2**20)  # glibc learns from the first one
bodies, pins = [], []
for _ in range(20):
    bodies.append(b"x" * 20 * 2**20)
    pins.append(bytes(100_000))
before = psutil.Process().memory_info().rss
bodies.clear()
print((before - psutil.Process().memory_info().rss) // 2**20)
"""


def given_back(*, asked: bool) -> int:
    """MiB of 400."""
    command = [sys.executable, "-c", _SCRIPT, "yes" if asked else "no"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_large_blocks_go_back_to_the_system() -> None:
    assert given_back(asked=True) >= 390
    assert given_back(asked=False) < 200
