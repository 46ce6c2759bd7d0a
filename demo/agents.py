"""Simulated users and agents: who asks what, what the calling model picks from a list, and how its calls end.

Everything here is drawn from one seed. The agents know the right skill; the list decides how likely they find it,
because they look at its ranks unevenly, as published measurements say of language models.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from demo.library import Query, library, phrasings, queries
from pickwise.events import ErrorKind, FeedbackKind

#: Share of looks at rank 1…5, by calling model (two of the curves published for language models on shuffled menus).
EXAMINATION: Mapping[str, tuple[float, ...]] = {
    "steep-1": (0.68, 0.15, 0.05, 0.06, 0.06),
    "flat-2": (0.31, 0.19, 0.15, 0.15, 0.20),
}
#: How well a candidate seems to fit: the right one, its easily confused neighbours, its domain, all others.
RIGHT, NEIGHBOUR, SAME_DOMAIN, OTHER = 1.0, 0.12, 0.03, 0.008
#: Weight of picking nothing beside examination × fit.
NOTHING = 0.03

INVENTED_SHARE = 0.025
SESSION_TURNS = (1, 2, 2, 3, 4, 5)
FOLLOW_UP_SHARE = 0.4

#: Skills that do not simply work, and what the demo shows by them.
FAILS_LATE = "currency_convert"
BAD_ARGUMENTS = "invoice_create"
RECOVERS = "parcel_track"
#: Part of the logged turns from which each of them changes.
FAILS_FROM, WORKS_FROM = 0.2, 0.55
#: How many times as often as others these are asked for: a verdict needs calls.
DEMAND = {FAILS_LATE: 5.0, BAD_ARGUMENTS: 5.0, RECOVERS: 20.0}

#: Names that agents make up. The near misses resemble real ones, the retired were real once.
INVENTED: tuple[str, ...] = ("universal_lookup", "do_everything", "ask_internet", "万能助手")
NEAR_MISSES: tuple[str, ...] = ("flightSearch", "email-send", "wether_forecast", "sql_querry", "hotelSearch")
RETIRED: tuple[str, ...] = ("get_weather_v1", "send_mail_legacy", "fx_rates_2019")

Stage = Literal["logged", "held_out"]


@dataclass(frozen=True)
class Turn:
    """One question of one session."""

    session_id: str
    number: int
    model: str
    query: Query


@dataclass(frozen=True)
class Outcome:
    """How one attempt of a call ends; durations in milliseconds."""

    ok: bool
    validate_ms: float
    exec_ms: float
    error_kind: ErrorKind | None = None
    message: str | None = None
    retryable: bool = False


@dataclass(frozen=True)
class Verdict:
    kind: FeedbackKind
    expected: tuple[str, ...] = ()
    value: float | None = None


class Agents:
    """All users and agents of one run."""

    def __init__(self, seed: int = 7) -> None:
        self._rng = random.Random(seed)
        self._asked = phrasings()
        self._domain = {entry["skill_id"]: entry["domain"] for entry in library()}
        ids = list(self._asked)
        order = random.Random(f"{seed}/demand").sample(ids, len(ids))
        # Demand falls with the power 0.7 of the rank: some skills are wanted often, none never.
        self._demand = {skill: DEMAND.get(skill, 1.0) / (rank + 4) ** 0.7 for rank, skill in enumerate(order)}
        mean = sum(self._demand.values()) / len(ids)
        self._demand |= {skill: factor * mean for skill, factor in DEMAND.items()}
        self._ids = ids
        self._weights = [self._demand[skill] for skill in ids]
        self._sessions = 0

    def turns(self, count: int, stage: Stage) -> Iterator[Turn]:
        """Sessions of one to five turns, ``count`` turns in all. A follow-up often stays in its domain."""
        asked = queries(held_out=stage == "held_out")
        rng = self._rng
        left = count
        while left:
            self._sessions += 1
            session = f"demo-{self._sessions:05d}"
            model = rng.choice(list(EXAMINATION))
            language: str | None = None
            skill: str | None = None
            for number in range(1, min(rng.choice(SESSION_TURNS), left) + 1):
                skill = self._wanted(skill, language)
                query = rng.choice(asked[skill])
                language = query.language
                left -= 1
                yield Turn(session, number, model, query)

    def pick(self, turn: Turn, candidates: Sequence[str]) -> list[str]:
        """What the agent calls, as it writes it: one listed skill, none, or a name that is on no list."""
        if self._rng.random() < INVENTED_SHARE:
            return [self._rng.choice(self._rng.choice((INVENTED, NEAR_MISSES, RETIRED)))]
        weights = [
            examination(turn.model, rank) * self.fit(skill, turn.query.skill_id)
            for rank, skill in enumerate(candidates, start=1)
        ]
        chosen = self._rng.choices([*candidates, None], [*weights, NOTHING])[0]
        if chosen is None:
            return []
        # Now and then a model calls a second skill beside the first.
        second = self._rng.choice(candidates) if self._rng.random() < 0.02 else chosen
        return [chosen] if second == chosen else [chosen, second]

    def fit(self, skill_id: str, wanted: str) -> float:
        """How well the skill seems to fit to somebody who wants ``wanted``."""
        if skill_id == wanted:
            return RIGHT
        asked, seen = self._asked[wanted], self._asked.get(skill_id)
        if seen is not None and seen.group == asked.group:
            return NEIGHBOUR
        return SAME_DOMAIN if self._domain.get(skill_id) == self._domain[wanted] else OTHER

    def attempt(self, skill_id: str, turn: Turn, stage: Stage, progress: float, number: int) -> Outcome:
        """One attempt of a call. ``progress`` in [0, 1] is how far the stage has come; ``number`` counts from 1."""
        rng = self._rng
        took = rng.lognormvariate(0, 0.35) * _base_ms(skill_id)
        if skill_id not in self._asked:
            return Outcome(False, 0.4, 0.0, "not_found", f"no tool named {skill_id}")
        if skill_id == FAILS_LATE and (stage == "held_out" or progress > FAILS_FROM) and rng.random() < 0.95:
            return Outcome(False, 0.6, 2_000.0 + took, "timeout", "rates provider did not answer", retryable=True)
        if skill_id == BAD_ARGUMENTS and rng.random() < (0.9 if number == 1 else 0.8):
            return Outcome(False, 1.2, 0.0, "invalid_arguments", "tax_code: expected one of S, R, Z", retryable=True)
        if skill_id == RECOVERS and stage == "logged" and progress < WORKS_FROM and rng.random() < 0.9:
            return Outcome(False, 0.6, took, "http_5xx", "carrier gateway: 502 Bad Gateway", retryable=True)
        right = skill_id == turn.query.skill_id
        if not right and rng.random() < 0.35:
            return Outcome(False, 0.8, took, "tool_error", "nothing found for this request")
        if rng.random() < 0.02:
            kind: ErrorKind = rng.choice(("timeout", "rate_limited", "http_5xx", "permission_denied"))
            return Outcome(False, 0.5, took, kind, f"simulated {kind}", retryable=kind != "permission_denied")
        return Outcome(True, 0.5, took)

    def verdict(self, turn: Turn, picks: Sequence[str], ok: bool) -> Verdict | None:
        """What the user says of the turn, if anything."""
        wanted, draw = turn.query.skill_id, self._rng.random()
        if draw < 0.03:
            return Verdict("label", expected=(wanted,))
        if picks and wanted not in picks:
            return Verdict("wrong_skill", expected=(wanted,)) if draw < 0.2 else None
        if picks and ok and draw < 0.08:
            return Verdict("accepted")
        return Verdict("rating", value=round(self._rng.uniform(3, 5), 1)) if picks and ok and draw < 0.1 else None

    def retries(self, outcome: Outcome, number: int) -> bool:
        """Whether a failed attempt is followed by another."""
        return outcome.retryable and number == 1 and self._rng.random() < 0.3

    def _wanted(self, previous: str | None, language: str | None) -> str:
        """The next skill that the user needs: in a session often of the same domain, always in the same language."""
        if previous is None:
            return self._rng.choices(self._ids, self._weights)[0]
        near = self._rng.random() < FOLLOW_UP_SHARE
        pool = [
            skill
            for skill in self._ids
            if self._asked[skill].language == language
            and (not near or self._domain[skill] == self._domain[previous])
            and skill != previous
        ]
        pool = pool or [previous]
        return self._rng.choices(pool, [self._demand[skill] for skill in pool])[0]


def examination(model: str, rank: int) -> float:
    """Share of looks that this model gives to a rank (1-based); half of the last known one beyond the list."""
    shares = EXAMINATION[model]
    return shares[rank - 1] if rank <= len(shares) else shares[-1] / 2


def _base_ms(skill_id: str) -> float:
    """The usual duration of a skill, between 40 and 400 ms, always the same."""
    return 40.0 * 10 ** random.Random(f"latency/{skill_id}").random()
