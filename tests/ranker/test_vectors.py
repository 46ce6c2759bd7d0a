"""The cache of vectors: derived, so what the disk lost is made again."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ranker.vectors import HashedWords, VectorCache

TEXTS = [f"question number {number} about parcels" for number in range(400)]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 4096 * 3 + 100])


def _spoil(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xaa" * (len(content) - 4096))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no database": lambda path: path.write_bytes(b"no database" * 900),
    "cut": _cut,
    "spoiled within": _spoil,
    "empty": lambda path: path.write_bytes(b""),
    "gone": lambda path: shutil.rmtree(path.parent),
}


def _filled(folder: Path) -> Path:
    VectorCache(folder, HashedWords()).many(TEXTS)
    (path,) = (folder / "embeddings").glob("*.sqlite")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("is_open", [False, True])
def test_a_damaged_file_is_made_again(tmp_path: Path, damage: str, is_open: bool) -> None:
    path = _filled(tmp_path)
    expected = VectorCache(tmp_path / "other", HashedWords()).many(TEXTS)
    cache = VectorCache(tmp_path, HashedWords()) if is_open else None
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    DAMAGE[damage](path)
    cache = cache or VectorCache(tmp_path, HashedWords())
    np.testing.assert_array_equal(cache.many(TEXTS), expected)
    np.testing.assert_array_equal(VectorCache(tmp_path, HashedWords()).many(TEXTS), expected)
    connection = sqlite3.connect(path)
    assert connection.execute("select count(*) from vectors").fetchall() == [(len(TEXTS),)]
    connection.close()
