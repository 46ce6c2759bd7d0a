"""What was forgotten stays out for as long as a sender may retry, and tells nothing of what it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.control import Control
from collector.redact import Redactor
from collector.tombstones import Tombstones
from pickwise.settings import Settings
from tests.collector.disk import holding

AT = 1_790_000_000_000_000_000
DAY = 86_400 * 10**9
KEY = b"k" * 32
REDACTOR = Redactor(Settings(), KEY)


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    opened = Control(tmp_path)
    yield opened
    opened.close()


def tombstones(control: Control, monkeypatch: pytest.MonkeyPatch, now: int = AT) -> Tombstones:
    monkeypatch.setattr("time.time_ns", lambda: now)
    return Tombstones(control, REDACTOR)


def row(session: str | None, trace: str | None = None, time: int = AT, receipt: bool = False) -> dict[str, object]:
    return {
        "project": "p",
        "session_id": session,
        "trace_id": trace,
        "time": time // 1_000,
        "time_is_receipt": receipt,
    }


def test_a_session_its_traces_and_what_does_not_say_when(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    stones = tombstones(control, monkeypatch)
    assert not stones
    assert not stones.hides(row("s"))
    stones.put("p", "s", ["t"], AT)
    assert stones
    assert stones.hides(row("s"))
    assert not stones.hides(row("s", time=AT + 1_000))
    assert stones.hides(row("s", time=AT + 1_000, receipt=True))
    assert stones.hides(row(None, "t"))
    assert stones.hides(row("", "t"))
    assert not stones.hides(row("other", "t"))
    assert not stones.hides(row(None, "s"))
    assert not stones.hides(row("t"))
    assert not stones.hides(row("s") | {"project": "q"})
    assert stones.forgotten.hides_trace("p", "t", 0, REDACTOR)
    assert stones.forgotten.hides_trace("p", "t", AT, REDACTOR)
    assert not stones.forgotten.hides_trace("p", "t", AT + 1, REDACTOR)
    assert not stones.forgotten.hides_trace("p", None, 0, REDACTOR)


def test_it_lasts_seven_days_and_through_restarts(
    control: Control, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tombstones(control, monkeypatch).put("p", "session-of-ada", ["trace-of-ada"], AT)
    again = tombstones(control, monkeypatch, AT + 7 * DAY - 1)
    assert again.hides(row("session-of-ada"))
    again.put("p", "session-of-ada", [], AT + DAY)
    assert again.hides(row("session-of-ada", time=AT + DAY))
    assert holding(tmp_path, "session-of-ada", "trace-of-ada") == {}
    again.expire(AT + 7 * DAY + 1)
    assert again.hides(row("session-of-ada", time=AT + DAY))
    assert not again.hides(row(None, "trace-of-ada"))
    again.expire(AT + 8 * DAY + 1)
    assert not again
    assert control.items("forgotten/") == {}
