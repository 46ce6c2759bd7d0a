from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest

from bench.ingest import ingest
from collector.lake import Lake
from pickwise.settings import Settings
from ranker.explain import explain
from ranker.log import Log
from ranker.weights import WeightsError, WeightsStore, no_match_threshold, refresh
from ranker.weights_document import content_version
from tests.ranker.conftest import SKILL_IDS, SKILLS, Project, simulated


def call(index: int, ok: bool, skill_id: str = SKILL_IDS[0]) -> dict[str, Any]:
    event = {"type": "call", "event_id": f"extra-{index}", "time": int((time.time() - 5) * 1e9), "skill_id": skill_id}
    return event | {"ok": ok, "latency_ms": 1.0} | ({} if ok else {"error_kind": "timeout"})


def test_document_has_exactly_the_contracts_fields(trained: Project) -> None:
    document = WeightsStore(trained.data_dir).get("default")
    assert set(document) == {
        "version", "created_at", "project", "registry_version", "half_life_days", "fusion", "no_match_threshold",
        "explore", "skills", "model", "canary",
    }  # fmt: skip
    assert document["fusion"] == {"semantic": 1.0, "heat": 0.15, "success": 0.10, "alpha": {}}
    assert set(document["skills"]) == set(SKILL_IDS)
    assert set(document["skills"][SKILL_IDS[0]]) == {
        "heat", "heat_log", "success", "success_logit", "n_effective", "status", "rollout_fraction",
    }  # fmt: skip
    assert set(document["model"]) == {"version", "features", "sha256"}
    assert 0 < document["no_match_threshold"] < 1.3


def test_a_project_with_nothing_has_a_valid_document(fresh: Settings) -> None:
    document = WeightsStore(fresh.data_dir).get("nobody")
    assert (document["skills"], document["model"], document["project"]) == ({}, None, "nobody")
    assert document["version"]


def test_the_document_before_any_event_is_a_version_like_any_other(fresh: Settings) -> None:
    store = WeightsStore(fresh.data_dir)
    served = store.get("default")
    ingest(fresh, SKILLS, simulated(5))
    refresh(fresh.data_dir, fresh, "default")
    assert store.get("default", served["version"]) == served
    assert store.rollback("default", served["version"]) == served
    assert store.get("default") == served


def test_a_refresh_without_news_keeps_the_version(fresh: Settings) -> None:
    ingest(fresh, SKILLS, simulated(40))
    first = refresh(fresh.data_dir, fresh, "default")
    assert refresh(fresh.data_dir, fresh, "default", now=time.time() + 86_400).version == first.version
    ingest(fresh, [], [call(1, False)])
    moved = refresh(fresh.data_dir, fresh, "default")
    assert moved.version != first.version
    assert moved.skills[SKILL_IDS[0]].success < first.skills[SKILL_IDS[0]].success
    rows = Lake(fresh.data_dir).read("weights")
    assert set(rows["version"]) == {first.version, moved.version}
    stored = rows.filter(pl.col("version") == moved.version, pl.col("skill_id") == SKILL_IDS[0])
    assert stored["success"].item() == moved.skills[SKILL_IDS[0]].success


def test_status_takes_effect_without_any_event(fresh: Settings) -> None:
    ingest(fresh, SKILLS, simulated(10))
    first = refresh(fresh.data_dir, fresh, "default")
    now = datetime.now(UTC)
    change = {"project": "default", "date": now.date(), "time": now, "skill_id": SKILL_IDS[1], "status": "degraded"}
    change |= {"rollout_fraction": 0.1, "reason": "failing"}
    Lake(fresh.data_dir).append("skill_status", pl.DataFrame([change]))
    second = refresh(fresh.data_dir, fresh, "default")
    assert second.version != first.version
    assert (second.skills[SKILL_IDS[1]].status, second.skills[SKILL_IDS[1]].rollout_fraction) == ("degraded", 0.1)
    assert second.skills[SKILL_IDS[0]].status == "active"
    document = msgspec.to_builtins(second)
    rows = {row["skill_id"]: row for row in explain(fresh.data_dir, fresh, "default", document)}
    assert (rows[SKILL_IDS[1]]["status"], rows[SKILL_IDS[1]]["status_reason"]) == ("degraded", "failing")
    assert rows[SKILL_IDS[0]]["status_reason"] is None


def test_versions_are_immutable_and_named_by_content(fresh: Settings) -> None:
    ingest(fresh, SKILLS, simulated(10))
    first = refresh(fresh.data_dir, fresh, "default")
    path = fresh.data_dir / "weights" / "default" / f"{first.version}.json"
    content = path.read_bytes()
    ingest(fresh, [], [call(1, True)])
    refresh(fresh.data_dir, fresh, "default")
    assert path.read_bytes() == content
    assert content_version(WeightsStore(fresh.data_dir).document("default", first.version)) == first.version


