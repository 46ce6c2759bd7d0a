from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.ingest import ingest
from pickwise.scores import SCORES
from pickwise.settings import Settings
from ranker.formula import terms
from ranker.models import ModelUnusable, load
from ranker.rank import Ranker, RankError, explore
from ranker.weights import WeightsStore, refresh
from tests.ranker.conftest import SKILL_IDS, SKILLS, SLANG, Project, settings_for, simulated


def listed(*skills: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"skill_id": skill_id, "dense": dense} for skill_id, dense in skills]


def ids(answer: dict[str, Any]) -> list[str]:
    return [candidate["skill_id"] for candidate in answer["candidates"]]


@pytest.fixture
def ranker(trained: Project) -> Ranker:
    return Ranker(trained.data_dir, trained.settings)


def test_before_any_model_it_is_the_formula(fresh: Settings) -> None:
    ingest(fresh, SKILLS, simulated(60))
    document = refresh(fresh.data_dir, fresh, "default")
    answer = Ranker(fresh.data_dir, fresh).rank(
        "default", {"query": "q", "candidates": listed((SKILL_IDS[0], 0.2), (SKILL_IDS[1], 0.8), (SKILL_IDS[2], 0.5))}
    )
    assert answer["model_version"] is None
    assert answer["weights_version"] == document.version
    calls = {domain: [0, 0] for domain in ("even", "odd")}
    domain_of = {skill["skill_id"]: skill["domain"] for skill in SKILLS}
    for event in simulated(60):
        if event["type"] == "call":
            calls[domain_of[event["skill_id"]]][0] += event["ok"]
            calls[domain_of[event["skill_id"]]][1] += 1
    for candidate, s in zip(answer["candidates"], (1.0, 0.5, 0.0), strict=True):
        skill, (ok, n) = document.skills[candidate["skill_id"]], calls[domain_of[candidate["skill_id"]]]
        expected = s + 0.15 * (2 * skill.heat - 1) + 0.10 * (skill.success - (ok + 1) / (n + 2))
        assert candidate["score"] == pytest.approx(expected)
        assert sum(candidate["contributions"].values()) == pytest.approx(expected)
        assert candidate["contributions"].keys() == {"semantic", "heat", "success"}  # also where one is 0
        assert candidate["propensity"] == 1


def test_equal_rates_add_nothing_to_a_score() -> None:
    third, tenths = np.array([1 / 3, 0.5]), np.array([1 - 2 / 3, 0.1])
    assert (third - tenths)[0] != 0  # but it is, but for the rounding
    found = terms({name: np.full(2, np.nan) for name in SCORES}, np.array([0.5, 0.5]), third, tenths)["success"]
    assert found.tolist() == [0.0, pytest.approx(0.04)]


def test_without_anything_it_keeps_the_order_of_the_scores(fresh: Settings) -> None:
    answer = Ranker(fresh.data_dir, fresh).rank("empty", {"query": "", "candidates": listed(("a", 0.1), ("b", 0.9))})
    assert ids(answer) == ["b", "a"]
    unscored = {"query": "x", "candidates": [{"skill_id": "a"}, {"skill_id": "b"}]}
    assert ids(Ranker(fresh.data_dir, fresh).rank("empty", unscored)) == ["a", "b"]


def test_after_promotion_the_model_ranks(trained: Project, ranker: Ranker) -> None:
    right = 0
    for wanted, slang in enumerate(SLANG):
        candidates = listed(*((skill_id, 0.5) for skill_id in SKILL_IDS))
        answer = ranker.rank(
            "default", {"query": f"please {slang} number 5", "candidates": candidates, "model": "flat"}
        )
        assert answer["model_version"] == trained.result["version"]
        scores = [candidate["score"] for candidate in answer["candidates"]]
        assert scores == sorted(scores, reverse=True)
        for candidate in answer["candidates"]:
            assert sum(candidate["contributions"].values()) == pytest.approx(candidate["score"])
        right += ids(answer)[0] == SKILL_IDS[wanted]
    assert right >= 10  # nothing but history knows what the slang means


