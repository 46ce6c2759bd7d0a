"""Files of the archive: whole or not there, once each, merged, and gone when their time is over."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from collector import archive as module
from collector.archive import Archive, UnreadableArchive
from collector.archived import ArchivedItem, ArchivedRequest, EncodedRequest
from collector.spans import LogRecord

NOON = datetime(2026, 1, 10, 12, tzinfo=UTC)


def request(seq: int, at: datetime = NOON, name: str = "") -> ArchivedRequest:
    record = LogRecord(
        trace_id=None, span_id=None, time_ns=0, event_name=name or f"e{seq}", body=None, attributes={}, resource={}
    )
    return ArchivedRequest(seq, "p", int(at.timestamp() * 1e9), [ArchivedItem(log=record)])


def write(archive: Archive, *requests: ArchivedRequest) -> None:
    archive.write([EncodedRequest.of(request) for request in requests])


def seqs(archive: Archive, start: datetime | None = None) -> list[int]:
    return [found.seq for file in archive.files(start) for found in archive.read(file)]


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "archive", 3)
    write(archive, request(1), request(3))
    (file,) = archive.files()
    assert archive.read(file) == [request(1), request(3)]
    assert names(tmp_path) == [f"archive/2026-01-10/12/{1:020d}-{3:020d}.zst"]
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700


def test_a_batch_read_again_from_the_log_is_not_written_twice(tmp_path: Path) -> None:
    write(Archive(tmp_path, 3), request(1), request(2))
    again = Archive(tmp_path, 3)  # after a crash, and batches are cut otherwise
    assert again.last_seq == 2
    write(again, request(1), request(2), request(3))
    write(again, request(2))
    assert seqs(again) == [1, 2, 3]
    assert again.last_seq == 3


def test_a_draft_of_a_crash_counts_for_nothing_and_goes(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 3)
    write(archive, request(1))
    draft = tmp_path / "2026-01-10" / "12" / f"{2:020d}-{2:020d}.zst.draft"
    draft.write_bytes(b"half of it")
    assert Archive(tmp_path, 3).last_seq == 1
    archive.merge()
    assert not draft.exists()
    assert seqs(archive) == [1]


def test_small_files_of_an_hour_are_merged_and_none_is_lost(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 3)
    for seq in range(1, 41):
        write(archive, request(seq))
    write(archive, request(41, NOON + timedelta(hours=1)))
    archive.merge()
    assert seqs(archive) == list(range(1, 42))
    assert names(tmp_path) == [
        f"2026-01-10/12/{1:020d}-{40:020d}.zst",
        f"2026-01-10/13/{41:020d}-{41:020d}.zst",
    ]
    archive.merge()
    assert len(archive.files()) == 2


def test_files_that_are_large_enough_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WHOLE_BYTES", 1)
    archive = Archive(tmp_path, 3)
    for seq in range(1, 41):
        write(archive, request(seq))
    archive.merge()
    assert len(archive.files()) == 40


def test_parts_that_a_crash_left_beside_their_merged_file_are_not_read_twice(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 3)
    for seq in (1, 2, 3):
        write(archive, request(seq))
    parts = {file.path: file.path.read_bytes() for file in archive.files()}
    archive._join(tmp_path / "2026-01-10" / "12", archive.files())
    for path, content in parts.items():
        path.write_bytes(content)
    assert seqs(Archive(tmp_path, 3)) == [1, 2, 3]
    archive.merge()
    assert len(names(tmp_path)) == 1


def test_a_window_gives_the_files_that_may_hold_it(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 3)
    for hour in range(6):
        write(archive, request(hour + 1, NOON + timedelta(hours=hour)))
    assert seqs(archive, NOON + timedelta(hours=2)) == [3, 4, 5, 6]
    assert seqs(archive, NOON + timedelta(hours=3, minutes=59)) == [4, 5, 6]
    assert seqs(archive, NOON + timedelta(hours=9)) == []


def test_hours_go_when_their_time_is_over_and_all_when_it_is_off(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "archive", 1)
    for seq, hours in ((1, 0), (2, 1), (3, 26)):
        write(archive, request(seq, NOON + timedelta(hours=hours)))
    assert archive.expire(NOON + timedelta(hours=25, minutes=30)) == 1
    assert seqs(archive) == [2, 3]
    assert Archive(tmp_path / "archive", 0).expire(NOON) == 2
    assert names(tmp_path) == []


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    for name in ("notes/readme", "2026-01-10/noon", "2026-01-10/12"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "2026-01-10" / "12" / "notes.zst").write_bytes(b"")
    archive = Archive(tmp_path, 3)
    assert archive.files() == []
    archive.expire(NOON + timedelta(days=1))
    assert (tmp_path / "notes" / "readme").exists()


def test_a_request_out_of_its_turn_finds_its_place(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 3)
    write(archive, request(1), request(5))
    archive.insert(request(3), is_whole=True)
    archive.insert(request(9), is_whole=True)
    assert seqs(archive) == [1, 3, 5, 9]
    archive.insert(request(3, name="more"), is_whole=False)
    archive.insert(request(3, name="more"), is_whole=False)
    archive.insert(request(5, name="other"), is_whole=True)
    found = {kept.seq: kept for file in archive.files() for kept in archive.read(file)}
    assert [item.log.event_name for item in found[3].items if item.log] == ["e3", "more"]
    assert [item.log.event_name for item in found[5].items if item.log] == ["other"]
    assert archive.last_seq == 5


def test_rewriting_says_whether_it_changed_anything(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 3)
    write(archive, request(1), request(2))
    (file,) = archive.files()
    assert not archive.rewrite(file, lambda found: found)
    assert archive.rewrite(file, lambda found: None if found.seq == 1 else found)
    assert seqs(archive) == [2]
    assert archive.rewrite(file, lambda _: None)
    assert seqs(archive) == []
    assert Archive(tmp_path, 3).last_seq == 2


@pytest.mark.parametrize("content", [b"", b"no zstd", b"\x28\xb5\x2f\xfd"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    archive = Archive(tmp_path, 3)
    write(archive, request(1))
    (file,) = archive.files()
    file.path.write_bytes(content)
    with pytest.raises(UnreadableArchive, match=str(file.path)):
        archive.read(file)


def test_spans_survive_the_way_through_the_file() -> None:
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode([request(7)]), type=list[ArchivedRequest])
    assert decoded == [request(7)]
