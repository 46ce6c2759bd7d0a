"""A small project with known position bias, made as real events in a real data folder."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.ingest import ingest
from bench.simulated_agents import TWO_MODELS
from pickwise.settings import Settings
from ranker.train import train
from ranker.weights import refresh

TOPICS = (
    "weather forecast",
    "flight booking",
    "currency exchange",
    "recipe search",
    "movie review",
    "train schedule",
    "translate sentence",
    "stock price",
    "hotel room",
    "calendar reminder",
    "music playlist",
    "tax estimate",
)
SKILLS: list[dict[str, Any]] = [
    {"skill_id": topic.replace(" ", "_"), "description": f"Does {topic} work.", "domain": "even" if i % 2 else "odd"}
    for i, topic in enumerate(TOPICS)
]
SKILL_IDS = [skill["skill_id"] for skill in SKILLS]
#: Words that users say and descriptions don't: only history can learn what they mean.
SLANG = [f"{'bcdfghklmnprst'[i]}{'aeiou'[i % 5]}zz{'lmnr'[i % 4]}o" for i in range(len(TOPICS))]


def settings_for(data_dir: Path, **given: Any) -> Settings:
    # History by words: no model to load.
    return Settings(data_dir=data_dir, embedder="words", flush_interval_s=0.1, **given)


def simulated(turns: int, seed: int = 0, until: float | None = None) -> list[dict[str, Any]]:
    """Events of agents that ask in slang for one of the skills; the retrieval scores are half noise."""
    rng = np.random.default_rng(seed)
    end, models, events = until or time.time(), list(TWO_MODELS.shares), list[dict[str, Any]]()
    for turn in range(turns):
        wanted = int(rng.integers(len(SKILLS)))
        scores = rng.random(len(SKILLS)) + 0.3 * (np.arange(len(SKILLS)) == wanted)
        shown = np.argsort(-scores)[:8]
        shuffled = bool(rng.random() < 0.05)
        if shuffled:
            shown = np.concatenate([rng.permutation(shown[:5]), shown[5:]])
        model, at = models[turn % 2], end - (turns - turn) * 30.0
        pick = TWO_MODELS.pick(model, shown == wanted, rng)
        common = {"session_id": f"s{turn // 3}", "model": model}
        query = f"please {SLANG[wanted]} number {rng.integers(99)}"
        candidates = [{"skill_id": SKILL_IDS[row], "dense": float(scores[row])} for row in shown]
        picks = [] if pick is None else [SKILL_IDS[shown[pick]]]
        selection = {"type": "selection", "event_id": f"t{turn}", "time": int(at * 1e9), "query": query, "ranked": True}
        events.append(selection | common | {"randomized": shuffled, "candidates": candidates, "picks": picks})
        if pick is not None:
            ok = TWO_MODELS.succeeds(bool(shown[pick] == wanted), rng)
            call = {"type": "call", "event_id": f"c{turn}", "time": int((at + 1) * 1e9), "selection_id": f"t{turn}"}
            failure = {} if ok else {"error_kind": "tool_error"}
            events.append(call | common | {"skill_id": picks[0], "ok": ok, "latency_ms": 80.0} | failure)
    return events


@dataclass(frozen=True)
class Project:
    settings: Settings
    events: list[dict[str, Any]]
    #: What ``train`` returned.
    result: dict[str, Any]

    @property
    def data_dir(self) -> Path:
        return self.settings.data_dir


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """2,400 turns; weights without a model, then with the promoted one. Tests must not change it."""
    settings = settings_for(tmp_path_factory.mktemp("trained"))
    events = simulated(2_400)
    ingest(settings, SKILLS, events)
    refresh(settings.data_dir, settings, "default")
    return Project(settings, events, train(settings.data_dir, settings, project="default", seed=3))


@pytest.fixture
def fresh(tmp_path: Path) -> Settings:
    """An empty data folder."""
    return settings_for(tmp_path)
