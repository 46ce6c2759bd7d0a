"""`pickwise registry from-mcp`: the tools of a server on loopback become the registry, or are only shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pickwise.cli import app
from pickwise.cli.options import UserError
from tests.collector.mcp_server import TOOLS, Server, serving

runner = CliRunner()


def run(*arguments: str) -> Any:
    done = runner.invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_tools_of_a_server_become_the_registry(tmp_path: Path) -> None:
    folder = ("--data-dir", str(tmp_path / "data"))
    with serving(Server(tools=[*TOOLS, {"name": 5}])) as server:
        done = run("registry", "from-mcp", server.url, "--prefix", "weather/", "--project", "shop", *folder)
        assert (done["accepted"], done["rejected"]) == (3, 1)
        assert "tool 4 (5)" in done["problems"][0]
        rows = run("sql", "select skill_id, project, source from skills order by skill_id", *folder)
        assert [row["skill_id"] for row in rows] == [
            "weather/delete_station",
            "weather/get_forecast",
            "weather/查询天气",
        ]
        assert {(row["project"], row["source"]) for row in rows} == {("shop", "declared")}
        server.tools[1] = TOOLS[1] | {"description": "Delete a station when the user asks."}
        run("registry", "from-mcp", server.url, "--prefix", "weather/", "--project", "shop", *folder)
    findings = run("registry", "review", "--project", "shop", *folder)
    assert "no_description" not in {finding["code"] for finding in findings}
    assert {finding["skill_id"] for finding in findings} == {row["skill_id"] for row in rows}


def test_a_dry_run_shows_and_writes_nothing(tmp_path: Path) -> None:
    with serving(Server()) as server:
        folder = ("--data-dir", str(tmp_path / "data"))
        entries = run("registry", "from-mcp", server.url, "--dry-run", *folder)
        assert [entry["skill_id"] for entry in entries] == [tool["name"] for tool in TOOLS]
        shown = runner.invoke(app, ["registry", "from-mcp", server.url, "--dry-run", *folder], env={"COLUMNS": "200"})
    assert "read_only, idempotent" in shown.stdout
    assert "weather 1.2 offers 3 tool(s)" in shown.stderr
    assert not (tmp_path / "data").exists()


def test_a_key_is_given_by_header_and_not_repeated() -> None:
    with serving(Server(token="t0p")) as server:
        given = ("--header", "Authorization: Bearer t0p")
        assert len(run("registry", "from-mcp", server.url, "--dry-run", *given)) == len(TOOLS)
        done = runner.invoke(app, ["registry", "from-mcp", server.url, "--header", "t0p"])
    assert isinstance(done.exception, UserError)
    assert "t0p" not in str(done.exception)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/mcp", "nowhere"])
def test_a_server_that_is_none_is_an_error_in_one_line(url: str) -> None:
    done = runner.invoke(app, ["registry", "from-mcp", url])
    assert isinstance(done.exception, UserError)
    assert "\n" not in str(done.exception)
