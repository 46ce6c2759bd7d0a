"""Records set aside: readable by the owner alone, read again as they were, gone in time."""

from __future__ import annotations

import logging
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from collector.dead_letters import DeadLetters
from collector.faults import Fault
from collector.segment import Header, Record
from collector.telemetry import Telemetry

BODY = b"\x00raw \xff with sk-secret0123456789abc"


def record(seq: int) -> Record:
    header = Header(seq=seq, kind="traces", project="p", received_at=seq, encoding="protobuf", imported=seq == 2)
    return Record(header, BODY, len(BODY))


def test_they_come_back_as_they_were(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    letters = DeadLetters(tmp_path / "rejected", Telemetry())
    assert (letters.records(), letters.last_seq) == ([], 0)
    with caplog.at_level(logging.ERROR):
        for seq in (3, 2):
            letters.put(record(seq), Fault.of(KeyError("sk-secret0123456789abc")))
    assert letters.records() == [record(2), record(3)]
    assert letters.last_seq == 3
    (path, _) = sorted((tmp_path / "rejected").iterdir())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert "KeyError" in caplog.text
    assert "sk-secret" not in caplog.text
    letters.remove(record(2))
    letters.remove(record(2))
    assert letters.records() == [record(3)]


def test_a_file_that_is_none_is_left_alone(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, Telemetry())
    (tmp_path / "note.json").write_text("{}")
    (tmp_path / f"{9:020d}.json").write_text('{"header": 1}')
    letters.put(record(1), Fault.of(ValueError("x")))
    assert letters.records() == [record(1)]
    assert letters.last_seq == 9


def test_they_expire(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, Telemetry())
    letters.put(record(1), Fault.of(ValueError("x")))
    letters.put(record(2), Fault.of(ValueError("x")))
    now = datetime.now(UTC)
    os.utime(tmp_path / f"{1:020d}.json", ((now - timedelta(days=2)).timestamp(),) * 2)
    assert letters.expire(now, 1) == 1
    assert letters.records() == [record(2)]
