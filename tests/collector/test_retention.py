"""What is too old goes, each kind by its own age; imported history stays."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from collector import lake as lake_module
from collector import mapping
from collector.lake import Lake
from collector.operations import RetentionRequest
from collector.retention import Retention, RetentionReport, ages, too_old
from collector.service import Collector
from collector.tables import source_request
from collector.upkeep import EVERY_S, Upkeep
from pickwise.settings import RETAINED_TABLES, Settings, SettingsError, load_settings
from tests.collector.spans_of import body, tool_span

NOW = datetime.now(UTC)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Collector]]:
    running: list[Collector] = []

    def started(**changes: Any) -> Collector:
        while running:
            running.pop().stop()
        collector = Collector(Settings(data_dir=tmp_path, **changes))
        collector.start()
        running.append(collector)
        while collector.flusher._upkeep.is_due():  # what it does of itself comes first
            time.sleep(0.01)
        retained(collector, dry_run=True)
        return collector

    yield started
    for collector in running:
        collector.stop()


def send(collector: Collector, *days: float, imported: bool = False, project: str = "p") -> None:
    """One selection and one call so many days ago each."""
    events = []
    for day in days:
        mark, moment = f"{imported}{day}", (NOW - timedelta(days=day)).isoformat()
        events.append({"type": "selection", "event_id": f"s{mark}", "query": f"asked-{mark}", "time": moment})
        events.append({"type": "call", "event_id": f"c{mark}", "skill_id": "s", "time": moment})
    _, future = collector.submit_events(json.dumps(events).encode(), "json", project, imported=imported)
    assert future is not None
    future.result(10)
    assert collector.refresh(20)


def kept(data_dir: Path, table: str) -> list[str]:
    return sorted(event_id[1:] for event_id in Lake(data_dir).read(table)["event_id"])


def retained(collector: Collector, **request: Any) -> RetentionReport:
    return collector.retain(request.pop("project", "p"), **request).result(60)


def test_nothing_goes_until_an_age_is_set(start: Callable[..., Collector], tmp_path: Path) -> None:
    collector = start()
    send(collector, 0, 4_000)
    assert retained(collector).rows == {}
    assert kept(tmp_path, "calls") == ["False0", "False4000"]


def test_events_go_by_their_own_time_and_imported_ones_stay(start: Callable[..., Collector], tmp_path: Path) -> None:
    collector = start(retention_days=30)
    send(collector, 0, 29.9, 30.1, 400)
    send(collector, 0.5, 500, imported=True)
    dry = retained(collector, dry_run=True)
    assert dry.rows == dict.fromkeys(RETAINED_TABLES, 0) | {"selections": 2, "calls": 2}
    assert len(kept(tmp_path, "calls")) == 6
    assert retained(collector).rows == dry.rows
    for table in ("selections", "calls"):
        assert kept(tmp_path, table) == ["False0", "False29.9", "True0.5", "True500"]
    assert set(retained(collector).rows.values()) == {0}


def test_each_table_may_have_its_own_age(start: Callable[..., Collector], tmp_path: Path) -> None:
    collector = start(retention_days=100, retention={"calls": 10})
    send(collector, 0, 50, 200)
    retained(collector)
    assert (kept(tmp_path, "calls"), kept(tmp_path, "selections")) == (["False0"], ["False0", "False50"])
    assert ages(Settings(retention={"feedback": 1})) == {"feedback": 1}


def test_only_the_project_that_is_meant(start: Callable[..., Collector], tmp_path: Path) -> None:
    collector = start()
    send(collector, 50)
    send(collector, 51, project="q")
    stores = replace(collector.stores, settings=Settings(data_dir=tmp_path, retention_days=1))
    request = RetentionRequest(at=time.time_ns(), project="p")
    report = collector.flusher.submit(Retention(request, stores)).result(60)
    assert (report.rows["calls"], kept(tmp_path, "calls")) == (1, ["False51"])


def test_a_running_service_does_it_of_itself(start: Callable[..., Collector], tmp_path: Path) -> None:
    send(start(), 0, 50)
    collector = start(retention_days=1)
    deadline = time.monotonic() + 20
    while kept(tmp_path, "calls") != ["False0"] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert kept(tmp_path, "calls") == ["False0"]
    upkeep = Upkeep(collector.stores)
    assert upkeep.is_due()
    list(upkeep.steps())
    assert not upkeep.is_due()
    assert EVERY_S - 60 < upkeep.due_in_s <= EVERY_S


def test_files_vanish_from_the_disk_when_no_reader_can_hold_them(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = start(retention_days=30)
    send(collector, 0, 50)
    folder = tmp_path / "lake" / "selections" / "project=p"
    old = folder / f"date={(NOW - timedelta(days=50)).date()}"
    assert len(list(old.iterdir())) == 1
    retained(collector)
    assert len(list(old.iterdir())) == 1  # a reader may be at it
    monkeypatch.setattr(lake_module, "VACUUM_HOURS", 0)
    collector.flusher.submit(Upkeep(collector.stores)).result(60)
    assert list(old.iterdir()) == []
    assert kept(tmp_path, "selections") == ["False0"]


def test_the_archive_dead_letters_and_damaged_files_follow_ages_of_their_own(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = mapping.map_span

    def failing(span: Any, settings: Settings) -> Any:
        if span.name.endswith("poison"):
            raise KeyError("a bug")
        return real(span, settings)

    monkeypatch.setattr(mapping, "map_span", failing)
    collector = start(archive_days=3, dead_letter_days=10)
    for spans in ([tool_span(1)], [tool_span(2, tool="poison")]):
        _, future = collector.submit_traces(body(*spans), "json", "p")
        assert future is not None
        future.result(10)
    assert collector.refresh(20)
    damaged = tmp_path / "wal" / f"{7:020d}.damaged"
    damaged.write_bytes(b"raw")
    (letter,) = (tmp_path / "rejected").iterdir()
    report = retained(collector)
    assert (report.archive_hours, report.dead_letters, report.damaged_segments) == (0, 0, 0)
    for path in (letter, damaged):
        os.utime(path, ((NOW - timedelta(days=11)).timestamp(),) * 2)
    (hour,) = (tmp_path / "archive").glob("*/*")
    old = tmp_path / "archive" / (NOW - timedelta(days=3, hours=2)).strftime("%Y-%m-%d/%H")
    old.parent.mkdir(parents=True, exist_ok=True)
    hour.rename(old)
    assert retained(collector, dry_run=True).dead_letters == 0
    report = retained(collector)
    assert (report.archive_hours, report.dead_letters, report.damaged_segments) == (1, 1, 1)
    assert not letter.exists()
    assert not damaged.exists()
    assert list((tmp_path / "archive").glob("*/*")) == []


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ('{"calls": 30, "feedback": 1.5}', {"calls": 30, "feedback": 1.5}),
        ("calls=30, feedback=1.5", {"calls": 30, "feedback": 1.5}),
        ("", {}),
    ],
)
def test_ages_by_table_from_a_variable(monkeypatch: pytest.MonkeyPatch, value: str, found: dict[str, float]) -> None:
    monkeypatch.setenv("PICKWISE_RETENTION", value)
    assert load_settings().retention == found


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("retention", "skills=3", "'skills': expected one of selections, calls"),
        ("retention", "calls=0", "calls: expected a number of days above 0"),
        ("retention", "calls", "expected a JSON object or TABLE=DAYS"),
        ("retention", "[1]", "expected a JSON object or TABLE=DAYS"),
        ("retention_days", "0", "greater than 0"),
        ("archive_days", "-1", "greater than or equal to 0"),
    ],
)
def test_a_wrong_age_is_named(monkeypatch: pytest.MonkeyPatch, setting: str, value: str, words: str) -> None:
    monkeypatch.setenv(f"PICKWISE_{setting.upper()}", value)
    with pytest.raises(SettingsError, match=setting) as refused:
        load_settings()
    assert words in str(refused.value)


def test_the_limit_is_the_moment_and_rows_without_a_request_count_as_received() -> None:
    rows = pl.DataFrame(
        {
            "date": [NOW.date()] * 4,
            "time": [NOW, NOW - timedelta(microseconds=1), NOW - timedelta(1), NOW - timedelta(1)],
            "source_request": [source_request(1, False), source_request(2, False), source_request(3, True), None],
        }
    )
    assert rows.select(too_old("calls", NOW)).to_series().to_list() == [False, True, False, True]
    portraits = rows.select("date", "time").select(too_old("portraits", NOW)).to_series()
    assert portraits.to_list() == [False, True, True, True]
