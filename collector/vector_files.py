"""Vectors of texts on disk, so that no text is embedded twice: a SQLite file for each version of an embedder.

Each lies under a hash of its text, as 16-bit floats (1 KB a text). They are derived: a damaged file is deleted, and
what was in it is made again. Beside each stands the day on which it was last asked for, which tells the vectors of
texts that the tables no longer hold.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

#: Below the data folder.
FOLDER = "embeddings"
_SUFFIX = ".sqlite"
#: Rises with the layout of the file.
_LAYOUT = 1
_WAIT_S = 30.0
_DAY_S = 86_400
#: Texts asked for in one statement.
_AT_ONCE = 500


class VectorFile:
    """The vectors of one version of an embedder. Raises sqlite3.OperationalError where the file is locked or full."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done(lambda _: None)

    @classmethod
    def of(cls, data_dir: Path, version: str) -> VectorFile:
        """That of an embedder's version, which need not be there yet."""
        name = "".join(character if character.isalnum() or character in ".-" else "_" for character in version)
        return cls(Path(data_dir) / FOLDER / f"{name}{_SUFFIX}")

    def read(self, texts: Iterable[str]) -> dict[str, bytes]:
        """The vectors of those of the texts that have one."""
        keys = {_key(text): text for text in texts}

        def read(connection: sqlite3.Connection) -> dict[str, bytes]:
            found: dict[bytes, bytes] = {}
            for part, marks in _parts(keys):
                found.update(connection.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part))
                stale = f"UPDATE vectors SET used = ? WHERE key IN ({marks}) AND (used IS NULL OR used < ?)"
                connection.execute(stale, (_today(), *part, _today()))
            return {keys[key]: vector for key, vector in found.items()}

        return self._done(read)

    def keep(self, vectors: Mapping[str, bytes]) -> None:
        """Add those of the vectors that are not there."""
        rows = [(_key(text), vector, _today()) for text, vector in vectors.items()]
        self._done(lambda connection: connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)", rows))

    def forget(self, texts: Iterable[str]) -> int:
        """Remove the vectors of the texts; how many there were."""
        keys = [_key(text) for text in texts]

        def remove(connection: sqlite3.Connection) -> int:
            return sum(
                connection.execute(f"DELETE FROM vectors WHERE key IN ({marks})", part).rowcount
                for part, marks in _parts(keys)
            )

        return self._removed(remove)

    def drop_unused(self, days: int) -> int:
        """Remove the vectors that nobody asked for in so many whole days; how many there were."""
        unused = "DELETE FROM vectors WHERE used IS NULL OR used < ?"
        return self._removed(lambda connection: connection.execute(unused, (_today() - days,)).rowcount)

    def _removed(self, remove: Callable[[sqlite3.Connection], int]) -> int:
        """Do it so that nothing of what is removed stays in the file or in its log."""

        def securely(connection: sqlite3.Connection) -> int:
            connection.execute("PRAGMA secure_delete = ON")
            removed = remove(connection)
            connection.commit()
            if removed:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return removed

        return self._done(securely)

    def _done(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """What the work gives, committed; once more on a new file where this one is damaged."""
        try:
            return self._with_connection(work)
        except sqlite3.OperationalError:  # locked, or no place on the disk
            raise
        except sqlite3.DatabaseError as error:
            logger.warning("%s is damaged (%s): texts are embedded again", self._path, error)
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            return self._with_connection(work)

    def _with_connection(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        self._path.parent.mkdir(parents=True, exist_ok=True)  # it may have been deleted
        with closing(sqlite3.connect(self._path, timeout=_WAIT_S)) as connection, connection:
            if connection.execute("PRAGMA user_version").fetchone() != (_LAYOUT,):
                _lay_out(connection)
            return work(connection)


def vector_files(data_dir: Path) -> Iterator[VectorFile]:
    """Those that a data folder has."""
    for path in sorted((Path(data_dir) / FOLDER).glob(f"*{_SUFFIX}")):
        yield VectorFile(path)


def _lay_out(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
    if "used" not in [column[1] for column in connection.execute("PRAGMA table_info(vectors)")]:
        connection.execute("ALTER TABLE vectors ADD COLUMN used INTEGER")  # a day since 1970
    connection.execute(f"PRAGMA user_version = {_LAYOUT}")
    connection.commit()


def _parts(keys: Iterable[bytes]) -> Iterator[tuple[list[bytes], str]]:
    """The keys, some at once, with their marks in a statement."""
    listed = list(keys)
    for start in range(0, len(listed), _AT_ONCE):
        part = listed[start : start + _AT_ONCE]
        yield part, ",".join("?" * len(part))


def _today() -> int:
    return int(time.time() // _DAY_S)


def _key(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
