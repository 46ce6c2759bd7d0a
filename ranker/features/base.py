"""What a feature is, and what it may look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pickwise.embed import Vectors
from pickwise.text import script
from ranker.decay import Numbers
from ranker.heat import Heat
from ranker.history import Likeness
from ranker.state import SCRIPT_CODES, KnownSkill, State
from ranker.success import Success
from ranker.turns import Turn
from ranker.words import query_terms

FeatureType = Literal[
    "score", "share", "cosine", "count", "category", "flag", "log ratio", "log odds", "log count", "log ms", "log days"
]


@lru_cache(maxsize=4_096)
def _script_code(query: str) -> float:
    return SCRIPT_CODES[script(query)]


@dataclass
class Context:
    """One turn against the state as of its time. What several features need is computed once."""

    turn: Turn
    state: State

    @cached_property
    def rows(self) -> NDArray[np.intp]:
        return self.state.rows(self.turn.skill_ids)

    @cached_property
    def skills(self) -> list[KnownSkill]:
        return [self.state.skills[row] for row in self.rows.tolist()]

    def fact(self, name: str) -> NDArray[Any]:
        """What the state knows of the skills as a number."""
        return self.state.facts[name][self.rows]

    @cached_property
    def query_terms(self) -> tuple[str, ...]:
        """Distinct."""
        return query_terms(self.turn.query)

    @cached_property
    def query_script(self) -> float:
        return _script_code(self.turn.query)

    @cached_property
    def heat(self) -> Heat:
        return self.state.heat.at(self.rows, self.turn.time, self.state.examination)

    @cached_property
    def success(self) -> Success:
        return self.state.success.at(self.rows, self.turn.time)

    @cached_property
    def descriptions(self) -> Vectors:
        return self.state.descriptions[self.rows]

    @cached_property
    def history(self) -> Likeness:
        return self.state.history.compare(self.turn.vector, self.rows, self.descriptions, self.turn.time)


@dataclass(frozen=True)
class Feature:
    """A feature: its name, what kind of number it is, what it is made from, why it helps, and one number a candidate
    (NaN: not known).

    ``source``: the request, the registry, or what the log told before the turn (impressions, picks, calls; successes
    are picks whose call succeeded). Training replays the log through the same ``compute`` that serves.
    ``rising``: more of it never ranks a candidate lower. Stating what is known so keeps a model from learning the
    noise of single skills. ``standing``: it follows from the skill and the moment alone, whatever is asked.
    """

    name: str
    type: FeatureType
    source: str
    why: str
    compute: Callable[[Context], NDArray[np.floating] | float]
    rising: bool = False
    standing: bool = False


def lead(values: NDArray[np.floating]) -> Numbers:
    """Each value minus the best of the others: how far it leads, or trails, its list. NaN stays NaN."""
    known = np.where(np.isnan(values), -np.inf, values)
    if len(known) < 2:
        return np.zeros(len(known))
    second, first = np.partition(known, -2)[-2:].tolist()
    of_first, of_others = (other if other > -np.inf else 0.0 for other in (second, first))
    return np.asarray(values - np.where(known == first, of_first, of_others))
