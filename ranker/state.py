"""All that features know at one moment: counters fed by facts in the order of their own times.

Training replays a log through it, serving keeps one up to date: the same code, so a feature means the same in both.
Nothing here looks ahead: what was fed is what is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from pickwise.text import script, split_name, terms
from ranker.decay import DecayedSums
from ranker.examination import PositionFactors, ShuffledPicks
from ranker.heat import HeatCounts
from ranker.history import QueryHistory
from ranker.success import SuccessCounts, judges_skill
from ranker.transitions import Transitions
from ranker.turns import Ended, Registered, Turn
from ranker.words import DescribedBy, WordHistory, query_terms

LATENCY_HALF_LIFE_DAYS = 14.0
#: Row of every skill that is not known (yet); nothing is ever counted there.
UNKNOWN = 0
#: A script as a number.
SCRIPT_CODES = {"latin": 0.0, "cjk": 1.0, "other": 2.0}


@dataclass(slots=True)
class KnownSkill:
    """The words that are known of a skill."""

    skill_id: str
    #: Distinct.
    terms: tuple[str, ...] = ()
    domain: str = ""
    actions: frozenset[str] = frozenset()
    objects: frozenset[str] = frozenset()


#: What is known of each skill as a number; NaN where it isn't.
_FACTS = np.dtype(
    [("script", "f8"), ("description_words", "f8"), ("first_seen", "f8"), ("registered", "?")], align=True
)
_NO_FACTS = np.array((SCRIPT_CODES["other"], np.nan, np.nan, False), dtype=_FACTS)


@dataclass
class State:
    """The learner's memory of one project as of the newest fact it was fed."""

    dimension: int
    factors: Sequence[PositionFactors] = ()
    skills: list[KnownSkill] = field(default_factory=lambda: [KnownSkill("")])
    row_of: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.examination = ShuffledPicks(list(self.factors))
        self.heat = HeatCounts()
        self.success = SuccessCounts()
        self.history = QueryHistory(self.dimension)
        self.words = WordHistory()
        self.described_by = DescribedBy()
        self.transitions = Transitions()
        self.latency = DecayedSums(LATENCY_HALF_LIFE_DAYS, width=2)
        #: By row: the vector of its description, and what else is a number.
        self.descriptions = np.zeros((0, self.dimension), dtype=np.float32)
        self.facts = np.zeros(0, dtype=_FACTS)
        #: How many facts it was fed.
        self.fed = 0
        self._grow(1)

    def rows(self, skill_ids: Iterable[str]) -> NDArray[np.intp]:
        """Rows of the skills, ``UNKNOWN`` where one was never registered or offered."""
        return np.fromiter(map(self.row_of.get, skill_ids, repeat(UNKNOWN)), dtype=np.intp)

    @property
    def models(self) -> list[str]:
        """Calling models that a ranked list was shown to."""
        return self.heat.models

    @property
    def cells(self) -> int:
        """How many numbers its vectors hold: they take more memory than all else."""
        return self.descriptions.size + self.history.cells

    def feed(self, fact: Turn | Ended | Registered) -> None:
        """Take a fact in. Facts come in the order of their times; late ones count all the same."""
        self.fed += 1
        if isinstance(fact, Turn):
            self._offered(fact)
        elif isinstance(fact, Ended):
            self._ended(fact)
        else:
            self._registered(fact)

    def _offered(self, turn: Turn) -> None:
        rows = np.array([self._row(skill_id) for skill_id in turn.skill_ids], dtype=np.intp)
        seen = self.facts["first_seen"]
        seen[rows] = np.fmin(seen[rows], turn.time)
        self.words.asked(query_terms(turn.query), turn.time)
        if turn.previous_skill_id:
            for index in turn.picked:
                self.transitions.add(turn.previous_skill_id, turn.skill_ids[index], turn.time)
        if not turn.ranked or not len(rows):
            return
        self.heat.add(turn.model, rows, turn.picked, turn.time)
        if turn.randomized:
            self.examination.add(turn.model, [int(index) + 1 for index in turn.picked], len(rows))

    def _ended(self, call: Ended) -> None:
        row = self.row_of.get(call.skill_id, UNKNOWN)
        if row == UNKNOWN:  # an invented name
            return
        if judges_skill(call.ok, call.error_kind):
            self.success.add(row, call.time, call.ok)
        if call.latency_ms is not None and call.latency_ms >= 0:
            self.latency.add(row, 0, call.time, float(np.log1p(call.latency_ms)))
            self.latency.add(row, 1, call.time)
        if call.turn is not None:
            weight = self._pick_weight(call.turn, call.skill_id, call.time)
            self.history.add(row, call.turn.vector, call.time, weight)
            self.words.add(row, query_terms(call.turn.query), call.time)

    def _registered(self, entry: Registered) -> None:
        row = self._row(entry.skill_id)
        known = self.skills[row]
        text = f"{split_name(entry.name)} {entry.description}"
        before, known.terms = known.terms, tuple(dict.fromkeys(terms(text)))
        self.described_by.move(row, before, known.terms)
        known.domain, known.actions, known.objects = entry.domain, entry.actions, entry.objects
        facts = self.facts[row]
        facts["script"], facts["registered"] = SCRIPT_CODES[script(text)], True
        facts["description_words"] = len(entry.description.split())
        self.descriptions[row] = entry.vector
        self.success.set_domain(row, entry.domain)

    def _pick_weight(self, turn: Turn, skill_id: str, now: float) -> float:
        """min(1/θ, 10) of the rank it was picked at; 1 for fixed menus and picks off the list."""
        if not turn.ranked or skill_id not in turn.skill_ids:
            return 1.0
        return self.examination.at(turn.model, now).weight(turn.skill_ids.index(skill_id) + 1)

    def _row(self, skill_id: str) -> int:
        row = self.row_of.get(skill_id)
        if row is None:
            row = self.row_of[skill_id] = len(self.skills)
            self.skills.append(KnownSkill(skill_id))
            self._grow(row + 1)
        return row

    def _grow(self, rows: int) -> None:
        self.heat.grow(rows)
        self.success.grow(rows)
        self.latency.grow(rows)
        have = len(self.facts)
        if rows > have:
            room = max(rows, 2 * have, 64)
            descriptions, facts = np.zeros((room, self.dimension), np.float32), np.full(room, _NO_FACTS)
            descriptions[:have], facts[:have] = self.descriptions, self.facts
            self.descriptions, self.facts = descriptions, facts
