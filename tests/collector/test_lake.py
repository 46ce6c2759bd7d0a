"""Tables on disk: rows replaced in one commit, nothing left behind, formats told apart."""

from __future__ import annotations

import os
import random
import threading
import time
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from collector.lake import PROPERTIES, Lake
from collector.lake_version import LakeFormatError
from collector.service import Collector
from collector.tables import TABLES
from pickwise.settings import Settings
from tests.collector.disk import holding

DAY = date(2026, 1, 10)


def rows(*event_ids: str, session: str = "s", day: date = DAY, project: str = "p") -> pl.DataFrame:
    count = len(event_ids)
    return pl.DataFrame(
        {
            "project": [project] * count,
            "date": [day] * count,
            "event_id": list(event_ids),
            "session_id": [session] * count,
            "time": [datetime(day.year, day.month, day.day, tzinfo=UTC)] * count,
            "picks": [["a"]] * count,
        }
    )


def ids(lake: Lake, table: str = "selections") -> list[str]:
    return sorted(lake.read(table)["event_id"])


def log_of(tmp_path: Path, table: str = "selections") -> list[str]:
    return sorted(path.name for path in (tmp_path / "lake" / table / "_delta_log").iterdir())


def test_replacing_is_one_commit_and_keeps_the_rest(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append("selections", rows("a", "b"), ("wal", 7))
    lake.append("selections", rows("c", session="t"))
    version = lake.version("selections")
    assert lake.replace("selections", pl.col("event_id") == "a", rows("d", day=date(2026, 2, 1))) == 1
    assert lake.version("selections") == version + 1
    assert ids(lake) == ids(Lake(tmp_path)) == ["b", "c", "d"]
    assert lake.transaction_version("selections", "wal") == 7
    stored = lake.select("selections", pl.col("event_id") == "d", ("project", "date", "picks"))
    assert stored.rows() == [("p", date(2026, 2, 1), ["a"])]


def test_replacing_nothing_by_nothing_commits_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append("selections", rows("a"))
    assert lake.replace("selections", pl.col("event_id") == "x", rows()) == 0
    assert lake.version("selections") == 0
    assert Lake(tmp_path / "other").replace("selections", pl.lit(True)) == 0


def test_an_unknown_condition_drops_no_row(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append("selections", rows("a"))
    assert lake.replace("selections", pl.col("agent") == "x") == 0
    assert ids(lake) == ["a"]


def test_columns_added_since_are_there_in_what_is_put_in(tmp_path: Path) -> None:
    old = rows("a").drop("session_id")
    write_deltalake(str(tmp_path / "lake" / "selections"), old.to_arrow(), partition_by=["project", "date"])
    lake = Lake(tmp_path)
    lake.replace("selections", pl.lit(False), rows("b", session="new"))
    found = lake.read("selections").sort("event_id").select("event_id", "session_id")
    assert found.rows() == [("a", None), ("b", "new")]
    assert lake.select("selections", pl.lit(True), ("session_id",)).height == 2


def test_a_reader_sees_all_of_a_replacement_or_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append("selections", rows("a", "b"))
    lake.append("selections", rows("c"))
    seen: set[tuple[str, ...]] = set()
    done = threading.Event()

    def read() -> None:
        reader = Lake(tmp_path)
        while not done.is_set():
            seen.add(tuple(ids(reader)))

    thread = threading.Thread(target=read)
    thread.start()
    for turn in range(30):
        old, new = ("a", "A") if turn % 2 == 0 else ("A", "a")
        lake.replace("selections", pl.col("event_id").is_in([old]), rows(new))
    done.set()
    thread.join()
    assert seen <= {("a", "b", "c"), ("A", "b", "c")}
    assert len(seen) == 2


def test_another_process_may_append_meanwhile(tmp_path: Path) -> None:
    lake, other = Lake(tmp_path), Lake(tmp_path)
    lake.append("feedback", rows("a", "b").drop("picks"))
    assert other.version("feedback") == 0
    lake.append("feedback", rows("c").drop("picks"))
    assert other.replace("feedback", pl.col("event_id") == "a") == 1
    assert ids(lake, "feedback") == ["b", "c"]


def test_purging_leaves_no_trace_on_the_disk_and_readers_go_on(tmp_path: Path) -> None:
    lake, reader = Lake(tmp_path), Lake(tmp_path)
    lake.append("selections", rows("a", session="secret-session"), ("wal", 3))
    assert ids(reader) == ["a"]
    lake.append("selections", rows("b"))
    lake.replace("selections", pl.col("session_id") == "secret-session")
    orphan = tmp_path / "lake" / "selections" / "project=p" / f"date={DAY}" / "part-of-a-crash.parquet"
    rows("x", session="secret-session").write_parquet(orphan)
    assert holding(tmp_path, "secret-session")
    lake.purge("selections")
    assert holding(tmp_path, "secret-session") == {}
    assert ids(reader) == ids(Lake(tmp_path)) == ["b"]
    lake.append("selections", rows("c"))
    assert ids(reader) == ["b", "c"]
    assert Lake(tmp_path).transaction_version("selections", "wal") == 3


def test_a_young_file_of_feedback_may_be_another_process_in_the_middle_of_a_commit(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append("feedback", rows("a").drop("picks"))
    young = tmp_path / "lake" / "feedback" / "project=p" / f"date={DAY}" / "part-young.parquet"
    rows("x").write_parquet(young)
    lake.purge("feedback")
    lake.compact("feedback")
    assert young.exists()
    os.utime(young, (time.time() - 7_200,) * 2)
    lake.compact("feedback")
    assert not young.exists()


def test_the_log_keeps_no_statistics_of_texts_and_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROPERTIES, "delta.logRetentionDuration", "interval 0 seconds")
    lake = Lake(tmp_path)
    for number in range(5):
        lake.append("selections", rows(f"e{number}", session="text-in-statistics"), ("wal", number))
    log = tmp_path / "lake" / "selections" / "_delta_log"
    assert holding(log, "text-in-statistics") == {}
    assert sum(name.endswith(".json") for name in log_of(tmp_path)) == 5
    lake.compact("selections")
    assert sum(name.endswith(".json") for name in log_of(tmp_path)) == 1
    assert len(lake.files("selections")) == 1
    assert Lake(tmp_path).transaction_version("selections", "wal") == 4


def test_rows_go_to_a_file_for_each_project_and_day_which_the_log_describes(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    moment = datetime(2026, 1, 10, 1, 2, 3, 456_789, tzinfo=UTC)
    timed = rows("a", "b").with_columns(time=pl.Series([moment, None], dtype=pl.Datetime("us", "UTC")))
    lake.append("selections", timed, ("wal", 1))
    timeless = timed.with_columns(time=pl.lit(None, dtype=pl.Datetime("us", "UTC")))
    many = [
        rows("c"),
        rows("d", project="q"),
        rows("e", day=date(2026, 1, 11)),
        timeless.with_columns(project=pl.lit("n")),
    ]
    lake.append("selections", pl.concat([frame.cast({"time": pl.Datetime("us", "UTC")}) for frame in many]), ("wal", 2))
    assert lake.transaction_version("selections", "wal") == 2
    assert [lake.version("selections"), Lake(tmp_path).version("selections")] == [1, 1]
    assert ids(Lake(tmp_path)) == ["a", "a", "b", "b", "c", "d", "e"]
    stored = DeltaTable(str(tmp_path / "lake" / "selections"))
    found = pl.DataFrame(stored.get_add_actions(flatten=True)).sort(
        "partition.project", "partition.date", "num_records"
    )
    assert found.select("partition.project", "partition.date", "num_records", "null_count.time").rows() == [
        ("n", DAY, 2, 2),
        ("p", DAY, 1, 0),
        ("p", DAY, 2, 1),
        ("p", date(2026, 1, 11), 1, 0),
        ("q", DAY, 1, 0),
    ]
    first, last = found.select("min.time", "max.time").row(2)
    assert (first, last) == (moment.replace(microsecond=456_000), moment.replace(microsecond=457_000))
    within = stored.to_pyarrow_table(filters=[("time", ">=", moment), ("time", "<=", moment)], columns=["event_id"])
    assert within["event_id"].to_pylist() == ["a"]


def test_a_project_of_any_name_has_a_folder_below_its_table(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    names = ["a b", "a/../b", "../c", "ä%2F", "x=y?#"]
    for name in names:
        lake.append("selections", rows(name, project=name))
    assert sorted(Lake(tmp_path).read("selections").select("project", "event_id").rows()) == sorted(
        zip(names, names, strict=True)
    )
    assert all((tmp_path / "lake" / "selections") in Path(file).resolve().parents for file in lake.files("selections"))


def test_two_processes_may_append_at_once(tmp_path: Path) -> None:
    lakes = [Lake(tmp_path), Lake(tmp_path)]
    lakes[0].append("feedback", rows("0"))

    def append(lake: Lake, name: str) -> None:
        for number in range(5):
            lake.append("feedback", rows(f"{name}{number}"))

    threads = [threading.Thread(target=append, args=(lake, name)) for lake, name in zip(lakes, "ab", strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids(Lake(tmp_path), "feedback") == ["0", *(f"{name}{number}" for name in "ab" for number in range(5))]


def test_large_files_are_merged_no_further(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    noise = random.Random(0)
    lake.append("selections", rows(*(noise.randbytes(8).hex() for _ in range(40_000))))
    large = Path(lake.files("selections")[0])
    for number in range(3):
        lake.append("selections", rows(f"b{number}"))
    lake.compact("selections", large.stat().st_size // 2)
    assert len(lake.files("selections")) == 2
    assert str(large) in lake.files("selections")


def test_tables_of_a_newer_version_are_refused_by_name(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append("selections", rows("a"))
    version = tmp_path / "lake" / "schema_version"
    assert version.read_text() == "1\n"
    version.write_text("2\n")
    with pytest.raises(LakeFormatError, match="tables of format 2, this version reads up to 1"):
        Lake(tmp_path)
    with pytest.raises(LakeFormatError, match="format 2"):
        Collector(Settings(data_dir=tmp_path)).start()
    version.write_text("²\n")
    with pytest.raises(LakeFormatError, match="expected the version of the tables as a number"):
        Lake(tmp_path)
    version.write_text("1\n")
    assert ids(Lake(tmp_path)) == ["a"]


def test_tables_from_before_there_was_a_version_are_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "lake" / "selections"
    old = pl.concat([TABLES["selections"].to_frame(), rows("a")], how="diagonal")
    write_deltalake(str(path), old.to_arrow(), partition_by=["project", "date"])
    collector = Collector(Settings(data_dir=tmp_path))
    collector.start()
    collector.stop()
    assert (tmp_path / "lake" / "schema_version").read_text() == "1\n"
    assert DeltaTable(str(path)).metadata().configuration == PROPERTIES
    assert ids(Lake(tmp_path)) == ["a"]


def test_a_new_table_has_the_properties_whoever_makes_it(tmp_path: Path) -> None:
    Lake(tmp_path).append("portraits", TABLES["portraits"].to_frame())
    assert DeltaTable(str(tmp_path / "lake" / "portraits")).metadata().configuration == PROPERTIES
    assert (tmp_path / "lake" / "schema_version").exists()
