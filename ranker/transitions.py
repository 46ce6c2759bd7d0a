"""Which skill follows which: picks after a previous skill, against how often the skill is picked at all.

    score = log( (c(previous → skill) + share(skill)) ÷ (c(previous) + 1) ÷ share(skill) )

with decayed counts (half-life 28 days), the skill's share of picks after any skill as one pseudo-count, and 0 where the
previous skill is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ranker.decay import DAY_S, Numbers

HALF_LIFE_DAYS = 28.0


class _Decayed:
    """One decayed sum with its own clock."""

    __slots__ = ("time", "value")

    def __init__(self) -> None:
        self.value, self.time = 0.0, -np.inf

    def add(self, time: float) -> None:
        newest = max(self.time, time)
        self.value = self.at(newest) + _decay(newest - time)
        self.time = newest

    def at(self, now: float) -> float:
        return self.value * _decay(now - self.time) if self.value else 0.0


class Transitions:
    def __init__(self) -> None:
        self._pairs: dict[str, dict[str, _Decayed]] = {}
        self._after: dict[str, _Decayed] = {}
        self._picked: dict[str, _Decayed] = {}
        self._all = _Decayed()

    def add(self, previous: str, skill_id: str, time: float) -> None:
        pairs = self._pairs.setdefault(previous, {})
        for counter in (
            pairs.setdefault(skill_id, _Decayed()),
            self._after.setdefault(previous, _Decayed()),
            self._picked.setdefault(skill_id, _Decayed()),
            self._all,
        ):
            counter.add(time)

    def lift(self, previous: str | None, skill_ids: Sequence[str], now: float) -> Numbers:
        """The score of each skill after the previous one."""
        found = np.zeros(len(skill_ids))
        if previous is None or previous not in self._after:
            return found
        pairs, after, total = self._pairs[previous], self._after[previous].at(now), self._all.at(now)
        for index, skill_id in enumerate(skill_ids):
            # Half a pick: a skill that was never picked has a share all the same.
            picked = self._picked[skill_id].at(now) if skill_id in self._picked else 0.0
            share = (picked + 0.5) / (total + 1)
            pair = pairs[skill_id].at(now) if skill_id in pairs else 0.0
            found[index] = np.log((pair + share) / ((after + 1) * share))
        return found


def _decay(age_s: float) -> float:
    return float(2.0 ** (-age_s / (HALF_LIFE_DAYS * DAY_S)))
