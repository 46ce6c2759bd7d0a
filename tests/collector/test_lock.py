"""One writer a folder, and the next one is told who it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from collector.lock import FolderHeld, FolderLock, holder

HOLD = """
import sys, time
from pathlib import Path
from collector.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
lock.acquire()
lock.announce("127.0.0.1", 4318, 4317)
print("held", flush=True)
time.sleep(60)
"""


def hold_elsewhere(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "held"
    return process


def test_a_second_one_is_told_who_holds_it_and_where_it_listens(tmp_path: Path) -> None:
    process = hold_elsewhere(tmp_path)
    try:
        with pytest.raises(FolderHeld) as refused:
            FolderLock(tmp_path).acquire()
        for part in (str(process.pid), "HTTP port 4318", "gRPC port 4317", str(tmp_path)):
            assert part in str(refused.value)
        found = holder(tmp_path)
        assert found is not None
        assert (found.pid, found.http_port, found.grpc_port) == (process.pid, 4318, 4317)
    finally:
        process.kill()
        process.wait()


def test_a_killed_holder_leaves_a_free_folder(tmp_path: Path) -> None:
    process = hold_elsewhere(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert (tmp_path / "lock").exists()
    assert holder(tmp_path) is None
    lock = FolderLock(tmp_path)
    lock.acquire()
    lock.release()


def test_nobody_holds_a_folder_that_was_released_or_never_taken(tmp_path: Path) -> None:
    assert holder(tmp_path / "nowhere") is None
    lock = FolderLock(tmp_path)
    lock.acquire()
    found = holder(tmp_path)
    assert found is not None
    assert found.pid == os.getpid()
    lock.release()
    assert holder(tmp_path) is None
    lock.release()


def test_the_same_process_cannot_hold_it_twice(tmp_path: Path) -> None:
    first = FolderLock(tmp_path)
    first.acquire()
    with pytest.raises(FolderHeld, match=str(os.getpid())):
        FolderLock(tmp_path).acquire()
    first.release()
