"""Canaries and what live traffic does to them: on real events in a real data folder, and the verdicts alone."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import numpy as np
import pytest

from bench.canary_trials import value_below, verdict
from bench.ingest import ingest
from collector.projects import project_folder
from pickwise.settings import Settings
from ranker import features
from ranker.canary import Rate, chosen, least_difference, objection
from ranker.files import write_atomically
from ranker.models import ModelMeta
from ranker.weights import refresh
from ranker.weights_document import Canary
from ranker.weights_store import WeightsStore
from tests.ranker.conftest import SKILL_IDS, SKILLS, settings_for

OLD, NEW = "0ld0ld0ld", "1e11e11e1"


def stored(settings: Settings, version: str) -> ModelMeta:
    """The meta file of a model: all that the life of versions reads of one."""
    meta = ModelMeta(
        version=version,
        sha256="",
        features=list(features.NAMES),
        embedding_version="words",
        trained_at=time.time() - 86_400,
        seed=0,
        regularisation=0.0,
        trees=25,
        validation_ndcg=0.5,
        curves={},
    )
    folder = project_folder(settings.data_dir, "models", "default") / version
    write_atomically(folder / "meta.json", msgspec.json.encode(meta))
    return meta


def traffic(
    version: str, count: int, accepted: float, failed: float, since: float, **more: Any
) -> list[dict[str, Any]]:
    """So many ranked selections of a model version from ``since`` on, one every 100 ms: rank 1 or rank 2 is picked."""
    rng, events = np.random.default_rng(len(version) + count), list[dict[str, Any]]()
    for turn in range(count):
        at, name = since + 0.1 * (turn + 1), f"{version}-{since}-{turn}"
        pick = SKILL_IDS[0] if rng.random() < accepted else SKILL_IDS[1]
        candidates = [{"skill_id": skill_id, **more} for skill_id in SKILL_IDS[:4]]
        selection = {"type": "selection", "event_id": name, "time": int(at * 1e9), "query": "q", "ranked": True}
        events.append(selection | {"model_version": version, "candidates": candidates, "picks": [pick]})
        ok = bool(rng.random() >= failed)
        call = {"type": "call", "event_id": f"c{name}", "time": int((at + 0.05) * 1e9), "selection_id": name}
        events.append(call | {"skill_id": pick, "ok": ok} | ({} if ok else {"error_kind": "tool_error"}))
    return events


def without_a_model(count: int, accepted: float, failed: float, since: float) -> list[dict[str, Any]]:
    """The same where the score before any model ranked."""
    return [
        {name: value for name, value in event.items() if name != "model_version"}
        for event in traffic("none", count, accepted, failed, since)
    ]


@pytest.fixture
def started(fresh: Settings) -> tuple[Settings, float]:
    """A project where OLD ranks for everyone and NEW was promoted an hour ago with a tenth of the sessions."""
    settings = settings_for(fresh.data_dir, canary_fraction=0.1)
    began = time.time() - 3_600
    ingest(settings, SKILLS, traffic("", 5, 0.5, 0.1, began - 7_200))
    refresh(settings.data_dir, settings, "default", promote=stored(settings, OLD), now=began - 3_600)
    document = refresh(settings.data_dir, settings, "default", promote=stored(settings, NEW), now=began)
    assert document.model is not None
    assert (document.model.version, document.canary) == (OLD, Canary(version=NEW, fraction=0.1))
    return settings, began


def served(settings: Settings) -> tuple[str | None, str | None, dict[str, Any]]:
    """Model and canary after the next refresh, and the newest change of the pointer."""
    document = refresh(settings.data_dir, settings, "default")
    change = WeightsStore(settings.data_dir).history("default")[0]
    model, canary = document.model, document.canary
    return model.version if model else None, canary.version if canary else None, change


def test_the_first_model_has_nothing_to_be_compared_with(fresh: Settings) -> None:
    settings = settings_for(fresh.data_dir, canary_fraction=0.1)
    ingest(settings, SKILLS, traffic("", 5, 0.5, 0.1, time.time() - 60))
    document = refresh(settings.data_dir, settings, "default", promote=stored(settings, NEW))
    assert document.model is not None
    assert (document.model.version, document.canary) == (NEW, None)


def test_without_the_setting_a_promotion_is_for_everyone(fresh: Settings) -> None:
    ingest(fresh, SKILLS, traffic("", 5, 0.5, 0.1, time.time() - 60))
    refresh(fresh.data_dir, fresh, "default", promote=stored(fresh, OLD))
    document = refresh(fresh.data_dir, fresh, "default", promote=stored(fresh, NEW))
    assert document.model is not None
    assert (document.model.version, document.canary) == (NEW, None)


def test_a_canary_that_is_picked_less_is_taken_back(started: tuple[Settings, float]) -> None:
    settings, began = started
    ingest(settings, [], traffic(OLD, 600, 0.7, 0.1, began) + traffic(NEW, 200, 0.4, 0.1, began))
    model, canary, change = served(settings)
    assert (model, canary, change["action"]) == (OLD, None, "auto_rollback")
    evidence = change["evidence"]
    assert evidence["reason"] == "worse: top1_acceptance_rate"
    assert (evidence["version"], evidence["against"], evidence["since"]) == (NEW, OLD, began)
    new, old = (evidence[which]["top1_acceptance_rate"] for which in ("new", "old"))
    assert (new["n"], old["n"]) == (200, 600)
    assert new["value"] < new["high"] < old["low"] < old["value"]
    assert evidence["new"]["failed_tool_rate"]["n"] == 200
    # It stays so, and the same model isn't promoted again.
    assert served(settings)[:2] == (OLD, None)
    assert "taken back" in (objection(settings.data_dir, "default", NEW) or "")
    assert objection(settings.data_dir, "default", "another") is None


def test_a_canary_whose_calls_fail_more_is_taken_back(started: tuple[Settings, float]) -> None:
    settings, began = started
    ingest(settings, [], traffic(OLD, 600, 0.7, 0.05, began) + traffic(NEW, 200, 0.7, 0.3, began))
    model, canary, change = served(settings)
    assert (model, canary, change["action"]) == (OLD, None, "auto_rollback")
    assert change["evidence"]["reason"] == "worse: failed_tool_rate"


def test_a_canary_that_is_as_good_is_made_full(started: tuple[Settings, float]) -> None:
    settings, began = started
    ingest(settings, [], traffic(OLD, 1_500, 0.7, 0.1, began) + traffic(NEW, 900, 0.72, 0.09, began))
    model, canary, change = served(settings)
    assert (model, canary, change["action"]) == (NEW, None, "graduate")
    assert change["evidence"]["reason"] == "not worse by 0.05"


def test_a_canary_goes_on_without_enough_and_other_models_wait(started: tuple[Settings, float]) -> None:
    settings, began = started
    ingest(settings, [], traffic(OLD, 1_500, 0.7, 0.1, began) + traffic(NEW, settings.canary_min - 1, 0.75, 0.0, began))
    model, canary, change = served(settings)
    assert (model, canary, change["action"], change["evidence"]) == (OLD, NEW, "refresh", None)
    assert "still being judged" in (objection(settings.data_dir, "default", "another") or "")
    assert objection(settings.data_dir, "default", NEW) is None


def test_what_is_interleaved_or_tests_counts_for_no_version(started: tuple[Settings, float]) -> None:
    settings, began = started
    bad = traffic(NEW, 300, 0.1, 0.5, began, team=NEW)
    bad += [
        event | {"event_id": f"x{event['event_id']}", "environment": "staging"}
        for event in traffic(NEW, 300, 0.1, 0.5, began)
    ]
    ingest(settings, [], traffic(OLD, 600, 0.7, 0.1, began) + bad)
    assert served(settings)[:2] == (OLD, NEW)


def test_a_canary_without_a_verdict_ends(started: tuple[Settings, float]) -> None:
    settings, began = started
    refresh(settings.data_dir, settings, "default", now=began + 15 * 86_400)
    store = WeightsStore(settings.data_dir)
    assert store.document("default").canary is None
    change = store.history("default")[0]
    assert (change["action"], change["evidence"]["reason"]) == ("withdraw", "no verdict within 14 days")


def test_a_full_promotion_is_watched(fresh: Settings) -> None:
    began = time.time() - 7_200
    ingest(fresh, SKILLS, traffic("", 5, 0.5, 0.1, began - 60))
    refresh(fresh.data_dir, fresh, "default", promote=stored(fresh, OLD), now=began)
    ingest(fresh, [], traffic(OLD, 600, 0.7, 0.1, began))
    refresh(fresh.data_dir, fresh, "default", promote=stored(fresh, NEW), now=began + 3_600)
    ingest(fresh, [], traffic(NEW, 100, 0.7, 0.1, began + 3_600))
    assert served(fresh)[0] == NEW  # as good, so nothing happens
    ingest(fresh, [], traffic(NEW, 500, 0.3, 0.1, began + 3_700))
    model, canary, change = served(fresh)
    assert (model, canary, change["action"]) == (OLD, None, "auto_rollback")
    assert (change["evidence"]["version"], change["evidence"]["against"]) == (NEW, OLD)
    assert served(fresh)[0] == OLD


def test_a_first_model_that_is_picked_less_gives_way_to_none(fresh: Settings) -> None:
    began = time.time() - 7_200
    before = without_a_model(600, 0.7, 0.1, began)
    menus = [event | {"event_id": f"menu-{event['event_id']}", "ranked": False} for event in before if "picks" in event]
    failing = [event | {"event_id": f"on-{event['event_id']}"} for event in before if "picks" not in event]
    failing = [
        event | {"selection_id": f"menu-{event['selection_id']}", "ok": False, "error_kind": "tool_error"}
        for event in failing
    ]
    ingest(fresh, SKILLS, before + menus + failing)
    refresh(fresh.data_dir, fresh, "default", now=began + 3_500)
    refresh(fresh.data_dir, fresh, "default", promote=stored(fresh, NEW), now=began + 3_600)
    ingest(fresh, [], traffic(NEW, 99, 0.2, 0.1, began + 3_600))
    assert served(fresh)[0] == NEW  # too few to say
    ingest(fresh, [], traffic(NEW, 300, 0.3, 0.1, began + 3_700))
    model, canary, change = served(fresh)
    assert (model, canary, change["action"], change["model_version"]) == (None, None, "auto_rollback", None)
    evidence = change["evidence"]
    assert (evidence["version"], evidence["against"]) == (NEW, "score before any model")
    assert evidence["reason"] == "worse: top1_acceptance_rate"
    # Fixed menus were ranked by nobody: neither their picks nor their failing calls are held against anybody.
    assert evidence["old"]["top1_acceptance_rate"]["n"] == evidence["old"]["failed_tool_rate"]["n"] == 600
    assert evidence["old"]["failed_tool_rate"]["value"] < 0.2
    assert served(fresh)[0] is None
    assert "taken back" in (objection(fresh.data_dir, "default", NEW) or "")


def test_a_first_model_that_is_as_good_stays(fresh: Settings) -> None:
    began = time.time() - 7_200
    ingest(fresh, SKILLS, without_a_model(600, 0.7, 0.1, began))
    refresh(fresh.data_dir, fresh, "default", promote=stored(fresh, NEW), now=began + 3_600)
    ingest(fresh, [], traffic(NEW, 400, 0.7, 0.1, began + 3_700))
    ingest(fresh, [], without_a_model(400, 1.0, 0.0, began + 3_700))  # what came later is no measure of before
    assert served(fresh)[0] == NEW


def test_history_forgets_refreshes_only(fresh: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranker.weights_store.REFRESHES", 3)
    began = time.time() - 3_600
    ingest(fresh, SKILLS, traffic("", 5, 0.5, 0.1, began - 60))
    refresh(fresh.data_dir, fresh, "default", promote=stored(fresh, OLD), now=began)
    for turn in range(5):
        ingest(fresh, [], traffic(OLD, 30, 0.5, 0.5, began + 60 * turn))
        refresh(fresh.data_dir, fresh, "default", now=began + 60 * turn)
    actions = [change["action"] for change in WeightsStore(fresh.data_dir).history("default")]
    assert actions == ["refresh", "refresh", "refresh", "promote"]
    assert WeightsStore(fresh.data_dir).model_versions("default") == [OLD]


def test_sessions_are_split_by_hash() -> None:
    canary, sessions = Canary(version=NEW, fraction=0.2), [f"session-{number}" for number in range(5_000)]
    first = {session for session in sessions if chosen(canary, session)}
    assert len(first) / 5_000 == pytest.approx(0.2, abs=0.02)
    assert first == {session for session in sessions if chosen(canary, session)}
    other = {session for session in sessions if chosen(Canary(version="another", fraction=0.2), session)}
    assert len(first & other) / 5_000 == pytest.approx(0.04, abs=0.01)
    wider = {session for session in sessions if chosen(Canary(version=NEW, fraction=0.5), session)}
    assert first < wider
    assert not chosen(canary, "")
    assert not chosen(None, "session-1")


def test_least_difference_is_newcombes() -> None:
    # Newcombe 1998, table II, example (a): 56/70 - 48/80, method 10: 0.0524 to 0.3339.
    assert least_difference(Rate(56, 70), Rate(48, 80)) == pytest.approx(0.0524, abs=1e-4)
    assert least_difference(Rate(0, 0), Rate(48, 80)) == -1


def test_verdicts_are_seldom_wrong() -> None:
    """A canary looked at again and again: equal ones are seldom taken back, worse ones are; see bench.canary_trials."""
    ends = {share: [verdict(share, seed)[0] for seed in range(200)] for share in (0.6, 0.55, 0.5)}
    assert ends[0.6].count("taken back") <= 0.1 * 200
    assert ends[0.6].count("full") >= 0.9 * 200
    assert ends[0.55].count("taken back") >= 0.85 * 200
    assert ends[0.5].count("taken back") >= 0.98 * 200
    # A value below the old one's interval comes by chance, given time: not enough to take an equal one back.
    assert [verdict(0.6, seed, value_below)[0] for seed in range(200)].count("taken back") > 0.4 * 200
