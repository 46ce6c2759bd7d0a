"""Segments that the disk lost something of. All are derived: they are set aside, and folded again from the tables."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import duckdb
from filelock import FileLock

from analytics.database import literal, open_database
from analytics.segments import Manifest, SegmentStore, version

log = logging.getLogger(__name__)

#: Longest that another process settles meanwhile, seconds.
_LONGEST_S = 600.0


def set_aside_damaged(store: SegmentStore) -> list[str]:
    """Files of segments that can't be read; where there are some, no segment is in force any more.

    For the process that settles, see ``mend_segments``.
    """
    manifest = store.manifest()
    damaged = damaged_files(store)
    if damaged:
        log.warning(
            "%d files of %s can't be read, e.g. %s: what is in them is folded again from the tables",
            len(damaged),
            store.root,
            damaged[0],
        )
        # The numbers go on: readers may still hold the names of files.
        store.put(Manifest(version(), manifest.generation + 1, manifest.next_segment))
    return damaged


def mend_segments(data_dir: Path) -> list[str]:
    """The same for any process. Raises OSError where it may not write to the folder, or where settling takes long."""
    store = SegmentStore(data_dir)
    if not store.root.exists():
        return []
    with FileLock(store.path(".lock"), timeout=_LONGEST_S):
        return set_aside_damaged(store)


def damaged_files(store: SegmentStore) -> list[str]:
    """Names of the files in force that can't be read from end to end."""
    with closing(open_database()) as database:
        found = [name for name in sorted(store.manifest().files()) if not _is_whole(database, store.path(name))]
    # Another process may have put others in their place meanwhile.
    return [name for name in found if name in store.manifest().files()] if found else []


def _is_whole(database: duckdb.DuckDBPyConnection, path: Path) -> bool:
    try:
        database.execute(f"select bit_xor(hash(t)) from read_parquet({literal(path)}) t").fetchall()
    except duckdb.Error:
        return False
    return True
