"""The change log of the registry, table ``skills``: one row says that an entry holds, or ends, from a time on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import polars as pl

from collector.redact import Redactor
from collector.tables import TABLES

Op = Literal["upsert", "retire"]
Source = Literal["declared", "observed"]

SKILLS = "skills"
_MAX_DEPTH = 64
_SCHEMA = TABLES[SKILLS]


class SkillChange(msgspec.Struct, frozen=True, kw_only=True):
    """From ``time`` (microseconds since 1970) on, the entry holds (`upsert`) or ends (`retire`)."""

    skill_id: str
    op: Op
    time: int
    #: The entry as its owner declared it, or what an offer showed; empty for a retirement.
    entry: dict[str, Any] = {}

    @property
    def fact(self) -> str:
        return entry_fact(self.op, self.entry)


def entry_fact(op: str, entry: dict[str, Any]) -> str:
    """A hash of what a change says, the same for the same content in any key order."""
    content = msgspec.json.encode([op, entry], order="deterministic")
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def to_rows(
    changes: Iterable[SkillChange],
    *,
    project: str,
    source: Source,
    seq: int,
    received_at: int,
    source_request: str,
    registry_version: str | None = None,
) -> pl.DataFrame:
    """Rows of table ``skills``. ``seq`` orders writes of the same time; ``received_at`` is Unix nanoseconds."""
    rows = [
        {
            "project": project,
            "date": datetime.fromtimestamp(change.time // 1_000_000, UTC).date(),
            "skill_id": change.skill_id,
            "time": change.time,
            "received_at": received_at // 1_000,
            "seq": seq,
            "op": change.op,
            "source": source,
            "name": change.entry.get("name"),
            "kind": change.entry.get("kind"),
            "version": change.entry.get("version"),
            "description": change.entry.get("description"),
            "domain": change.entry.get("domain"),
            "is_active": change.op == "upsert" and change.entry.get("is_active", True),
            "entry": msgspec.json.encode(change.entry).decode() if change.entry else None,
            "registry_version": registry_version,
            "fact": change.fact,
            "source_request": source_request,
        }
        for change in changes
    ]
    schema = dict(_SCHEMA) | {"time": pl.Int64, "received_at": pl.Int64}
    return pl.DataFrame(rows, schema=schema).cast(_SCHEMA)


def masked_value(value: Any, redactor: Redactor, depth: int = 0) -> Any:
    """The value with secrets in its texts masked."""
    if isinstance(value, str):
        return redactor.text(value)
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return {key: masked_value(item, redactor, depth + 1) for key, item in value.items()}
    return [masked_value(item, redactor, depth + 1) for item in value] if isinstance(value, list) else value
