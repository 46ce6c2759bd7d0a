"""Facts as they lie in the lake, written directly, for tests of what is read from them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import polars as pl
import pytest

from analytics.tables import PUBLIC, Tables
from collector.lake import Lake
from collector.tables import STAGES, TABLES
from pickwise.events import decode_event, parse_time

#: The time of an event that names none: noon of a Monday.
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

Fact = dict[str, Any]


def at(seconds: float) -> str:
    """The wire's time, so many seconds after noon."""
    return (NOON + timedelta(seconds=seconds)).isoformat()


def moment(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def fact(event: Mapping[str, Any], project: str = "default", **wire: Any) -> tuple[str, Fact]:
    """One event of the wire as a fact row, with what only the wire knows (``role``, ``ordinal``, …)."""
    decoded, _ = decode_event(dict(event))
    row: Fact = msgspec.to_builtins(decoded) | wire
    table = {"selection": "selections", "call": "calls", "feedback": "feedback", "route": "routes"}[row.pop("type")]
    nanoseconds = parse_time(row["time"])
    row["time"] = BEGINNING + timedelta(microseconds=(nanoseconds or parse_time(NOON.isoformat()) or 0) // 1000)
    row["time_is_receipt"] = nanoseconds is None
    content = hashlib.sha256(json.dumps([event, wire], sort_keys=True, default=str).encode()).hexdigest()[:32]
    row["event_id"] = row["event_id"] or content
    row |= {"project": project, "date": row["time"].date(), "received_at": NOON, "fact": content}
    row |= {"source_request": "1-0", "mapping_version": "1"}
    return table, _SHAPES[table](row)


def _selection(row: Fact) -> Fact:
    intent = row.pop("intent") or {}
    shadow = row.pop("shadow") or {}
    stages = row.pop("stage_ms")
    return row | {
        "intent_domain": intent.get("domain"),
        "intent_action": intent.get("action"),
        "intent_object": intent.get("object"),
        "shadow_embedding_version": shadow.get("embedding_version"),
        "shadow_skill_ids": shadow.get("skill_ids"),
        "stage_ms": {stage: stages[stage] for stage in STAGES} if stages else None,
        "truncated": False,
    }


def _call(row: Fact) -> Fact:
    arguments = row.pop("arguments")
    known = arguments is not None
    return row | {
        "role": row.get("role") or "run",
        "ordinal": row.get("ordinal"),
        "parent_span_id": row.get("parent_span_id"),
        "arguments": json.dumps(arguments, sort_keys=True) if known else None,
        "args_keys": sorted(arguments) if isinstance(arguments, dict) else row["args_keys"],
        "args_digest": hashlib.md5(json.dumps(arguments, sort_keys=True).encode()).hexdigest() if known else None,
    }


def _feedback(row: Fact) -> Fact:
    value = row.pop("value")
    number = isinstance(value, int | float)
    return row | {"value": float(value) if number else None, "value_text": None if number else value}


_SHAPES: dict[str, Callable[[Fact], Fact]] = {
    "selections": _selection,
    "calls": _call,
    "feedback": _feedback,
    "routes": lambda row: row,
}


def entry(
    skill_id: str, since: datetime = BEGINNING, *, project: str = "default", seq: int = 0, op: str = "upsert",
    source: str = "declared", **fields: Any,
) -> tuple[str, Fact]:  # fmt: skip
    """One change of the registry as a fact row."""
    content = {"skill_id": skill_id} | fields
    row = {name: fields.get(name) for name in ("name", "kind", "version", "description", "domain")}
    row |= {"project": project, "date": since.date(), "skill_id": skill_id, "time": since, "received_at": NOON}
    row |= {"seq": seq, "op": op, "source": source, "is_active": fields.get("is_active", True)}
    row |= {"entry": None if op == "retire" else json.dumps(content, sort_keys=True), "registry_version": "r1"}
    row |= {"fact": hashlib.sha256(json.dumps([row], default=str).encode()).hexdigest()[:32], "source_request": "1-0"}
    return "skills", row


def write(lake: Lake, facts: Iterable[tuple[str, Fact]]) -> None:
    """Append facts, one commit a table."""
    by_table: dict[str, list[Fact]] = {}
    for table, row in facts:
        by_table.setdefault(table, []).append(row)
    for table, found in by_table.items():
        lake.append(table, pl.DataFrame(found, schema=TABLES[table], strict=False))


def read_events(path: Path) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class House:
    """A data folder to write facts into and read tables from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lake = Lake(folder)
        self.tables = Tables(folder)

    def write(self, *facts: tuple[str, Fact]) -> House:
        write(self.lake, facts)
        return self

    def events(self, *events: Mapping[str, Any], project: str = "default") -> House:
        return self.write(*(fact(event, project) for event in events))

    def connect(self) -> duckdb.DuckDBPyConnection:
        return self.tables.connect()

    def rows(self, query: str) -> Sequence[dict[str, Any]]:
        return self.tables.sql(query)

    def row(self, query: str) -> dict[str, Any]:
        (found,) = self.rows(query)
        return found

    def contents(self) -> dict[str, list[str]]:
        """All tables, whole; rows as text, in no order."""
        with self.connect() as connection:
            return {table: sorted(map(str, connection.execute(f"from {table}").fetchall())) for table in PUBLIC}


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.fixture(scope="session")
def livemcp(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> House:
    """The published LiveMCPBench trajectories and their registry."""
    found = House(tmp_path_factory.mktemp("livemcp"))
    skills = map(dict, read_events(shared / "data/registry/livemcpbench.jsonl"))
    found.write(*(entry(skill.pop("skill_id"), **skill) for skill in skills))
    return found.events(*read_events(shared / "data/events/livemcpbench.jsonl"))
