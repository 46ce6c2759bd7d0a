"""Rows of table ``skills`` from a registry write and from what was offered."""

from __future__ import annotations

import polars as pl

from collector.registry import decode_write
from collector.segment import Record
from collector.skill_changes import SkillChange, to_rows
from collector.tables import source_request


def declared_rows(record: Record) -> pl.DataFrame:
    """The rows of a log record of kind `registry`. Raises msgspec.MsgspecError for one that is none."""
    header, write = record.header, decode_write(record.body)
    return to_rows(
        write.changes,
        project=header.project,
        source="declared",
        seq=header.seq,
        received_at=header.received_at,
        source_request=source_request(header.seq, header.imported),
        registry_version=write.registry_version,
    )


def observed_rows(changes: list[SkillChange], *, project: str, seq: int, received_at: int, source: str) -> pl.DataFrame:
    """The rows of learned skills."""
    return to_rows(changes, project=project, source="observed", seq=seq, received_at=received_at, source_request=source)
