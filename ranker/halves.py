"""Half of a long computation in a second process, which starts with all that this one has in memory."""

from __future__ import annotations

import multiprocessing as mp
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from collector.wire import Wire

T = TypeVar("T")


def can_share() -> bool:
    """Whether there is a second core, and a safe way to start a process that shares this one's memory: on Linux."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return cores > 1 and not mp.current_process().daemon


@contextmanager
def in_another_process(work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Begin the work; what is given waits for its result, and raises EOFError where the process died.

    The process is a copy of this one at this moment with no thread but the calling one, so ``work`` is to compute and
    nothing else.
    """
    ours, theirs = Wire.pair()
    process = mp.get_context("fork").Process(target=_send, args=(theirs, ours, work), daemon=True)
    try:
        process.start()
        theirs.close()
        yield ours.receive
    finally:
        ours.close()
        process.kill()
        process.join()


def _send(wire: Wire, of_parent: Wire, work: Callable[[], Any]) -> None:
    of_parent.close()
    wire.send(work())