def test_unknown_skills_keep_their_place_at_the_end(ranker: Ranker) -> None:
    candidates = listed(("ghost_b", 0.99), (SKILL_IDS[0], 0.1), ("ghost_a", 0.98), (SKILL_IDS[1], 0.2))
    answer = ranker.rank("default", {"query": "weather", "candidates": candidates})
    assert set(ids(answer)[:2]) == {SKILL_IDS[0], SKILL_IDS[1]}
    assert ids(answer)[2:] == ["ghost_b", "ghost_a"]


def test_a_new_model_is_served_within_the_poll(tmp_path: Path, trained: Project) -> None:
    data_dir = tmp_path / "copy"
    shutil.copytree(trained.data_dir, data_dir)
    store = WeightsStore(data_dir)
    promoted, before = (change["version"] for change in store.history("default"))
    store.rollback("default", before)
    ranker = Ranker(data_dir, settings_for(data_dir, model_poll_s=0.05))
    request = {"query": SLANG[0], "candidates": listed((SKILL_IDS[0], 0.1), (SKILL_IDS[1], 0.2))}
    assert ranker.rank("default", request)["model_version"] is None
    store.rollback("default", promoted)
    deadline = time.monotonic() + 20
    while ranker.projects.get("default").model is None:  # also when nobody asks to rank meanwhile
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert ranker.rank("default", request)["model_version"] == trained.result["version"]
    ranker.close()


def test_a_corrupted_model_is_refused_and_the_last_good_one_served(tmp_path: Path, trained: Project) -> None:
    data_dir = tmp_path / "copy"
    shutil.copytree(trained.data_dir, data_dir)
    settings = settings_for(data_dir)
    good = trained.result["version"]
    store, request = WeightsStore(data_dir), {"query": "x", "candidates": listed((SKILL_IDS[0], 0.1))}
    document = store.document("default")
    folder = data_dir / "models" / "default"
    shutil.copytree(folder / good, folder / "badbadbad")
    (folder / "badbadbad" / "model.txt").write_text("tree\nnot the model that was promoted")
    assert document.model is not None
    document.model.version, document.version = "badbadbad", "f00d"
    store.write("default", document)
    ranker = Ranker(data_dir, settings)
    assert ranker.rank("default", request)["model_version"] == good
    with store.locked("default"):
        store.point("default", document, [], "promote", time.time())
    assert ranker.projects.reload("default").model is not None
    answer = ranker.rank("default", request)  # while running
    assert (answer["weights_version"], answer["model_version"]) == ("f00d", good)
    assert Ranker(data_dir, settings).rank("default", request)["model_version"] == good  # after a restart
    with pytest.raises(ModelUnusable, match="sha256"):
        load(data_dir, "default", "badbadbad", "hashed-words/1")
    with pytest.raises(ModelUnusable, match="was trained on vectors of hashed-words/1"):
        load(data_dir, "default", good, "another/1")


def test_a_refused_model_is_served_once_it_is_mended(
    tmp_path: Path, trained: Project, caplog: pytest.LogCaptureFixture
) -> None:
    data_dir, good = tmp_path / "copy", trained.result["version"]
    shutil.copytree(trained.data_dir, data_dir)
    file = data_dir / "models" / "default" / good / "model.txt"
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    ranker = Ranker(data_dir, settings_for(data_dir, model_poll_s=0.05))
    request = {"query": SLANG[0], "candidates": listed((SKILL_IDS[0], 0.1))}
    assert ranker.rank("default", request)["model_version"] is None
    ranker.projects.reload("default")
    time.sleep(0.2)
    assert len([line for line in caplog.messages if "sha256 differs" in line]) == 1
    file.write_bytes(whole)
    deadline = time.monotonic() + 20
    while ranker.rank("default", request)["model_version"] != good:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    ranker.close()


