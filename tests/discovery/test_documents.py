"""The poller: it goes on after a bad round, and stops when told."""

from __future__ import annotations

import threading
import time

from discovery.documents import Poller


def test_a_bad_round_does_not_end_the_polling() -> None:
    rounds, third = [0], threading.Event()

    def poll() -> None:
        rounds[0] += 1
        if rounds[0] == 3:
            third.set()
        raise RuntimeError("bad round")

    poller = Poller(poll, 0.01, "test")
    assert third.wait(5)
    poller.stop()
    done = rounds[0]
    time.sleep(0.05)
    assert rounds[0] == done
