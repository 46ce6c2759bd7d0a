"""A forgotten session is nowhere: not in the tables, their history, the archive, or anything else on the disk."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake

from collector import mapping
from collector.forget import ForgetReport
from collector.lake import Lake
from collector.operations import ReplayRequest
from collector.service import Collector
from collector.spans import Span
from collector.upkeep import Upkeep
from pickwise.settings import Settings
from tests.collector.disk import holding
from tests.collector.spans_of import body, chat_span, tool_span

ROOT = Path(__file__).resolve().parents[2]
SESSION = "session-of-ada"
OTHER = "session-of-bob"
QUERY = "where did ada leave her keys"
KEPT = "what bob asked"
TRACE = f"{1:032x}"


def send(collector: Collector, *spans: Span, project: str = "p") -> None:
    _, future = collector.submit_traces(body(*spans), "json", project)
    assert future is not None
    future.result(10)


def send_events(collector: Collector, *events: dict[str, Any], project: str = "p") -> None:
    _, future = collector.submit_events(json.dumps(events).encode(), "json", project)
    assert future is not None
    future.result(10)


def forgotten(collector: Collector, session: str = SESSION, project: str = "p") -> ForgetReport:
    return collector.forget(project, session).result(60)


def conversation(collector: Collector) -> None:
    """A session with spans of its own and without, one of somebody else, and native events of every kind."""
    send(collector, chat_span(1, QUERY, SESSION), tool_span(2, arguments=json.dumps({"q": QUERY}), result="her keys"))
    send(collector, chat_span(3, KEPT, OTHER, trace=2), tool_span(4, trace=2))
    send(collector, chat_span(5, f"{QUERY} again", SESSION, trace=3), chat_span(6, KEPT, OTHER, trace=3))
    time = "2026-09-20T00:00:00Z"
    send_events(
        collector,
        {"type": "selection", "event_id": "sel", "session_id": SESSION, "query": QUERY, "time": time},
        {
            "type": "call",
            "event_id": "call",
            "selection_id": "sel",
            "call_id": "her call",
            "skill_id": "s",
            "time": time,
        },
        {"type": "feedback", "event_id": "f1", "kind": "label", "selection_id": "sel", "value": QUERY, "time": time},
        {"type": "feedback", "event_id": "f2", "kind": "label", "call_id": "her call", "value": QUERY, "time": time},
        {"type": "feedback", "event_id": "f3", "kind": "label", "trace_id": TRACE, "value": QUERY, "time": time},
        {"type": "feedback", "event_id": "f4", "kind": "label", "session_id": SESSION, "value": QUERY, "time": time},
        {"type": "route", "event_id": "r1", "instance": "i", "state": "probe", "session_id": SESSION, "time": time},
        {"type": "selection", "event_id": "kept", "session_id": OTHER, "query": KEPT, "time": time},
        {"type": "feedback", "event_id": "kept", "kind": "label", "selection_id": "kept", "value": KEPT, "time": time},
    )
    send_events(
        collector,
        {"type": "selection", "event_id": "elsewhere", "session_id": SESSION, "query": "another project", "time": time},
        project="q",
    )
    assert collector.refresh(20)


def sessions(data_dir: Path) -> dict[str, list[str | None]]:
    lake = Lake(data_dir)
    return {
        table: lake.read(table).filter(pl.col("project") == "p").sort("event_id")["session_id"].to_list()
        for table in ("selections", "calls", "feedback", "routes")
    }


def test_after_it_nothing_is_found_on_the_disk_and_the_others_are_whole(
    start: Callable[..., Collector], tmp_path: Path
) -> None:
    collector = start()
    conversation(collector)
    assert set(holding(tmp_path, SESSION, QUERY)) == {SESSION, QUERY}
    report = forgotten(collector)
    # Three model turns and one native; the call of the trace and two proposals of them; all feedback on it.
    assert report.rows == {"selections": 3, "calls": 4, "feedback": 4, "routes": 1}
    assert report.archived_items == 3
    forgotten(collector, project="q")
    assert holding(tmp_path, SESSION, QUERY, TRACE, "her call", "another project") == {}
    assert {name for found in sessions(tmp_path).values() for name in found} == {OTHER, None}
    assert {table: len(found) for table, found in sessions(tmp_path).items()} == {
        "selections": 3,
        "calls": 3,
        "feedback": 1,
        "routes": 0,
    }
    assert holding(tmp_path, KEPT)


def test_another_project_may_have_a_session_of_the_same_id(start: Callable[..., Collector], tmp_path: Path) -> None:
    collector = start()
    conversation(collector)
    forgotten(collector)
    assert set(holding(tmp_path, SESSION, QUERY, "another project")) == {SESSION, "another project"}


def test_doing_it_again_or_for_nobody_changes_nothing(start: Callable[..., Collector], tmp_path: Path) -> None:
    collector = start()
    conversation(collector)
    forgotten(collector)
    before = sessions(tmp_path)
    for session in (SESSION, "nobody's", "' or 1 = 1 --"):
        report = forgotten(collector, session)
        assert (set(report.rows.values()), report.archived_items) == ({0}, 0)
    assert sessions(tmp_path) == before


def test_what_is_sent_again_stays_out_and_what_is_new_comes_in(start: Callable[..., Collector], tmp_path: Path) -> None:
    collector = start()
    conversation(collector)
    forgotten(collector, project="q")
    forgotten(collector)
    before = sessions(tmp_path)

    def late(collector: Collector) -> None:
        send(collector, chat_span(1, QUERY, SESSION), tool_span(2, arguments=json.dumps({"q": QUERY})))
        send(collector, tool_span(77, result="of the same trace"))
        send_events(collector, {"type": "selection", "event_id": "x", "session_id": SESSION, "query": QUERY})
        assert collector.refresh(20)

    late(collector)
    late(start())  # also after a restart
    assert sessions(tmp_path) == before
    collector = start()
    collector.replay(ReplayRequest()).result(60)
    assert sessions(tmp_path) == before
    collector.stop()
    assert holding(tmp_path, SESSION, QUERY, TRACE) == {}
    collector = start()
    later = "2100-01-01T00:00:00Z"
    send_events(collector, {"type": "selection", "event_id": "new", "session_id": SESSION, "time": later})
    assert collector.refresh(20)
    assert SESSION in sessions(tmp_path)["selections"]


def test_history_that_tables_kept_is_purged_too(start: Callable[..., Collector], tmp_path: Path) -> None:
    collector = start()
    conversation(collector)
    # As an earlier version wrote it: statistics of all columns in the log, and files that a compaction left behind.
    rows = Lake(tmp_path).read("selections").filter(pl.col("session_id") == SESSION)
    again = rows.with_columns(pl.lit("another").alias("event_id"))
    path = str(tmp_path / "lake" / "selections")
    write_deltalake(path, again.to_arrow(), mode="append", configuration={})
    Lake(tmp_path).compact("selections")
    forgotten(collector)
    assert sessions(tmp_path)["selections"] == [OTHER, OTHER, OTHER]
    assert holding(tmp_path / "lake", QUERY) == {}


def test_dead_letters_and_damaged_log_files_go_whole(
    start: Callable[..., Collector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_span: Span, _settings: Settings) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(mapping, "map_span", failing)
    collector = start()
    send(collector, chat_span(1, QUERY, SESSION))
    send(collector, tool_span(2, arguments=json.dumps({"q": "of bob"}), trace=9))
    assert collector.refresh(20)
    damaged = tmp_path / "wal" / f"{1:020d}.damaged"
    damaged.write_bytes(b"\x00" + SESSION.encode() + b"\xff")
    (tmp_path / "wal" / f"{2:020d}.damaged").write_bytes(b"of bob")
    report = forgotten(collector)
    assert (report.dead_letters, report.damaged_segments) == (1, 1)
    assert holding(tmp_path, SESSION, QUERY) == {}
    assert len(list((tmp_path / "rejected").iterdir())) == 1
    assert len(list((tmp_path / "wal").glob("*.damaged"))) == 1


def test_what_was_acknowledged_before_it_was_asked_is_in_it(start: Callable[..., Collector], tmp_path: Path) -> None:
    collector = start(flush_interval_s=3_600)
    conversation(collector)
    send(collector, chat_span(8, QUERY, SESSION, trace=8))  # acknowledged, and nothing would commit it for an hour
    assert forgotten(collector).rows["selections"] == 4
    found = holding(tmp_path, SESSION, QUERY, TRACE)
    assert all("project=q" in path for paths in found.values() for path in paths)


def test_under_load_it_ends_and_loses_nobody_elses(start: Callable[..., Collector], tmp_path: Path) -> None:
    collector = start(flush_interval_s=0.05)
    conversation(collector)
    done = threading.Event()
    sent = 0

    def load() -> None:
        nonlocal sent
        while not done.is_set():
            sent += 1
            event = {"type": "call", "event_id": f"load{sent}", "skill_id": "s", "session_id": OTHER}
            send_events(collector, event)

    thread = threading.Thread(target=load)
    thread.start()
    forgotten(collector)
    done.set()
    thread.join()
    forgotten(collector, project="q")
    assert collector.refresh(20)
    assert holding(tmp_path, SESSION, QUERY) == {}
    calls = Lake(tmp_path).read("calls")["event_id"].to_list()
    assert {f"load{number + 1}" for number in range(sent)} <= set(calls)
    assert len(calls) == len(set(calls))


def test_verdicts_that_a_job_wrote_meanwhile_go_with_the_next_upkeep(
    start: Callable[..., Collector], tmp_path: Path
) -> None:
    collector = start()
    conversation(collector)
    verdict = Lake(tmp_path).select("feedback", pl.col("event_id") == "f4")
    forgotten(collector)
    Lake(tmp_path).append("feedback", verdict)  # by the nightly job, in a process of its own
    assert SESSION in sessions(tmp_path)["feedback"]
    collector.flusher.submit(Upkeep(collector.stores)).result(60)
    assert sessions(tmp_path)["feedback"] == [None]
    assert holding(tmp_path / "lake" / "feedback" / "project=p", SESSION) == {}


@pytest.mark.parametrize("dies", ["Archive.rewrite -1", "Archive.rewrite 1", "Lake.replace 2", "Lake.purge 3"])
def test_kill_9_in_the_middle_only_delays_it(start: Callable[..., Collector], tmp_path: Path, dies: str) -> None:
    collector = start()
    conversation(collector)
    forgotten(collector, project="q")
    collector.stop()
    command = [sys.executable, "-m", "tests.collector.dying", str(tmp_path), "forget", SESSION, *dies.split()]
    died = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr
    (pending,) = (tmp_path / "operations").glob("*.json")
    assert pending.stat().st_mode & 0o777 == 0o600
    collector = start()  # goes on by itself
    collector.replay(ReplayRequest(dry_run=True)).result(60)
    assert holding(tmp_path, SESSION, QUERY, TRACE) == {}
    assert {table: len(found) for table, found in sessions(tmp_path).items()} == {
        "selections": 3,
        "calls": 3,
        "feedback": 1,
        "routes": 0,
    }


def test_the_recordings_of_every_dialect_can_forget_their_sessions(
    start: Callable[..., Collector], tmp_path: Path, shared: Path
) -> None:
    collector = start()
    for file in sorted((shared / "otlp").rglob("*")):
        if file.suffix in (".bin", ".json"):
            submit: Any = collector.submit_logs if "-logs" in file.name else collector.submit_traces
            _, future = submit(file.read_bytes(), "json" if file.suffix == ".json" else "protobuf", "p")
            if future is not None:
                future.result(10)
    assert collector.refresh(60)
    lake = Lake(tmp_path)
    found = lake.read("selections")["session_id"].drop_nulls().unique().sort().to_list()
    assert len(found) > 15
    rows = lake.read("selections").height
    for session in found[::9]:
        assert forgotten(collector, session).rows["selections"] > 0
        assert f'"{session}"' not in str(holding(tmp_path, f'"{session}"'))
        assert holding(tmp_path, f'session_id":"{session}"') == {}
    assert 0 < lake.read("selections").height < rows
