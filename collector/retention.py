"""What is removed by its age: events, the archive, dead letters and damaged log files, each by its own setting."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import polars as pl

from collector import vector_files
from collector.operations import RetentionRequest
from collector.stores import Stores
from collector.tables import TABLES, is_imported
from pickwise.settings import RETAINED_TABLES, Settings

#: Ranking asks for the vectors of all queries that the tables hold whenever it learns, at least once a day.
_UNUSED_DAYS = 2

logger = logging.getLogger(__name__)


class RetentionReport(msgspec.Struct):
    """What was removed, or would be: rows by table (those that have an age set), hours of the archive, files."""

    dry_run: bool
    rows: dict[str, int] = {}
    archive_hours: int = 0
    dead_letters: int = 0
    damaged_segments: int = 0


class Retention:
    """Removes what is older than the settings say."""

    def __init__(self, request: RetentionRequest, stores: Stores) -> None:
        self._project = request.project
        self._now = datetime.fromtimestamp(request.at / 1e9, UTC)
        self._stores = stores
        self.report = RetentionReport(request.dry_run)

    def steps(self) -> Iterator[None]:
        self.report = RetentionReport(self.report.dry_run)
        for table, days in ages(self._stores.settings).items():
            self.report.rows[table] = self._remove_rows(table, self._now - timedelta(days=days))
            yield
        if not self.report.dry_run:
            self._remove_files()

    def _remove_rows(self, table: str, oldest: datetime) -> int:
        lake = self._stores.lake
        doomed = too_old(table, oldest)
        if self._project is not None:
            doomed &= pl.col("project") == self._project
        if self.report.dry_run:
            return lake.count(table, doomed)
        removed = lake.replace(table, doomed)
        if removed:
            logger.info("%d rows of %s from before %s are removed", removed, table, oldest.date())
        return removed

    def _remove_files(self) -> None:
        stores, now = self._stores, self._now
        self.report.archive_hours = stores.archive.expire(now)
        self.report.dead_letters = stores.dead_letters.expire(now, stores.settings.dead_letter_days)
        self.report.damaged_segments = _expire_damaged(
            stores.wal_folder, now - timedelta(days=stores.settings.dead_letter_days)
        )
        if "selections" in ages(stores.settings):
            for vectors in vector_files.vector_files(stores.settings.data_dir):
                vectors.drop_unused(_UNUSED_DAYS)


def ages(settings: Settings) -> dict[str, float]:
    """Days that the rows of each table are kept; tables whose rows are kept for good are absent."""
    everywhere = {} if settings.retention_days is None else dict.fromkeys(RETAINED_TABLES, settings.retention_days)
    return everywhere | settings.retention


def too_old(table: str, oldest: datetime) -> pl.Expr:
    """The rows of events from before that moment, but for imported ones."""
    old = (pl.col("date") <= oldest.date()) & (pl.col("time") < oldest)
    return old & ~is_imported() if "source_request" in TABLES[table] else old


def _expire_damaged(folder: Path, oldest: datetime) -> int:
    old = [path for path in folder.glob("*.damaged") if path.stat().st_mtime < oldest.timestamp()]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)
