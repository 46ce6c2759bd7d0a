"""Replay, forget and retention as commands, beside a running service and by themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.collector.disk import holding
from tests.collector.spans_of import body, chat_span, tool_span
from tests.end_to_end.conftest import Service, pickwise, pickwise_json

SESSION, OTHER = "session-of-ada", "session-of-bob"
QUERY = "where did ada leave her keys"
JSON = {"content-type": "application/json"}


def converse(service: Service) -> None:
    for turn in range(1, 30, 2):
        session, query = (SESSION, QUERY) if turn % 3 == 0 else (OTHER, "what bob asked")
        spans = [chat_span(turn, query, session, trace=turn), tool_span(turn + 1, trace=turn)]
        answer = service.client.post("/v1/traces", content=body(*spans), headers=JSON)
        assert answer.status_code == 200
    service.refresh()


def rows(data_dir: Path, table: str, excluded: str) -> Any:
    query = f"select * exclude ({excluded}) from {table} order by all"
    return pickwise_json("sql", query, "--data-dir", data_dir)


def tables(data_dir: Path) -> list[Any]:
    return [rows(data_dir, "selections", "mapping_version"), rows(data_dir, "calls", "received_at")]


def test_a_session_is_forgotten_everywhere_beside_a_running_service(serve: Callable[..., Service]) -> None:
    service = serve("--no-dashboard", "--no-jobs")
    converse(service)
    for command in ("nightly", "train"):  # what jobs make of the session must hold nothing of it either
        pickwise(command, "--data-dir", service.data_dir)
    assert set(holding(service.data_dir, SESSION, QUERY)) == {SESSION, QUERY}
    before = pickwise_json("sql", "select count(*) n from selections", "--data-dir", service.data_dir)[0]["n"]
    report = pickwise_json("forget", "--session", SESSION, "--data-dir", service.data_dir)
    assert report["rows"]["selections"] == 5
    assert holding(service.data_dir, SESSION, QUERY) == {}
    after = pickwise_json("sql", "select count(*) n from selections", "--data-dir", service.data_dir)[0]["n"]
    assert after == before - 5
    converse(service)  # an exporter that tries it all again
    assert holding(service.data_dir, SESSION, QUERY) == {}
    service.stop()
    assert holding(service.data_dir, SESSION, QUERY) == {}
    assert pickwise_json("sql", "select count(*) n from selections", "--data-dir", service.data_dir)[0]["n"] == after


def test_replay_changes_nothing_twice_beside_a_service_and_by_itself(serve: Callable[..., Service]) -> None:
    service = serve("--no-dashboard", "--no-jobs")
    converse(service)
    before = tables(service.data_dir)
    report = pickwise_json("replay", "--data-dir", service.data_dir)
    assert (report["requests"], report["items"], report["tables"]) == (15, 30, {})
    assert tables(service.data_dir) == before
    service.stop()
    assert pickwise_json("replay", "--data-dir", service.data_dir, "--dry-run")["requests"] == 15
    assert pickwise_json("replay", "--data-dir", service.data_dir)["tables"] == {}
    assert tables(service.data_dir) == before
    assert "every row is as" in pickwise("replay", "--data-dir", service.data_dir).lower()


def test_imported_history_outlives_retention(service: Service, tmp_path: Path) -> None:
    old = {"type": "call", "skill_id": "s", "ok": True, "time": "2020-01-01T00:00:00Z"}
    answer = service.client.post("/v1/events", json=old | {"event_id": "sent"})
    assert answer.json()["accepted"] == 1
    file = tmp_path / "history.ndjson"
    file.write_text(json.dumps(old | {"event_id": "imported"}) + "\n")
    pickwise("import", file, "--format", "events", "--data-dir", service.data_dir)
    service.stop()
    pickwise("import", file, "--format", "events", "--data-dir", service.data_dir)
    env = {"PICKWISE_RETENTION_DAYS": "30"}
    dry = pickwise_json("retention", "--dry-run", "--data-dir", service.data_dir, env=env)
    assert dry["rows"]["calls"] == 1 or dry["rows"]["calls"] == 0  # starting the command may have done it already
    pickwise("retention", "--data-dir", service.data_dir, env=env)
    kept = pickwise_json("sql", "select event_id from calls", "--data-dir", service.data_dir)
    assert kept == [{"event_id": "imported"}]


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    assert pickwise("replay", "--from", "yesterday", "--data-dir", tmp_path, check=False) == ""
    assert pickwise("forget", "--session", "", "--data-dir", tmp_path, check=False) == ""
    assert pickwise("retention", "--data-dir", tmp_path / "absent", check=False) == ""
    assert not (tmp_path / "absent").exists()
