"""The declared registry and its history: what holds from when, what changes nothing, what is refused."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from collector.events_in import Item
from collector.registry import Registry, StrictRefusal, UnknownSkill, decode_write
from collector.skill_changes import SkillChange, to_rows
from collector.tables import TABLES
from collector.wal import Overloaded

P = "p"


class Log:
    """Stands where the write-ahead log is: keeps what was appended, as rows of table ``skills``."""

    def __init__(self) -> None:
        self.changes: list[SkillChange] = []
        self.rows = TABLES["skills"].to_frame()
        self.refuses = False

    def append(self, project: str, body: bytes, received_at: int, _entries: int) -> Future[int]:
        if self.refuses:
            raise Overloaded("full")
        write = decode_write(body)
        self.changes += write.changes
        seq = self.rows.height + 1
        rows = to_rows(
            write.changes,
            project=project,
            source="declared",
            seq=seq,
            received_at=received_at,
            source_request=str(seq),
            registry_version=write.registry_version,
        )
        self.rows = pl.concat([self.rows, rows])
        done: Future[int] = Future()
        done.set_result(seq)
        return done


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def registry(log: Log) -> Registry:
    return Registry(log.append)


def items(*entries: Any) -> list[Item]:
    return [Item(index, entry) for index, entry in enumerate(entries)]


def skill(skill_id: str, **fields: Any) -> dict[str, Any]:
    return {"skill_id": skill_id, "description": f"does {skill_id}"} | fields


def ns(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 10**9


def ids(registry: Registry, at: int | None = None) -> list[str]:
    return [entry["skill_id"] for entry in registry.entries(P, at)]


def test_a_first_write_holds_from_the_beginning_of_time(registry: Registry, log: Log) -> None:
    answer = registry.replace(P, items(skill("a"), skill("b", valid_from="2020-01-01T00:00:00Z")))
    assert (answer.accepted, answer.rejected) == (2, [])
    assert ids(registry, ns(1971)) == ["a"]
    assert ids(registry, ns(2021)) == ids(registry) == ["a", "b"]
    assert log.rows["time"].min() == datetime(1970, 1, 1, tzinfo=UTC)
    assert set(log.rows["registry_version"]) == {answer.registry_version}


def test_a_later_write_holds_from_its_receipt_or_its_own_time(registry: Registry) -> None:
    registry.replace(P, items(skill("a")))
    registry.upsert(P, items(skill("b"), skill("c", valid_from=ns(2020))))
    assert ids(registry, ns(2019)) == ["a"]
    assert ids(registry, ns(2021)) == ["a", "c"]
    assert ids(registry) == ["a", "b", "c"]


def test_the_same_write_again_changes_nothing(registry: Registry, log: Log) -> None:
    entries = items(skill("a", parameters_schema={"type": "object", "properties": {}}), skill("b"))
    first = registry.replace(P, entries)
    written = log.rows.height
    again = registry.replace(P, list(reversed(entries)))
    assert again.registry_version == first.registry_version
    assert again.accepted == 2
    assert log.rows.height == written


def test_replacing_retires_what_is_absent(registry: Registry) -> None:
    version = registry.replace(P, items(skill("a"), skill("b"))).registry_version
    other = registry.replace(P, items(skill("b"))).registry_version
    assert other != version
    assert ids(registry) == ["b"]
    assert ids(registry, ns(2000)) == ["a", "b"]
    assert registry.replace(P, items(skill("a"), skill("b"))).registry_version == version


def test_a_refused_entry_is_named_and_keeps_its_earlier_version(registry: Registry) -> None:
    registry.replace(P, items(skill("a"), skill("b")))
    answer = registry.replace(P, items(skill("a", kind="nonsense"), skill("c"), 5, skill("c")))
    assert [(r.index, r.skill_id) for r in answer.rejected] == [(0, "a"), (2, None), (3, "c")]
    assert "kind" in answer.rejected[0].reason
    assert "same" in answer.rejected[2].reason
    assert ids(registry) == ["a", "c"]


def test_a_write_without_a_good_entry_changes_nothing(registry: Registry) -> None:
    registry.replace(P, items(skill("a")))
    assert registry.replace(P, items({"name": "x"})).accepted == 0
    assert ids(registry) == ["a"]


def test_an_empty_replacement_retires_all(registry: Registry) -> None:
    registry.replace(P, items(skill("a")))
    registry.replace(P, [])
    assert ids(registry) == []


def test_retiring(registry: Registry) -> None:
    registry.replace(P, items(skill("a"), skill("b")))
    registry.retire(P, "a")
    assert ids(registry) == ["b"]
    with pytest.raises(UnknownSkill, match="'a'"):
        registry.retire(P, "a")
    with pytest.raises(UnknownSkill):
        registry.retire("other", "b")


def test_an_inactive_entry_is_known_but_not_listed(registry: Registry) -> None:
    registry.replace(P, items(skill("a"), skill("b", is_active=False)))
    assert ids(registry) == ["a"]


def test_a_correction_from_a_past_time_holds_from_there_on(registry: Registry) -> None:
    registry.replace(P, items(skill("a", description="first")))
    registry.upsert(P, items(skill("a", description="second", valid_from=ns(2020))))
    registry.upsert(P, items(skill("a", description="third", valid_from=ns(2010))))

    def text(at: int) -> str:
        return str(registry.entries(P, at)[0]["description"])

    assert [text(ns(year)) for year in (2000, 2015, 2021)] == ["first", "third", "third"]


def test_the_tables_bring_back_the_same_registry(registry: Registry, log: Log) -> None:
    registry.replace(P, items(skill("a"), skill("b"), skill("c")))
    registry.upsert(P, items(skill("a", description="new"), skill("d", valid_from=ns(2020))))
    registry.retire(P, "b")
    again = Registry(log.append)
    again.load(log.rows)
    for at in (ns(1980), ns(2021), None):
        assert again.entries(P, at) == registry.entries(P, at)
    assert again.version(P) == registry.version(P)


def test_what_the_log_refuses_does_not_show(registry: Registry, log: Log) -> None:
    registry.replace(P, items(skill("a")))
    log.refuses = True
    with pytest.raises(Overloaded):
        registry.upsert(P, items(skill("b")))
    assert ids(registry) == ["a"]


def test_findings_are_those_of_the_written_entries(registry: Registry) -> None:
    registry.replace(P, items(skill("a", name="same")))
    answer = registry.upsert(P, items(skill("b", name="same")))
    assert {finding.skill_id for finding in answer.findings} == {"b"}
    assert "duplicate_name" in {finding.code for finding in answer.findings}


def test_a_strict_write_with_errors_writes_nothing(registry: Registry, log: Log) -> None:
    with pytest.raises(StrictRefusal, match="severity error"):
        registry.replace(P, items({"skill_id": "a"}), strict=True)
    assert log.rows.height == 0


def test_a_schema_that_is_none_is_taken_and_found(registry: Registry) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number", "exclusiveMinimum": True}}}
    answer = registry.replace(P, items(skill("a", parameters_schema=schema)))
    assert answer.accepted == 1
    assert "invalid_schema" in {finding.code for finding in answer.findings}


def test_projects_do_not_mix(registry: Registry) -> None:
    registry.replace(P, items(skill("a")))
    registry.replace("q", items(skill("b")))
    assert ids(registry) == ["a"]
    assert registry.projects() == ["p", "q"]
