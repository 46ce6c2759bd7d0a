"""What the doctor learns from the files of the tables: whether all are there, and whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from deltalake.exceptions import DeltaError

from collector.lake import Lake
from collector.tables import TABLES
from gateway.check import Check

#: What a Parquet file begins and ends with.
_MAGIC = b"PAR1"
_RESTORE = "restore it from a backup"


def tables_checks(data_dir: Path) -> Iterator[Check]:
    lake = Lake(data_dir)
    present = []
    for table in TABLES:
        damaged = next(_damaged_entries(lake.root / table / "_delta_log"), None)
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


def _damaged_entries(log: Path) -> Iterator[str]:
    """A sentence for each entry of a table's log that is not whole: readers may pass over it in silence."""
    for entry in sorted(log.glob("*.json")):
        try:
            for line in entry.read_bytes().splitlines():
                msgspec.json.decode(line)
        except FileNotFoundError:  # tidied up just now
            continue
        except msgspec.DecodeError as error:
            yield f"{entry} is damaged: {error}"


def _settled(data_dir: Path) -> Iterator[Check]:
    folder = data_dir / "settled"
    damaged = [file for file in sorted(folder.glob("*.parquet")) if not _is_whole(file)]
    if damaged:
        finding = f"{len(damaged)} files are damaged, e.g. {damaged[0]}: no Parquet"
        yield Check("settled", "bad", finding, f"stop the service and delete {folder}: it is made again")


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
