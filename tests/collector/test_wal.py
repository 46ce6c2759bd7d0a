"""What the log promises: synced before the future resolves, whole after a crash, in order, gone once committed."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector import segment
from collector.segment import FILE_HEADER, Header, LogFormatError, Record, encode, segment_path
from collector.wal import Overloaded, Wal

ALL = 10**9


def open_wal(folder: Path, **options: int | float) -> Wal:
    defaults: dict[str, int | float] = {"queue_bytes": 10**7, "backlog_bytes": 10**8}
    return Wal(folder, **(defaults | options))  # type: ignore[arg-type]


def put(log: Wal, *bodies: bytes) -> list[int]:
    futures = [log.append("events", "p", "json", body) for body in bodies]
    return [future.result(10) for future in futures]


def bodies_of(records: list[Record]) -> list[bytes]:
    return [record.body for record in records]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Wal]:
    opened = open_wal(tmp_path / "wal")
    yield opened
    opened.close()


def test_appended_records_are_read_in_order(log: Wal) -> None:
    assert put(log, b"a", b"", b"c") == [1, 2, 3]
    records = log.read(ALL, ALL)
    assert bodies_of(records) == [b"a", b"", b"c"]
    assert records[0].header == Header(
        seq=1, kind="events", project="p", received_at=records[0].header.received_at, encoding="json", events=1
    )
    assert log.read(ALL, ALL) == []


def test_reading_stops_at_the_asked_events_and_goes_on_there(log: Wal) -> None:
    put(log, b"a", b"b", b"c")
    assert bodies_of(log.read(2, ALL)) == [b"a", b"b"]
    assert bodies_of(log.read(2, ALL)) == [b"c"]


def test_a_body_longer_than_the_bound_is_read_all_the_same(log: Wal) -> None:
    put(log, b"x" * 1000, b"y")
    assert bodies_of(log.read(ALL, 10)) == [b"x" * 1000]


def test_many_threads_append_and_each_gets_its_own_number(log: Wal) -> None:
    got: list[int] = []

    def work() -> None:
        for _ in range(50):
            got.extend(put(log, b"x" * 100))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(1, 401))
    assert [record.header.seq for record in log.read(ALL, ALL)] == list(range(1, 401))


def test_many_appends_share_a_sync(log: Wal, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    real = os.fdatasync

    def counting(descriptor: int) -> None:
        syncs.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", counting)
    put(log, *[b"x"] * 500)
    assert 1 <= len(syncs) < 250


def test_files_are_for_the_owner_only(log: Wal) -> None:
    put(log, b"secret")
    assert stat.S_IMODE(log.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in log.folder.iterdir()} == {0o600}


def test_what_is_committed_leaves_the_disk_at_once(log: Wal) -> None:
    put(log, b"secret words")
    records = log.read(ALL, ALL)
    log.release(records[-1].header.seq, records[-1].size)
    assert log.backlog_bytes == 0
    assert all(b"secret" not in path.read_bytes() for path in log.folder.iterdir())
    assert put(log, b"next") == [2]
    assert bodies_of(log.read(ALL, ALL)) == [b"next"]


def test_what_is_not_committed_stays_over_a_restart(tmp_path: Path) -> None:
    first = open_wal(tmp_path)
    put(first, b"a", b"b")
    first.close()
    second = open_wal(tmp_path)
    assert second.recovery.records == 2
    assert put(second, b"c") == [3]
    assert bodies_of(second.read(ALL, ALL)) == [b"a", b"b", b"c"]
    second.close()


def test_numbers_go_on_after_the_floor_when_the_log_is_empty(tmp_path: Path) -> None:
    log = open_wal(tmp_path, floor_seq=41)
    assert put(log, b"a") == [42]
    log.close()


def test_segments_rotate_by_size_and_old_ones_go(tmp_path: Path) -> None:
    log = open_wal(tmp_path, segment_bytes=2_000)
    for index in range(10):
        put(log, bytes([index]) * 900)
    assert len(list(tmp_path.glob("*.wal"))) > 3
    records = log.read(ALL, ALL)
    assert [record.body[0] for record in records] == list(range(10))
    log.release(6, sum(record.size for record in records[:6]))
    assert min(int(path.stem) for path in tmp_path.glob("*.wal")) <= 7
    assert len(list(tmp_path.glob("*.wal"))) < 5
    log.close()


def test_a_busy_log_rotates_by_age(tmp_path: Path) -> None:
    log = open_wal(tmp_path, segment_age_s=0.0)
    put(log, b"a")
    put(log, b"b")
    assert len(list(tmp_path.glob("*.wal"))) == 2
    log.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies=st.lists(st.binary(max_size=200), min_size=1, max_size=6), cut=st.integers(0, 2_000))
def test_a_torn_tail_is_cut_and_every_whole_record_stays(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[bytes], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("wal")
    log = open_wal(folder)
    for body in bodies:
        put(log, body)
    log.close()
    (path,) = folder.glob("*.wal")
    size = path.stat().st_size
    kept = max(0, size - cut)
    os.truncate(path, kept)
    end, whole = len(FILE_HEADER), 0
    for body in bodies:
        header = Header(seq=1, kind="events", project="p", received_at=10**18, encoding="json")
        end += sum(map(len, encode(header, body)))
        whole += end <= kept
    again = open_wal(folder)
    assert bodies_of(again.read(ALL, ALL)) == bodies[:whole]
    assert again.recovery.records == whole
    put(again, b"after")
    assert bodies_of(again.read(ALL, ALL)) == [b"after"]
    again.close()


def test_a_torn_tail_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_wal(tmp_path)
    put(log, b"whole", b"torn" * 10)
    log.close()
    (path,) = tmp_path.glob("*.wal")
    os.truncate(path, path.stat().st_size - 5)
    again = open_wal(tmp_path)
    assert again.recovery.torn_bytes > 0
    assert "cut" in caplog.text
    again.close()


def test_damage_inside_a_sealed_segment_keeps_the_file_and_the_records_around(tmp_path: Path) -> None:
    log = open_wal(tmp_path, segment_age_s=0.0)
    put(log, b"first")
    put(log, b"second")
    put(log, b"third")
    log.close()
    middle = sorted(tmp_path.glob("*.wal"))[1]
    data = bytearray(middle.read_bytes())
    data[-3] ^= 0xFF
    middle.write_bytes(data)
    again = open_wal(tmp_path)
    assert len(again.recovery.damaged) == 1
    records = again.read(ALL, ALL)
    assert bodies_of(records) == [b"first", b"third"]
    again.release(3, sum(record.size for record in records))
    assert [path.name for path in tmp_path.glob("*.damaged")] == [f"{middle.stem}.damaged"]
    again.close()


def test_a_full_queue_refuses_and_takes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_wal(tmp_path, queue_bytes=1_000)
    gate = threading.Event()
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (gate.wait(10), real(fd))[1])
    held = log.append("events", "p", "json", b"x" * 600)
    with pytest.raises(Overloaded, match="wait for the disk"):
        log.append("events", "p", "json", b"x" * 600)
    gate.set()
    assert held.result(10) == 1
    for _ in range(200):
        if log.queue_bytes == 0:
            break
        threading.Event().wait(0.01)
    assert put(log, b"y") == [2]
    log.close()


def test_a_full_backlog_refuses_until_it_is_committed(tmp_path: Path) -> None:
    log = open_wal(tmp_path, backlog_bytes=500)
    put(log, b"x" * 600)
    with pytest.raises(Overloaded, match="not yet committed"):
        log.append("events", "p", "json", b"y")
    (record,) = log.read(ALL, ALL)
    log.release(1, record.size)
    assert put(log, b"y") == [2]
    log.close()


def test_a_full_disk_refuses_and_loses_nothing_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_wal(tmp_path)
    put(log, b"before")
    real = os.writev

    def full(fd: int, parts: list[bytes]) -> int:
        real(fd, [parts[0][:7]])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(Overloaded, match="disk is full"):
        put(log, b"refused")
    monkeypatch.undo()
    assert put(log, b"after") == [2]
    assert bodies_of(log.read(ALL, ALL)) == [b"before", b"after"]
    log.close()
    again = open_wal(tmp_path)
    assert bodies_of(again.read(ALL, ALL)) == [b"before", b"after"]
    assert again.recovery.torn_bytes == 0
    again.close()


@pytest.mark.parametrize("at_once", [1, 7, 100_000])
def test_a_disk_that_takes_little_at_a_time_gets_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, parts: real(fd, [b"".join(parts)[:at_once]]))
    monkeypatch.setattr("collector.wal._PARTS_AT_ONCE", 3)
    log = open_wal(tmp_path)
    sent = [b"", b"a" * 50, b"", b"b" * 1000, b"c"]
    put(log, *sent)
    assert bodies_of(log.read(ALL, ALL)) == sent
    log.close()


def test_a_read_that_fails_loses_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_wal(tmp_path, segment_bytes=100)
    for number in range(4):
        put(log, b"%d" % number * 80)
    real = segment.read_records
    failing = {2, 3}
    calls = 0

    def unlucky(*arguments: Any) -> Iterator[Record]:
        nonlocal calls
        calls += 1
        if calls in failing:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*arguments)

    monkeypatch.setattr("collector.wal.read_records", unlucky)
    first = log.read(ALL, ALL)
    assert len(first) == 1, "what was read before the failure is good"
    with pytest.raises(OSError, match="Too many"):
        log.read(ALL, ALL)
    assert [record.header.seq for record in [*first, *log.read(ALL, ALL)]] == [1, 2, 3, 4]
    log.close()


def test_a_cancelled_append_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_wal(tmp_path)
    gate = threading.Event()
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (gate.wait(10), real(fd))[1])
    held = log.append("events", "p", "json", b"held")
    while not held.running():
        threading.Event().wait(0.005)
    gone = log.append("events", "p", "json", b"gone")
    assert gone.cancel()
    gate.set()
    put(log, b"last")
    assert bodies_of(log.read(ALL, ALL)) == [b"held", b"last"]
    log.close()


def test_a_closed_log_refuses(tmp_path: Path) -> None:
    log = open_wal(tmp_path)
    log.close()
    with pytest.raises(Overloaded, match="shutting down"):
        log.append("events", "p", "json", b"x")


def test_a_segment_of_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    path = segment_path(tmp_path, 1)
    path.write_bytes(b"PKWLOG" + (segment.SCHEMA_VERSION + 1).to_bytes(2, "little"))
    with pytest.raises(LogFormatError, match=path.name):
        open_wal(tmp_path)


def test_a_foreign_file_is_refused_by_name(tmp_path: Path) -> None:
    path = segment_path(tmp_path, 1)
    path.write_bytes(b"something else altogether")
    with pytest.raises(LogFormatError, match=path.name):
        open_wal(tmp_path)
