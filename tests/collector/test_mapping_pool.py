"""Mapping in other processes: the same rows as in our own, and nothing lost when one of them dies."""

from __future__ import annotations

import errno
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import psutil
import pytest

from bench.traces import renewed, requests
from collector import mapping_pool
from collector.archived import ArchivedRequest, EncodedRequest
from collector.lake import Lake
from collector.mapping_pool import MappingPool
from collector.mapping_work import Mapped, Work
from collector.record_mapper import RecordMapper
from collector.segment import Header, Record
from collector.service import Collector
from collector.skill_changes import SKILLS
from collector.spans import Span
from collector.tables import FACT_TABLES
from collector.wire import Wire
from pickwise.settings import Settings

KEY = b"k" * 32
BODY = requests(1, 10)[0]
VERSIONS = dict.fromkeys(FACT_TABLES, 0)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping_pool, "_WORTH_EVENTS", 1)
    monkeypatch.setattr(mapping_pool, "_CHUNK_EVENTS", 200)


@pytest.fixture
def pool() -> Iterator[MappingPool]:
    opened = MappingPool(Settings(), KEY, 2)
    yield opened
    opened.close()


def record(seq: int, body: bytes) -> Record:
    header = Header(seq=seq, kind="traces", project="", received_at=10**18 + seq, encoding="protobuf", events=70)
    return Record(header, body, len(body))


def work(count: int) -> Work:
    return Work([record(seq, body) for seq, body in enumerate(renewed(BODY, count), 1)], VERSIONS, 0)


def children() -> list[psutil.Process]:
    """The live processes of the pool."""
    return [psutil.Process(child.pid) for child in multiprocessing.active_children()]


def submit(collector: Collector, bodies: list[bytes]) -> None:
    """Send them and wait until they are visible."""
    for future in [collector.submit_traces(body, "protobuf", "p")[1] for body in bodies]:
        assert future is not None
        future.result(30)
    assert collector.refresh(60)


def spans(request: EncodedRequest) -> list[Span | None]:
    return [item.span for item in msgspec.msgpack.decode(request.encoded, type=ArchivedRequest).items]


def whole(parts: list[Mapped]) -> dict[str, pl.DataFrame]:
    return {
        table: pl.concat([part.frames[table] for part in parts if table in part.frames]) for table in parts[0].frames
    }


def test_other_processes_map_as_our_own_does(pool: MappingPool) -> None:
    given = work(12)
    ours = MappingPool(Settings(), KEY, 0).begin(given)()
    theirs = pool.begin(given)()
    assert len(ours) == 1
    assert len(theirs) == 4
    assert {table: frame.to_dicts() for table, frame in whole(ours).items()} == {
        table: frame.to_dicts() for table, frame in whole(theirs).items()
    }
    assert [found.seq for part in theirs for found in part.archived] == list(range(1, 13))
    # What is carried beside the spans depends on which ones were looked at, so on what a process had seen before.
    assert [spans(found) for part in theirs for found in part.archived] == [spans(found) for found in ours[0].archived]
    assert [(found.header.seq, found.offers) for part in theirs for found in part.offered] == [
        (found.header.seq, found.offers) for found in ours[0].offered
    ]
    assert sum((part.redactions for part in theirs), start=type(ours[0].redactions)()) == ours[0].redactions


def test_little_is_mapped_at_once(pool: MappingPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping_pool, "_WORTH_EVENTS", 1_000)
    assert len(pool.begin(work(8))()) == 1
    monkeypatch.setattr(mapping_pool, "_WORTH_EVENTS", 10)
    assert len(pool.begin(work(8))()) > 1


def test_processes_start_with_much_and_end_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = MappingPool(Settings(), KEY, 1)
    monkeypatch.setattr(mapping_pool, "_WORTH_EVENTS", 1_000)
    opened.begin(work(8))()
    assert not children()
    assert opened.rest_in_s == math.inf
    monkeypatch.setattr(mapping_pool, "_WORTH_EVENTS", 10)
    assert len(opened.begin(work(8))()) > 1
    assert children()
    opened.rest()
    assert children()
    monkeypatch.setattr(mapping_pool, "_IDLE_S", 0.0)
    assert opened.rest_in_s == 0.0
    opened.rest()
    assert not children()
    assert len(opened.begin(work(8))()) > 1, "and they come back"
    opened.close()


