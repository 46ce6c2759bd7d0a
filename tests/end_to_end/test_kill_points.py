"""kill -9 at every step from the socket to the deleted log segment: nothing acknowledged is lost, nothing doubled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.crash import POINTS

ROOT = Path(__file__).parents[2]


def test_a_kill_at_every_step_loses_and_doubles_nothing() -> None:
    # A process of its own: its children are forked from one that knows the collector already.
    command = [sys.executable, "-m", "bench.crash", "--rounds", str(len(POINTS)), "--json"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=True)
    report = json.loads(run.stdout)
    assert (report["lost"], report["doubled"], report["strangers"]) == ([], [], [])
    assert set(report["hit"]) == {point.phase for point in POINTS}
    assert report["acknowledged"] > len(POINTS)
