from __future__ import annotations

import json

import pytest

from bench.ingest import ingest
from collector.control import Control, JobRunning
from collector.lake import Lake
from pickwise.settings import Settings
from ranker import features
from ranker.train import JOB, train
from ranker.weights_store import WeightsStore
from tests.ranker.conftest import SKILLS, Project, simulated


def test_promotes_what_is_better(trained: Project) -> None:
    result = trained.result
    assert result["decision"] == "promoted", result["reason"]
    evidence = result["evidence"]
    assert evidence["compared_with"] == "score before any model"
    assert evidence["difference"]["low"] > 0
    assert evidence["difference"]["effective_sample"] >= 200
    assert evidence["ndcg_at_5"]["after"] > evidence["ndcg_at_5"]["before"] + 0.1
    assert max(evidence["importance"], key=evidence["importance"].get).startswith("history")
    assert {guard["name"]: guard["outcome"] for guard in evidence["guards"]}["golden_set"] == "not_evaluated"


def test_is_on_record_and_served(trained: Project) -> None:
    row = Lake(trained.data_dir).read("models").row(0, named=True)
    assert (row["decision"], row["version"]) == ("promoted", trained.result["version"])
    assert json.loads(row["evidence"]) == trained.result["evidence"]
    assert row["features"] == list(features.NAMES)
    served = WeightsStore(trained.data_dir).document("default").model
    assert served is not None
    assert (served.version, served.sha256) == (row["version"], row["sha256"])


def test_refuses_an_empty_project(fresh: Settings) -> None:
    result = train(fresh.data_dir, fresh, project="nothing")
    assert (result["decision"], result["version"]) == ("refused", None)
    assert "0 ranked selections" in result["reason"]
    assert Lake(fresh.data_dir).read("models")["decision"].to_list() == ["refused"]


def test_learns_nothing_from_left_out_environments(fresh: Settings) -> None:
    ingest(fresh, SKILLS, [event | {"environment": "staging"} for event in simulated(60)])
    result = train(fresh.data_dir, fresh, project="default")
    assert result["evidence"]["turns"] == 0


def test_two_at_once_exclude_each_other(fresh: Settings) -> None:
    control = Control(fresh.data_dir)
    with control.job(JOB, "default"), pytest.raises(JobRunning):
        train(fresh.data_dir, fresh, project="default")
