"""All that lies in a data folder, unpacked, for tests that look for what must not be there."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa


def holding(folder: Path, *texts: str) -> dict[str, list[str]]:
    """The files below the folder that hold a text, by text; texts that no file holds are absent."""
    found: dict[str, list[str]] = {}
    for path, content in contents(folder):
        for text in texts:
            if text.encode() in content:
                found.setdefault(text, []).append(str(path.relative_to(folder)))
    return found


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Each file as it lies there and, where it is packed, as it reads."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        yield path, path.read_bytes()
        if path.suffix == ".parquet":
            yield path, _rows(path)
        elif path.suffix == ".zst":
            with pa.input_stream(str(path), compression="zstd") as stream:
                yield path, stream.read()
        elif path.suffix == ".sqlite":
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
                yield path, "\n".join(connection.iterdump()).encode()


def _rows(path: Path) -> bytes:
    out = io.BytesIO()
    pl.read_parquet(path, hive_partitioning=False).write_ndjson(out)
    return out.getvalue()
