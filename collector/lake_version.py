"""Which form the tables on disk have: one number in ``lake/schema_version``, raised when a column changes its meaning.

A newer one is refused, an older one is migrated by the process that holds the folder (`Lake.migrate`). Columns that
are only added need no new number.
"""

from __future__ import annotations

from pathlib import Path

from collector.durable import write_whole
from collector.tables import SCHEMA_VERSION

_FILE = "schema_version"


class LakeFormatError(OSError):
    """Tables that this version cannot read: written by a newer one, or with a damaged version file."""


def read_version(root: Path) -> int:
    """The version of the tables below ``root``; 0 where none was written. Raises LakeFormatError."""
    path = root / _FILE
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        return 0
    if not text.isascii() or not text.isdecimal():
        raise LakeFormatError(f"{path}: expected the version of the tables as a number, got {text!r:.40}")
    return int(text)


def check_version(root: Path) -> None:
    """Raises LakeFormatError where this version must not touch the tables."""
    found = read_version(root)
    if found > SCHEMA_VERSION:
        raise LakeFormatError(
            f"{root} has tables of format {found}, this version reads up to {SCHEMA_VERSION}; "
            "use the version that wrote them, or restore a copy from before the upgrade"
        )


def mark_version(root: Path, version: int) -> None:
    """Write the version down, atomically and synced."""
    if read_version(root) == version:
        return
    root.mkdir(parents=True, exist_ok=True)
    write_whole(root / _FILE, f"{version}\n".encode(), 0o644)
