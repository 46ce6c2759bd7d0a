"""Small files that are whole or not there, and on the disk when writing them returns."""

from __future__ import annotations

import os
from pathlib import Path

from collector.segment import sync

__all__ = ["sync", "write_whole"]


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Put a file into an existing folder, in place of one of the same name. Raises OSError."""
    draft = path.with_name(f"{path.name}.draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync(path.parent)
