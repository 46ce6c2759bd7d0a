"""Heat of a skill: clicks over expected clicks, corrected for who looked where.

    h = (Σ dᵢ·pickedᵢ + 10) ÷ (Σ dᵢ·e_m(rankᵢ) + 10),  e_m(k) = r̄_m·θ_m(k),  r̄_m = Σ d·picked ÷ Σ d·θ_m(rank)

over ranked selections, d = 2^(-age / 7 days) (COEC: Zhang & Jones, "Comparing click logs and editorial labels for
training query rewriting", WWW 2007; with the examination θ in place of raw pick rates by rank, which would give every
skill 1.0 under a perfect ranking). More exposure alone can't raise it. Served as `heat` = h ÷ (1 + h), 0.5 where no θ
is known, and `heat_log` = log h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ranker.decay import DecayedSums, Numbers
from ranker.examination import MAX_RANK, PositionFactors, ShuffledPicks

HALF_LIFE_DAYS = 7.0
#: Clicks and expected clicks that every skill starts with.
PRIOR_CLICKS = 10.0

#: Column of the picks in a row of counts; the ranks of each calling model follow.
_PICKED = 0


@dataclass(frozen=True, slots=True)
class Heat:
    """Heat of some skills, arrays of one length."""

    heat: Numbers
    heat_log: Numbers


class HeatCounts:
    """Decayed picks, and impressions by rank, by calling model and skill row.

    Impressions are kept apart by rank, so that today's θ applies to yesterday's exposure.
    """

    def __init__(self) -> None:
        #: One table a calling model; its columns: picks, then impressions at ranks 1…MAX_RANK.
        self._skills: dict[str, DecayedSums] = {}
        #: The same columns for all skills of the model together.
        self._totals: dict[str, DecayedSums] = {}
        self._rows = 0

    @property
    def models(self) -> list[str]:
        return sorted(self._skills)

    def grow(self, rows: int) -> None:
        self._rows = max(rows, self._rows)
        for sums in self._skills.values():
            sums.grow(rows)

    def add(self, model: str, rows: NDArray[np.intp], picked: NDArray[np.intp], time: float) -> None:
        """Count one ranked selection: its skills in the order shown, and the indices of those picked."""
        if model not in self._skills:
            self._skills[model] = DecayedSums(HALF_LIFE_DAYS, width=1 + MAX_RANK)
            self._skills[model].grow(self._rows)
            self._totals[model] = DecayedSums(HALF_LIFE_DAYS, width=1 + MAX_RANK)
            self._totals[model].grow(1)
        columns = np.minimum(np.arange(1, len(rows) + 1), MAX_RANK)
        self._skills[model].add_many(rows, columns, time)
        self._skills[model].add_many(rows[picked], np.full(len(picked), _PICKED), time)
        totals = np.bincount(columns, minlength=1 + MAX_RANK).astype(np.float64)
        totals[_PICKED] = len(picked)
        self._totals[model].add_vector(0, time, totals)

    def at(self, rows: NDArray[np.intp], now: float, examination: ShuffledPicks) -> Heat:
        """Heat of those skills as of ``now``, under the θ known then; calling models without θ are left out."""
        clicks, expected = np.full(len(rows), PRIOR_CLICKS), np.full(len(rows), PRIOR_CLICKS)
        for model, sums in self._skills.items():
            theta = examination.at(model, now).theta
            if theta is None:
                continue
            totals = self._totals[model].scaled(0)
            looked = float(totals[1:] @ theta)
            counts = sums.at(rows, now)
            clicks += counts[:, _PICKED]
            expected += (float(totals[_PICKED]) / looked if looked > 0 else 0.0) * (counts[:, 1:] @ theta)
        ratio = clicks / expected
        return Heat(ratio / (1 + ratio), np.log(ratio))

    def exposure(self, row: int, now: float) -> tuple[float, float]:
        """(decayed picks, decayed impressions) of a skill, for explanations."""
        counts = sum((sums.at(row, now) for sums in self._skills.values()), np.zeros(1 + MAX_RANK))
        return float(counts[_PICKED]), float(counts[1:].sum())


def heat_by_skill(impressions: pl.DataFrame, now: float, factors: Sequence[PositionFactors] = ()) -> pl.DataFrame:
    """Heat of every offered skill as of ``now`` (Unix seconds).

    ``impressions``: selection, at (Unix seconds), model, randomized, skill_id, rank, picked; ranked selections only,
    one row a candidate. Returns skill_id, heat, heat_log.
    """
    counts, examination, skills = HeatCounts(), ShuffledPicks(list(factors)), dict[str, int]()
    ordered = impressions.filter(pl.col("at") <= now).sort("at", "selection", "rank")
    for group in ordered.partition_by("selection", maintain_order=True):
        rows = np.array([skills.setdefault(skill, len(skills)) for skill in group["skill_id"]])
        counts.grow(len(skills))
        model, at = group["model"][0] or "", group["at"][0]
        picked = group["picked"].to_numpy().nonzero()[0]
        counts.add(model, rows, picked, at)
        if group["randomized"][0]:
            examination.add(model, [int(index) + 1 for index in picked], len(rows))
    found = counts.at(np.arange(len(skills)), now, examination)
    return pl.DataFrame(
        {"skill_id": list(skills), "heat": found.heat, "heat_log": found.heat_log},
        schema_overrides={"skill_id": pl.String},
    )
