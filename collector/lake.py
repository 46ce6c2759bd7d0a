"""The Delta tables of one data folder: append with a transaction, replace rows, list live files, compact, purge.

deltalake never syncs its files, so every commit is synced here before it counts (design: a log segment is deleted
only when what it brought is on disk).
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import msgspec
import polars as pl
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
from polars.datatypes import DataType, DataTypeClass

from collector.durable import sync
from collector.lake_log import damaged_entries
from collector.lake_version import LakeFormatError, check_version, mark_version, read_version
from collector.self_traces import traced
from collector.tables import FACT_TABLES, SCHEMA_VERSION, TABLES

logger = logging.getLogger(__name__)

PARTITIONS = ["project", "date"]
#: Old files stay this long, for readers that still hold their names (hours; longer than any query).
VACUUM_HOURS = 1
#: The log of a table is kept as long: nobody travels in time. Statistics of texts would keep in the log what is gone
#: from the table, so only these columns have any.
PROPERTIES = {
    "delta.logRetentionDuration": f"interval {VACUUM_HOURS} hours",
    "delta.deletedFileRetentionDuration": f"interval {VACUUM_HOURS} hours",
    "delta.dataSkippingStatsColumns": "time",
}
#: Tables that only the flusher writes: a file of theirs that no commit names is a leftover, however young.
_SOLE_WRITER = frozenset(FACT_TABLES) - {"feedback"}
#: A process that opens a table can't know whether the last one synced these newest commits before it died.
_UNSURE_COMMITS = 8
_RETRIES = 20
#: Of zstd: higher ones take longer and gain nothing on files of this size.
_LEVEL = 1
#: Entries of a table's log from which on a checkpoint is worth it.
_LONG_LOG = 50
_LOG_FILE = re.compile(r"(\d{20})\.(?:json|.*checkpoint.*parquet)")


class _File(NamedTuple):
    """A live file, as the log tells of it."""

    name: str
    size: int
    partition: dict[str, str | None]


class Lake:
    """Tables below ``data_dir/lake``. Safe to open from several processes; fact tables have one writer.

    Raises LakeFormatError where a newer version wrote the tables, and for a table whose log is damaged.
    """

    def __init__(self, data_dir: Path) -> None:
        self.root = Path(data_dir).resolve() / "lake"
        self._tables: dict[str, DeltaTable] = {}
        self._synced: dict[str, int] = {}
        check_version(self.root)

    def migrate(self) -> None:
        """Bring the tables of an earlier version to this one's form. Only for the process that holds the folder."""
        if read_version(self.root) < 1:  # written before tables had a version: they kept all of their log
            for table in TABLES:
                opened = self._open(table)
                if opened is not None:
                    opened.alter.set_table_properties(PROPERTIES)
        mark_version(self.root, SCHEMA_VERSION)

    def append(self, table: str, rows: pl.DataFrame, transaction: tuple[str, int] | None = None) -> None:
        """Append rows in one commit and sync it; columns that the schema has and ``rows`` lacks become null.

        ``transaction`` (application id, version) is stored in the same commit, see ``transaction_version``.
        """
        opened = self._open(table)
        if opened is None and not self.root.exists():
            mark_version(self.root, SCHEMA_VERSION)
        if opened is not None:
            self._widen(table, opened)
        added = list(self._write(table, _in_schema(table, rows)))
        if opened is None:
            create_table_with_add_actions(
                str(self.root / table),
                Schema.from_arrow(TABLES[table].to_frame().to_arrow().schema),
                added,
                partition_by=PARTITIONS,
                configuration=PROPERTIES,
                commit_properties=_commit(transaction),
            )
        else:
            _commit_to(opened, added, transaction)
        with traced("sync", table=table):
            self.sync(table)

    def replace(self, table: str, doomed: pl.Expr, rows: pl.DataFrame | None = None) -> int:
        """Drop the rows for which ``doomed`` is true and add ``rows``, in one commit; how many were dropped.

        A reader sees all of it or nothing, and the log holds no word of the condition. Raises DeltaError when another
        process changed the same files meanwhile; the table is then as it was.
        """
        opened = self._open(table)
        if opened is None:
            if rows is not None and rows.height:
                self.append(table, rows)
            return 0
        actions: list[AddAction | RemoveAction] = []
        dropped = 0
        for file in _live_files(opened):
            doomed_rows = self._count(table, file, doomed)
            if doomed_rows:
                dropped += doomed_rows
                actions += self._without(table, file, doomed)
        if rows is not None and rows.height:
            self._widen(table, opened)
            actions += self._write(table, _in_schema(table, rows))
        if actions:
            _commit_to(opened, actions)
            self.sync(table)
        return dropped

    def count(self, table: str, wanted: pl.Expr) -> int:
        """How many rows there are for which ``wanted`` is true."""
        opened = self._open(table)
        return 0 if opened is None else sum(self._count(table, file, wanted) for file in _live_files(opened))

    def select(self, table: str, wanted: pl.Expr, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The rows for which ``wanted`` is true: these columns of theirs, or all, in the table's schema."""
        schema = {name: TABLES[table][name] for name in columns or TABLES[table].names()}
        opened = self._open(table)
        parts = [pl.DataFrame(schema=schema)]
        for file in [] if opened is None else _live_files(opened):
            found = self._scan(table, file).filter(wanted.fill_null(False))
            parts.append(_with_all(found, schema, found.collect_schema().names()).collect())
        return pl.concat(parts)

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
        return _in_schema(table, pl.read_delta(opened))

    def compact(self, table: str, target_bytes: int | None = None) -> None:
        """Merge the files smaller than the target (absent: the library's, 100 MB), then tidy up.

        Files that no reader can still hold go, and so does the log that a new checkpoint makes superfluous.
        """
        opened = self._open(table)
        if opened is None:
            return
        merged = opened.optimize.compact(target_size=target_bytes)["numFilesRemoved"]
        # Also files that no commit names: a crash between a file and its commit leaves one.
        if _vacuum(opened, VACUUM_HOURS, full=True, dry_run=True):
            _vacuum(opened, VACUUM_HOURS, full=True)
        elif not merged and self._log_length(table) < _LONG_LOG:
            return
        opened.create_checkpoint()
        opened.cleanup_metadata()
        self.sync(table)

    def _log_length(self, table: str) -> int:
        return sum(1 for _ in (self.root / table / "_delta_log").glob("*.json"))

    def purge(self, table: str) -> None:
        """Take from the disk at once all that is no longer in the table: dropped files, and the log that tells of them.

        A reader that still holds the names of dropped files fails and must look again.
        """
        opened = self._open(table)
        if opened is None:
            return
        _vacuum(opened, 0, full=table in _SOLE_WRITER)
        opened.create_checkpoint()
        self.sync(table)
        log = self.root / table / "_delta_log"
        for file in log.iterdir():
            found = _LOG_FILE.fullmatch(file.name)
            if found is not None and int(found[1]) < opened.version():
                file.unlink(missing_ok=True)
        sync(log)

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
        if opened is not None:
            try:
                opened.update_incremental()
                return opened
            except DeltaError:  # its log was tidied meanwhile, or is damaged: opening it tells
                self._tables.pop(table, None)
        path = self.root / table
        try:
            self._tables[table] = DeltaTable(str(path))
        except TableNotFoundError:
            return None
        except DeltaError as error:
            why = next(damaged_entries(path / "_delta_log"), str(error).splitlines()[0][:300])
            raise LakeFormatError(f"the log of {path} can't be read ({why}): restore {path} from a backup") from error
        return self._tables[table]

    # -- rows of single files ---------------------------------------------------------------------------------------

    def _scan(self, table: str, file: _File) -> pl.LazyFrame:
        """The file's rows with the columns that its folder names."""
        date = pl.lit(file.partition["date"]).str.to_date()
        rows = pl.scan_parquet(self.root / table / unquote(file.name), hive_partitioning=False)
        return rows.with_columns(project=pl.lit(file.partition["project"]), date=date)

    def _count(self, table: str, file: _File, wanted: pl.Expr) -> int:
        return int(self._scan(table, file).select(wanted.fill_null(False).sum()).collect().item())

    def _without(self, table: str, file: _File, doomed: pl.Expr) -> Iterator[AddAction | RemoveAction]:
        """The file's end, and another with the rows that stay, if any do."""
        yield RemoveAction(file.name, True, time.time_ns() // 1_000_000, file.size, file.partition)
        kept = self._scan(table, file).filter(~doomed.fill_null(False)).collect()
        if kept.height:
            yield self._add(table, kept.drop(PARTITIONS), file.partition)

    def _write(self, table: str, rows: pl.DataFrame) -> Iterator[AddAction]:
        for (project, date), part in _by_partition(rows):
            yield self._add(table, part, {"project": str(project), "date": str(date)})

    def _add(self, table: str, rows: pl.DataFrame, partition: dict[str, str | None]) -> AddAction:
        folders = (f"{key}={quote(str(value), safe='')}" for key, value in partition.items())
        name = "/".join([*folders, f"part-{uuid.uuid4()}.parquet"])
        path = self.root / table / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows.write_parquet(path, compression="zstd", compression_level=_LEVEL)
        statistics = msgspec.json.encode(_statistics(rows)).decode()
        return AddAction(name, path.stat().st_size, partition, time.time_ns() // 1_000_000, True, statistics)

    def _widen(self, table: str, opened: DeltaTable) -> None:
        """Give the table the columns that its schema has gained since it was made."""
        if {field.name for field in opened.schema().fields} >= set(TABLES[table].names()):
            return
        empty = TABLES[table].to_frame().to_arrow()
        write_deltalake(opened, empty, mode="append", schema_mode="merge", commit_properties=_commit())

    def _sync_commit(self, path: Path, version: int) -> None:
        """Sync a commit's files and the folders that name them; what was compacted away since needs no sync."""
        entry = path / "_delta_log" / f"{version:020d}.json"
        if not entry.exists():
            return
        try:
            files = [file for name in _added_files(entry.read_bytes()) if (file := path / name).exists()] + [entry]
        except msgspec.DecodeError as error:
            raise LakeFormatError(f"{entry} is damaged ({error}): restore it from a backup") from error
        folders = {folder for file in files for folder in file.parents if folder.is_relative_to(self.root)}
        for item in (*files, *sorted(folders, reverse=True)):
            sync(item)


def _in_schema(table: str, rows: pl.DataFrame) -> pl.DataFrame:
    if rows.schema == TABLES[table]:
        return rows
    return _with_all(rows.lazy(), TABLES[table], rows.columns).collect()


def _with_all(
    rows: pl.LazyFrame, schema: Mapping[str, DataType | DataTypeClass], present: Sequence[str]
) -> pl.LazyFrame:
    """The rows in a schema; columns that are not present are null."""
    missing = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in schema.items() if name not in present]
    return rows.with_columns(missing).select(list(schema)).cast(pl.Schema(schema))


def _vacuum(opened: DeltaTable, hours: int, *, full: bool, dry_run: bool = False) -> list[str]:
    """Delete files that left the table so many hours ago (``full``: also those that never were in it); which."""
    return opened.vacuum(retention_hours=hours, enforce_retention_duration=False, dry_run=dry_run, full=full)


def _commit(transaction: tuple[str, int] | None = None) -> CommitProperties:
    transactions = [Transaction(*transaction)] if transaction else None
    return CommitProperties(max_commit_retries=_RETRIES, app_transactions=transactions)


def _commit_to(
    opened: DeltaTable, actions: Sequence[AddAction | RemoveAction], transaction: tuple[str, int] | None = None
) -> None:
    opened.create_write_transaction(
        list(actions), "append", opened.schema(), partition_by=PARTITIONS, commit_properties=_commit(transaction)
    )


def _by_partition(rows: pl.DataFrame) -> Iterable[tuple[tuple[object, ...], pl.DataFrame]]:
    """The rows of each project and day without these columns; mostly it is one, which needs no sorting."""
    partitions = rows.select(PARTITIONS).unique().rows()
    if len(partitions) == 1:
        return [(partitions[0], rows.drop(PARTITIONS))]
    return rows.partition_by(PARTITIONS, as_dict=True, include_key=False).items()


def _statistics(rows: pl.DataFrame) -> dict[str, object]:
    """What the log tells of a file, see `PROPERTIES`: times in milliseconds, between which all lie."""
    times = rows.get_column("time")
    found: dict[str, object] = {"numRecords": rows.height, "nullCount": {"time": times.null_count()}}
    first, last = times.min(), times.max()
    if isinstance(first, datetime) and isinstance(last, datetime):
        found["minValues"] = {"time": _in_ms(first)}
        found["maxValues"] = {"time": _in_ms(last + timedelta(microseconds=999))}
    return found


def _in_ms(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _live_files(opened: DeltaTable) -> list[_File]:
    added = pl.DataFrame(opened.get_add_actions())
    return [
        _File(name, size, {key: str(partition[key]) for key in PARTITIONS})
        for name, size, partition in added.select("path", "size_bytes", "partition").iter_rows()
    ]


def _added_files(log_entry: bytes) -> Iterable[str]:
    for line in log_entry.splitlines():
        action: dict[str, Any] = msgspec.json.decode(line)
        if "add" in action:
            yield unquote(action["add"]["path"])
