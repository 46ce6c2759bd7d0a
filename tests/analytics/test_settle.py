"""Settling changes no row: segments, and what is folded beside them, give what folding everything gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from filelock import FileLock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics import merge as merging
from analytics import settle as settling
from analytics.segments import Manifest, SegmentStore
from analytics.segments_damage import damaged_files, mend_segments
from analytics.settle import Settling, settle
from analytics.tables import PUBLIC, TablesUnreadable
from collector.lake_version import LakeFormatError
from collector.tables import FACT_TABLES
from tests.analytics.conftest import Fact, House, at, entry, fact, moment
from tests.analytics.fact_worlds import WORLDS, in_projects

FACTS = ("selections", "calls", "feedback", "skills")


def selection(name: str, *, session: str | None = None, **fields: Any) -> tuple[str, Fact]:
    event = {"type": "selection", "event_id": name, "trace_id": name * 32, "session_id": session, "ranked": True}
    return fact(event | {"time": at(0), "candidates": [{"skill_id": "search"}, {"skill_id": "fetch"}]} | fields)


def call(name: str, of: str, *, skill_id: str = "search", **fields: Any) -> tuple[str, Fact]:
    event = {"type": "call", "event_id": name, "trace_id": of * 32, "skill_id": skill_id, "time": at(1), "ok": True}
    return fact(event | fields)


def of_record(number: int, *facts: tuple[str, Fact]) -> list[tuple[str, Fact]]:
    """The facts as a record of the log brings them."""
    return [(table, row | {"source_request": f"{number:020d}"}) for table, row in facts]


def same_as_whole(house: House, tmp_path: Path) -> None:
    """The tables are those of a folder with the same facts and no segments."""
    whole = House(tmp_path)
    for table in FACT_TABLES:
        rows = house.lake.read(table)
        if rows.height:
            whole.lake.append(table, rows)
    expected, found = whole.contents(), house.contents()
    for table in PUBLIC:
        assert found[table] == expected[table], table


def manifest(house: House) -> Manifest:
    return SegmentStore(house.folder).manifest()


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds=WORLDS, seed=st.integers(0, 2**16))
def test_facts_settled_in_parts_fold_as_a_whole(
    tmp_path_factory: pytest.TempPathFactory, worlds: list[list[tuple[str, Fact]]], seed: int
) -> None:
    chance = random.Random(seed)
    house = House(tmp_path_factory.mktemp("settled"))
    parts: list[list[tuple[str, Fact]]] = [[] for _ in range(chance.randint(2, 5))]
    for table, row in in_projects(worlds):
        time = row["time"] + timedelta(days=chance.choice([0, 0, 0, 1, 5]))
        chance.choice(parts).append((table, row | {"time": time, "date": time.date()}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settling, "_CHUNK_FACTS", chance.choice([30, 150_000]))
        patch.setattr(settling, "_STEP_BYTES", chance.choice([1, 2**20]))
        patch.setattr(merging, "_MOST_SEGMENTS", chance.choice([1, 12]))
        for number, part in enumerate(parts, 1):
            house.write(*of_record(number, *part))
            if chance.random() < 0.3:
                for table in FACTS:
                    house.lake.compact(table)
            if chance.random() < 0.3:
                house.lake.replace(chance.choice(FACTS[:3]), pl.col("fact").str.starts_with(chance.choice("0123")))
            if number == 1 or chance.random() < 0.6:
                settle(house.folder)
        same_as_whole(house, tmp_path_factory.mktemp("whole"))
        settle(house.folder)
        same_as_whole(house, tmp_path_factory.mktemp("whole"))


def test_a_late_fact_folds_its_unit_anew_and_no_other(house: House, tmp_path: Path) -> None:
    house.write(*of_record(1, selection("a"), selection("b"), call("c1", "a")))
    settle(house.folder)
    house.write(*of_record(2, call("c2", "b", skill_id="fetch", ok=False, time=at(DAY_S))))
    picks = "select event_id, picks from selections order by event_id"
    assert [row["picks"] for row in house.rows(picks)] == [["search"], ["fetch"]]
    same_as_whole(house, tmp_path / "whole")
    settle(house.folder)
    # Of the two that were settled together one is still there, the other is in a segment of its own; a segment of
    # which so much is masked is written anew.
    assert sorted((segment.units, segment.masked) for segment in manifest(house).segments) == [(1, 0), (1, 0)]
    same_as_whole(house, tmp_path / "again")


DAY_S = 86_400


def test_phases_that_know_nothing_but_their_call_fold_as_one(house: House, tmp_path: Path) -> None:
    common = {"type": "call", "call_id": "k", "skill_id": "search"}
    phases = [
        fact(common | {"event_id": "p0", "phase": "invoke", "time": at(0)}),
        fact(common | {"event_id": "p1", "phase": "exec", "ok": False, "error_kind": "timeout", "time": at(1)}),
    ]
    house.write(*of_record(1, phases[0]))
    settle(house.folder)
    house.write(*of_record(2, phases[1]))
    assert [row["ok"] for row in house.rows("select ok from calls")] == [False]
    same_as_whole(house, tmp_path / "whole")
    settle(house.folder)
    same_as_whole(house, tmp_path / "again")


def test_settling_again_finds_nothing(house: House) -> None:
    house.write(*of_record(1, selection("a"), call("c", "a")))
    assert settle(house.folder) == 1
    before = manifest(house)
    assert settle(house.folder) == 0
    assert manifest(house) == before


def test_merging_the_files_of_the_lake_disturbs_nothing(house: House) -> None:
    house.write(*of_record(1, selection("a")))
    settle(house.folder)
    house.write(*of_record(2, selection("b")))
    for table in FACTS:
        house.lake.compact(table)
    settle(house.folder)
    # The first is still in the segment of its own: only what came was folded.
    assert [(segment.units, segment.masked) for segment in manifest(house).segments] == [(1, 0), (1, 0)]
    assert [row["event_id"] for row in house.rows("select event_id from selections order by 1")] == ["a", "b"]


def test_what_is_removed_from_the_lake_is_gone_at_once_and_from_the_disk(house: House) -> None:
    house.write(*of_record(1, selection("a", query="my secret"), selection("b"), call("c", "a")))
    settle(house.folder)
    for table in ("selections", "calls"):
        house.lake.replace(table, pl.col("trace_id") == "a" * 32)
    assert [row["event_id"] for row in house.rows("select event_id from selections")] == ["b"]
    assert house.rows("select * from calls") == []
    settle(house.folder)
    left = [pl.read_parquet(path) for path in SegmentStore(house.folder).root.glob("selections-*.parquet")]
    assert [frame["event_id"].to_list() for frame in left] == [["b"]]


def test_a_new_registry_judges_settled_calls_anew(house: House, tmp_path: Path) -> None:
    house.write(*of_record(1, entry("search", moment(-10)), selection("a"), call("c", "a", skill_id="lookup")))
    settle(house.folder)
    classes = "select name_class from calls"
    assert house.row(classes) == {"name_class": "unknown"}
    house.write(*of_record(2, entry("lookup", moment(-5))))
    assert house.row(classes) == {"name_class": "known"}
    settle(house.folder)
    assert house.row(classes) == {"name_class": "known"}
    same_as_whole(house, tmp_path / "whole")


def test_a_verdict_finds_a_settled_selection(house: House, tmp_path: Path) -> None:
    house.write(*of_record(1, selection("a"), selection("b"), call("c", "a"), call("d", "b", call_id="k")))
    settle(house.folder)
    verdict = {"type": "feedback", "kind": "rejected", "time": at(60)}
    house.write(*of_record(2, fact(verdict | {"event_id": "f", "selection_id": "a"})))
    house.write(*of_record(3, fact(verdict | {"event_id": "g", "call_id": "k"})))
    corrected = "select event_id, corrected from mismatches order by event_id"
    assert [row["corrected"] for row in house.rows(corrected)] == [True, True]
    settle(house.folder)
    same_as_whole(house, tmp_path / "whole")


def test_an_id_that_comes_again_in_another_trace_is_one_event(house: House, tmp_path: Path) -> None:
    house.write(*of_record(1, selection("a", span_id="1" * 16, query="rain")))
    settle(house.folder)
    house.write(*of_record(2, selection("a", span_id="2" * 16, trace_id="b" * 32, query="rain tomorrow")))
    assert house.row("select query from selections") == {"query": "rain tomorrow"}
    settle(house.folder)
    same_as_whole(house, tmp_path / "whole")


def test_many_small_segments_become_one(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_MOST_SEGMENTS", 3)
    for number in range(1, 8):
        house.write(*of_record(number, selection(f"{number}"), call(f"c{number}", f"{number}", ok=number % 2 == 0)))
        settle(house.folder)
    assert len(manifest(house).segments) <= 4
    assert house.row("select count(*) as n from selections") == {"n": 7}
    same_as_whole(house, tmp_path / "whole")


def test_a_run_that_dies_leaves_what_was_there(house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    house.write(*of_record(1, selection("a")))
    settle(house.folder)
    house.write(*of_record(2, call("c", "a")))
    with monkeypatch.context() as patch:
        patch.setattr(SegmentStore, "put", _die)
        with pytest.raises(InterruptedError):
            settle(house.folder)
    same_as_whole(house, tmp_path / "whole")
    settle(house.folder)
    same_as_whole(house, tmp_path / "again")


def _die(*_: object) -> None:
    raise InterruptedError


def test_segments_of_another_version_are_not_read(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.write(*of_record(1, selection("a")))
    settle(house.folder)
    monkeypatch.setattr("analytics.segments.version", lambda: "another")
    assert manifest(house).segments == []
    assert house.row("select event_id from selections") == {"event_id": "a"}


def test_two_at_once_exclude_each_other(house: House) -> None:
    house.write(*of_record(1, selection("a")))
    store = SegmentStore(house.folder)
    store.prepare()
    with FileLock(store.path(".lock")), pytest.raises(Settling, match="another process"):
        settle(house.folder)


def test_sql_reads_segments_and_no_other_file(house: House, tmp_path: Path) -> None:
    house.write(*of_record(1, selection("a")))
    settle(house.folder)
    assert house.row("select event_id from selections") == {"event_id": "a"}
    outside = tmp_path.parent / f"{tmp_path.name}.csv"
    outside.write_text("a\n1\n")
    with pytest.raises(Exception, match=r"(?i)permission|disabled"):
        house.rows(f"select * from read_csv('{outside}')")


@pytest.mark.parametrize("given", ["relative", "through a link", "with dots"])
def test_the_folder_may_be_named_in_any_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    named = {"relative": Path("data"), "through a link": tmp_path / "link", "with dots": tmp_path / "data/../data"}[
        given
    ]
    house = House(named).write(selection("a"), call("c", "a"))
    settle(named)
    assert [segment.files for segment in manifest(house).segments]
    house.write(selection("b"))
    monkeypatch.chdir("/")
    found = House(tmp_path / "data")
    assert [row["event_id"] for row in found.rows("select event_id from selections order by 1")] == ["a", "b"]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def _spoil(path: Path) -> None:
    """Its ends stay, so only who reads it through sees it."""
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :])


_DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut": _cut,
    "other bytes": lambda path: path.write_bytes(b"\x01\x02" * 900),
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
    "spoiled within": _spoil,
}


@pytest.mark.parametrize(
    ("table", "damage"),
    [
        ("selections", "cut"),
        ("calls", "spoiled within"),
        ("links", "other bytes"),
        ("rollups", "gone"),
        ("registry", "empty"),
    ],
)
def test_damaged_segments_are_set_aside_and_folded_again(house: House, tmp_path: Path, table: str, damage: str) -> None:
    house.write(entry("search"), selection("a"), call("b", "a"))
    settle(house.folder)
    _DAMAGE[damage](next((house.folder / "settled").glob(f"{table}-*.parquet")))
    assert damaged_files(SegmentStore(house.folder))
    house.write(selection("c"), call("d", "c"))
    settle(house.folder)  # that which needs the file mends it, else the next reading does
    mend_segments(house.folder)
    same_as_whole(house, tmp_path / "whole")
    settle(house.folder)
    assert manifest(house).segments
    assert damaged_files(SegmentStore(house.folder)) == []
    same_as_whole(house, tmp_path / "again")


@pytest.mark.parametrize("damage", ["cut", "other bytes", "empty", "gone"])
def test_a_reading_that_finds_segments_damaged_does_without(house: House, tmp_path: Path, damage: str) -> None:
    house.write(entry("search"), selection("a"), call("b", "a"))
    settle(house.folder)
    _DAMAGE[damage](next((house.folder / "settled").glob("calls-*.parquet")))
    house.write(selection("c"), call("d", "c"))
    same_as_whole(house, tmp_path / "whole")
    assert manifest(house).segments == []


def test_damaged_rows_of_the_lake_are_told_and_leave_the_segments_alone(house: House) -> None:
    house.write(entry("search"), selection("a"))
    settle(house.folder)
    house.write(call("b", "a"))
    _cut(Path(house.lake.files("calls")[0]))
    with pytest.raises(TablesUnreadable, match="`pickwise doctor` says which file"):
        house.tables.connect()
    assert manifest(house).segments


def test_an_entry_that_the_library_passes_over_is_said_once(house: House, caplog: pytest.LogCaptureFixture) -> None:
    for name in "abc":
        house.write(selection(name))
    log = house.folder / "lake" / "selections" / "_delta_log"
    (log / f"{1:020d}.json").write_bytes(b"")
    assert len(house.rows("from selections")) == 2
    assert f"{log / f'{1:020d}.json'} is damaged: it is empty; rows of selections may be missing" in caplog.text
    caplog.clear()
    house.write(selection("d"))
    assert len(house.rows("from selections")) == 3
    assert "damaged" not in caplog.text


def test_a_log_that_the_library_refuses_is_named(house: House) -> None:
    for name in "ab":
        house.write(selection(name))
    entry_of_b = house.folder / "lake" / "selections" / "_delta_log" / f"{1:020d}.json"
    entry_of_b.write_bytes(entry_of_b.read_bytes()[:50])
    with pytest.raises(LakeFormatError, match=r"the log of .*/lake/selections can't be read .* from a backup"):
        House(house.folder).tables.connect()
