"""What is served for each project: current weights, the model they name, the state that features read, and recall.

A look at the pointer every ``model_poll_s``; what changed is loaded beside what is served and put in its place. New
facts go into the state that is served, a few at a time, so that no request waits for long. A model that can't be used
is refused, and the last good one is served on.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pickwise.embed import Vectors
from pickwise.settings import Settings
from ranker import formula
from ranker.artefacts import Artefacts
from ranker.beside import Beside, load_beside
from ranker.decay import Numbers
from ranker.factors import position_factors
from ranker.features.base import Context
from ranker.log import Fact, Log, ends, entries, ordered, read_log, turns
from ranker.models import Model
from ranker.named_model import NamedModels
from ranker.paths import PathContributions
from ranker.recall import Recall, recall_of
from ranker.standing import Standing
from ranker.state import UNKNOWN, State
from ranker.vectors import VectorCache, load_vectors
from ranker.weights_document import SkillEntry, WeightsDocument
from ranker.weights_store import WeightsStore

log = logging.getLogger(__name__)

#: Facts that the served state takes in at once: about a millisecond.
_FED_AT_ONCE = 32
#: Projects that are held at once, and numbers that the vectors of all of them hold, 4 bytes each: beyond, the project
#: that was asked longest ago is dropped, and loaded again when it is asked. The newest one always stays.
MOST_PROJECTS = 200
MOST_CELLS = 50_000_000


@dataclass
class Served:
    """What one project is served from. Hold ``lock`` while reading ``state``."""

    document: WeightsDocument
    model: Model | None
    #: None until a model or recall needs them: before that no query is embedded.
    vectors: VectorCache | None
    state: State
    #: Version of the weights with which the newest facts were taken in.
    fed: str = ""
    #: What the model's features add to a score; None without a model.
    paths: PathContributions | None = None
    #: Other models, that rank for some sessions.
    beside: Beside = field(default_factory=Beside)
    recall: Recall | None = None
    #: Version of the file that ``recall`` can be downloaded as.
    artefact: str | None = None
    #: Keys of the facts that the state has taken in.
    taken: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    #: Features that the state says of each skill, whatever is asked.
    standing: Standing = field(default=None)  # type: ignore[assignment]  # made below

    def __post_init__(self) -> None:
        self.standing = self.standing or Standing(self.state)

    def known(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which skills are registered or were ever offered; all of them where the project knows none."""
        return np.asarray(rows != UNKNOWN) if self.state.row_of else np.ones(len(rows), dtype=bool)

    def is_quick(self, query: str) -> bool:
        """Whether the query needs no embedding any more."""
        return self.vectors is None or self.vectors.has_met(query)

    def rankers(self, session_id: str) -> list[Served]:
        """What ranks for a session: one, or two whose orders are to be interleaved."""
        found = []
        for version in self.beside.rankers(self.document, session_id):
            other = self.beside.models.get(version) if version is not None else None
            found.append(replace(self, model=other[0], paths=other[1]) if other else self)
        return found

    def embed(self, query: str) -> Vectors:
        return self.vectors.one(query) if self.vectors else np.zeros(0, dtype=np.float32)

    def formula_terms(self, context: Context) -> dict[str, Numbers]:
        """The terms of the score before any model, from the served weights."""
        turn = context.turn
        entry = [self.document.skills.get(skill_id) for skill_id in turn.skill_ids]
        if self.state.row_of:
            prior = context.success.prior
        else:
            prior = np.array([0.5 if found is None else _domain_rate(found) for found in entry])
        heat = np.array([0.5 if found is None else found.heat for found in entry])
        success = np.array([p if found is None else found.success for found, p in zip(entry, prior, strict=True)])
        return formula.terms(turn.scores, heat, success, prior)


