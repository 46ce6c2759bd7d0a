"""`pickwise weights` on a folder with skills, calls and two models."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.ingest import ingest
from pickwise.cli import app
from pickwise.cli.options import UserError, console
from ranker.weights import refresh
from tests.ranker.conftest import SKILL_IDS, SKILLS, settings_for
from tests.ranker.test_canary import NEW, OLD, stored, traffic


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=True)
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One model for everyone and another as its canary."""
    settings = settings_for(tmp_path, canary_fraction=0.2)
    ingest(settings, SKILLS, traffic(OLD, 40, 0.75, 0.25, time.time() - 600))
    refresh(tmp_path, settings, "default", promote=stored(settings, OLD))
    refresh(tmp_path, settings, "default", promote=stored(settings, NEW))
    return tmp_path


def test_show_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", 200)  # whatever terminal the tests run in
    shown = run("weights", "--data-dir", str(folder))
    assert f"model {OLD}" in shown
    assert f"canary {NEW} ranks for 20% of the sessions" in shown
    line = next(line for line in shown.splitlines() if SKILL_IDS[0] in line)
    cells = [cell.strip() for cell in line.strip("│┃ ").split("│")]
    document = json.loads(run("weights", "--data-dir", str(folder), "--json"))
    entry = document["skills"][SKILL_IDS[0]]
    assert cells[:2] == [SKILL_IDS[0], "active"]
    low, high = map(float, cells[3].split("–"))
    assert float(cells[2]) == pytest.approx(entry["success"], abs=5e-4)
    assert low < entry["success"] < high
    ok, calls = map(int, cells[4].split(" of "))
    assert 0 < ok < calls < 40
    assert 0 < float(cells[5]) <= calls  # what decay left of them
    assert float(cells[6].split(" by ")[1]) >= 5
    assert "half-life 14 days" in shown


def test_history_tells_of_canaries(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", 200)
    shown = run("weights", "history", "--data-dir", str(folder))
    assert [word for word in shown.split() if word in ("canary", "promote", OLD, NEW)].count(NEW) == 1
    changes = json.loads(run("weights", "history", "--data-dir", str(folder), "--json"))
    assert [(change["action"], change["model_version"], change["canary_version"]) for change in changes] == [
        ("canary", OLD, NEW),
        ("promote", OLD, None),
    ]


def test_interleaving_begins_is_read_and_ends(folder: Path) -> None:
    data = ("--data-dir", str(folder))
    with pytest.raises(UserError, match="nothing is interleaved in project default"):
        run("weights", "interleave", *data)
    with pytest.raises(UserError, match="expected two versions"):
        run("weights", "interleave", OLD, *data)
    with pytest.raises(UserError, match="second: no model 'nope'"):
        run("weights", "interleave", OLD, "nope", *data)
    assert "no verdict yet" in run("weights", "interleave", OLD, NEW, *data)
    candidates = [{"skill_id": SKILL_IDS[0], "team": OLD}, {"skill_id": SKILL_IDS[1], "team": NEW}]
    selection = {"type": "selection", "query": "q", "ranked": True, "candidates": candidates, "picks": [SKILL_IDS[1]]}
    now = int(time.time() * 1e9)
    ingest(settings_for(folder), [], [selection | {"event_id": f"i{turn}", "time": now} for turn in range(20)])
    shown = run("weights", "interleave", *data)
    assert f"{NEW} won 20" in shown
    assert f"better: {NEW}" in shown
    ended = json.loads(run("weights", "interleave", "--stop", "--json", *data))
    assert (ended["second_wins"], ended["running"], ended["better"]) == (20, False, NEW)
    with pytest.raises(UserError, match="nothing is interleaved"):
        run("weights", "interleave", *data)
