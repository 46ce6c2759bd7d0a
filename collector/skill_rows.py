"""Rows of table ``skills`` from a registry write and from what was offered."""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl

from collector.redact import Redactor
from collector.registry import decode_write
from collector.segment import Record
from collector.skill_changes import SkillChange, to_rows
from collector.tables import source_request

_MAX_DEPTH = 64


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


def observed_rows(
    changes: list[SkillChange], *, project: str, seq: int, received_at: int, source: str, redactor: Redactor
) -> pl.DataFrame:
    """The rows of learned skills, with secrets in their texts masked: nobody declared these texts to be kept."""
    rows = to_rows(changes, project=project, source="observed", seq=seq, received_at=received_at, source_request=source)
    return rows.with_columns(
        pl.Series("description", [_masked(text, redactor) for text in rows["description"]], dtype=pl.String),
        pl.Series("entry", [_masked_entry(entry, redactor) for entry in rows["entry"]], dtype=pl.String),
    )


def _masked_entry(entry: str | None, redactor: Redactor) -> str | None:
    return entry and msgspec.json.encode(_masked(msgspec.json.decode(entry), redactor)).decode()


def _masked(value: Any, redactor: Redactor, depth: int = 0) -> Any:
    if isinstance(value, str):
        return redactor.text(value)
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return {key: _masked(item, redactor, depth + 1) for key, item in value.items()}
    return [_masked(item, redactor, depth + 1) for item in value] if isinstance(value, list) else value