@pytest.mark.parametrize("limit", ["_HEAVY_BYTES", "_HEAVY_EVENTS"])
def test_processes_give_back_what_a_heavy_request_took(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    pool = MappingPool(Settings(), KEY, 1)
    pool.begin(work(12))()
    born = {child.pid for child in children()}
    monkeypatch.setattr(mapping_pool, limit, 100)
    parts = pool.begin(work(12))()
    assert [found.seq for part in parts for found in part.archived] == list(range(1, 13))
    assert born
    assert born.isdisjoint(child.pid for child in children())
    pool.close()


def test_what_a_dead_process_was_at_is_mapped_again(pool: MappingPool) -> None:
    given = work(12)
    pool.begin(given)()
    for child in children():
        os.kill(child.pid, signal.SIGKILL)
    wait = pool.begin(given)
    for child in children():
        os.kill(child.pid, signal.SIGKILL)
    parts = wait()
    assert [found.seq for part in parts for found in part.archived] == list(range(1, 13))
    assert not any(part.set_aside for part in parts)
    assert len(pool.begin(given)()) == 4, "and the next batch is shared again"


def serve_until_the_third(wire: Wire, *arguments: Any) -> None:
    """A process that maps, but for the third record: that one kills."""
    real = RecordMapper.map

    def deadly(self: RecordMapper, given: Work) -> Mapped:
        if any(found.header.seq == 3 for found in given.records):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, given)

    RecordMapper.map = deadly  # type: ignore[method-assign, assignment]
    mapping_pool._serve(wire, *arguments)


def test_only_the_record_that_kills_its_process_is_set_aside(
    pool: MappingPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapping_pool, "_serve", serve_until_the_third)
    parts = pool.begin(work(8))()
    assert [found.seq for part in parts for found in part.archived] == [1, 2, 4, 5, 6, 7, 8]
    assert [(found.header.seq, fault.kind) for part in parts for found, fault in part.set_aside] == [(3, "Died")]


def test_a_process_that_hangs_is_killed(pool: MappingPool, monkeypatch: pytest.MonkeyPatch) -> None:
    given = work(12)
    pool.begin(given)()
    monkeypatch.setattr(mapping_pool, "_HANGS_S", 1.0)
    for child in children():
        child.suspend()
    parts = pool.begin(given)()
    assert [found.seq for part in parts for found in part.archived] == list(range(1, 13))


