"""Archived requests mapped anew: the rows that today's mapping gives, once each, whatever dies in between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from collector import mapping, replay, rows
from collector.facts import Facts
from collector.lake import Lake
from collector.operations import ReplayRequest
from collector.replay import ReplayReport, TableChange
from collector.service import Collector
from collector.spans import Span
from pickwise.settings import Settings
from tests.collector.spans_of import body, chat_span, tool_span

ROOT = Path(__file__).resolve().parents[2]
TABLES = ("selections", "calls", "feedback", "routes", "skills")
Mend = Callable[[Span, Facts], None]


def send(collector: Collector, *spans: Span, project: str = "p", imported: bool = False) -> None:
    _, future = collector.submit_traces(body(*spans), "json", project, imported=imported)
    assert future is not None
    future.result(10)
    assert collector.refresh(20)
    replayed(collector, dry_run=True, start=2**62)  # of nothing: done when the batch is archived


def replayed(collector: Collector, **request: Any) -> ReplayReport:
    return collector.replay(ReplayRequest(**request)).result(60)


def stored(data_dir: Path) -> dict[str, pl.DataFrame]:
    lake = Lake(data_dir)
    keys = ("project", "event_id", "skill_id", "time", "fact", "source_request")
    found = {table: lake.read(table) for table in TABLES}
    return {table: frame.sort([key for key in keys if key in frame.columns]) for table, frame in found.items()}


def same(one: dict[str, pl.DataFrame], other: dict[str, pl.DataFrame]) -> bool:
    return all(one[table].equals(other[table], null_equal=True) for table in TABLES)


def mend(monkeypatch: pytest.MonkeyPatch, change: Mend, version: str = "mended") -> None:
    """A better mapping, and its version."""
    real = mapping.map_span

    def mended(span: Span, settings: Settings) -> Facts | None:
        facts = real(span, settings)
        if facts is not None:
            change(span, facts)
        return facts

    monkeypatch.setattr(mapping, "map_span", mended)
    monkeypatch.setattr(rows, "MAPPING_VERSION", version)
    monkeypatch.setattr(replay, "MAPPING_VERSION", version)


def prefixed(_span: Span, facts: Facts) -> None:
    for call in facts.calls:
        call.skill_id = f"server/{call.skill_id}"


def skill_ids(data_dir: Path, project: str = "p") -> list[str]:
    calls = Lake(data_dir).read("calls").filter(pl.col("project") == project)
    return sorted(calls["skill_id"])


def test_the_same_mapping_changes_nothing_and_commits_nothing(start: Callable[..., Collector], tmp_path: Path) -> None:
    collector = start()
    for number in range(1, 6):
        send(collector, chat_span(number), tool_span(number + 50, arguments='{"q": 1}', result="ok"))
    before, versions = stored(tmp_path), Lake(tmp_path).versions()
    report = replayed(collector)
    assert (report.requests, report.items, report.tables) == (5, 10, {})
    assert same(stored(tmp_path), before)
    assert Lake(tmp_path).versions() == versions


def test_a_mended_mapping_replaces_all_rows_of_its_requests_and_twice_is_once(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = start()
    send(collector, chat_span(1), tool_span(2, arguments='{"q": "secret"}'), tool_span(3, tool="other"))
    before = stored(tmp_path)["calls"]
    mend(monkeypatch, prefixed)
    dry = replayed(collector, dry_run=True)
    assert dry.tables["calls"] == TableChange(removed=3, added=3)
    assert stored(tmp_path)["calls"].equals(before)
    assert replayed(collector).tables == dry.tables
    once = stored(tmp_path)
    assert skill_ids(tmp_path) == ["server/other", "server/search", "server/search"]
    assert once["calls"]["mapping_version"].unique().to_list() == ["mended"]
    for column in ("source_request", "received_at", "event_id", "args_digest", "arguments"):
        assert once["calls"][column].to_list() == before[column].to_list()
    versions = Lake(tmp_path).versions()
    assert replayed(collector).tables == {}
    assert same(stored(tmp_path), once)
    assert Lake(tmp_path).versions() == versions


def test_it_survives_a_restart_and_repeats_are_still_repeats(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(start(), tool_span(1))
    mend(monkeypatch, prefixed)
    collector = start()
    replayed(collector)
    once = stored(tmp_path)
    send(collector, tool_span(1))
    send(start(), tool_span(1))
    assert same(stored(tmp_path), once)


def test_native_events_are_never_touched(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = start()
    send(collector, tool_span(1))
    event = {"type": "call", "event_id": "native", "skill_id": "mine", "time": "2026-01-01T00:00:00Z"}
    _, future = collector.submit_events(json.dumps(event).encode(), "json", "p")
    assert future is not None
    future.result(10)
    send(collector, tool_span(2))
    mend(monkeypatch, prefixed)
    replayed(collector)
    assert skill_ids(tmp_path) == ["mine", "server/search", "server/search"]


def test_only_the_project_and_the_window_that_are_meant(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = start()
    send(collector, tool_span(1), tool_span(2, resource={"pickwise.project": "q"}), project="")
    send(collector, tool_span(3), project="q")
    received = Lake(tmp_path).read("calls").filter(pl.col("source_request").str.ends_with("2"))["received_at"][0]
    later = int(received.timestamp() * 1e6) * 1_000
    mend(monkeypatch, prefixed)
    assert replayed(collector, start=later, project="default").requests == 0
    assert (skill_ids(tmp_path, "default"), skill_ids(tmp_path, "q")) == (["search"], ["search", "search"])
    report = replayed(collector, project="q", end=later)
    assert (report.requests, report.items) == (1, 1)  # of the two in it
    assert (skill_ids(tmp_path, "default"), skill_ids(tmp_path, "q")) == (["search"], ["search", "server/search"])
    replayed(collector)
    assert (skill_ids(tmp_path, "default"), skill_ids(tmp_path, "q")) == (["server/search"], ["server/search"] * 2)


@pytest.mark.parametrize("window", ["first", "second", "both"])
@pytest.mark.parametrize("mended", [False, True])
def test_a_repeated_event_survives_whichever_of_its_requests_is_mapped_anew(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: str, mended: bool
) -> None:
    collector = start()
    send(collector, tool_span(1))
    send(collector, tool_span(1), tool_span(2))  # sent again, with another
    assert skill_ids(tmp_path) == ["search", "search"]
    archive = collector.stores.archive
    received = [request.received_at for file in archive.files() for request in archive.read(file)]
    limits = {"first": {"end": received[1]}, "second": {"start": received[1]}, "both": {}}
    if mended:
        mend(monkeypatch, prefixed)
    for _ in range(2):
        replayed(collector, **limits[window])
        events = Lake(tmp_path).read("calls").unique("event_id")
        assert events.height == 2
    replayed(collector)
    replayed(collector)
    final = Lake(tmp_path).read("calls")
    assert final.height == 2
    assert sorted(final["skill_id"]) == (["server/search"] * 2 if mended else ["search"] * 2)


def test_a_repeat_survives_the_loss_of_its_first_request_in_the_archive(
    start: Callable[..., Collector], tmp_path: Path
) -> None:
    collector = start()
    send(collector, tool_span(1))
    send(collector, tool_span(1))
    archive = collector.stores.archive
    archive.rewrite(archive.files()[0], lambda _: None)
    replayed(collector)
    assert skill_ids(tmp_path) == ["search"]


def test_the_settings_of_today_are_used(start: Callable[..., Collector], tmp_path: Path) -> None:
    def outcome() -> list[Any]:
        return Lake(tmp_path).read("calls").select("ok", "error_kind").rows()

    asked = chat_span(1)
    asked.attributes["gen_ai.input.messages"] = json.dumps(
        [
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "search", "arguments": {}}]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "Sorry: quota"}]},
        ]
    )
    del asked.attributes["gen_ai.output.messages"]
    send(start(error_patterns=[{"pattern": "^Sorry", "error_kind": "rate_limited"}]), asked)
    assert outcome() == [(False, "rate_limited")]
    replayed(start())  # the pattern is gone, the result as well: what it said then still holds
    assert outcome() == [(False, "rate_limited")]


def test_a_reader_sees_no_row_doubled_or_missing(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = start()
    for number in range(1, 20):
        send(collector, tool_span(number))
    monkeypatch.setattr(replay, "_CHUNK_ITEMS", 3)
    heights: set[tuple[int, int]] = set()
    done = threading.Event()

    def read() -> None:
        lake = Lake(tmp_path)
        while not done.is_set():
            events = lake.read("calls")["event_id"]
            heights.add((len(events), events.n_unique()))

    reader = threading.Thread(target=read)
    reader.start()
    mend(monkeypatch, prefixed)
    replayed(collector)
    done.set()
    reader.join()
    assert heights == {(19, 19)}
    assert set(skill_ids(tmp_path)) == {"server/search"}


def test_batches_are_committed_while_it_runs(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = start(flush_interval_s=0.01)
    for number in range(1, 10):
        send(collector, tool_span(number))
    monkeypatch.setattr(replay, "_CHUNK_ITEMS", 1)
    mend(monkeypatch, prefixed)
    running = collector.replay(ReplayRequest())
    for number in range(100, 110):
        send(collector, tool_span(number))
    running.result(60)
    assert skill_ids(tmp_path) == ["server/search"] * 19


def test_the_observed_registry_follows(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = start()
    send(collector, chat_span(1))
    send(collector, chat_span(2))
    skills = Lake(tmp_path).read("skills")
    assert skills["skill_id"].to_list() == ["search"]

    def renamed(_span: Span, facts: Facts) -> None:
        for offer in facts.offered:
            offer.skills = tuple([msgspec.structs.replace(skill, skill_id="web/search") for skill in offer.skills])
        for selection in facts.selections:
            selection.candidates = [
                msgspec.structs.replace(candidate, skill_id="web/search") for candidate in selection.candidates
            ]

    mend(monkeypatch, renamed)
    archive = collector.stores.archive
    second = archive.read(archive.files()[1])[0].received_at
    replayed(collector, end=second)  # the other request still lists the old name
    assert sorted(set(Lake(tmp_path).read("skills")["skill_id"])) == ["search", "web/search"]
    replayed(collector)
    assert sorted(set(Lake(tmp_path).read("skills")["skill_id"])) == ["web/search"]
    once = stored(tmp_path)
    replayed(collector)
    assert same(stored(tmp_path), once)
    send(collector, chat_span(3))
    assert stored(tmp_path)["skills"].equals(once["skills"])


def test_dead_letters_are_tried_again(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = mapping.map_span

    def failing(span: Span, settings: Settings) -> Facts | None:
        if span.attributes.get("gen_ai.tool.name") == "poison":
            raise KeyError("a bug")
        return real(span, settings)

    monkeypatch.setattr(mapping, "map_span", failing)
    collector = start()
    send(collector, tool_span(1), tool_span(2, tool="poison"))
    letters = tmp_path / "rejected"
    assert len(list(letters.iterdir())) == 1
    assert replayed(collector).still_dead == 1
    assert skill_ids(tmp_path) == ["search"]
    monkeypatch.setattr(mapping, "map_span", real)
    assert (replayed(collector, project="other").mended, len(list(letters.iterdir()))) == (0, 1)
    assert (replayed(collector, dry_run=True).mended, len(list(letters.iterdir()))) == (1, 1)
    assert replayed(collector).mended == 1
    assert list(letters.iterdir()) == []
    once = stored(tmp_path)
    assert skill_ids(tmp_path) == ["poison", "search"]
    assert once["calls"]["source_request"].unique().to_list() == [f"{1:020d}"]
    report = replayed(collector)  # it is archived with the others now
    assert (report.items, report.tables) == (2, {})
    assert same(stored(tmp_path), once)


def test_a_request_that_fails_again_keeps_its_rows(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = start()
    send(collector, tool_span(1))
    send(collector, tool_span(2, tool="poison"))

    def failing(span: Span, _facts: Facts) -> None:
        if "poison" in span.name:
            raise KeyError("a bug")

    mend(monkeypatch, failing)
    report = replayed(collector)
    assert skill_ids(tmp_path) == ["poison", "search"]
    assert len(report.problems) == 1
    assert "KeyError" in report.problems[0]


def test_a_damaged_file_of_the_archive_is_named_and_its_rows_stay(
    start: Callable[..., Collector], tmp_path: Path
) -> None:
    collector = start()
    send(collector, tool_span(1))
    (file,) = collector.stores.archive.files()
    file.path.write_bytes(b"damaged")
    report = replayed(collector)
    assert str(file.path) in report.problems[0]
    assert skill_ids(tmp_path) == ["search"]


def test_imported_requests_stay_imported(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = start()
    send(collector, tool_span(1), imported=True)
    mend(monkeypatch, prefixed)
    replayed(collector)
    found = Lake(tmp_path).read("calls")
    assert found.select("skill_id", "source_request").rows() == [("server/search", f"import/{1:020d}")]


def test_an_archive_that_is_off_keeps_nothing(start: Callable[..., Collector], tmp_path: Path) -> None:
    collector = start(archive_days=0)
    send(collector, tool_span(1))
    assert not (tmp_path / "archive").exists()
    assert replayed(collector).requests == 0


def test_what_was_archived_is_durable_before_the_log_goes(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = start()
    failures = iter([OSError(28, "No space left on device")] * 2)
    archive = collector.stores.archive
    real = archive.write

    def failing(requests: Any) -> None:
        for error in failures:
            assert list((tmp_path / "wal").glob("*.wal"))
            raise error
        real(requests)

    monkeypatch.setattr(archive, "write", failing)
    send(collector, tool_span(1))
    assert [request.seq for file in archive.files() for request in archive.read(file)] == [1]


def test_numbers_go_on_after_what_brought_no_row(start: Callable[..., Collector]) -> None:
    unknown = tool_span(1)
    unknown.attributes["gen_ai.operation.name"] = "plan"
    del unknown.attributes["gen_ai.tool.name"]
    send(start(), unknown)
    collector = start()
    send(collector, tool_span(2))
    archive = collector.stores.archive
    assert [request.seq for file in archive.files() for request in archive.read(file)] == [1, 2]


@pytest.mark.parametrize("number", [-1, 1, 2])
def test_kill_9_in_the_middle_ends_in_the_same_state(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    collector = start()
    for index in range(1, 4):
        send(collector, chat_span(index), tool_span(index + 50))
    collector.stop()
    command = [sys.executable, "-m", "tests.collector.dying", str(tmp_path), "replay", "Lake.replace", str(number)]
    died = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert len(list((tmp_path / "operations").glob("*.json"))) == 1
    mend(monkeypatch, lambda *_: None)
    collector = start()  # goes on by itself
    collector.replay(ReplayRequest(dry_run=True)).result(60)
    assert list((tmp_path / "operations").iterdir()) == []
    found = stored(tmp_path)
    versions = {version for table in ("selections", "calls") for version in found[table]["mapping_version"]}
    assert versions == {"mended"}
    assert (found["selections"].height, found["calls"].height, found["skills"].height) == (3, 6, 1)
    assert replayed(collector).tables == {}


def test_a_moment_of_receipt_is_told_to_the_microsecond() -> None:
    assert replay._moment(1_500_000) == datetime(1970, 1, 1, 0, 0, 0, 1_500, tzinfo=UTC)
    assert replay._moment(None) is None
