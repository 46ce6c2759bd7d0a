"""What was folded already, on disk: segments of Parquet files below ``settled/``, and the manifest of those in force.

A segment holds folded rows of whole units (see ``units``): its files never change. A unit that is folded anew goes into
a new segment and is masked in the old one, until a merge drops it there. All of it is derived from the lake: a folder
that is missing, or was made by another version, only means that everything is folded again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

import duckdb
import msgspec

from analytics.database import literal
from collector.durable import sync, write_whole
from collector.tables import TABLES

#: Folded tables that segments hold; all others are small and folded at every reading.
SEGMENT_TABLES = ("selections", "candidates", "calls", "feedback", "mismatches")
#: Facts that fold into them.
SEGMENT_FACTS = ("selections", "calls", "feedback")
#: Readers may still hold the names of files that long after they left the manifest, seconds.
GRACE_S = 3600
_MANIFEST = "manifest.json"


class FileMark(msgspec.Struct, frozen=True):
    """What a file of the lake held when it was settled: its rows, and a hash of them that knows no order."""

    rows: int
    content: int


class Watermark(msgspec.Struct, frozen=True):
    """Up to where the facts of one table, project and day are settled."""

    table: str
    project: str
    date: str
    seq: str
    received_at: int


class Segment(msgspec.Struct):
    """Files by table, relative to the folder; ``masked``: so many of its units are in a newer segment or gone."""

    number: int
    facts: int
    units: int
    files: dict[str, str]
    masked: int = 0


class Manifest(msgspec.Struct):
    """The state of the folder, replaced as a whole."""

    version: str = ""
    generation: int = 0
    next_segment: int = 1
    #: By table and name below the table's folder.
    covered: dict[str, dict[str, FileMark]] = {}
    watermarks: list[Watermark] = []
    segments: list[Segment] = []
    #: Parquet file of the masked units, where there are any.
    masks: str = ""
    #: The registry by which the segments were judged: files by table.
    registry: dict[str, str] = {}
    #: The version of the segments' rollups, which are made anew alone where it is another one.
    rollups: str = ""

    def files(self) -> set[str]:
        """Names of all files that it names."""
        names = {name for segment in self.segments for name in segment.files.values()}
        return names | set(self.registry.values()) | ({self.masks} if self.masks else set())


class SegmentStore:
    """The folder of one data folder's segments."""

    def __init__(self, data_dir: Path) -> None:
        self.root = Path(data_dir).resolve() / "settled"

    def manifest(self) -> Manifest:
        """The one in force; a blank one where there is none that this version can use."""
        try:
            found = msgspec.json.decode((self.root / _MANIFEST).read_bytes(), type=Manifest)
        except (FileNotFoundError, msgspec.DecodeError):
            return Manifest(version=version())
        return found if found.version == version() else Manifest(version=version(), generation=found.generation)

    def generation(self) -> tuple[int, int]:
        """Changes whenever the manifest does."""
        try:
            status = (self.root / _MANIFEST).stat()
        except FileNotFoundError:
            return 0, 0
        return status.st_ino, status.st_mtime_ns

    def path(self, name: str) -> Path:
        return self.root / name

    def prepare(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)

    def put(self, manifest: Manifest) -> None:
        """Make it the one in force, when all that it names is on the disk."""
        for name in manifest.files():
            sync(self.root / name)
        write_whole(self.root / _MANIFEST, msgspec.json.encode(manifest))

    def tidy(self, *, grace_s: float = GRACE_S) -> None:
        """Delete files that no manifest names and no reader can still hold."""
        if not self.root.exists():
            return
        named = self.manifest().files() | {_MANIFEST}
        oldest = time.time() - grace_s
        for path in self.root.iterdir():
            if path.name not in named and path.suffix == ".parquet" and path.stat().st_mtime <= oldest:
                path.unlink(missing_ok=True)


def read_segments(store: SegmentStore, table: str, segments: Iterable[Segment]) -> str:
    """A source of the rows of segments, masked ones too."""
    return f"read_parquet([{', '.join(literal(store.path(segment.files[table])) for segment in segments)}])"


def unmasked(store: SegmentStore, table: str, segments: Sequence[Segment], touched: Collection[int] = ()) -> str:
    """A query of the rows of segments whose units are not in ``masks``, which names units of these ``touched`` too."""
    dirty = [segment for segment in segments if segment.masked or segment.number in touched]
    whole = [segment for segment in segments if segment not in dirty]
    parts = [f"select * from {read_segments(store, table, whole)}"] if whole else []
    if dirty:
        # All files in one scan: each in its own takes longer to plan than to read.
        files = ", ".join(f"({s.number}, {literal(store.path(s.files[table]))})" for s in dirty)
        parts.append(
            f"select r.* from {read_segments(store, table, dirty)} r anti join ("
            f"select unit, file from masks join (values {files}) f(segment, file) using (segment)"
            ") m on m.unit = r.unit and m.file = r.filename"
        )
    return " union all by name ".join(parts)


def copy_into(database: duckdb.DuckDBPyConnection, store: SegmentStore, name: str, query: str) -> str:
    """Write the rows of a query as a file of the folder; its name."""
    file = f"{name}.parquet"
    database.execute(f"copy ({query}) to {literal(store.path(file))} (format parquet, compression zstd)")
    return file


@cache
def version() -> str:
    """Of all that decides what a segment holds: the SQL of the fold, the tables' columns, DuckDB's hash."""
    sql = files("analytics") / "sql"
    digest = hashlib.blake2b(duckdb.__version__.encode(), digest_size=8)
    for folder in (sql, sql / "views", sql / "gather"):
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            if file.is_file():
                digest.update(file.read_bytes())
    digest.update(repr({table: list(schema.items()) for table, schema in TABLES.items()}).encode())
    return digest.hexdigest()
