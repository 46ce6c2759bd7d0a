"""What a feature is, and what it may look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pickwise.text import Script, script
from ranker.decay import Numbers
from ranker.heat import Heat
from ranker.state import KnownSkill, State
from ranker.success import Success
from ranker.turns import Turn
from ranker.words import query_terms

FeatureType = Literal[
    "score", "share", "cosine", "count", "category", "flag", "log ratio", "log odds", "log count", "log ms", "log days"
]


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
        return [self.state.skills[row] for row in self.rows]

    @cached_property
    def query_terms(self) -> frozenset[str]:
        return frozenset(query_terms(self.turn.query))

    @cached_property
    def query_script(self) -> Script:
        return script(self.turn.query)

    @cached_property
    def heat(self) -> Heat:
        return self.state.heat.at(self.rows, self.turn.time, self.state.examination)

    @cached_property
    def success(self) -> Success:
        return self.state.success.at(self.rows, self.turn.time)

    @cached_property
    def history_centroid(self) -> Numbers:
        return self.state.history.centroid(self.turn.vector, self.rows)

    @cached_property
    def history_profile(self) -> Numbers:
        descriptions = self.state.descriptions[self.rows]
        return self.state.history.profile(self.turn.vector, self.rows, descriptions, self.turn.time)

    @cached_property
    def history_nearest(self) -> Numbers:
        return self.state.history.nearest(self.turn.vector, self.rows)


@dataclass(frozen=True)
class Feature:
    """A feature: its name, what kind of number it is, what it is made from, why it helps, and one number a candidate
    (NaN: not known).

    ``source``: the request, the registry, or what the log told before the turn (impressions, picks, calls; successes
    are picks whose call succeeded). Training replays the log through the same ``compute`` that serves.
    ``rising``: more of it never ranks a candidate lower. Stating what is known so keeps a model from learning the
    noise of single skills.
    """

    name: str
    type: FeatureType
    source: str
    why: str
    compute: Callable[[Context], Numbers | float]
    rising: bool = False


def lead(values: Numbers) -> Numbers:
    """Each value minus the best of the others: how far it leads, or trails, its list. NaN stays NaN."""
    known = np.where(np.isnan(values), -np.inf, values)
    if len(known) < 2:
        return np.zeros(len(known))
    second, first = np.partition(known, -2)[-2:]
    others = np.where(known == first, second, first)
    others = np.where(np.isfinite(others), others, 0.0)
    return np.asarray(values - others)
