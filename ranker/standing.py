"""What a model's features say of a skill whatever is asked, kept for a while: most of a request's features are of that
kind, and change with new facts or by decay, which is slow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pickwise.scores import SCORES
from ranker import features
from ranker.features.base import Context
from ranker.state import State
from ranker.turns import Turn

#: Seconds after which a skill's features are computed anew: in that time decay moves none by 0.001, what weights count
#: as moved (heat, with the shortest half-life of seven days, loses 0.00007 of itself).
KEPT_S = 60.0


class Standing:
    """The standing features of a state's skills, each computed when it is asked. Not for several threads at once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._fed = -1
        self._table = np.zeros((0, len(features.STANDING)), dtype=np.float32)
        #: By row: when it was computed.
        self._at = np.zeros(0)

    def of(self, rows: NDArray[np.intp], now: float) -> features.Matrix:
        """Shape (rows, len(features.STANDING)), as of a moment less than ``KEPT_S`` before ``now``."""
        if self._fed != self._state.fed:
            self._forget()
        stale = rows[np.abs(now - self._at[rows]) >= KEPT_S]
        if len(stale):
            self._table[stale], self._at[stale] = self._computed(stale, now), now
        return self._table[rows]

    def _forget(self) -> None:
        self._fed, skills = self._state.fed, len(self._state.skills)
        if len(self._at) < skills:
            self._table = np.zeros((2 * skills, len(features.STANDING)), dtype=np.float32)
            self._at = np.zeros(2 * skills)
        self._at[:] = -np.inf

    def _computed(self, rows: NDArray[np.intp], now: float) -> features.Matrix:
        skill_ids = [self._state.skills[row].skill_id for row in rows.tolist()]
        nothing = dict.fromkeys(SCORES, np.full(len(rows), np.nan))
        turn = Turn("", now, "", np.zeros(self._state.dimension, dtype=np.float32), skill_ids, nothing)
        return features.standing(Context(turn, self._state))
