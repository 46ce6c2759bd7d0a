"""`pickwise alerts` and `pickwise report`, as an operator calls them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner, Result

from collector.lake import Lake
from collector.service import Collector
from collector.tables import TABLES
from gateway.app import create_app
from pickwise.cli import app
from pickwise.cli.options import UserError
from pickwise.settings import Settings
from tests.analytics.receiver import Receiver

runner = CliRunner()


def alerts(folder: Path, *arguments: str) -> Result:
    return runner.invoke(app, ["alerts", *arguments, "--data-dir", str(folder)])


def rows(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.exception
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_the_newest_changes_are_listed_so_many_as_asked_for(tmp_path: Path) -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    told = [
        {"project": "default", "alert_id": f"a{n:03}", "time": began + timedelta(hours=n), "date": began.date()}
        for n in range(103)
    ]
    lake = Lake(tmp_path)
    lake.migrate()
    lake.append("alerts", pl.DataFrame(told, schema=TABLES["alerts"]))
    assert [row["alert_id"] for row in rows(alerts(tmp_path, "list", "--limit", "2", "--json"))] == ["a102", "a101"]
    assert len(rows(alerts(tmp_path, "list", "--json"))) == 100
    assert len(rows(alerts(tmp_path, "--json"))) == 100
    settings = Settings(data_dir=tmp_path)
    collector = Collector(settings)
    collector.start()
    with TestClient(create_app(settings, collector)) as client:
        for asked, count in (("", 100), ("?limit=1", 1), ("?limit=1000", 103)):
            assert len(client.get(f"/v1/alerts{asked}").json()["alerts"]) == count
        assert client.get("/v1/alerts?limit=0").status_code == 400
    collector.stop()


def test_a_silence_is_made_listed_and_ended(tmp_path: Path) -> None:
    assert "Nothing is silenced." in alerts(tmp_path, "silence").output
    (made,) = rows(alerts(tmp_path, "silence", "failed_tools", "--for", "2h", "--reason", "a move", "--json"))
    length = datetime.fromisoformat(made["end"]) - datetime.fromisoformat(made["start"])
    assert (made["rule"], made["group"], made["reason"], length) == ("failed_tools", None, "a move", timedelta(hours=2))
    assert made["id"] in alerts(tmp_path, "silence").output
    # Another project's are its own.
    assert rows(alerts(tmp_path, "silence", "--project", "other", "--json")) == []
    assert rows(alerts(tmp_path, "silence", "--end", made["id"], "--json")) == []


def test_a_silence_may_lie_ahead(tmp_path: Path) -> None:
    begin = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    until = begin + timedelta(hours=1)
    (made,) = rows(alerts(tmp_path, "silence", "--from", begin.isoformat(), "--to", until.isoformat(), "--json"))
    assert (made["rule"], datetime.fromisoformat(made["end"])) == (None, until)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["failed_tools"], "how long"),
        (["--for", "soon"], "--for: expected a duration"),
        (["--for", "2h", "--to", "2099-01-01T00:00:00Z"], "give one of them"),
        (["--to", "2001-01-01T00:00:00Z"], "ends after"),
        (["--for", "0s"], "ends after"),
        (["--end", "nonsense"], "no silence has the id nonsense"),
    ],
)
def test_a_silence_that_cannot_be(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = alerts(tmp_path, "silence", *arguments)
    assert isinstance(done.exception, UserError)
    assert says in str(done.exception)


def test_a_rule_that_is_not_known_is_noted(tmp_path: Path) -> None:
    assert "no rule is named failing" in alerts(tmp_path, "silence", "failing", "--for", "1h").stderr


def test_a_test_notification_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver().serving() as receiver:
        monkeypatch.setenv("PICKWISE_WEBHOOK_URLS", json.dumps([receiver.url]))
        done = alerts(tmp_path, "test")
        assert done.exit_code == 0
        assert "delivered (HTTP 200)" in done.output
        receiver.answers = [404]
        assert alerts(tmp_path, "test").exit_code == 1


def test_a_report_in_a_file(tmp_path: Path) -> None:
    for form, begin in (("html", "<!doctype html>"), ("markdown", "# Project `default`"), ("text", "Project default")):
        target = tmp_path / form
        written = ["report", "--format", form, "--output", str(target), "--data-dir", str(tmp_path)]
        done = runner.invoke(app, written)
        assert (done.exit_code, done.stdout) == (0, "")
        assert target.read_text().startswith(begin)
        printed = runner.invoke(app, ["report", "--format", form, "--data-dir", str(tmp_path)]).stdout
        assert printed.startswith(begin)


@pytest.mark.parametrize(
    "arguments", [["--json", "--format", "html"], ["--json", "--output", "x"], ["--output", "/none/x"]]
)
def test_a_report_that_cannot_be(tmp_path: Path, arguments: list[str]) -> None:
    done = runner.invoke(app, ["report", *arguments, "--data-dir", str(tmp_path)])
    assert isinstance(done.exception, UserError)
