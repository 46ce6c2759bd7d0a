"""The line between two processes: whole messages, and no waiting for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from collector.wire import Wire

LARGE = bytes(range(256)) * 2**14


@pytest.fixture
def ends() -> Iterator[tuple[Wire, Wire]]:
    ours, theirs = Wire.pair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_objects_come_as_they_were_sent_and_in_order(ends: tuple[Wire, Wire]) -> None:
    ours, theirs = ends
    sent = [{"a": [1, None]}, LARGE, "", LARGE]

    def send_all() -> None:
        for message in sent:
            theirs.send(message)

    thread = threading.Thread(target=send_all)
    thread.start()
    assert [ours.receive() for _ in sent] == sent
    thread.join()


def test_the_end_of_the_other_side_is_told(ends: tuple[Wire, Wire]) -> None:
    ours, theirs = ends
    theirs.close()
    with pytest.raises(EOFError):
        ours.receive()
    with pytest.raises(OSError, match="Broken pipe"):
        ours.send(1)


def test_a_message_that_breaks_off_is_none(ends: tuple[Wire, Wire]) -> None:
    ours, theirs = ends
    theirs._socket.sendall((100).to_bytes(8, "big") + b"half")
    theirs.close()
    with pytest.raises(EOFError):
        ours.receive()


def test_who_says_nothing_and_takes_nothing_is_not_waited_for(ends: tuple[Wire, Wire]) -> None:
    ours, _ = ends
    ours.wait_at_most(0.2)
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        ours.receive()
    with pytest.raises(TimeoutError):
        ours.send(LARGE)
    assert time.monotonic() - started < 5


def test_who_is_slow_is_waited_for(ends: tuple[Wire, Wire]) -> None:
    ours, theirs = ends
    ours.wait_at_most(1.0)

    def trickle() -> None:
        for byte in (100).to_bytes(8, "big"):
            time.sleep(0.2)
            theirs._socket.sendall(bytes([byte]))
        theirs.close()

    thread = threading.Thread(target=trickle)
    thread.start()
    with pytest.raises(EOFError):
        ours.receive()
    thread.join()
