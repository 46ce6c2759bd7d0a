"""Which facts were already stored: exact repeats are dropped before they reach a table.

A key is a 64-bit hash of (project, event_id, fact), where ``fact`` is a hash of the content: the same event id with
other content is not a repeat, reading folds it. Two different facts share a key with a chance of n / 2⁶⁴ for n keys
remembered, 5 in 10¹² with a hundred million.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

#: Keys are remembered so long after receipt; a later repeat is folded away when it is read.
REMEMBER = timedelta(days=7)
KEY_COLUMNS = ("project", "event_id", "fact")


def keys_of(rows: pl.DataFrame) -> Keys:
    """One key a row of a frame that has ``project``, ``event_id`` and ``fact``."""
    joined = pl.concat_str([pl.col(name).fill_null("") for name in KEY_COLUMNS], separator="\x1f")
    return rows.select(joined.hash(seed=0)).to_series().to_numpy().astype(np.uint64, copy=False)


class KeySet:
    """A growing set of keys: sorted runs, each at least twice as long as the next, so that adding n costs n log n."""

    def __init__(self) -> None:
        self._runs: list[Keys] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def contains(self, keys: Keys) -> NDArray[np.bool_]:
        """Whether each key is in the set."""
        found = np.zeros(len(keys), dtype=np.bool_)
        for run in self._runs:
            at = np.searchsorted(run, keys)
            at[at == len(run)] = 0
            found |= run[at] == keys
        return found

    def add(self, keys: Keys) -> None:
        """Keys that are not in the set yet; others are counted twice."""
        if not len(keys):
            return
        run = np.sort(keys)
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.concatenate([self._runs.pop(), run])
            run.sort(kind="stable")  # finds the two sorted halves, and only merges them
        self._runs.append(run)


class KeyIndex:
    """The keys of one table by the day of their receipt, so that old ones are forgotten a day at a time."""

    def __init__(self) -> None:
        self._days: dict[date, KeySet] = {}

    @classmethod
    def of_files(cls, files: Sequence[str], now: datetime | None = None) -> Self:
        """The index of the rows received within the last 7 days in the given Parquet files of a table."""
        index = cls()
        if not files:
            return index
        since = (now or datetime.now(UTC)) - REMEMBER
        rows = (
            pl.scan_parquet(list(files), hive_partitioning=True, hive_schema={"project": pl.String, "date": pl.Date})
            .select(*KEY_COLUMNS, "received_at")
            .filter(pl.col("received_at") >= since)
            .with_columns(day=pl.col("received_at").dt.date())
            .collect()
        )
        for (day,), group in rows.group_by("day"):
            assert isinstance(day, date)
            index.add(keys_of(group), day)
        return index

    def __len__(self) -> int:
        return sum(len(keys) for keys in self._days.values())

    def fresh(self, keys: Keys) -> NDArray[np.bool_]:
        """Which of the keys are neither remembered nor repeats of an earlier one among them."""
        order = np.argsort(keys)
        ordered = keys[order]  # also looked up faster so
        first = np.ones(len(keys), dtype=np.bool_)
        first[1:] = ordered[1:] != ordered[:-1]
        if not first.all():  # rare: which of equal ones was the first takes longer to find
            order = np.argsort(keys, kind="stable")
        for remembered in self._days.values():
            first &= ~remembered.contains(ordered)
        fresh = np.empty_like(first)
        fresh[order] = first
        return fresh

    def add(self, keys: Keys, day: date) -> None:
        """Remember keys received on that day and forget those whose time is over."""
        self._days.setdefault(day, KeySet()).add(keys)
        # One day more than asked: a key received late on a day must last as long as an early one.
        oldest = max(self._days) - REMEMBER - timedelta(days=1)
        for old in [known for known in self._days if known < oldest]:
            del self._days[old]
