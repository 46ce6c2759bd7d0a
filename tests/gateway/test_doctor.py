"""The doctor finds what is wrong, names the mend, and says where each setting comes from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from analytics.settle import settle
from collector.lock import FolderLock
from collector.operations import PendingRequests
from gateway.doctor import examine
from pickwise.settings import Settings
from ranker.weights_document import ServedModel, content_version, empty
from ranker.weights_store import WeightsStore


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


def test_damaged_table_files_are_named(client: TestClient, settings: Settings) -> None:
    for skill in ("s", "t"):
        client.post("/v1/events", json=[{"type": "call", "skill_id": skill, "ok": True}])
        client.post("/v1/refresh")
    assert not [check for check in checks(examine(settings.data_dir)).values() if check["state"] == "bad"]
    assert settle(settings.data_dir) == 1
    settled = settings.data_dir / "settled" / "calls-1.parquet"
    settled.write_bytes(settled.read_bytes()[:-4])
    file, *_ = settings.data_dir.glob("lake/calls/*/*/*.parquet")
    file.write_bytes(file.read_bytes()[:-4])
    found = checks(examine(settings.data_dir))
    assert f"1 files are damaged, e.g. {file.resolve()}" in found["table calls"]["finding"]
    assert found["settled"]["finding"] == f"1 files are damaged, e.g. {settled.resolve()}"
    log = settings.data_dir / "lake" / "calls" / "_delta_log"
    entry = max(log.glob("*.json"))
    whole = entry.read_bytes()
    entry.write_bytes(b"")
    assert checks(examine(settings.data_dir))["table calls"]["finding"].endswith(
        f"{entry.name} is damaged: it is empty"
    )
    entry.write_bytes(whole)
    entry = max((settings.data_dir / "lake" / "calls" / "_delta_log").glob("*.json"))
    entry.write_bytes(entry.read_bytes()[:30])
    assert f"{entry.resolve()} is damaged" in checks(examine(settings.data_dir))["table calls"]["finding"]


def test_a_request_that_was_damaged_before_it_was_done_is_named(tmp_path: Path) -> None:
    asked = tmp_path / "operations" / "1.json"
    asked.parent.mkdir()
    asked.write_bytes(b"{x")
    assert PendingRequests(asked.parent).left() == []
    check = checks(examine(tmp_path))["damaged operations"]
    assert check["state"] == "bad"
    assert str(asked.with_suffix(".damaged")) in check["finding"]


def test_a_damaged_control_state_is_named_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "control.sqlite").write_bytes(b"no database" * 500)
    found = checks(examine(tmp_path))
    assert found["control state"]["state"] == "bad"
    assert f"{tmp_path / 'control.sqlite'} is damaged" in found["control state"]["finding"]
    assert found["control state"]["mend"].startswith("restore it from a backup")
    assert found["tables"]["state"] == "ok"
    for command in ("report", "train", "nightly"):
        arguments = [sys.executable, "-m", "pickwise.cli", command, "--data-dir", str(tmp_path)]
        ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 1
        assert "Traceback" not in ended.stderr
        assert "error: " in ended.stderr


def test_damaged_weights_and_models_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKWISE_EMBEDDER", "words")
    store, document = WeightsStore(tmp_path), empty("default")
    document.model = ServedModel(version="none", features=[], sha256="")
    document.version = content_version(document)
    store.write("default", document)
    store.point("default", document, [], "promote", 1.0)
    found = checks(examine(tmp_path))
    assert "model none of project default can't be read" in found["model"]["finding"]
    assert "pickwise train" in found["model"]["mend"]
    file = tmp_path / "weights" / "default" / f"{document.version}.json"
    file.write_bytes(file.read_bytes()[:50])
    assert f"{file} is damaged" in checks(examine(tmp_path))["weights"]["finding"]


def test_where_a_running_service_listens_is_shown(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    lock.acquire()
    lock.announce("127.0.0.1", 5318, None)
    try:
        rows = {row["name"]: row for row in examine(tmp_path)["settings"]}
    finally:
        lock.release()
    assert rows["http_port"] == {"name": "http_port", "value": 5318, "source": f"service, process {os.getpid()}"}
    assert (rows["grpc_port"]["value"], rows["host"]["source"]) == (4317, "default")


def test_a_file_is_no_data_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert checks(examine(tmp_path / "file"))["data folder"]["state"] == "bad"


def test_a_variable_that_is_no_setting_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKWISE_HTTPPORT", "1")
    assert "PICKWISE_HTTP_PORT" in checks(examine(tmp_path))["settings"]["finding"]
