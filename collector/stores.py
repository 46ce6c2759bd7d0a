"""All that one data folder keeps of events, as its owner holds it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from collector.archive import Archive
from collector.archivist import Archivist
from collector.dead_letters import DeadLetters
from collector.lake import Lake
from collector.redact import Redactor
from collector.tombstones import Tombstones
from pickwise.settings import Settings


@dataclass(frozen=True, slots=True)
class Stores:
    """The places where an event may be. Only the flusher's thread writes to them."""

    settings: Settings
    lake: Lake
    archive: Archive
    archivist: Archivist
    dead_letters: DeadLetters
    tombstones: Tombstones
    redactor: Redactor
    wal_folder: Path
