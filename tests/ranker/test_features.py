"""Features look at the past only, and mean the same offline and online."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ranker import dataset, features
from ranker.dataset import featurise
from ranker.features.base import Context, lead
from ranker.halves import can_share
from ranker.log import Log, facts_of, feed, labels_by_turn, read_log
from ranker.state import State
from ranker.turns import Turn
from ranker.vectors import load_vectors
from tests.ranker.conftest import SKILL_IDS, Project


@pytest.fixture(scope="module")
def log(trained: Project) -> Log:
    return read_log(trained.data_dir, trained.settings, "default")


def matrices(log: Log, trained: Project) -> dict[str, np.ndarray]:
    vectors = load_vectors(trained.data_dir, trained.settings)
    facts = facts_of(log, vectors)
    groups = featurise(facts, labels_by_turn(log, facts), State(vectors.dimension))
    return {group.turn.selection_id: group.features for group in groups}


def test_later_facts_change_nothing(log: Log, trained: Project) -> None:
    """From a moment on everything is turned around: calls end otherwise and later, picks and entries differ."""
    moment = float(log.selections["at"][800])
    later = pl.col("event_id").is_in(log.selections.filter(pl.col("at") >= moment)["event_id"].to_list())
    entry = '{"skill_id": "weather_forecast", "description": "rewritten", "domain": "new"}'
    rewritten = log.skills.with_columns(pl.lit(moment).alias("valid_from"), pl.lit(entry).alias("entry"))
    changed = replace(
        log,
        candidates=log.candidates.with_columns(
            pl.when(later).then(~pl.col("picked")).otherwise(pl.col("picked")).alias("picked")
        ),
        calls=log.calls.with_columns(
            pl.when(pl.col("ended") >= moment).then(~pl.col("ok")).otherwise(pl.col("ok")).alias("ok"),
            pl.when(pl.col("ended") >= moment).then(pl.col("ended") + 1e5).otherwise(pl.col("ended")).alias("ended"),
        ),
        skills=pl.concat([log.skills, rewritten]),
    )
    before, after = matrices(log, trained), matrices(changed, trained)
    ids = log.selections.filter(pl.col("at") <= moment)["event_id"].to_list()
    assert len(ids) > 700
    for selection_id in ids:
        np.testing.assert_array_equal(before[selection_id], after[selection_id])
    # The change is one that features see once it lies in the past.
    last = log.selections["event_id"][-1]
    assert not np.array_equal(before[last], after[last], equal_nan=True)


def test_an_outcome_counts_from_the_end_of_its_call(log: Log, trained: Project) -> None:
    moved = replace(log, calls=log.calls.with_columns(pl.lit(4e9).alias("ended")))
    found = np.concatenate(list(matrices(moved, trained).values()))
    for name in ("history_centroid", "latency_log"):
        assert np.isnan(found[:, features.NAMES.index(name)]).all()
    assert not found[:, features.NAMES.index("success_support")].any()


def test_offline_and_online_agree(log: Log, trained: Project) -> None:
    """A state fed step by step, as serving does, computes what replaying the log computed."""
    offline = matrices(log, trained)
    vectors = load_vectors(trained.data_dir, trained.settings)
    facts = facts_of(log, vectors)
    state, fed = State(vectors.dimension), 0.0
    turns = sorted((fact for fact in facts if isinstance(fact, Turn)), key=lambda turn: turn.time)
    for turn in turns[1500:1600]:
        feed([fact for fact in facts if (fed or -np.inf) <= fact.time < turn.time], state)
        fed = turn.time
        asked = replace(turn, vector=vectors.one(turn.query), picked=np.zeros(0, dtype=np.intp))
        online = features.compute(Context(asked, state))
        np.testing.assert_allclose(online, offline[turn.selection_id], rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not can_share(), reason="one core, or no Linux")
def test_two_processes_compute_what_one_does(log: Log, trained: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = matrices(log, trained)
    told: list[str] = []
    monkeypatch.setattr(dataset, "SHARED_TURNS", 1)
    vectors = load_vectors(trained.data_dir, trained.settings)
    facts, state = facts_of(log, vectors), State(vectors.dimension)
    groups = dataset.featurise(facts, labels_by_turn(log, facts), state, told.append)
    assert [group.turn.selection_id for group in groups] == list(alone)
    for group in groups:
        np.testing.assert_array_equal(group.features, alone[group.turn.selection_id])
    assert told
    assert len(state.row_of) == len(SKILL_IDS)  # this process knows all that was fed


def test_declarations() -> None:
    assert len(set(features.NAMES)) == len(features.NAMES)
    for feature in features.FEATURES:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", feature.name)
        assert feature.why
    assert "rank" not in features.NAMES  # the place itself must not be learned


def test_every_feature_is_documented() -> None:
    documented = (Path(__file__).parents[2] / "docs" / "ranker.md").read_text()
    for feature in features.FEATURES:
        assert f"| `{feature.name}` | {feature.type} | {feature.source} | {feature.why} |" in documented


def test_lead() -> None:
    assert lead(np.array([0.5, 0.9, 0.2])) == pytest.approx([-0.4, 0.4, -0.7])
    assert np.isnan(lead(np.array([np.nan, 0.9]))[0])
