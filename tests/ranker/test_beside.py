"""Two real models at once: a canary ranks for its sessions, and two orders become one."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import msgspec
import pytest

from ranker.canary import chosen
from ranker.interleave_verdict import start
from ranker.models import ModelMeta, load, model_version, save
from ranker.rank import Ranker
from ranker.weights import refresh
from ranker.weights_document import Canary
from ranker.weights_store import WeightsStore
from tests.ranker.conftest import SKILL_IDS, SLANG, Project, settings_for

REQUEST = {
    "query": f"please {SLANG[3]} number 7",
    "candidates": [{"skill_id": skill_id, "dense": 0.5} for skill_id in SKILL_IDS[:6]],
}


@pytest.fixture
def two(trained: Project, tmp_path: Path) -> tuple[Project, ModelMeta]:
    """A copy of the trained project, and a second model of it, with half of the first one's blend, stored."""
    folder = tmp_path / "copy"
    shutil.copytree(trained.data_dir, folder)
    project = Project(settings_for(folder, canary_fraction=0.3, model_poll_s=0.1), trained.events, trained.result)
    first = load(folder, "default", trained.result["version"], _embedding(folder, trained.result["version"]))
    blend = {name: value / 2 for name, value in first.meta.blend.items()}
    version = model_version(first.booster.model_to_string(), blend)
    second = msgspec.structs.replace(first.meta, version=version, trained_at=time.time(), blend=blend)
    save(folder, "default", first.booster, second)
    return project, second


def _embedding(folder: Path, version: str) -> str:
    meta = msgspec.json.decode((folder / "models" / "default" / version / "meta.json").read_bytes(), type=ModelMeta)
    return meta.embedding_version


def test_a_canary_ranks_for_its_sessions_only(two: tuple[Project, ModelMeta]) -> None:
    project, second = two
    ranker, main = Ranker(project.data_dir, project.settings), project.result["version"]
    assert ranker.rank("default", REQUEST)["model_version"] == main
    document = refresh(project.data_dir, project.settings, "default", promote=second)
    canary = Canary(version=second.version, fraction=0.3)
    assert document.canary == canary
    ranker.projects.look()
    sessions = [f"s{number}" for number in range(60)]
    answers = {session: ranker.rank("default", REQUEST | {"session_id": session}) for session in sessions}
    for session, answer in answers.items():
        assert answer["model_version"] == (second.version if chosen(canary, session) else main)
        assert answer["weights_version"] == document.version
    scores = {answer["model_version"]: answer["candidates"][0]["score"] for answer in answers.values()}
    assert scores[main] != scores[second.version]
    assert ranker.rank("default", REQUEST)["model_version"] == main  # no session, no canary
    ranker.close()


def test_a_canary_that_cannot_be_loaded_ranks_for_nobody(two: tuple[Project, ModelMeta]) -> None:
    project, second = two
    refresh(project.data_dir, project.settings, "default", promote=second)
    model = project.data_dir / "models" / "default" / second.version / "model.txt"
    model.write_text(model.read_text() + "x")
    ranker = Ranker(project.data_dir, project.settings)
    versions = {ranker.rank("default", REQUEST | {"session_id": f"s{n}"})["model_version"] for n in range(20)}
    assert versions == {project.result["version"]}
    ranker.close()


def test_two_orders_are_interleaved_until_it_is_stopped(two: tuple[Project, ModelMeta]) -> None:
    project, second = two
    ranker, main = Ranker(project.data_dir, project.settings, seed=1), project.result["version"]
    assert "team" not in ranker.rank("default", REQUEST)["candidates"][0]
    start(project.data_dir, "default", main, second.version)
    ranker.projects.look()
    answer = ranker.rank("default", REQUEST | {"session_id": "s1"})
    assert answer["model_version"] == f"{main}+{second.version}"
    teams = [candidate["team"] for candidate in answer["candidates"]]
    assert teams.count(main) == teams.count(second.version) == 3
    assert sorted(candidate["skill_id"] for candidate in answer["candidates"]) == sorted(SKILL_IDS[:6])
    assert {candidate["propensity"] for candidate in answer["candidates"]} == {None}
    store = WeightsStore(project.data_dir)
    store.interleave("default", None)
    ranker.projects.look()
    again = ranker.rank("default", REQUEST)
    assert again["model_version"] == main
    assert "team" not in again["candidates"][0]
    ranker.close()
