"""The doctor finds what is wrong, names the mend, and says where each setting comes from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from gateway.doctor import examine
from pickwise.settings import Settings


def checks(report: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in report["checks"]}


def test_a_folder_that_is_not_there_yet_is_no_fault(tmp_path: Path) -> None:
    found = checks(examine(tmp_path / "none"))
    assert found["data folder"]["state"] == "note"
    assert "pickwise serve" in found["data folder"]["mend"]
    assert not [check for check in found.values() if check["state"] == "bad"]


def test_settings_say_where_they_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pickwise.toml").write_text("http_port = 5000\ngrpc_port = 5001\n")
    monkeypatch.setenv("PICKWISE_GRPC_PORT", "6001")
    monkeypatch.setenv("PICKWISE_WEBHOOK_SECRET", "hush")
    rows = {row["name"]: row for row in examine(tmp_path)["settings"]}
    assert (rows["http_port"]["value"], rows["http_port"]["source"]) == (5000, "pickwise.toml")
    assert (rows["grpc_port"]["value"], rows["grpc_port"]["source"]) == (6001, "PICKWISE_GRPC_PORT")
    assert rows["data_dir"]["source"] == "flag"
    assert rows["host"]["source"] == "default"
    assert rows["webhook_secret"]["value"] == "***"


def test_a_wrong_setting_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKWISE_HTTP_PORT", "many")
    found = checks(examine(tmp_path))
    assert found["settings"]["state"] == "bad"
    assert "http_port" in found["settings"]["finding"]


@pytest.mark.parametrize("name", ["no/such-model", "nope", "/no/such/folder", "no such: model"])
def test_an_unknown_embedder_is_bad_and_has_a_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("PICKWISE_EMBEDDER", name)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    found = checks(examine(tmp_path))
    assert found["embedder"]["state"] == "bad"
    assert f"embedder `{name}`" in found["embedder"]["finding"]
    assert "huggingface.co" not in found["embedder"]["finding"]
    assert "PICKWISE_EMBEDDER=use" in found["embedder"]["mend"]


RULES = {"missing": None, "no YAML": "rules: [", "of another shape": "- a"}


@pytest.mark.parametrize("case", RULES)
def test_alert_rules_that_cannot_be_used_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    file, text = tmp_path / "rules.yaml", RULES[case]
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("PICKWISE_ALERT_RULES", str(file))
    check = checks(examine(tmp_path))["alert rules"]
    assert check["state"] == "bad"
    assert "alert_rules" in check["finding"]
    assert str(file) in check["finding"]
    for command in (["jobs"], ["serve", "--http-port", "0", "--grpc-port", "0", "--dashboard-port", "0"]):
        arguments = [sys.executable, "-m", "pickwise.cli", *command, "--data-dir", str(tmp_path / "data")]
        ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 1
        assert ended.stderr.startswith(f"error: settings: alert_rules: {file}")
        assert len(ended.stderr.splitlines()) == 1


def test_a_missing_table_file_is_found(client: TestClient, settings: Settings) -> None:
    client.post("/v1/events", json=[{"type": "call", "skill_id": "s", "ok": True}])
    client.post("/v1/refresh")
    assert checks(examine(settings.data_dir))["service"]["state"] == "ok"
    (file,) = settings.data_dir.glob("lake/calls/*/*/*.parquet")
    file.unlink()
    assert checks(examine(settings.data_dir))["table calls"]["state"] == "bad"


def test_a_file_is_no_data_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert checks(examine(tmp_path / "file"))["data folder"]["state"] == "bad"


def test_a_variable_that_is_no_setting_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKWISE_HTTPPORT", "1")
    assert "PICKWISE_HTTP_PORT" in checks(examine(tmp_path))["settings"]["finding"]
