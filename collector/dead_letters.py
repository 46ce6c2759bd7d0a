"""Acknowledged records that could not be mapped, kept for a mend and never in the way of the others."""

from __future__ import annotations

import base64
import logging
import os
from pathlib import Path

import msgspec

from collector.segment import Record
from collector.telemetry import Telemetry

logger = logging.getLogger(__name__)


class DeadLetters:
    """One JSON file a record in ``folder``: header, reason and the raw body (base64), readable by the owner only."""

    def __init__(self, folder: Path, telemetry: Telemetry) -> None:
        self._folder = Path(folder)
        self._telemetry = telemetry

    def put(self, record: Record, error: Exception) -> None:
        """Keep a record whose mapping failed, or a part of which did, with the reason. Raises OSError."""
        header = record.header
        path = self._folder / f"{header.seq:020d}.json"
        letter = {
            "header": header,
            "reason": f"{type(error).__name__}: {error}",
            "body": base64.b64encode(record.body).decode(),
        }
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(letter))
            file.flush()
            os.fsync(file.fileno())
        self._telemetry.dead_letters.inc()
        logger.error("record %d (%s) is set aside in %s", header.seq, header.kind, path, exc_info=error)
