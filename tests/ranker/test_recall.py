"""Recall by history finds what retrieval can't know, and its artefact says the same."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pickwise.settings import Settings
from ranker.artefacts import KEPT, ArtefactError, Artefacts
from ranker.rank import Ranker
from ranker.recall import RecallError
from ranker.weights_store import WeightsStore
from tests.ranker.conftest import SKILL_IDS, SLANG, Project, settings_for


@pytest.fixture
def copy(tmp_path: Path, trained: Project) -> Settings:
    """A folder of its own, as recall writes its artefact there."""
    shutil.copytree(trained.data_dir, tmp_path / "copy")
    return settings_for(tmp_path / "copy")


@pytest.fixture
def ranker(copy: Settings) -> Ranker:
    return Ranker(copy.data_dir, copy)


def test_history_knows_what_the_slang_means(ranker: Ranker) -> None:
    for wanted, slang in enumerate(SLANG):
        answer = ranker.recall("default", {"query": f"please {slang} number 5", "k": 3, "later": "is tolerated"})
        found = answer["skills"]
        assert found[0]["skill_id"] == SKILL_IDS[wanted]
        assert [item["score"] for item in found] == sorted((item["score"] for item in found), reverse=True)
        assert found[0]["support"] > 10
    assert answer["weights_version"] == ranker.projects.get("default").document.version
    assert answer["embedding_version"] == "hashed-words/1"


def test_recall_needs_no_model(copy: Settings) -> None:
    store = WeightsStore(copy.data_dir)
    _, before = (change["version"] for change in store.history("default"))
    store.rollback("default", before)
    ranker = Ranker(copy.data_dir, copy)
    answer = ranker.recall("default", {"query": f"please {SLANG[2]}", "k": 1})
    assert (answer["weights_version"], answer["skills"][0]["skill_id"]) == (before, SKILL_IDS[2])
    assert ranker.projects.get("default").model is None


def test_a_domain_leaves_the_others_out(ranker: Ranker) -> None:
    found = ranker.recall("default", {"query": SLANG[0], "domain": "Even", "k": 200})["skills"]
    assert {item["skill_id"] for item in found} == set(SKILL_IDS[1::2])
    assert ranker.recall("default", {"query": SLANG[0], "domain": "none such"})["skills"] == []


def test_a_project_without_history_recalls_nothing(fresh: Settings) -> None:
    ranker = Ranker(fresh.data_dir, fresh)
    assert ranker.recall("empty", {"query": "q"})["skills"] == []
    assert ranker.projects.with_recall("empty").artefact is None


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({}, "query"),
        ({"query": 3}, "query"),
        ({"query": "q", "k": 0}, "k: expected 1 to 200"),
        ({"query": "q", "k": 201}, "k: expected 1 to 200"),
        ({"query": "q", "k": "many"}, "k"),
        ({"query": "q", "domain": 7}, "domain"),
        ([], "object"),
    ],
)
def test_bad_requests_name_the_field(ranker: Ranker, request_: Any, field: str) -> None:
    with pytest.raises(RecallError, match=field):
        ranker.recall("default", request_)


def test_the_artefact_scores_as_recall_does(ranker: Ranker, copy: Settings) -> None:
    served = ranker.projects.with_recall("default")
    artefacts = Artefacts(copy.data_dir)
    assert served.artefact == artefacts.current("default")
    assert served.artefact is not None
    table = pa.ipc.open_file(artefacts.read("default", served.artefact, gzipped=False)).read_all()
    assert table.schema.metadata == {
        b"project": b"default",
        b"weights_version": served.document.version.encode(),
        b"embedding_version": b"hashed-words/1",
    }
    vectors = np.stack(table["vector"].to_numpy()).astype(np.float32)
    query = f"please {SLANG[4]} number 5"
    scores = dict(zip(table["skill_id"].to_pylist(), vectors @ served.embed(query), strict=True))
    for item in ranker.recall("default", {"query": query, "k": 200})["skills"]:
        assert scores.pop(item["skill_id"]) == pytest.approx(item["score"], abs=2e-3)  # 16 bits
    assert not scores


def test_the_newest_artefacts_are_kept(ranker: Ranker, copy: Settings) -> None:
    recall = ranker.projects.with_recall("default").recall
    assert recall is not None
    artefacts = Artefacts(copy.data_dir)
    versions = []
    for number in range(KEPT + 2):
        recall.support[0] = number
        versions.append(artefacts.keep(recall))
        time.sleep(0.01)  # their order is that of the files' times
    assert len(set(versions)) == KEPT + 2
    assert artefacts.current("default") == versions[-1]
    for version in versions[-KEPT:]:
        assert artefacts.read("default", version, gzipped=True)[:2] == b"\x1f\x8b"
    for version in (versions[0], "no/such", "x" * 400):
        with pytest.raises(ArtefactError, match="version: "):
            artefacts.read("default", version, gzipped=False)
