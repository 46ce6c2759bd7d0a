"""Success of a skill: a decayed beta-binomial estimate, shrunk towards its domain.

    p̂ = (Σ dᵢyᵢ + κ·p_d) ÷ (Σ dᵢ + κ),  d = 2^(-age / 14 days),  p_d = (s + 1) ÷ (n + 2)

κ = 1/ρ - 1, clipped to [5, 50], with the moment estimate of the intra-class correlation ρ of Kleinman, "Proportions
with extraneous variance: single and independent samples", JASA 68 (1973):

    S = Σ nᵢ(pᵢ - p_d)² ÷ (p_d(1 - p_d)),  ρ = (S - (k - 1)) ÷ (N - Σnᵢ²/N - (k - 1))

s, n, nᵢ and pᵢ are plain counts of finished calls over the domain's k skills that have any. Caller faults say nothing
about the skill and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pickwise.events import CALLER_FAULTS
from ranker.decay import DecayedSums, Numbers

HALF_LIFE_DAYS = 14.0
MIN_KAPPA, MAX_KAPPA = 5.0, 50.0
#: Fewer skills than this in a domain say nothing about how much its skills differ.
MIN_SKILLS = 5
MAX_LOGIT = 2.0

_OK, _FINISHED = 0, 1


@dataclass(slots=True)
class _Domain:
    """Running sums of one domain: enough for p_d and κ without visiting its skills."""

    successes: float = 0.0
    calls: float = 0.0
    skills: int = 0
    #: Σ nᵢ² and Σ sᵢ²/nᵢ
    squares: float = 0.0
    spread: float = 0.0

    @property
    def prior(self) -> float:
        return (self.successes + 1) / (self.calls + 2)

    @property
    def kappa(self) -> float:
        if self.skills < MIN_SKILLS:
            return MAX_KAPPA
        p, between = self.prior, self.skills - 1
        # Σ nᵢ(pᵢ - p)² = Σ sᵢ²/nᵢ - 2p·s + p²·n
        chi = (self.spread - 2 * p * self.successes + p * p * self.calls) / (p * (1 - p))
        denominator = self.calls - self.squares / self.calls - between
        rho = (chi - between) / denominator if denominator > 0 else 0.0
        return MAX_KAPPA if rho <= 0 else min(max(1 / rho - 1, MIN_KAPPA), MAX_KAPPA)


@dataclass(frozen=True, slots=True)
class Success:
    """Estimates of some skills, arrays of one length. ``interval`` is p̂ ± 1.96 posterior standard deviations."""

    success: Numbers
    success_logit: Numbers
    n_effective: Numbers
    prior: Numbers
    kappa: Numbers

    @property
    def interval(self) -> tuple[Numbers, Numbers]:
        half = 1.96 * np.sqrt(self.success * (1 - self.success) / (self.n_effective + self.kappa + 1))
        return np.clip(self.success - half, 0, 1), np.clip(self.success + half, 0, 1)


class SuccessCounts:
    """Outcomes of calls by skill row, read as of any later time."""

    def __init__(self) -> None:
        self._decayed = DecayedSums(HALF_LIFE_DAYS, width=2)
        self._plain = np.zeros((0, 2))
        #: Domains by number, the number of each by name and by skill row, and p_d and κ of each.
        self._domains = [_Domain()]
        self._number = {"": 0}
        self._domain_of = np.zeros(0, dtype=np.intp)
        self._priors = np.array([[self._domains[0].prior, self._domains[0].kappa]])

    def grow(self, rows: int) -> None:
        self._decayed.grow(rows)
        if rows > len(self._plain):
            have, room = len(self._plain), max(rows, 2 * len(self._plain), 64)
            plain, domain_of = np.zeros((room, 2)), np.zeros(room, dtype=np.intp)
            plain[:have], domain_of[:have] = self._plain, self._domain_of
            self._plain, self._domain_of = plain, domain_of

    def set_domain(self, row: int, domain: str) -> None:
        """Move a skill, with what it has counted so far, into a domain."""
        number = self._number.setdefault(domain, len(self._domains))
        if number == len(self._domains):
            self._domains.append(_Domain())
            self._priors = np.concatenate([self._priors, self._priors[:1]])
            self._tell(number)
        if number == self._domain_of[row]:
            return
        successes, calls = self._plain[row]
        if calls:
            self._shift(row, -successes, -calls)
        self._domain_of[row] = number
        if calls:
            self._shift(row, successes, calls)
            self._plain[row] = successes, calls

    def add(self, row: int, time: float, ok: bool) -> None:
        """Count a finished call that was not the caller's fault; ``time`` is the end of the call."""
        self._decayed.add(row, _FINISHED, time)
        if ok:
            self._decayed.add(row, _OK, time)
        self._shift(row, float(ok), 1.0)

    def at(self, rows: NDArray[np.intp], now: float) -> Success:
        decayed = self._decayed.at(rows, now)
        prior, kappa = self._priors[self._domain_of[rows]].T
        success = (decayed[:, _OK] + kappa * prior) / (decayed[:, _FINISHED] + kappa)
        logit = np.minimum(np.maximum(_logit(success) - _logit(prior), -MAX_LOGIT), MAX_LOGIT)
        return Success(success, logit, decayed[:, _FINISHED], prior, kappa)

    def counts(self, row: int) -> tuple[int, int]:
        """(successes, calls) of a skill without decay."""
        successes, calls = self._plain[row]
        return int(successes), int(calls)

    def _shift(self, row: int, successes: float, calls: float) -> None:
        """Add counts of one skill to its own and its domain's sums."""
        number = int(self._domain_of[row])
        domain = self._domains[number]
        old_s, old_n = self._plain[row]
        new_s, new_n = old_s + successes, old_n + calls
        domain.successes += successes
        domain.calls += calls
        domain.skills += int(new_n > 0) - int(old_n > 0)
        domain.squares += new_n**2 - old_n**2
        domain.spread += (new_s**2 / new_n if new_n else 0.0) - (old_s**2 / old_n if old_n else 0.0)
        self._plain[row] = new_s, new_n
        self._tell(number)

    def _tell(self, number: int) -> None:
        self._priors[number] = self._domains[number].prior, self._domains[number].kappa


