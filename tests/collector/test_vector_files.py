"""Vectors of texts on disk: what is forgotten leaves the file, what is damaged is begun anew."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.vector_files import VectorFile, vector_files

MARK = b"a vector that is to go " * 4
TEXTS = [f"question {number}" for number in range(1_200)]


def filled(folder: Path, version: str = "v/1") -> VectorFile:
    store = VectorFile.of(folder, version)
    store.keep({text: MARK + text.encode() for text in TEXTS})
    return store


def content(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / "embeddings").iterdir()))


def test_what_is_kept_is_read(tmp_path: Path) -> None:
    store = filled(tmp_path)
    assert store.read([*TEXTS, "never met"]) == {text: MARK + text.encode() for text in TEXTS}
    store.keep({TEXTS[0]: b"another"})
    assert VectorFile.of(tmp_path, "v/1").read(TEXTS[:1]) == {TEXTS[0]: MARK + TEXTS[0].encode()}


def test_what_is_forgotten_is_gone_from_every_file_and_its_bytes_with_it(tmp_path: Path) -> None:
    for version in ("v/1", "v/2"):
        filled(tmp_path, version)
    assert [store.forget([*TEXTS[5:], "never met"]) for store in vector_files(tmp_path)] == [len(TEXTS) - 5] * 2
    assert content(tmp_path).count(MARK) == 10
    for store in vector_files(tmp_path):
        assert sorted(store.read(TEXTS)) == TEXTS[:5]


def test_what_nobody_asks_for_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path)
    tomorrow = time.time() + 86_400
    monkeypatch.setattr(time, "time", lambda: tomorrow)
    assert store.drop_unused(1) == 0
    store.read(TEXTS[:700])
    assert store.drop_unused(0) == len(TEXTS) - 700
    assert sorted(store.read(TEXTS)) == sorted(TEXTS[:700])


def test_a_file_of_an_older_layout_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "embeddings").mkdir()
    filled(tmp_path / "other")
    (other,) = (tmp_path / "other" / "embeddings").glob("*.sqlite")
    with sqlite3.connect(other) as connection:
        (key,) = connection.execute("SELECT key FROM vectors").fetchone()
    connection.close()
    with sqlite3.connect(tmp_path / "embeddings" / "v_1.sqlite") as connection:
        connection.execute("CREATE TABLE vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        connection.execute("INSERT INTO vectors VALUES (?, ?)", (key, b"old"))
    connection.close()
    store = VectorFile.of(tmp_path, "v/1")
    assert list(store.read(TEXTS).values()) == [b"old"]
    assert store.drop_unused(0) == 0  # it was asked for just now


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "no database": lambda _: b"no database" * 900,
    "cut": lambda whole: whole[: 4096 * 3 + 100],
    "spoiled within": lambda whole: whole[:4096] + b"\xaa" * (len(whole) - 4096),
    "empty": lambda _: b"",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    "work",
    [
        lambda store: store.read(TEXTS),
        lambda store: store.keep({"a": b"b"}),
        lambda store: store.forget(TEXTS),
        lambda store: store.drop_unused(0),
    ],
)
def test_a_damaged_file_is_begun_anew(tmp_path: Path, damage: str, work: Callable[[VectorFile], object]) -> None:
    store = filled(tmp_path)
    (path,) = (tmp_path / "embeddings").glob("*.sqlite")
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    work(store)
    store.keep({"c": b"d"})
    assert store.read(["c"]) == {"c": b"d"}


def test_one_that_is_locked_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path)
    monkeypatch.setattr("collector.vector_files._WAIT_S", 0)
    (path,) = (tmp_path / "embeddings").glob("*.sqlite")
    other = sqlite3.connect(path)
    other.execute("begin immediate")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        store.keep({"a": b"b"})
    other.close()
    assert len(store.read(TEXTS)) == len(TEXTS)
