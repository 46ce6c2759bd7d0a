"""From `pickwise train` to what HTTP answers, and back again: real models and files, live traffic that judges them."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from bench.ingest import ingest
from collector.access import Access
from collector.callers import guard
from collector.telemetry import Telemetry
from pickwise.cli import app as commands
from pickwise.settings import Settings
from ranker.answering import RankerAnswers
from ranker.canary import chosen
from ranker.http import add_ranker
from ranker.models import load, meta_of, model_version, save
from ranker.weights import refresh
from ranker.weights_document import Canary
from ranker.weights_store import WeightsStore
from tests.ranker.conftest import SKILL_IDS, SLANG, Project, settings_for
from tests.ranker.test_canary import traffic

CANDIDATES = [{"skill_id": skill_id, "dense": 0.5} for skill_id in SKILL_IDS[:6]]
SESSIONS = [f"s{number}" for number in range(30)]


@pytest.fixture
def settings(trained: Project, tmp_path: Path) -> Settings:
    """A copy of the project whose first model was promoted."""
    shutil.copytree(trained.data_dir, tmp_path / "copy")
    return settings_for(tmp_path / "copy", canary_fraction=0.3, canary_min=100, train_budget_s=2.0)


@contextmanager
def service(settings: Settings) -> Iterator[TestClient]:
    app = FastAPI()
    guard(app, Access(False, Telemetry()))
    add_ranker(app, RankerAnswers(settings))
    with TestClient(app) as client:
        yield client


def ranked_by(client: TestClient, session: str) -> str | None:
    asked = {"query": f"please {SLANG[3]}", "candidates": CANDIDATES, "session_id": session}
    version: str | None = client.post("/v1/rank", json=asked).raise_for_status().json()["model_version"]
    return version


def newest_change(settings: Settings) -> dict[str, Any]:
    return WeightsStore(settings.data_dir).history("default")[0]


def test_a_bad_first_model_is_withdrawn_and_the_score_before_any_model_ranks(
    trained: Project, settings: Settings
) -> None:
    first, now = trained.result["version"], time.time()
    with service(settings) as client:
        assert ranked_by(client, "s1") == first
    ingest(settings, [], traffic(first, 300, 0.01, 0.1, now))
    refresh(settings.data_dir, settings, "default", now=now + 60)
    change = newest_change(settings)
    assert (change["action"], change["model_version"]) == ("auto_rollback", None)
    assert change["evidence"]["against"] == "score before any model"
    with service(settings) as client:
        assert ranked_by(client, "s1") is None
        assert client.get("/v1/weights").json()["model"] is None


def test_what_train_promotes_is_a_canary_until_traffic_judged_it(trained: Project, settings: Settings) -> None:
    poor = without_history(settings, trained.result["version"])
    result = train(settings)
    found = result["version"]
    assert (result["decision"], result["evidence"]["compared_with"]) == ("promoted", poor)
    canary = Canary(version=found, fraction=0.3)
    with service(settings) as client:
        assert client.get("/v1/weights").json()["canary"] == msgspec.to_builtins(canary)
        by_session = {session: ranked_by(client, session) for session in SESSIONS}
    assert by_session == {session: found if chosen(canary, session) else poor for session in SESSIONS}
    assert set(by_session.values()) == {found, poor}
    now = time.time()
    ingest(settings, [], traffic(poor, 600, 0.6, 0.1, now) + traffic(found, 500, 0.7, 0.1, now))
    refresh(settings.data_dir, settings, "default", now=now + 120)
    assert newest_change(settings)["action"] == "graduate"
    with service(settings) as client:
        assert {ranked_by(client, session) for session in SESSIONS} == {found}
    # Its luck turns while it is watched: the model before it ranks again, and this one isn't promoted any more.
    ingest(settings, [], traffic(found, 900, 0.2, 0.1, now + 121))
    refresh(settings.data_dir, settings, "default", now=now + 300)
    assert newest_change(settings)["action"] == "auto_rollback"
    with service(settings) as client:
        assert {ranked_by(client, session) for session in SESSIONS} == {poor}


def without_history(settings: Settings, version: str) -> str:
    """Another stored model, for everyone: the same trees on a blend that looks at `dense` alone."""
    known = meta_of(settings.data_dir, "default", version)
    assert known is not None
    first = load(settings.data_dir, "default", version, known.embedding_version)
    blend = {"semantic": 1.0}
    poor = model_version(first.booster.model_to_string(), blend)
    meta = msgspec.structs.replace(first.meta, version=poor, blend=blend)
    save(settings.data_dir, "default", first.booster, meta)
    refresh(settings.data_dir, settings_for(settings.data_dir), "default", promote=meta)
    return poor


def train(settings: Settings) -> dict[str, Any]:
    """`pickwise train`, as the user runs it."""
    given = {
        "PICKWISE_EMBEDDER": "words",
        "PICKWISE_CANARY_FRACTION": str(settings.canary_fraction),
        "PICKWISE_TRAIN_BUDGET_S": str(settings.train_budget_s),
    }
    done = CliRunner().invoke(
        commands, ["train", "--data-dir", str(settings.data_dir), "--json"], env=given, catch_exceptions=False
    )
    assert done.exit_code == 0
    found: dict[str, Any] = json.loads(done.stdout)
    return found
