"""What is served for each project: current weights, the model they name, and the state that features read.

A look at the pointer every ``model_poll_s``; what changed is loaded beside what is served and put in its place, so that
requests never wait for it. A model that can't be used is refused, and the last good one is served on.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pickwise.embed import Vectors
from pickwise.settings import Settings
from ranker import formula, weights
from ranker.decay import Numbers
from ranker.log import Fact, Log, ends, entries, feed, read_log, turns
from ranker.models import Model, ModelUnusable, load
from ranker.state import UNKNOWN, State
from ranker.turns import Turn
from ranker.vectors import VectorCache, load_vectors
from ranker.weights_document import WeightsDocument
from ranker.weights_store import WeightsStore

log = logging.getLogger(__name__)


@dataclass
class Served:
    """What one project is served from. Hold ``lock`` while reading ``state``."""

    document: WeightsDocument
    model: Model | None
    vectors: VectorCache | None
    state: State
    #: Keys of the facts that the state has taken in.
    taken: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self, skill_ids: Sequence[str]) -> NDArray[np.bool_]:
        """Which skills are registered or were ever offered; all of them where the project knows none."""
        if not self.state.row_of:
            return np.ones(len(skill_ids), dtype=bool)
        return np.array([self.state.row_of.get(skill_id, UNKNOWN) != UNKNOWN for skill_id in skill_ids], dtype=bool)

    def embed(self, query: str) -> Vectors:
        return self.vectors.one(query) if self.vectors else np.zeros(0, dtype=np.float32)

    def formula_terms(self, turn: Turn) -> dict[str, Numbers]:
        """The terms of the score before any model, from the served weights."""
        prior = self.state.success.at(self.state.rows(turn.skill_ids), turn.time).prior
        entry = [self.document.skills.get(skill_id) for skill_id in turn.skill_ids]
        heat = np.array([0.5 if found is None else found.heat for found in entry])
        success = np.array([p if found is None else found.success for found, p in zip(entry, prior, strict=True)])
        return formula.terms(turn.scores, heat, success, prior)


class Projects:
    """What is served, by project; loaded at the first request for it."""

    def __init__(self, data_dir: Path, settings: Settings) -> None:
        self._data_dir = Path(data_dir)
        self._settings = settings
        self._store = WeightsStore(self._data_dir)
        self._vectors: VectorCache | None = None
        self._served: dict[str, Served] = {}
        self._loading: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._watcher: threading.Thread | None = None

    def close(self) -> None:
        self._closed.set()
        self._store.close()

    def get(self, project: str) -> Served:
        """What is served now. The first call for a project loads it; from then on it is kept fresh."""
        served = self._served.get(project)
        return self.reload(project) if served is None else served

    def look(self) -> None:
        """Reload every project whose pointer has moved. A fault is logged, and the last good weights served on."""
        for project, served in list(self._served.items()):
            try:
                version = self._store.current_version(project)
                if version is not None and version != served.document.version:
                    self.reload(project)
            except Exception:
                log.exception("project %s: the last good weights are served on", project)

    def reload(self, project: str) -> Served:
        """Load what the pointer names and serve it; waits for a reload that is under way."""
        with self._lock:
            loading = self._loading.setdefault(project, threading.Lock())
            if self._watcher is None:
                watch = (weakref.ref(self), self._closed, self._settings.model_poll_s)
                self._watcher = threading.Thread(target=_watch, args=watch, name="ranker-watch", daemon=True)
                self._watcher.start()
        with loading:
            served = self._load(project, self._served.get(project))
            self._served[project] = served
            return served

    def _load(self, project: str, before: Served | None) -> Served:
        document = self._store.document(project)
        model = self._model(project, document, before)
        read = read_log(self._data_dir, self._settings, project)
        same = before is not None and _version(before.model) == _version(model)
        if before is not None and same:
            vectors, state, taken = before.vectors, before.state, before.taken
        else:
            # Before any model no feature is read, so nothing needs embedding.
            vectors = self._embedder() if model else None
            factors = weights.position_factors(self._data_dir, project)
            state, taken = State(vectors.dimension if vectors else 0, factors), set()
        facts = _new_facts(read, vectors, taken)
        served = Served(document, model, vectors, state, taken)
        if before is not None and same:
            served.lock = before.lock
        with served.lock:
            feed(facts, state)
        return served

    def _model(self, project: str, document: WeightsDocument, before: Served | None) -> Model | None:
        """The model that the weights name; where it can't be used the last good one."""
        if document.model is None:
            return None
        named = document.model.version
        if before is not None and before.model is not None and before.model.meta.version == named:
            return before.model
        candidates = [named, *(version for version in self._store.model_versions(project) if version != named)]
        for version in candidates:
            try:
                return load(self._data_dir, project, version, self._embedder().version)
            except ModelUnusable as reason:
                log.error("%s", reason)
                if before is not None and before.model is not None:
                    return before.model
        return None

    def _embedder(self) -> VectorCache:
        if self._vectors is None:
            self._vectors = load_vectors(self._data_dir, self._settings)
        return self._vectors


def _watch(watched: weakref.ref[Projects], closed: threading.Event, poll_s: float) -> None:
    """Look every ``poll_s``, whether requests come or not: the first one after a promotion gets the new model too."""
    while not closed.wait(poll_s):
        projects = watched()
        if projects is None:
            return
        projects.look()
        del projects


def _version(model: Model | None) -> str | None:
    return model.meta.version if model else None


def _new_facts(read: Log, vectors: VectorCache | None, taken: set[str]) -> list[Fact]:
    """The facts of the log that the state has not taken in, and marks them as taken."""
    selections, calls, skills = read.selections, read.calls, read.skills
    new_turns, new_calls = (
        _untaken(selections["event_id"].to_list(), "s", taken),
        _untaken(calls["call_key"].to_list(), "c", taken),
    )
    states = [f"{row[0]}@{row[1]}" for row in skills.select("skill_id", "valid_from").iter_rows()]
    new_skills = _untaken(states, "r", taken)
    # New calls may belong to old turns, so their turns are built too.
    wanted = set(selections["event_id"].gather(new_turns)) | set(calls["selection_id"].gather(new_calls).drop_nulls())
    part = Log(
        selections=selections.filter(selections["event_id"].is_in(list(wanted))),
        candidates=read.candidates.filter(read.candidates["event_id"].is_in(list(wanted))),
        calls=calls[new_calls],
        skills=skills[new_skills],
        labels=read.labels,
    )
    built = turns(part, vectors)
    fresh = set(selections["event_id"].gather(new_turns))
    return [
        *(turn for turn in built if turn.selection_id in fresh),
        *ends(part, built),
        *entries(part, vectors),
    ]


def _untaken(keys: Sequence[str], kind: str, taken: set[str]) -> list[int]:
    found = []
    for index, key in enumerate(keys):
        marked = f"{kind}:{key}"
        if marked not in taken:
            taken.add(marked)
            found.append(index)
    return found
