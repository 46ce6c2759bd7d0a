"""The Delta tables of one data folder: append with a transaction, list live files, compact.

deltalake never syncs its files, so every commit is synced here before it counts (design: a log segment is deleted
only when what it brought is on disk).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import polars as pl
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

from collector.tables import TABLES

PARTITIONS = ["project", "date"]
#: Old files stay this long, for readers that still hold their names (hours; longer than any query).
VACUUM_HOURS = 1
#: A process that opens a table can't know whether the last one synced these newest commits before it died.
_UNSURE_COMMITS = 8


class Lake:
    """Tables below ``data_dir/lake``. Safe to open from several processes; fact tables have one writer."""

    def __init__(self, data_dir: Path) -> None:
        self.root = Path(data_dir) / "lake"
        self._tables: dict[str, DeltaTable] = {}
        self._synced: dict[str, int] = {}

    def append(self, table: str, rows: pl.DataFrame, transaction: tuple[str, int] | None = None) -> None:
        """Append rows in one commit and sync it; columns that the schema has and ``rows`` lacks become null.

        ``transaction`` (application id, version) is stored in the same commit, see ``transaction_version``.
        """
        schema = TABLES[table]
        missing = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in schema.items() if name not in rows.columns]
        frame = rows.with_columns(missing).select(schema.names()).cast(schema)
        path = self.root / table
        existing = self._open(table)
        properties = CommitProperties(
            max_commit_retries=20, app_transactions=[Transaction(*transaction)] if transaction else None
        )
        write_deltalake(
            existing if existing is not None else str(path),
            frame.to_arrow(),
            mode="append",
            partition_by=None if existing is not None else PARTITIONS,
            schema_mode="merge" if existing is not None else None,
            commit_properties=properties,
        )
        self.sync(table)

    def transaction_version(self, table: str, application: str) -> int:
        """The version last committed under this application id; -1 where there is none."""
        opened = self._open(table)
        version = opened.transaction_version(application) if opened is not None else None
        return -1 if version is None else version

    def version(self, table: str) -> int:
        """The table's newest commit; -1 where the table does not exist yet."""
        opened = self._open(table)
        return -1 if opened is None else opened.version()

    def versions(self) -> dict[str, int]:
        return {table: self.version(table) for table in TABLES}

    def files(self, table: str) -> list[str]:
        """Paths of the live Parquet files."""
        opened = self._open(table)
        return [] if opened is None else opened.file_uris()

    def read(self, table: str) -> pl.DataFrame:
        """All rows of a table; an empty frame with its schema where it does not exist."""
        opened = self._open(table)
        if opened is None:
            return TABLES[table].to_frame()
        return pl.read_delta(opened).select(TABLES[table].names()).cast(TABLES[table])

    def compact(self, table: str) -> None:
        """Merge small files, drop those that no reader can still hold, and write a checkpoint."""
        opened = self._open(table)
        if opened is None:
            return
        opened.optimize.compact()
        opened.vacuum(retention_hours=VACUUM_HOURS, enforce_retention_duration=False, dry_run=False)
        opened.create_checkpoint()
        self.sync(table)

    def sync(self, table: str) -> None:
        """Sync every commit that may not be on disk yet: those since the last sync, and the newest ones at first."""
        opened = self._open(table)
        if opened is None:
            return
        newest = opened.version()
        for version in range(max(0, self._synced.get(table, newest - _UNSURE_COMMITS) + 1), newest + 1):
            self._sync_commit(self.root / table, version)
        self._synced[table] = newest

    def _open(self, table: str) -> DeltaTable | None:
        opened = self._tables.get(table)
        if opened is None:
            try:
                opened = DeltaTable(str(self.root / table))
            except TableNotFoundError:
                return None
            self._tables[table] = opened
        else:
            opened.update_incremental()
        return opened

    def _sync_commit(self, path: Path, version: int) -> None:
        """Sync a commit's files and the folders that name them; what was compacted away since needs no sync."""
        entry = path / "_delta_log" / f"{version:020d}.json"
        if not entry.exists():
            return
        files = [file for name in _added_files(entry.read_bytes()) if (file := path / name).exists()] + [entry]
        folders = {folder for file in files for folder in file.parents if folder.is_relative_to(self.root)}
        for item in (*files, *sorted(folders, reverse=True)):
            _fsync(item)


def _added_files(log_entry: bytes) -> Iterable[str]:
    for line in log_entry.splitlines():
        action: dict[str, Any] = msgspec.json.decode(line)
        if "add" in action:
            yield unquote(action["add"]["path"])


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
