"""Twelve days that have an outage, a surge and a new skill; small enough to live them again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.flags import run_night
from bench.month import Entry, Month, Trouble

DAYS = 12
MONTH = Month(
    selections=120 * DAYS,
    days=DAYS,
    skills=12,
    candidates=4,
    questions=60,
    repetition=1.05,
    domains=1,
    troubles=[
        Trouble(0, 8, DAYS, failing=0.95),
        Trouble(3, 9, 10, failing=0.7, volume=6.0),
        Trouble(12, 8, DAYS),
    ],
    entries=[Entry(0, 8, "2"), Entry(12, 8)],
)
#: The days whose nights are lived one by one; the first of them finds all the days before.
NIGHTS = range(7, DAYS)


def night(folder: Path, day: int = DAYS - 1) -> list[dict[str, Any]]:
    """The changes of status that the night after ``day`` records; the default embedder is there sooner than torch."""
    return run_night(MONTH, folder, day, "use")
