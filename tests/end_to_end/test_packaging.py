"""The built wheel installs into an empty environment, without torch, and the whole loop of a newcomer works there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment that holds the wheel and what it declares, nothing else."""
    folder = tmp_path_factory.mktemp("packaging")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=True)
    scripts = folder / "env" / "bin"
    install = [str(scripts / "pip"), "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return scripts


def run(scripts: Path, folder: Path, *arguments: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(scripts / "pickwise"), *arguments],
        cwd=folder,
        env=clean,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout[-1500:]} {done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.timeout(1500)
def test_wheel_works_without_torch(scripts: Path, tmp_path: Path) -> None:
    assert not list(scripts.parent.glob("lib/*/site-packages/torch"))
    events = tmp_path / "events.jsonl"
    selection = {
        "type": "selection",
        "event_id": "s1",
        "query": "weather in Paris",
        "candidates": [{"skill_id": "weather", "score": 0.9}, {"skill_id": "news", "score": 0.1}],
        "ranked": True,
        "picks": ["weather"],
    }
    events.write_text(json.dumps(selection) + "\n")
    run(scripts, tmp_path, "import", str(events), "--format", "events")
    run(scripts, tmp_path, "report")
    document = json.loads(run(scripts, tmp_path, "metrics", "top1_acceptance_rate", "--json"))
    assert (document["rows"][0]["value"], document["rows"][0]["n"]) == (1.0, 1)
    assert json.loads(run(scripts, tmp_path, "train", "--json"))["decision"] == "refused"
    checks = {check["name"]: check for check in json.loads(run(scripts, tmp_path, "doctor", "--json"))["checks"]}
    assert checks["embedder"]["state"] == "ok"
    assert checks["torch extra"]["state"] == "note"
    assert "pickwise[torch]" in checks["torch extra"]["mend"]
    for package in ("dashboard/app.py", "analytics/rules.yaml", "demo/library.jsonl"):
        assert list(scripts.parent.glob(f"lib/*/site-packages/{package}")), package
