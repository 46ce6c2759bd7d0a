"""``pickwise keys``: made once shown, listed without its secret, revoked by its id."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from collector.lock import FolderLock
from pickwise.cli import app
from pickwise.cli.options import UserError

runner = CliRunner()


def keys(tmp_path: Path, *arguments: str) -> Any:
    done = runner.invoke(app, ["keys", *arguments, "--data-dir", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", ["create", "list", "revoke"])
def test_help_teaches(command: str) -> None:
    done = runner.invoke(app, ["keys", command, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert "--data-dir" in done.output
    assert "Authorization: Bearer" in runner.invoke(app, ["keys", "--help"], env={"COLUMNS": "200"}).output


def test_a_key_from_its_making_to_its_end(tmp_path: Path) -> None:
    made = keys(
        tmp_path,
        *("create", "--project", "shop", "--role", "read", "--role", "ingest", "--name", "agents"),
        *("--expires", "90d", "--events-per-second", "2.5", "--bytes-per-day", "2 GiB"),
    )
    assert made["key"].startswith(f"pw_{made['id']}_")
    assert (made["project"], made["roles"], made["name"]) == ("shop", ["ingest", "read"], "agents")
    assert (made["events_per_second"], made["bytes_per_day"]) == (2.5, 2 * 2**30)
    lasts = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=89) < lasts < timedelta(days=91)
    text = runner.invoke(app, ["keys", "list", "--data-dir", str(tmp_path)], env={"COLUMNS": "80"}).output
    assert made["id"] in text
    assert "2.5" in text
    (listed,) = keys(tmp_path, "list")
    assert (listed["state"], listed["last_used_at"], listed["revoked_at"]) == ("active", None, None)
    secret = made["key"].rpartition("_")[2]
    assert secret not in json.dumps(listed) + text
    assert keys(tmp_path, "list", "--project", "other") == []
    for _ in range(2):
        assert keys(tmp_path, "revoke", made["id"])["state"] == "revoked"


def test_what_is_printed_for_people_is_the_key_alone(tmp_path: Path) -> None:
    done = runner.invoke(app, ["keys", "create", "--data-dir", str(tmp_path)])
    key = done.stdout.strip()
    assert (key[:3], len(key.split())) == ("pw_", 1)
    assert key.rpartition("_")[2] not in done.stderr
    assert "from now on every request" in done.stderr
    again = runner.invoke(app, ["keys", "create", "--data-dir", str(tmp_path)])
    assert "from now on" not in again.stderr
    done = runner.invoke(app, ["keys", "revoke", key, "--data-dir", str(tmp_path)])
    assert "of project default is revoked" in done.stdout
    assert key.rpartition("_")[2] not in done.output


def test_the_folder_is_named_and_a_header_only_for_who_sends(tmp_path: Path) -> None:
    def said(*arguments: str) -> str:
        return runner.invoke(app, ["keys", "create", "--data-dir", str(tmp_path), *arguments]).stderr

    reader = said("--role", "read")
    assert f"no service runs on {tmp_path.resolve()}; a service started there will need keys" in reader
    assert "OTEL_EXPORTER_OTLP_HEADERS" not in reader
    lock = FolderLock(tmp_path)
    lock.acquire()
    sender = said("--role", "ingest")
    lock.release()
    assert f"Kept in {tmp_path.resolve()}, for the service that runs there" in sender
    assert "OTEL_EXPORTER_OTLP_HEADERS" in sender


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["create", "--role", "owner"], "--role: expected one or more of ingest, read, admin; got owner"),
        (["create", "--project", "a/b"], "--project: expected"),
        (["create", "--expires", "soon"], "--expires: expected 12h, 90d"),
        (["create", "--expires", "2001-01-01T00:00:00Z"], "--expires: expected a time to come"),
        (["create", "--events-per-second", "0"], "--events-per-second: expected"),
        (["create", "--bytes-per-day", "lots"], "--bytes-per-day: expected"),
        (["create", "--bytes-per-day", "0"], "--bytes-per-day: expected"),
        (["revoke", "0123"], "no key has the id '0123'"),
    ],
)
def test_errors_name_the_option(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = runner.invoke(app, ["keys", *arguments, "--data-dir", str(tmp_path)])
    assert isinstance(done.exception, UserError), done.output
    assert says in str(done.exception)


def test_a_folder_that_is_not_there_has_no_keys(tmp_path: Path) -> None:
    assert keys(tmp_path / "none", "list") == []
    assert not (tmp_path / "none").exists()
