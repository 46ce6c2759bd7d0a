"""`redact_before_log`: the log holds no raw word, and the tables end as they do without."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from collector import control, mapping
from collector.flusher import Flusher
from collector.forgotten import Forgotten
from collector.lake import Lake
from collector.operations import ReplayRequest
from collector.replay import ReplayReport
from collector.service import Collector
from collector.tables import FACT_TABLES
from pickwise.settings import Settings
from tests.collector.disk import holding
from tests.collector.spans_of import body, tool_span
from tests.collector.test_secrets import ARGUMENT, PATTERNED, planted
from tests.end_to_end.recordings import names, project_of, requests_of, take

#: What differs from one receipt to the next.
_OF_RECEIPT = ("received_at",)


@contextmanager
def uncommitted(**changes: Any) -> Iterator[Collector]:
    """A collector that logs and does not commit."""
    with mock.patch.object(Flusher, "start"):
        collector = Collector(Settings(**changes))
        collector.start()
        yield collector
        with mock.patch.object(Flusher, "_pending", return_value=False):
            collector.stop()


def stored(data_dir: Path, table: str) -> pl.DataFrame:
    frame = Lake(data_dir).read(table).drop(*_OF_RECEIPT, strict=False)
    order = [name for name in ("project", "event_id", "skill_id", "fact", "time", "seq") if name in frame.columns]
    return frame.sort(order)


def replayed(data_dir: Path) -> ReplayReport:
    collector = Collector(Settings(data_dir=data_dir))
    collector.start()
    try:
        return collector.replay(ReplayRequest()).result(120)
    finally:
        collector.stop()


def test_the_tables_end_the_same_and_a_replay_changes_nothing(shared: Path, tmp_path: Path) -> None:
    traffic = [(project_of(name), request) for name in names(shared) for request in requests_of(shared, name)]
    take(tmp_path / "late", traffic)
    early = tmp_path / "early"
    early.mkdir()
    shutil.copy(tmp_path / "late" / control.FILE, early)  # its key: digests are of one installation
    collector = Collector(Settings(data_dir=early, redact_before_log=True))
    collector.start()
    for project, request in traffic:
        submit = collector.submit_logs if request.signal == "logs" else collector.submit_traces
        _, future = submit(request.body, request.encoding, project)
        if future is not None:
            future.result(60)
    assert collector.refresh(120)
    for table in FACT_TABLES:
        ours, theirs = stored(early, table), stored(tmp_path / "late", table)
        assert_frame_equal(ours, theirs)
    collector.stop()
    for folder in (early, tmp_path / "late"):
        report = replayed(folder)
        assert report.requests > 50
        assert report.tables == {}


def test_nothing_raw_is_in_the_log(shared: Path, tmp_path: Path) -> None:
    sent = 0
    with uncommitted(data_dir=tmp_path, redact_before_log=True) as collector:
        for file in sorted((shared / "otlp").rglob("*")):
            if file.suffix in (".bin", ".json"):
                request, kind = planted(file.read_bytes(), file.name)
                sent += request.count(ARGUMENT.encode())
                submit: Callable[..., Any] = collector.submit_logs if kind == "logs" else collector.submit_traces
                submit(request, "json", "p")[1].result(20)
        event = {"type": "call", "event_id": "c", "skill_id": "s", "arguments": {"city": ARGUMENT}}
        collector.submit_events(json.dumps([event]).encode(), "json", "p")[1].result(20)  # type: ignore[union-attr]
    assert sent > 100
    assert holding(tmp_path, *PATTERNED, ARGUMENT) == {}
    assert (sum(path.stat().st_size for path in (tmp_path / "wal").iterdir())) > 100_000
    collector = Collector(Settings(data_dir=tmp_path))  # the next life need not redact early
    collector.start()
    collector.stop()
    assert Lake(tmp_path).read("calls").height > 300
    assert holding(tmp_path, *PATTERNED, ARGUMENT) == {}


def test_what_cannot_be_mapped_is_refused_and_its_neighbours_count(tmp_path: Path) -> None:
    def failing(item: Any, settings: Settings) -> Any:
        if item.attributes.get("gen_ai.tool.name") == "bad":
            raise RuntimeError(f"cannot read {ARGUMENT}")
        return whole(item, settings)

    whole = mapping.map_span
    collector = Collector(Settings(data_dir=tmp_path, redact_before_log=True))
    collector.start()
    with mock.patch.object(mapping, "map_span", failing):
        parsed, future = collector.submit_traces(
            body(tool_span(1, "good"), tool_span(2, "bad", arguments=ARGUMENT), tool_span(3, "good")), "json", "p"
        )
    assert future is not None
    future.result(20)
    assert (parsed.rejected, parsed.message) == (1, "1 could not be mapped (Unmapped)")
    assert collector.refresh(20)
    collector.stop()
    assert Lake(tmp_path).read("calls")["skill_id"].to_list() == ["good", "good"]
    assert holding(tmp_path, ARGUMENT) == {}


def test_a_session_that_is_forgotten_meanwhile_stays_out(tmp_path: Path) -> None:
    with uncommitted(data_dir=tmp_path, redact_before_log=True) as collector:
        for number, session in enumerate(("ada", "bob")):
            request = body(tool_span(number + 1, "search", trace=number + 1, session=session))
            collector.submit_traces(request, "json", "p")[1].result(20)  # type: ignore[union-attr]
    hides = Forgotten.hides

    def hides_ada(self: Forgotten, row: Any, redactor: Any) -> bool:
        return hides(self, row, redactor) or row["session_id"] == "ada"

    with mock.patch.object(Forgotten, "__bool__", return_value=True), mock.patch.object(Forgotten, "hides", hides_ada):
        collector = Collector(Settings(data_dir=tmp_path))
        collector.start()
        collector.stop()
    assert Lake(tmp_path).read("calls")["session_id"].to_list() == ["bob"]
    assert set(holding(tmp_path / "archive", "ada", "bob")) == {"bob"}


def test_rows_of_an_older_version_get_the_columns_that_came_since(tmp_path: Path) -> None:
    with uncommitted(data_dir=tmp_path, redact_before_log=True) as collector:
        full = FACT_TABLES["calls"]
        older = {name: kind for name, kind in full.items() if name != "release"}
        with mock.patch("collector.mapped_records._packed", lambda frame: _ipc(frame.select(list(older)))):
            collector.submit_traces(body(tool_span(1)), "json", "p")[1].result(20)  # type: ignore[union-attr]
    collector = Collector(Settings(data_dir=tmp_path))
    collector.start()
    collector.stop()
    assert Lake(tmp_path).read("calls").select("skill_id", "release").rows() == [("search", None)]


def _ipc(frame: pl.DataFrame) -> bytes:
    file = BytesIO()
    frame.write_ipc(file)
    return file.getvalue()


def test_a_record_that_cannot_be_read_takes_no_other_with_it(tmp_path: Path) -> None:
    with uncommitted(data_dir=tmp_path, redact_before_log=True) as collector:
        with mock.patch("collector.mapped_records._packed", return_value=b"no arrow"):
            collector.submit_traces(body(tool_span(1, "lost")), "json", "p")[1].result(20)  # type: ignore[union-attr]
        collector.submit_traces(body(tool_span(2, "kept")), "json", "p")[1].result(20)  # type: ignore[union-attr]
    collector = Collector(Settings(data_dir=tmp_path))
    collector.start()
    collector.stop()
    assert Lake(tmp_path).read("calls")["skill_id"].to_list() == ["kept"]
    assert len(list((tmp_path / "rejected").iterdir())) == 1


@pytest.mark.parametrize("archive_days", [0, 3])
def test_the_archive_follows_its_setting(tmp_path: Path, archive_days: float) -> None:
    collector = Collector(Settings(data_dir=tmp_path, redact_before_log=True, archive_days=archive_days))
    collector.start()
    collector.submit_traces(body(tool_span(1)), "json", "p")[1].result(20)  # type: ignore[union-attr]
    assert collector.refresh(20)
    collector.stop()
    assert any((tmp_path / "archive").rglob("*.zst")) is bool(archive_days)
