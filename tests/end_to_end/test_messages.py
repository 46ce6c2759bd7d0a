"""Dialogues in OpenAI's message format: every call and every failure is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.conftest import pickwise, pickwise_json

TAU_ERRORS = "^(Error|Unknown action)"
#: file → (error pattern, calls, failed, sessions); from the data's own README, counted by an independent script.
EXPECTED = {
    "tau_gpt-4o_airline": (TAU_ERRORS, 1164, 73, 200),
    "tau2_qwen2.5-7b_airline_1trial": (None, 344, 79, 50),
    "tau2_claude-sonnet-4-5_airline_1trial": (None, 371, 1, 50),
    "tau2_sierra_gpt-4.1_airline_1trial": (None, 148, 1, 20),
}


def imported(path: Path, data_dir: Path, pattern: str | None) -> None:
    flags = ["--error-pattern", pattern] if pattern else []
    pickwise("import", path, "--format", "openai-messages", "--data-dir", data_dir, *flags)


def counted(data_dir: Path) -> tuple[int, int, int]:
    (row,) = pickwise_json(
        "sql",
        "select count(*) calls, count(*) filter (not ok) failed, count(distinct session_id) sessions from calls",
        "--data-dir",
        data_dir,
    )
    sessions = pickwise_json("sql", "select count(distinct session_id) n from selections", "--data-dir", data_dir)
    return row["calls"], row["failed"], sessions[0]["n"]


@pytest.mark.parametrize("name", EXPECTED)
def test_calls_and_failures(shared: Path, tmp_path: Path, name: str) -> None:
    pattern, *expected = EXPECTED[name]
    imported(shared / f"data/messages/{name}.jsonl", tmp_path, pattern)
    assert list(counted(tmp_path)) == expected


def test_retail_against_an_independent_count(shared: Path, tmp_path: Path) -> None:
    path = shared / "data/messages/tau2_sierra_gpt-4.1_retail_1trial.jsonl"
    calls = failed = sessions = 0
    for line in path.read_text().splitlines():
        sessions += 1
        waiting: list[str] = []
        for message in json.loads(line)["messages"]:
            for call in message.get("tool_calls") or []:
                calls += 1
                waiting.append(call["id"])
            if message["role"] == "tool" and message["tool_call_id"] in waiting:
                waiting.remove(message["tool_call_id"])
                failed += bool(message.get("is_error"))
    imported(path, tmp_path, None)
    assert counted(tmp_path) == (calls, failed, sessions)
    assert calls > 100  # the count itself counted something


def test_book_reservation_fails_32_times(shared: Path, tmp_path: Path) -> None:
    imported(shared / "data/messages/tau2_qwen2.5-7b_airline_1trial.jsonl", tmp_path, None)
    rows = pickwise_json("metrics", "failed_tool_rate", "--by", "skill", "--data-dir", tmp_path)["rows"]
    failures = {row["skill"]: round(row["value"] * row["n"]) for row in rows}
    assert failures["book_reservation"] == 32


def test_error_patterns_are_a_setting(shared: Path, tmp_path: Path) -> None:
    path = shared / "data/messages/tau_gpt-4o_airline.jsonl"
    env = {"PICKWISE_ERROR_PATTERNS": json.dumps([TAU_ERRORS])}
    pickwise("import", path, "--format", "openai-messages", "--data-dir", tmp_path, env=env)
    assert counted(tmp_path)[:2] == (1164, 73)


def test_no_assistant_message_is_lost(shared: Path, tmp_path: Path) -> None:
    imported(shared / "data/messages/tau_gpt-4o_airline.jsonl", tmp_path, TAU_ERRORS)
    (row,) = pickwise_json("sql", "select count(*) n from selections where n_picks = 0", "--data-dir", tmp_path)
    assert row["n"] == 1290