def judges_skill(ok: bool | None, error_kind: str | None) -> bool:
    """Whether a call says something about its skill: it finished, and its failure was not the caller's doing."""
    return ok is not None and (ok or error_kind not in CALLER_FAULTS)


def success_by_skill(calls: pl.DataFrame, now: float) -> pl.DataFrame:
    """Success of every skill as of ``now`` (Unix seconds).

    ``calls``: skill_id, domain, ended (Unix seconds), ok, error_kind. Returns skill_id, domain, success,
    success_logit, n_effective, prior, kappa, low, high; one row a skill that has a judging call.
    """
    counts, skills = SuccessCounts(), dict[str, int]()
    for call in calls.iter_rows(named=True):
        if not judges_skill(call["ok"], call["error_kind"]) or call["ended"] > now:
            continue
        row = skills.setdefault(call["skill_id"], len(skills))
        counts.grow(row + 1)
        counts.set_domain(row, call["domain"] or "")
        counts.add(row, call["ended"], call["ok"])
    found = counts.at(np.arange(len(skills)), now)
    low, high = found.interval
    return pl.DataFrame(
        {
            "skill_id": list(skills),
            "success": found.success,
            "success_logit": found.success_logit,
            "n_effective": found.n_effective,
            "prior": found.prior,
            "kappa": found.kappa,
            "low": low,
            "high": high,
        },
        schema_overrides={"skill_id": pl.String},
    )


def _logit(p: Numbers) -> Numbers:
    clipped = np.minimum(np.maximum(p, 1e-9), 1 - 1e-9)
    return np.asarray(np.log(clipped / (1 - clipped)))
