"""What the doctor learns from the files of the tables: whether all are there, and whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from deltalake.exceptions import DeltaError

from analytics.segments import SegmentStore
from analytics.segments_damage import damaged_files
from collector.lake import Lake
from collector.lake_log import damaged_entries
from collector.tables import TABLES
from gateway.check import Check

#: What a Parquet file begins and ends with.
_MAGIC = b"PAR1"
_RESTORE = "restore it from a backup"


def tables_checks(data_dir: Path) -> Iterator[Check]:
    lake = Lake(data_dir)
    present = []
    for table in TABLES:
        damaged = next(damaged_entries(lake.root / table / "_delta_log"), None)
        if damaged is not None:
            yield Check(f"table {table}", "bad", damaged, f"{_RESTORE}; until then rows may be missing")
            continue
        try:
            version, files = lake.version(table), lake.files(table)
        except (OSError, DeltaError) as error:
            yield Check(f"table {table}", "bad", f"it cannot be read: {error!s:.300}", _RESTORE)
            continue
        if version >= 0:
            present.append(table)
        yield from _files(table, files)
    yield Check("tables", "ok", f"{len(present)} of {len(TABLES)} exist: {', '.join(present) or 'none yet'}")
    yield from _settled(data_dir)


def _files(table: str, names: Iterable[str]) -> Iterator[Check]:
    files = [Path(name) for name in names]
    missing = [file for file in files if not file.exists()]
    if missing:
        finding = f"{len(missing)} files are gone, e.g. {missing[0]}"
        yield Check(f"table {table}", "bad", finding, "restore them from a backup")
    damaged = [file for file in files if file.exists() and not _is_whole(file)]
    if damaged:
        finding = f"{len(damaged)} files are damaged, e.g. {damaged[0]}: no Parquet"
        yield Check(f"table {table}", "bad", finding, "restore them from a backup")


def _settled(data_dir: Path) -> Iterator[Check]:
    store = SegmentStore(data_dir)
    damaged = damaged_files(store)
    if damaged:
        finding = f"{len(damaged)} files are damaged, e.g. {store.path(damaged[0])}"
        mend = "check the disk; what needs them next sets them aside and folds the tables again"
        yield Check("settled", "bad", finding, mend)


def _is_whole(file: Path) -> bool:
    """Whether a Parquet file has both its ends; also where it has just gone."""
    try:
        with file.open("rb") as opened:
            begin = opened.read(len(_MAGIC))
            opened.seek(-len(_MAGIC), 2)
            return begin == opened.read() == _MAGIC
    except FileNotFoundError:
        return True
    except OSError:  # shorter than that
        return False
