"""What the owner of the tables does once an hour: remove what is too old, keep out what was forgotten, tidy up."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import polars as pl

from collector.operations import RetentionRequest
from collector.retention import Retention, RetentionReport
from collector.stores import Stores
from collector.tables import TABLES

logger = logging.getLogger(__name__)

EVERY_S = 3_600.0
#: Files of one table and day are merged up to this size here: one step must not hold up the batches for long.
_LARGE_FILE_BYTES = 64 * 2**20
_VERDICT = ("project", "session_id", "trace_id", "time", "time_is_receipt")


class Upkeep:
    """The hourly operation. ``is_due`` tells when; it is begun anew each time that it is submitted."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._next = time.monotonic()
        self.report = RetentionReport(dry_run=False)

    @property
    def due_in_s(self) -> float:
        return max(0.0, self._next - time.monotonic())

    def is_due(self) -> bool:
        return self.due_in_s == 0.0

    def steps(self) -> Iterator[None]:
        """Remove by age, then bring each table into shape. What fails is left for the next hour."""
        self._next = time.monotonic() + EVERY_S
        retention = Retention(RetentionRequest(at=time.time_ns()), self._stores)
        yield from retention.steps()
        self.report = retention.report
        self._stores.tombstones.expire(time.time_ns())
        yield from self._sweep()
        self._stores.archive.merge()
        yield
        for table in TABLES:
            try:
                self._stores.lake.compact(table, _LARGE_FILE_BYTES)
            except Exception as error:  # noqa: BLE001 - another process may have committed; later is soon enough
                logger.warning("upkeep of %s put off: %s", table, error)
            yield

    def _sweep(self) -> Iterator[None]:
        """A job that ran while a session was forgotten may have written a verdict on it since."""
        lake, tombstones = self._stores.lake, self._stores.tombstones
        if not tombstones:
            return
        named = lake.select("feedback", pl.col("session_id").is_not_null(), _VERDICT)
        rows = named.with_columns(pl.col("time").dt.epoch("us")).unique().iter_rows(named=True)
        sessions = sorted({row["session_id"] for row in rows if tombstones.hides(row)})
        if sessions:
            lake.replace("feedback", pl.col("session_id").is_in(sessions))
            lake.purge("feedback")
            yield
