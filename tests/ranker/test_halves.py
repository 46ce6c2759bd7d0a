"""A second process has what this one has, and its end is noticed."""

from __future__ import annotations

import os
import signal

import pytest

from ranker.halves import can_share, in_another_process

pytestmark = pytest.mark.skipif(not can_share(), reason="one core, or no Linux")


def test_it_computes_from_what_is_in_memory() -> None:
    held = list(range(100_000))
    with in_another_process(lambda: (os.getpid(), sum(held))) as theirs:
        held.clear()  # here alone
        other, found = theirs()
    assert found == 4_999_950_000
    assert other != os.getpid()


def test_its_death_is_told() -> None:
    def killed() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with in_another_process(killed) as theirs, pytest.raises(EOFError):
        theirs()
