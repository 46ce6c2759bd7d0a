"""Entries of the tables' logs that the disk lost something of.

Readers of Delta tables pass over an empty entry in silence, and its rows with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint.*\.parquet")


def damaged_entries(log: Path) -> Iterator[str]:
    """A sentence for each entry of a table's log that is not whole; nobody reads those before a checkpoint again."""
    names = [path.name for path in log.glob("*")]
    checkpoint = max((int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))), default=-1)
    for name in sorted(names):
        found = _ENTRY.fullmatch(name)
        if found is None or int(found[1]) <= checkpoint:
            continue
        try:
            damage = _damage((log / name).read_bytes())
        except FileNotFoundError:  # tidied up just now
            continue
        if damage:
            yield f"{log / name} is damaged: {damage}"


def _damage(entry: bytes) -> str:
    if not entry.strip():
        return "it is empty"
    try:
        for line in entry.splitlines():
            msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        return str(error)
    return ""
