"""A command beside a running service says which of its settings have no effect there."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from collector.lock import holder
from gateway.in_force import KEEPING, MAPPING, in_force, without_effect
from pickwise.cli import app
from pickwise.settings import Settings, load_settings

runner = CliRunner()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a collector that was started with a retention of 90 days."""
    data_dir = tmp_path_factory.mktemp("held")
    (data_dir.parent / "pickwise.toml").write_text("retention_days = 90\nallow_arguments = ['city']\n")
    command = [sys.executable, "-m", "pickwise.cli", "collect", "--no-grpc", "--http-port", "0"]
    with subprocess.Popen(
        [*command, "--data-dir", str(data_dir)], stdout=subprocess.DEVNULL, cwd=data_dir.parent
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while (held := holder(data_dir)) is None or held.http_port is None:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield data_dir
        finally:
            process.terminate()


def test_a_service_tells_its_settings_and_no_secret(client: TestClient, settings: Settings) -> None:
    told = client.get("/v1/settings").json()
    assert told == in_force(settings)
    assert told.keys() == {*KEEPING, *MAPPING}
    assert told["archive_days"] == 3.0


def test_only_settings_that_differ_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # the service is on this machine
    same = load_settings(data_dir=folder, retention_days=90, allow_arguments=["city"])
    assert not list(without_effect(same, [*KEEPING, *MAPPING], "default"))
    other = load_settings(data_dir=folder, retention_days=30, allow_arguments=["city"], known_tools=False)
    (said,) = without_effect(other, KEEPING, "default")
    assert said.startswith("retention_days is 90.0 in the running service (process ")
    assert "30.0 here has no effect" in said
    (said,) = without_effect(other, MAPPING, "default")
    assert said.startswith("known_tools is true in the running service")


def test_without_a_service_every_setting_has_its_effect(tmp_path: Path) -> None:
    assert not list(without_effect(load_settings(data_dir=tmp_path, retention_days=30), KEEPING, "default"))


@pytest.mark.parametrize(
    ("command", "variable", "value", "says"),
    [
        (["retention", "--dry-run"], "RETENTION_DAYS", "30", "retention_days is 90.0"),
        (["replay", "--dry-run"], "STORE_QUERIES", "hash", 'store_queries is "redacted"'),
        (["import", "events.jsonl", "--format", "events"], "STORE_QUERIES", "hash", 'store_queries is "redacted"'),
        (["import", "events.jsonl", "--format", "events"], "ERROR_PATTERNS", "^No", "error_patterns is []"),
    ],
)
def test_commands_say_so(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    variable: str,
    value: str,
    says: str,
) -> None:
    (tmp_path / "events.jsonl").write_text(json.dumps({"type": "call", "skill_id": "s", "ok": True}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PICKWISE_ALLOW_ARGUMENTS", "city")
    arguments = [*command, "--data-dir", str(folder)]
    monkeypatch.setenv("PICKWISE_RETENTION_DAYS", "90")
    silent = runner.invoke(app, arguments)
    assert silent.exit_code == 0, silent.output
    assert "note:" not in silent.stderr
    monkeypatch.setenv(f"PICKWISE_{variable}", value)
    done = runner.invoke(app, arguments)
    assert done.exit_code == 0
    assert f"note: {says} in the running service" in done.stderr


def test_patterns_of_conversations_are_the_commands_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = tmp_path / "c.jsonl"
    conversation.write_text(json.dumps({"messages": [{"role": "user", "content": "hello"}]}))
    monkeypatch.setenv("PICKWISE_ALLOW_ARGUMENTS", "city")
    done = runner.invoke(
        app,
        [
            "import",
            str(conversation),
            "--format",
            "openai-messages",
            "--error-pattern",
            "^No",
            "--data-dir",
            str(folder),
        ],
    )
    assert "error_patterns" not in done.stderr