def test_nobody_waits_while_projects_are_loaded_ahead(trained: Project) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def named() -> list[str]:
        asked.set()
        assert go_on.wait(20)
        return ["default"]

    ranker = Ranker(trained.data_dir, trained.settings)
    loading = threading.Thread(target=ranker.projects.load_ahead, args=(named,))
    loading.start()
    assert asked.wait(20)
    request = {"query": SLANG[0], "candidates": listed((SKILL_IDS[0], 0.1))}
    early = ranker.rank("default", request)
    assert early["model_version"] is None
    assert early["weights_version"] == ranker.projects.get("default").document.version
    assert ranker.projects.loaded("default") is None
    go_on.set()
    loading.join(60)
    assert ranker.projects.loaded("default") is not None
    assert ranker.rank("default", request)["model_version"] == trained.result["version"]
    ranker.close()


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"candidates": []}, "query"),
        ({"query": 3, "candidates": []}, "query"),
        ({"query": "q", "candidates": [{"dense": 1}]}, r"candidates\[0\].*skill_id"),
        ({"query": "q", "candidates": [{"skill_id": "a", "bm25": "high"}]}, "bm25"),
        ({"query": "q", "candidates": [{"skill_id": "a"}, {"skill_id": "a"}]}, r"candidates\[1\].skill_id"),
        ({"query": "q", "candidates": [{"skill_id": f"s{i}"} for i in range(201)]}, "candidates"),
        ([], "object"),
    ],
)
def test_bad_requests_name_the_field(ranker: Ranker, request_: Any, field: str) -> None:
    with pytest.raises(RankError, match=field):
        ranker.rank("default", request_)


@pytest.mark.parametrize("low", [-1e308, -1.7e308, 0.0, 1e-320])
def test_scores_however_far_apart_are_scaled(fresh: Settings, low: float) -> None:
    request = {"query": "q", "candidates": listed(("a", low), ("b", 1.7e308)), "previous_skill_id": "p" * 400}
    answer = Ranker(fresh.data_dir, fresh).rank("default", request)
    assert [(c["skill_id"], c["contributions"].get("semantic", 0.0)) for c in answer["candidates"]] == [
        ("b", 1.0),
        ("a", 0.0),
    ]


def test_an_empty_list_is_fine(ranker: Ranker) -> None:
    assert ranker.rank("default", {"query": "q", "candidates": []})["candidates"] == []


def test_exploring_shuffles_the_first_five_and_tells_the_odds() -> None:
    rng, placed = np.random.default_rng(0), list(range(8))
    seen: dict[tuple[int, int], list[float]] = {}
    times, shuffled = 4_000, 0
    for _ in range(times):
        found, propensities, was = explore(placed, 0.4, rng)
        shuffled += was
        assert found[5:] == [5, 6, 7]
        for rank, (skill, propensity) in enumerate(zip(found, propensities, strict=True)):
            seen.setdefault((skill, rank), []).append(propensity)
    assert shuffled / times == pytest.approx(0.4, abs=0.03)
    for told in seen.values():
        assert len(set(told)) == 1
        assert len(told) / times == pytest.approx(told[0], abs=0.03)


def test_explore_is_answered_only_when_asked(ranker: Ranker) -> None:
    request = {"query": "q", "candidates": listed(*((skill_id, 0.5) for skill_id in SKILL_IDS))}
    assert "randomized" not in ranker.rank("default", request)
    answers = [ranker.rank("default", request | {"explore": True}) for _ in range(80)]
    assert {answer["randomized"] for answer in answers} == {True, False}
    assert all(candidate["propensity"] < 1 for candidate in answers[0]["candidates"][:5])


def test_the_project_asked_longest_ago_is_dropped_and_loaded_again(
    trained: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ranker.serving.MOST_PROJECTS", 2)
    ranker = Ranker(trained.data_dir, trained.settings)
    asked = {"query": f"please {SLANG[0]}", "candidates": listed(*((skill_id, 0.5) for skill_id in SKILL_IDS))}
    first = ranker.rank("default", asked)
    for project in ("b", "default", "c"):
        ranker.rank(project, asked)
    assert [ranker.projects.loaded(project) is not None for project in ("default", "b", "c")] == [True, False, True]
    ranker.rank("b", asked)
    assert ranker.projects.loaded("default") is None
    again = ranker.rank("default", asked)
    assert ids(again) == ids(first)
    assert again["model_version"] == first["model_version"]
    ranker.close()


def test_large_projects_are_fewer(trained: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranker.serving.MOST_CELLS", 1)
    ranker = Ranker(trained.data_dir, trained.settings)
    for project in ("default", "b"):
        ranker.rank(project, {"query": "q", "candidates": listed((SKILL_IDS[0], 0.5))})
    assert ranker.projects.loaded("default") is None
    assert ranker.projects.loaded("b") is not None  # the newest stays, however large
    ranker.close()
