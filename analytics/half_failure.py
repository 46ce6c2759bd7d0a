"""Half failure: a discovery router that stays on its degraded path without saying that it recovered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import polars as pl

#: More than three probes of 30 s.
HALF_FAILURE_AFTER = timedelta(seconds=90)
#: An instance that sends nothing for so long is gone, not degraded.
LOST_AFTER = timedelta(minutes=5)

Ending = Literal["recovered", "lost"]


@dataclass(frozen=True)
class Episode:
    """One degraded spell of one instance."""

    instance: str
    started_at: datetime
    #: Recovery, or the last sign of life plus five minutes; None: still degraded.
    ended_at: datetime | None
    ending: Ending | None
    degraded_seconds: float
    reason: str | None

    @property
    def half_failure(self) -> bool:
        return self.degraded_seconds > HALF_FAILURE_AFTER.total_seconds()


def episodes(routes: pl.DataFrame, at: datetime) -> list[Episode]:
    """Degraded spells of every instance as of ``at``, in order of their start.

    ``routes``: instance, time, state, reason in any order; rows at or after ``at`` are left out.
    """
    known = routes.filter(pl.col("time") < at).sort("time", "state")
    found = [
        episode
        for key, rows in known.group_by("instance")
        for episode in _of_instance(str(key[0]), rows.sort("time", "state").to_dicts(), at)
    ]
    return sorted(found, key=lambda episode: (episode.started_at, episode.instance))


def _of_instance(instance: str, rows: list[dict[str, Any]], at: datetime) -> Iterator[Episode]:
    start: dict[str, Any] | None = None
    heard_at: datetime | None = None
    for row in rows:
        if start is not None and heard_at is not None and row["time"] - heard_at > LOST_AFTER:
            yield _episode(instance, start, heard_at + LOST_AFTER, "lost")
            start = None
        heard_at = row["time"]
        if row["state"] == "degraded" and start is None:
            start = row
        elif row["state"] == "recovered" and start is not None:
            yield _episode(instance, start, row["time"], "recovered")
            start = None
    if start is None or heard_at is None:
        return
    if at - heard_at > LOST_AFTER:
        yield _episode(instance, start, heard_at + LOST_AFTER, "lost")
        return
    seconds = (at - start["time"]).total_seconds()
    yield Episode(instance, start["time"], None, None, seconds, start["reason"])


def _episode(instance: str, start: dict[str, Any], end: datetime, ending: Ending) -> Episode:
    return Episode(instance, start["time"], end, ending, (end - start["time"]).total_seconds(), start["reason"])
