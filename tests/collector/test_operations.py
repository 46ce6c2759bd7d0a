"""Requests of an operator are on disk before they are begun and until they are done."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.flusher import Interrupted
from collector.operations import ForgetRequest, PendingRequests, ReplayRequest
from collector.service import Collector
from pickwise.settings import Settings


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    started = Collector(Settings(data_dir=tmp_path))
    started.start()
    yield started
    started.stop()


class Steps:
    """An operation of three steps."""

    def __init__(self, fails: int = 0, waits: threading.Event | None = None) -> None:
        self.report: list[int] = []
        self.begun = 0
        self._fails = fails
        self._waits = waits

    def steps(self) -> Iterator[None]:
        self.begun += 1
        self.report = []
        for step in range(3):
            if step == 2 and self.begun <= self._fails:
                raise OSError("the disk")
            if self._waits is not None:
                self._waits.wait(10)
            self.report.append(step)
            yield


def test_requests_survive_the_process_in_their_order(tmp_path: Path) -> None:
    pending = PendingRequests(tmp_path / "operations")
    assert pending.left() == []
    first = pending.add(ReplayRequest(project="p", start=1))
    second = pending.add(ForgetRequest(project="p", session_id="s", at=1, seq=2))
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "operations").iterdir()} == {0o600}
    second.update(ForgetRequest(project="p", session_id="s", at=1, seq=2, traces=["t"]))
    again = PendingRequests(tmp_path / "operations").left()
    assert [found.request for found in again] == [
        ReplayRequest(project="p", start=1),
        ForgetRequest(project="p", session_id="s", at=1, seq=2, traces=["t"]),
    ]
    first.done()
    again[1].done()
    assert pending.left() == []
    assert list((tmp_path / "operations").iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{x", b"\xff", b'{"type": "forget"}', b'{"type": "other"}', bytes(40)])
def test_a_damaged_request_is_set_aside_and_stops_nothing(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    pending = PendingRequests(tmp_path / "operations")
    pending.add(ReplayRequest(project="p"))
    damaged = tmp_path / "operations" / f"{1:020d}.json"
    damaged.write_bytes(content)
    assert [found.request for found in pending.left()] == [ReplayRequest(project="p")]
    assert f"{damaged} is damaged" in caplog.text
    assert damaged.with_suffix(".damaged").read_bytes() == content
    assert [found.request for found in pending.left()] == [ReplayRequest(project="p")]


def test_one_after_the_other_each_to_its_end(collector: Collector) -> None:
    operations = [Steps() for _ in range(3)]
    futures = [collector.flusher.submit(operation) for operation in operations]
    assert [future.result(10) for future in futures] == [[0, 1, 2]] * 3


def test_one_that_fails_is_begun_again(collector: Collector) -> None:
    operation = Steps(fails=2)
    assert collector.flusher.submit(operation).result(10) == [0, 1, 2]
    assert operation.begun == 3


def test_one_that_keeps_failing_says_so_and_stops_no_other(collector: Collector) -> None:
    done: list[bool] = []
    failing = collector.flusher.submit(Steps(fails=99), lambda: done.append(True))
    good = collector.flusher.submit(Steps())
    with pytest.raises(OSError, match="the disk"):
        failing.result(10)
    assert good.result(10) == [0, 1, 2]
    assert done == []
    assert collector.flusher.is_alive


def test_stopping_leaves_it_for_the_next_start(tmp_path: Path) -> None:
    collector = Collector(Settings(data_dir=tmp_path))
    collector.start()
    go = threading.Event()
    running: list[Any] = [collector.flusher.submit(Steps(waits=go))]
    running.append(collector.replay(ReplayRequest()))
    stopper = threading.Thread(target=collector.stop)
    stopper.start()
    assert collector.flusher._stopping.wait(10)
    go.set()
    stopper.join()
    for future in running:
        with pytest.raises(Interrupted):
            future.result(10)
    assert len(list((tmp_path / "operations").iterdir())) == 1
    again = Collector(Settings(data_dir=tmp_path))
    again.start()
    again.replay(ReplayRequest(dry_run=True)).result(10)
    assert list((tmp_path / "operations").iterdir()) == []
    again.stop()