class Projects:
    """What is served, by project; loaded at the first request for it."""

    def __init__(self, data_dir: Path, settings: Settings, read: Callable[[str], Log] | None = None) -> None:
        """``read``: the log of a project; absent, this process reads it."""
        self._data_dir = Path(data_dir)
        self._settings = settings
        self._read = read or partial(read_log, self._data_dir, settings)
        self._store = WeightsStore(self._data_dir)
        self._artefacts = Artefacts(self._data_dir)
        self._models = NamedModels(self._data_dir)
        self._vectors: VectorCache | None = None
        #: The one that was asked last comes last.
        self._served: OrderedDict[str, Served] = OrderedDict()
        self._loading: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._watcher: threading.Thread | None = None
        self._is_ahead = False

    def close(self) -> None:
        self._closed.set()
        self._store.close()

    def load_ahead(self, named: Callable[[], Sequence[str]]) -> None:
        """Load the projects that are named, after a restart: until that is done nobody waits for one to be loaded.

        A fault is logged, and the others are loaded.
        """
        self._is_ahead = True
        try:
            for project in named()[:MOST_PROJECTS]:
                try:
                    self.reload(project)
                except Exception:
                    log.exception("project %s could not be loaded ahead", project)
        finally:
            self._is_ahead = False

    def get(self, project: str) -> Served:
        """What is served now. The first call for a project loads it; from then on it is kept fresh.

        Who comes while it is loaded the first time, after a restart, is served from the weights alone.
        """
        served = self.loaded(project)
        if served is not None:
            return served
        loading = self._loading.get(project)
        if self._is_ahead or (loading is not None and loading.locked()):
            return Served(self._store.document(project), None, None, State(0))
        return self.reload(project)

    def loaded(self, project: str) -> Served | None:
        """What is served now, None where the next call has to load it."""
        served = self._served.get(project)
        if served is not None:
            with suppress(KeyError):  # another thread has just dropped it
                self._served.move_to_end(project)
        return served

    def with_recall(self, project: str) -> Served:
        """The same with recall by history, which is made at the first call for it and kept fresh from then on."""
        served = self.loaded(project)
        return served if served and served.recall is not None else self.reload(project, with_recall=True)

    def look(self) -> None:
        """Reload every project whose pointer has moved. A fault is logged, and the last good weights served on."""
        for project, served in list(self._served.items()):
            try:
                pointer = self._store.pointer(project)
                now = (pointer.version, pointer.interleaving) if pointer else None
                is_stale = now is not None and now != (served.fed, served.beside.interleaving)
                if (is_stale or self._is_mended(project, served)) and project in self._served:
                    self.reload(project)
            except Exception:
                log.exception("project %s: the last good weights are served on", project)

    def renew(self, project: str, version: str) -> None:
        """Serve the document of that version where the model stays: its facts come with the next look.

        So who has read new weights is ranked by them.
        """
        served = self._served.get(project)
        if served is None or served.document.version == version:
            return
        document = self._store.document(project, version)
        if document.model == served.document.model:
            served.document = document

    def reload(self, project: str, *, with_recall: bool = False) -> Served:
        """Load what the pointer names and serve it; waits for a reload that is under way."""
        with self._lock:
            loading = self._loading.setdefault(project, threading.Lock())
            if self._watcher is None:
                watch = (weakref.ref(self), self._closed, self._settings.model_poll_s)
                self._watcher = threading.Thread(target=_watch, args=watch, name="ranker-watch", daemon=True)
                self._watcher.start()
        with loading:
            before = self._served.get(project)
            if with_recall and before is not None and before.recall is not None:
                return before  # another call has just made it
            served = self._load(project, before, with_recall)
            self._keep(project, served)
            _give_back()
            return served

    def _keep(self, project: str, served: Served) -> None:
        """In the place of what was served before, else as the newest, for which the oldest may have to go."""
        with self._lock:
            self._served[project] = served
            while len(self._served) > MOST_PROJECTS or (len(self._served) > 1 and self._cells() > MOST_CELLS):
                oldest, _ = self._served.popitem(last=False)
                loading = self._loading.get(oldest)
                if loading is not None and not loading.locked():
                    del self._loading[oldest]

    def _cells(self) -> int:
        return sum(served.state.cells for served in list(self._served.values()))

    def _load(self, project: str, before: Served | None, with_recall: bool) -> Served:
        pointer = self._store.pointer(project)
        document = self._store.document(project)
        fed = pointer.version if pointer else document.version
        model = self._model(project, document, before)
        has_vectors = model is not None or with_recall or (before is not None and before.vectors is not None)
        read = self._read(project)
        if before is not None and before.model is model and (before.vectors is not None) == has_vectors:
            served = replace(before, document=document, fed=fed)
        else:
            vectors = self._embedder() if has_vectors else None
            factors = position_factors(self._data_dir, project)
            state = State(vectors.dimension if vectors else 0, factors)
            paths = PathContributions(model) if model else None
            served = Served(document, model, vectors, state, fed, paths)
        _feed(served, _new_facts(read, served.vectors, served.taken))
        served.beside = Beside(interleaving=self._store.interleaving(project))
        if served.model is not None:
            kept, version = before.beside.models if before else {}, self._embedder().version
            served.beside = load_beside(self._data_dir, project, document, served.beside.interleaving, version, kept)
        if served.vectors is not None:
            self._recall(project, served, served.vectors.version)
        return served

    def _recall(self, project: str, served: Served, embedding_version: str) -> None:
        """Make recall and its artefact; one that can't be written is logged."""
        skill_ids = list(served.document.skills) or list(served.state.row_of)
        served.recall = recall_of(
            served.state, skill_ids, project, served.document.version, embedding_version, time.time()
        )
        try:
            served.artefact = self._artefacts.keep(served.recall) if served.recall.skill_ids else None
        except OSError:
            log.exception("project %s: the artefact of recall can't be written", project)

    def _model(self, project: str, document: WeightsDocument, before: Served | None) -> Model | None:
        """The model that the weights name; where it can't be used the last good one."""
        if document.model is None:
            return None
        earlier = self._store.model_versions(project)
        return self._models.of(project, document, earlier, before.model if before else None, self._embedder().version)

    def _is_mended(self, project: str, served: Served) -> bool:
        """Whether the model that the weights name was refused and can be used now."""
        if served.document.model is None:
            return False
        return self._models.is_mended(project, served.document, self._embedder().version)

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


def _give_back() -> None:
    """Hand what loading took to the system again: the C library would keep it, 30 MiB of 16,000 turns."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # the GNU C library's
        trim(0)


def _domain_rate(entry: SkillEntry) -> float:
    """p_d, of which the weights tell the distance: success_logit = logit p̂ - logit p_d, up to 2 either way."""
    odds = entry.success / (1 - entry.success) / np.exp(entry.success_logit)
    return float(odds / (1 + odds))


def _feed(served: Served, facts: Sequence[Fact]) -> None:
    in_order = ordered(facts)
    for start in range(0, len(in_order), _FED_AT_ONCE):
        with served.lock:
            for fact in in_order[start : start + _FED_AT_ONCE]:
                served.state.feed(fact)


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
