"""``pickwise chains``: the table, the JSON, and what it says where there is nothing to show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from analytics import chains as analytics_chains
from pickwise.cli import app, chains
from tests.analytics.conftest import House, at, entry

runner = CliRunner()


def run(folder: Path, *arguments: str, exits: int = 0) -> Any:
    done = runner.invoke(app, ["chains", *arguments, "--data-dir", str(folder)])
    assert done.exit_code == exits, done.output
    return json.loads(done.stdout) if "--json" in arguments else done.output


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for the whole table."""
    monkeypatch.setattr(chains, "console", Console(width=300, highlight=False))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Four sessions that find, then read; one of them goes on to write, and one failed."""
    house = House(tmp_path)
    house.write(*(entry(skill, project="shop") for skill in ("find", "read[red]\x1b[2J")))
    for i in range(4):
        steps = ["find", "read[red]\x1b[2J", *(["write"] if i == 0 else [])]
        for j, skill in enumerate(steps):
            call = {"type": "call", "event_id": f"{i}-{j}", "session_id": f"s{i}", "time": at(60 * i + j)}
            house.events(call | {"skill_id": skill, "ok": (i, j) != (3, 1)}, project="shop")
    return tmp_path


def test_the_table_names_each_chain_with_its_measures(shop: Path) -> None:
    said = run(shop, "--project", "shop")
    assert "3 of 4 sessions succeeded (75.0%)." in said
    (line,) = [line for line in said.splitlines() if "→" in line]
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert cells[0] == "find → read[red] [2J"  # as it was called, without what moves the cursor
    assert cells[1:6] == ["3", "1.000", "1.000", "1.00", "1.000"]
    assert cells[-1] == "unknown (inputs; effects)"


def test_json_says_why(shop: Path) -> None:
    found = run(shop, "--project", "shop", "--json")
    assert (found["project"], found["judged"], found["successful"], found["min_support"]) == ("shop", 4, 3, 0.05)
    (chain,) = found["chains"]
    assert chain["feasible"] == "unknown"
    assert [check["check"] for check in chain["checks"]] == ["active", "healthy", "inputs", "order", "effects"]
    assert all(check["reason"] for check in chain["checks"])


def test_a_chain_that_cannot_be_run_is_told_with_its_reason(shop: Path) -> None:
    House(shop).write(entry("find", seq=1, project="shop", op="retire"))
    assert "no (find is retired)" in run(shop, "--project", "shop")


def test_the_window_and_the_support_are_asked_for(shop: Path) -> None:
    assert run(shop, "--project", "shop", "--json", "--from", at(60))["judged"] == 3
    assert run(shop, "--project", "shop", "--json", "--to", at(60))["judged"] == 1
    assert run(shop, "--project", "shop", "--json", "--min-support", "1")["chains"]
    assert "lower --min-support" in run(shop, "--project", "shop", "--to", at(60))
    run(shop, "--min-support", "2", exits=2)


@pytest.mark.parametrize("as_json", [True, False])
def test_nothing_there_is_no_error(tmp_path: Path, as_json: bool) -> None:
    said = run(tmp_path / "none", *(["--json"] if as_json else []))
    assert said["chains"] == [] if as_json else "docs/chains.md" in said


def test_the_default_is_that_of_the_nightly_job() -> None:
    assert chains.MIN_SUPPORT == analytics_chains.MIN_SUPPORT