def test_rollback_and_history(fresh: Settings) -> None:
    ingest(fresh, SKILLS, simulated(10))
    first = refresh(fresh.data_dir, fresh, "default")
    ingest(fresh, [], [call(1, True)])
    second = refresh(fresh.data_dir, fresh, "default")
    store = WeightsStore(fresh.data_dir)
    assert store.rollback("default", first.version) == msgspec.to_builtins(first)
    assert store.document("default") == first
    assert refresh(fresh.data_dir, fresh, "default") == first  # no new event: the rollback stays
    assert [(c["version"], c["action"]) for c in store.history("default")] == [
        (first.version, "rollback"),
        (second.version, "refresh"),
        (first.version, "refresh"),
    ]
    with pytest.raises(WeightsError, match="no weights version 'nope' in project default"):
        store.rollback("default", "nope")
    with pytest.raises(WeightsError):
        store.get("default", "../../control")


@pytest.mark.parametrize("damage", ["deleted", "cut", "no JSON"])
def test_damaged_weights_give_way_to_those_before_and_are_written_anew(
    fresh: Settings, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    ingest(fresh, SKILLS, simulated(10))
    first = refresh(fresh.data_dir, fresh, "default")
    ingest(fresh, [], [call(1, True)])
    second = refresh(fresh.data_dir, fresh, "default")
    store = WeightsStore(fresh.data_dir)
    assert store.document("default") == second
    path = fresh.data_dir / "weights" / "default" / f"{second.version}.json"
    if damage == "deleted":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:50] if damage == "cut" else b"?")
    assert [store.document("default") for _ in range(3)] == [first] * 3
    assert [second.version in record.getMessage() for record in caplog.records] == [True]
    with pytest.raises(WeightsError, match=second.version):
        store.document("default", second.version)
    mended = refresh(fresh.data_dir, fresh, "default")
    assert mended.skills.keys() == second.skills.keys()
    assert WeightsStore(fresh.data_dir).document("default") == mended
    assert store.document("default") == mended


def test_a_folder_of_weights_that_is_gone_is_made_again_with_its_model(trained: Project, tmp_path: Path) -> None:
    folder = shutil.copytree(trained.data_dir, tmp_path / "copy")
    model = WeightsStore(folder).document("default").model
    assert model is not None
    shutil.rmtree(folder / "weights")
    assert WeightsStore(folder).document("default").skills == {}
    assert refresh(folder, trained.settings, "default").model == model
    assert WeightsStore(folder).document("default").model == model


def test_projects_lie_apart_whatever_they_are_called(fresh: Settings) -> None:
    ingest(fresh, SKILLS, simulated(5), project="../up")
    document = refresh(fresh.data_dir, fresh, "../up")
    assert (fresh.data_dir / "weights" / "..%2Fup" / f"{document.version}.json").is_file()
    assert WeightsStore(fresh.data_dir).get("default")["skills"] == {}


def test_invented_names_are_no_skills(fresh: Settings) -> None:
    ingest(fresh, SKILLS, [*simulated(5), call(1, False, "invented_name")])
    assert "invented_name" not in refresh(fresh.data_dir, fresh, "default").skills


def test_explain_says_why(trained: Project) -> None:
    document = WeightsStore(trained.data_dir).get("default")
    rows = {row["skill_id"]: row for row in explain(trained.data_dir, trained.settings, "default", document)}
    calls = [event for event in trained.events if event["type"] == "call" and event["skill_id"] == SKILL_IDS[2]]
    row = rows[SKILL_IDS[2]]
    assert (row["calls"], row["ok"]) == (len(calls), sum(event["ok"] for event in calls))
    assert row["low"] < row["success"] < row["high"]
    assert row["n_effective"] <= row["calls"]
    assert row["status"] == "active"


def test_data_dir_may_not_exist_yet(tmp_path: Path) -> None:
    assert WeightsStore(tmp_path / "new").get("default")["skills"] == {}


def planted_similarities(seed: int, useless_below: float) -> Log:
    """2,000 lists whose pick succeeds in 60 %, and hardly ever where the best similarity is below a point."""
    rng = np.random.default_rng(seed)
    best = rng.random(2_000)
    ok = rng.random(2_000) < np.where(best < useless_below, 0.02, 0.6)
    ids = [f"t{index}" for index in range(2_000)]
    candidates = pl.DataFrame({"event_id": ids, "skill_id": "a", "dense": best, "picked": True})
    calls = pl.DataFrame({"selection_id": ids, "skill_id": "a", "ok": ok})
    nothing = pl.DataFrame()
    return Log(nothing, candidates, calls, nothing, nothing)


@pytest.mark.parametrize("useless_below", [0.15, 0.3])
def test_no_match_threshold_is_where_lists_stop_being_of_use(useless_below: float) -> None:
    found = no_match_threshold(planted_similarities(1, useless_below))
    assert found == pytest.approx(useless_below, abs=0.03)


def test_no_match_threshold_of_lists_that_are_all_of_use() -> None:
    log = planted_similarities(2, 0.0)
    found = no_match_threshold(log)
    assert found is not None
    assert (log.candidates["dense"].to_numpy() < found).mean() < 0.02
    few = Log(log.selections, log.candidates.head(200), log.calls, log.skills, log.labels)
    assert no_match_threshold(few) is None
