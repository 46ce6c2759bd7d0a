"""From the log to the tables: once each, in any order, through restarts and failing disks."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from collector.lake import Lake
from collector.rows import RowMaker
from collector.service import Collector
from pickwise.settings import Settings

T0 = "2026-01-10T00:00:00Z"
T1 = "2026-01-11T00:00:00Z"


def make(data_dir: Path, **changes: Any) -> Collector:
    collector = Collector(Settings(data_dir=data_dir, **({"flush_interval_s": 0.05} | changes)))
    collector.start()
    return collector


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    started = make(tmp_path)
    yield started
    started.stop()


def send(collector: Collector, *events: dict[str, Any], project: str = "p") -> None:
    _, future = collector.submit_events(json.dumps(events).encode(), "json", project)
    if future is not None:
        future.result(10)


def table(collector: Collector, name: str) -> pl.DataFrame:
    assert collector.refresh(20)
    return Lake(collector.settings.data_dir).read(name)


def call(number: int, **fields: Any) -> dict[str, Any]:
    return {"type": "call", "event_id": f"e{number}", "skill_id": "s", "time": T0} | fields


def selection(event_id: str, *skill_ids: str, time: str = T0) -> dict[str, Any]:
    candidates = [{"skill_id": skill_id} for skill_id in skill_ids]
    return {"type": "selection", "event_id": event_id, "time": time, "candidates": candidates}


def counted(collector: Collector, sample: str) -> float:
    lines = [line for line in collector.telemetry.exposition().decode().splitlines() if line.startswith(sample)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_rows_carry_the_log_record_and_the_receipt(collector: Collector) -> None:
    send(collector, call(1), call(2, time=None))
    found = table(collector, "calls").sort("event_id")
    assert found["event_id"].to_list() == ["e1", "e2"]
    assert found["source_request"].unique().to_list() == [f"{1:020d}"]
    assert found["time_is_receipt"].to_list() == [False, True]
    assert (found["received_at"] == found["received_at"][0]).all()


def test_repeats_are_dropped_and_counted(collector: Collector) -> None:
    send(collector, call(1), call(1), call(2))
    send(collector, call(1))
    assert collector.refresh(20)
    send(collector, call(2), call(3))
    assert table(collector, "calls")["event_id"].sort().to_list() == ["e1", "e2", "e3"]
    assert counted(collector, 'pickwise_duplicates_total{table="calls"}') == 3


def test_repeats_are_dropped_across_restarts(tmp_path: Path) -> None:
    for _ in range(3):
        collector = make(tmp_path)
        send(collector, call(1), selection("s1", "a"))
        collector.stop()
    lake = Lake(tmp_path)
    assert [lake.read(name).height for name in ("calls", "selections", "skills")] == [1, 1, 1]


def test_the_same_id_with_other_content_is_kept(collector: Collector) -> None:
    send(collector, call(1, phase="invoke"))
    send(collector, call(1, phase="output", ok=True))
    assert table(collector, "calls").height == 2


def test_projects_do_not_share_ids(collector: Collector) -> None:
    send(collector, call(1), project="p")
    send(collector, call(1), project="q")
    send(collector, call(1), project="")
    assert table(collector, "calls")["project"].sort().to_list() == ["default", "p", "q"]


def test_stopping_commits_what_was_acknowledged(tmp_path: Path) -> None:
    collector = make(tmp_path, flush_interval_s=3600)
    send(collector, *[call(number) for number in range(100)])
    collector.stop()
    assert Lake(tmp_path).read("calls").height == 100
    assert list((tmp_path / "wal").iterdir()) == []


def test_enough_events_are_committed_before_the_interval_is_over(tmp_path: Path) -> None:
    collector = make(tmp_path, flush_interval_s=3600, flush_events=50)
    send(collector, *[call(number) for number in range(50)])
    with collector.flusher._committed:
        assert collector.flusher._committed.wait_for(lambda: collector.flusher.position >= 1, 20)
    collector.stop()


def test_numbers_go_on_after_a_restart_with_an_empty_log(tmp_path: Path) -> None:
    for number in range(3):
        collector = make(tmp_path)
        send(collector, call(number))
        collector.stop()
    assert Lake(tmp_path).read("calls")["source_request"].n_unique() == 3


def test_a_table_that_already_has_a_batch_skips_it_after_a_crash(tmp_path: Path) -> None:
    first = make(tmp_path)
    first.flusher.stop()  # acknowledged, and then the process dies before any commit ...
    send(first, call(1), selection("s1", "a"))
    send(first, call(2))
    begun = first.flusher._begin()
    assert begun is not None
    batch = first.flusher._batches.finish(begun, begun.mapped())
    first.flusher._append("calls", batch.frames["calls"], batch.last_seq)  # ... but for one table
    first.wal.close()
    first._lock.release()
    second = make(tmp_path)
    assert table(second, "calls")["event_id"].sort().to_list() == ["e1", "e2"]
    assert table(second, "selections").height == 1
    assert table(second, "skills")["skill_id"].to_list() == ["a"]
    second.stop()


def test_a_failing_commit_is_tried_again_and_loses_nothing(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = Lake.append
    failures = iter([OSError(28, "No space left on device"), OSError(5, "Input/output error")])

    def failing(self: Lake, *args: Any) -> None:
        for error in failures:
            raise error
        real(self, *args)

    monkeypatch.setattr(Lake, "append", failing)
    send(collector, call(1), selection("s1", "a"))
    assert table(collector, "calls").height == 1
    assert table(collector, "selections").height == 1
    assert "No space left" in caplog.text
    assert counted(collector, "pickwise_commit_failures_total") == 2


def test_a_commit_that_failed_after_it_went_through_is_not_repeated(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Lake.append
    failures = iter([OSError(5, "Input/output error")])

    def failing(self: Lake, *args: Any) -> None:
        real(self, *args)
        for error in failures:
            raise error

    monkeypatch.setattr(Lake, "append", failing)
    send(collector, call(1))
    assert table(collector, "calls").height == 1


def test_a_collector_that_stops_while_the_disk_fails_keeps_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = make(tmp_path)

    def failing(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Lake, "append", failing)
    send(collector, call(1))
    collector.stop()
    monkeypatch.undo()
    again = make(tmp_path)
    assert table(again, "calls").height == 1
    again.stop()


def test_a_fact_that_cannot_be_mapped_is_set_aside_alone(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RowMaker.call

    def failing(self: RowMaker, event: Any) -> Any:
        if event.skill_id == "poison":
            raise KeyError("a bug")
        return real(self, event)

    monkeypatch.setattr(RowMaker, "call", failing)
    send(collector, call(1), call(2, skill_id="poison"), call(3), selection("s1", "a"))
    send(collector, call(4))
    assert table(collector, "calls")["event_id"].sort().to_list() == ["e1", "e3", "e4"]
    assert table(collector, "selections").height == 1
    (letter,) = (collector.settings.data_dir / "rejected").iterdir()
    assert "a bug" in json.loads(letter.read_bytes())["reason"]
    assert stat.S_IMODE(letter.stat().st_mode) == 0o600
    assert counted(collector, "pickwise_dead_letters_total") == 1


def test_a_row_that_fits_no_column_is_set_aside_alone(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RowMaker.call

    def failing(self: RowMaker, event: Any) -> Any:
        row: Any = real(self, event)
        if event.skill_id == "poison":
            row.depth = 2**70
        return row

    monkeypatch.setattr(RowMaker, "call", failing)
    send(collector, *[call(number) for number in range(5)], call(5, skill_id="poison"), call(6))
    send(collector, call(7))
    assert table(collector, "calls")["event_id"].sort().to_list() == [f"e{n}" for n in (0, 1, 2, 3, 4, 6, 7)]
    assert counted(collector, "pickwise_dead_letters_total") == 1


def test_a_record_of_another_kind_of_bytes_never_blocks(collector: Collector) -> None:
    collector.append("traces", "p", "protobuf", b"\xff\xff\xff").result(10)
    collector.append("registry", "p", "json", b"{}").result(10)
    send(collector, call(1))
    assert table(collector, "calls").height == 1
    assert len(list((collector.settings.data_dir / "rejected").iterdir())) == 2


def test_candidates_are_learned_once_from_their_earliest_offer(collector: Collector) -> None:
    send(collector, selection("s1", "a", "b", time=T1))
    assert table(collector, "skills").height == 2
    send(collector, selection("s2", "a", "c", time=T1))
    send(collector, selection("s3", "b", time=T0))
    found = table(collector, "skills").sort("skill_id", "time")
    assert found.select("skill_id", pl.col("time").dt.date().cast(str), "source", "op").rows() == [
        ("a", "2026-01-11", "observed", "upsert"),
        ("b", "2026-01-10", "observed", "upsert"),
        ("b", "2026-01-11", "observed", "upsert"),
        ("c", "2026-01-11", "observed", "upsert"),
    ]


def test_a_declared_registry_becomes_rows(collector: Collector) -> None:
    body = json.dumps({"type": "skill", "skill_id": "srv/a", "name": "a", "description": "does a"}).encode()
    parsed, future = collector.submit_events(body, "json", "p")
    assert future is None
    assert collector.submit_skills(parsed, "p") == (1, [])
    (found,) = table(collector, "skills").rows(named=True)
    assert (found["skill_id"], found["name"], found["source"], found["op"]) == ("srv/a", "a", "declared", "upsert")
    assert found["registry_version"] == collector.registry.version("p")
    assert found["time"].year == 1970


def test_tables_are_compacted_and_the_log_position_survives_it(tmp_path: Path) -> None:
    collector = make(tmp_path, compact_every=3)
    for number in range(4):
        send(collector, call(number))
        assert collector.refresh(20)
    collector.stop()
    assert len(Lake(tmp_path).files("calls")) == 2
    assert Lake(tmp_path).transaction_version("calls", "wal") == 4


def test_lag_and_backlog_are_told(collector: Collector) -> None:
    send(collector, call(1))
    assert collector.refresh(20)
    assert counted(collector, "pickwise_lag_seconds_count") == 1
    assert counted(collector, "pickwise_backlog_bytes") == 0
