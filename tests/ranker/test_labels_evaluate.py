"""``pickwise labels evaluate`` holds the served model against the labels, not retrieval alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pickwise.cli import app
from tests.ranker.conftest import SKILL_IDS, SLANG, Project


def test_the_served_model_is_what_is_evaluated(
    trained: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PICKWISE_EMBEDDER", "words")
    folder = tmp_path / "data"
    shutil.copytree(trained.data_dir, folder)
    labels = tmp_path / "labels.jsonl"
    wanted = zip(SLANG, SKILL_IDS, strict=True)
    labels.write_text("\n".join(json.dumps({"query": f"please {word}", "expected": [skill]}) for word, skill in wanted))
    runner = CliRunner()
    runner.invoke(app, ["labels", "import", str(labels), "--data-dir", str(folder)])
    done = runner.invoke(app, ["labels", "evaluate", "--data-dir", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["what"]["model_version"] == trained.result["version"]
    # No description has the slang: retrieval finds a skill among the first 3 of 12 by chance, the model knows its past.
    (at_3,) = [row["value"] for row in found["metrics"] if row["k"] == 3]
    assert at_3 > 0.75
