"""Questions while files of the data folder are damaged: 503 and why, and an answer as soon as there can be one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from analytics.settle import settle
from pickwise.settings import Settings

CALL: dict[str, Any] = {"type": "call", "skill_id": "a", "ok": True, "time": "2026-01-01T00:00:00Z"}
QUESTIONS = ("/v1/metrics/failed_tool_rate", "/v1/report", "/v1/skills/a", "/v1/alerts")


def send(client: TestClient, name: str) -> None:
    assert client.post("/v1/events", json=CALL | {"event_id": name}).status_code == 200
    assert client.post("/v1/refresh").status_code == 200


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


DAMAGED_LAKE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "rows": (lambda folder: next(folder.glob("lake/calls/*/*/*.parquet")), "the tables in .* can't be read"),
    "log": (lambda folder: max(folder.glob("lake/calls/_delta_log/*.json")), "the log of .*/lake/calls can't be read"),
    "control": (lambda folder: folder / "control.sqlite", "control.sqlite is damaged"),
}


@pytest.mark.parametrize("what", DAMAGED_LAKE)
def test_what_only_a_backup_can_mend_is_said(settings: Settings, client: TestClient, what: str) -> None:
    send(client, "one")
    find, says = DAMAGED_LAKE[what]
    damaged = find(settings.data_dir)
    if what == "control":
        damaged.write_bytes(b"no database" * 900)
    else:
        _cut(damaged)
    for question in QUESTIONS:
        answer = client.get(question)
        assert answer.status_code == 503
        assert answer.headers["retry-after"].isdigit()
        assert re.search(says, answer.json()["detail"])


def test_damaged_segments_are_made_again_while_questions_are_asked(settings: Settings, client: TestClient) -> None:
    send(client, "one")
    settle(settings.data_dir)
    assert client.get(QUESTIONS[0]).json()["rows"][0]["n"] == 1  # the segments are open from now on
    rollups = next((settings.data_dir / "settled").glob("calls-*.parquet"))
    content = rollups.read_bytes()
    rollups.write_bytes(content[:4] + bytes(len(content) - 12) + content[-8:])
    by_model = f"{QUESTIONS[0]}?by=model"  # of rows, not of rollups
    answers = [client.get(by_model) for _ in range(2)]
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert answers[1].status_code == 200
    assert answers[1].json()["rows"][0]["n"] == 1