def test_a_process_that_hangs_before_it_has_all_of_its_work_is_killed(
    pool: MappingPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.begin(work(8))()
    monkeypatch.setattr(mapping_pool, "_HANGS_S", 0.5)
    monkeypatch.setattr(mapping_pool, "_HANGS_S_A_MIB", 1.0)
    monkeypatch.setattr(mapping_pool, "_CHUNK_EVENTS", 10**6)
    given = work(40)
    assert sum(found.size for found in given.records) > 2**20, "more than a socket holds"
    for child in children():
        child.suspend()
    parts = pool.begin(given)()
    assert [found.seq for part in parts for found in part.archived] == list(range(1, 41))


def serve_for_ever_at_the_third(wire: Wire, *arguments: Any) -> None:
    """A process that maps, but comes to no end with the third record."""
    real = RecordMapper.map

    def endless(self: RecordMapper, given: Work) -> Mapped:
        while any(found.header.seq == 3 for found in given.records):
            time.sleep(0.1)
        return real(self, given)

    RecordMapper.map = endless  # type: ignore[method-assign, assignment]
    mapping_pool._serve(wire, *arguments)


def test_only_the_record_that_never_ends_is_set_aside(pool: MappingPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping_pool, "_serve", serve_for_ever_at_the_third)
    monkeypatch.setattr(mapping_pool, "_HANGS_S", 6.0)
    parts = pool.begin(work(3))()
    assert [found.seq for part in parts for found in part.archived] == [1, 2]
    assert [(found.header.seq, fault.kind) for part in parts for found, fault in part.set_aside] == [(3, "Died")]


def no_more_threads(monkeypatch: pytest.MonkeyPatch, refused: Callable[[threading.Thread], bool]) -> None:
    """The machine gives no thread that is refused, as where the limit of the user or the container is reached."""
    real = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if refused(self):
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", start)


def test_without_a_thread_the_collector_maps_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector(Settings(data_dir=tmp_path, flush_events=100), processes=2)
    collector.start()
    bodies = renewed(BODY, 16)
    try:
        with monkeypatch.context() as crowded:
            no_more_threads(crowded, lambda thread: thread.name == "mapping")
            submit(collector, bodies[:8])
            assert collector.trouble is None
            assert not children()
        monkeypatch.setattr(collector.flusher.pool, "_paused_until", 0.0)
        submit(collector, bodies[8:])
        assert children(), "they come when the machine has room again"
    finally:
        collector.stop()
    assert Lake(tmp_path).read("calls").height == 2 * 8 * 60


def test_one_thread_is_enough(pool: MappingPool, monkeypatch: pytest.MonkeyPatch) -> None:
    no_more_threads(monkeypatch, lambda _: any(found.name == "mapping" for found in threading.enumerate()))
    parts = pool.begin(work(12))()
    assert [found.seq for part in parts for found in part.archived] == list(range(1, 13))
    assert len(parts) == 4
    assert len(children()) == 1


def test_a_collector_that_ends_without_a_thread_to_wait_waits_for_no_process(
    pool: MappingPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = work(12)
    pool.begin(given)()
    for child in children():
        child.suspend()
    wait = pool.begin(given)
    no_more_threads(monkeypatch, lambda thread: isinstance(thread, threading.Timer))
    pool.retire()
    assert [found.seq for part in wait() for found in part.archived] == list(range(1, 13))


def serve_nobody(*_: Any) -> None:
    os._exit(1)


def test_where_no_process_can_live_the_collector_maps_by_itself(
    pool: MappingPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapping_pool, "_serve", serve_nobody)
    parts = pool.begin(work(8))()
    assert [found.seq for part in parts for found in part.archived] == list(range(1, 9))
    assert not any(part.set_aside for part in parts)
    monkeypatch.undo()
    assert len(pool.begin(work(8))()) == 1, "for a while"


def test_a_process_that_cannot_be_started_is_no_fault_of_the_records(
    pool: MappingPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Wire, "pair", refused)
    parts = pool.begin(work(8))()
    assert [found.seq for part in parts for found in part.archived] == list(range(1, 9))


def test_a_collector_that_ends_waits_for_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping_pool, "_FAREWELL_S", 0.5)
    collector = Collector(Settings(data_dir=tmp_path, flush_interval_s=0.05), processes=2)
    collector.start()
    for bodies in (renewed(BODY, 12)[:6], renewed(BODY, 12)[6:]):
        for future in [collector.submit_traces(body, "protobuf", "p")[1] for body in bodies]:
            assert future is not None
            future.result(30)
        time.sleep(0.1)
        for child in children():
            child.suspend()
    collector.stop()
    assert Lake(tmp_path).read("calls").height == 12 * 60
    assert not children()


def test_closing_waits_for_nobody(pool: MappingPool) -> None:
    pool.begin(work(8))()
    for child in children():
        child.suspend()
    pool.begin(work(8))
    started = time.monotonic()
    pool.close()
    assert time.monotonic() - started < 10
    assert not children()


def test_a_collector_commits_the_same_with_and_without(tmp_path: Path) -> None:
    found = {}
    for processes in (0, 2):
        folder = tmp_path / str(processes)
        collector = Collector(Settings(data_dir=folder, flush_events=100), processes=processes)
        collector.start()
        for bodies in (renewed(BODY, 30)[:5], renewed(BODY, 30)[5:]):
            for future in [collector.submit_traces(body, "protobuf", "p")[1] for body in bodies]:
                assert future is not None
                future.result(30)
            assert collector.refresh(60)
        assert bool(children()) == bool(processes)
        collector.stop()
        assert not children()
        keyed = {table: Lake(folder).read(table) for table in ("selections", "calls", SKILLS)}
        found[processes] = {
            table: sorted(rows.get_column("skill_id" if table == SKILLS else "event_id").to_list())
            for table, rows in keyed.items()
        }
    assert found[0] == found[2]
    assert len(found[0]["calls"]) == 30 * 60


def test_the_processes_end_with_a_collector_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from bench.traces import renewed, requests\n"
        "from collector.service import Collector\n"
        "from pickwise.settings import Settings\n"
        "if __name__ == '__main__':\n"
        "    collector = Collector(Settings(data_dir=Path(sys.argv[1])), processes=1)\n"
        "    collector.start()\n"
        "    for body in renewed(requests(1, 70)[0], 12):\n"
        "        collector.submit_traces(body, 'protobuf', 'p')[1].result()\n"
        "    collector.refresh(60)\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
    )
    script = tmp_path / "killed.py"
    script.write_text(code)
    with subprocess.Popen([sys.executable, str(script), str(tmp_path / "data")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        born = psutil.Process(process.pid).children()
        assert born
        process.kill()
    deadline = time.monotonic() + 20
    while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in born):
        assert time.monotonic() < deadline
        time.sleep(0.05)
