"""What is planted in a simulated month, and what a night should say of it.

Every month has each incident once, on a skill and from a day that its seed chooses. Some of them must raise nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bench.month import Entry, Month, Trouble

DAYS = 30
#: Days that are there, and quiet, before the first night: the median of a surge looks 14 days back, and most of them
#: must not be empty.
HISTORY = 8
#: Calls a day of the skills that something happens to. Fewer than 20 in 7 days can't be judged; many more would make
#: a surge of one skill all the traffic there is.
_CALLS_A_DAY = (12, 80)
_BROKEN = 0.9
_RUSH = 6.0
_DYING_DAYS = 10
#: The traffic that a new skill is shown to by the days since it was added, while nothing holds it.
_OPENING = (0.0, 0.0, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

MONTH = Month(450 * DAYS, DAYS, skills=30, candidates=6, questions=600, repetition=1.05, domains=2)


@dataclass(frozen=True)
class Truth:
    """Something that a night should find: one of ``flags`` (status, reason) from day ``first`` to ``deadline``."""

    kind: str
    skill: int
    flags: frozenset[tuple[str, str]]
    first: int
    deadline: int
    #: Until then a flag is true, if late.
    last: int


@dataclass(frozen=True)
class Incident:
    """What happens to one skill. Without truths it must raise nothing."""

    kind: str
    skill: int
    troubles: Sequence[Trouble] = ()
    entries: Sequence[Entry] = ()
    truths: Sequence[Truth] = field(default_factory=tuple)


def quiet(seed: int) -> Month:
    """A month in which nothing happens."""
    return replace(MONTH, seed=seed)


def planted(seed: int) -> tuple[Month, list[Incident]]:
    """A month with every incident, and what they are."""
    month, random = quiet(seed), np.random.default_rng((seed, 1))
    calls = month.shares() * month.selections / month.days * month.calls_a_selection
    skills = random.permutation(np.flatnonzero((calls >= _CALLS_A_DAY[0]) & (calls <= _CALLS_A_DAY[1]))).tolist()
    days = random.integers(0, 5, 10).tolist()
    begin = [HISTORY + 1 + day for day in days]
    incidents = [
        _schema(skills[0], begin[0], told=True),
        _schema(skills[1], begin[1], told=False),
        _slow_death(skills[2], begin[2]),
        _surge(skills[3], begin[3] + 5),
        _outage(skills[4], begin[4]),
        _good(month.skills, begin[5]),
        _bad(month.skills + 1, begin[6]),
        Incident("unused", skills[5], [Trouble(skills[5], 0, DAYS, volume=0.0)]),
        Incident("a rush that goes well", skills[6], [Trouble(skills[6], begin[7], begin[7] + 1, volume=_RUSH)]),
        Incident("a third fails", skills[7], [Trouble(skills[7], begin[8], DAYS, failing=0.33)]),
        Incident("a good new version", skills[8], entries=[Entry(skills[8], begin[9], "2")]),
    ]
    troubles = [trouble for incident in incidents for trouble in incident.troubles]
    entries = [entry for incident in incidents for entry in incident.entries]
    return replace(month, troubles=troubles, entries=entries), incidents


def _schema(skill: int, day: int, *, told: bool) -> Incident:
    """Agents go on with the old arguments; ``told``: the registry has the new version."""
    kind = "schema changed, new version" if told else "schema changed, nobody said so"
    trouble = Trouble(skill, day, DAYS, failing=_BROKEN, kind="invalid_arguments")
    # Without a new version six good days count too: four to five bad ones outweigh them.
    truth = _truth(kind, skill, [("degraded", "arguments")], day, 2 if told else 7)
    return Incident(kind, skill, [trouble], [Entry(skill, day, "2")] if told else [], [truth])


def _slow_death(skill: int, day: int) -> Incident:
    shares = [min(0.05 + 0.9 * i / _DYING_DAYS, 0.95) for i in range(DAYS - day)]
    troubles = [Trouble(skill, day + i, day + i + 1, failing=share) for i, share in enumerate(shares)]
    most_fail = day + next(i for i, share in enumerate(shares) if share > 0.5)
    return Incident(
        "slow death", skill, troubles, truths=[_truth("slow death", skill, [("degraded", "failing")], most_fail, 7)]
    )


def _surge(skill: int, day: int) -> Incident:
    troubles = [Trouble(skill, day, day + 1, failing=0.65, volume=_RUSH)]
    truths = [
        _truth("surge", skill, [("degraded", "surge")], day, 0, last=day),
        _truth("surge is over", skill, [("active", "surge_over"), ("active", "recovered")], day + 1, 4),
    ]
    return Incident("surge", skill, troubles, truths=truths)


def _outage(skill: int, day: int) -> Incident:
    well = day + 9
    troubles = [Trouble(skill, day, well, failing=_BROKEN)]
    truths = [
        _truth("outage", skill, [("degraded", "failing")], day, 7, last=well - 1),
        _truth("recovery", skill, [("active", "recovered")], well, 5),
    ]
    return Incident("outage", skill, troubles, truths=truths)


def _good(skill: int, day: int) -> Incident:
    opened = day + len(_OPENING) - 2
    truths = [
        _truth("new skill", skill, [("observation", "new")], day, 0, last=opened),
        _truth("good new skill opened", skill, [("active", "observed")], opened, 0),
    ]
    return Incident(truths[-1].kind, skill, _opening(skill, day, failing=0.05), [Entry(skill, day)], truths)


def _bad(skill: int, day: int) -> Incident:
    first_calls = day + next(i for i, volume in enumerate(_OPENING) if volume)
    truths = [
        _truth("new skill", skill, [("observation", "new")], day, 0, last=first_calls - 1),
        _truth("bad new skill held", skill, [("observation", "held"), ("degraded", "failing")], first_calls, 2),
    ]
    return Incident(truths[-1].kind, skill, _opening(skill, day, failing=0.7), [Entry(skill, day)], truths)


def _opening(skill: int, day: int, failing: float) -> list[Trouble]:
    whole = len(_OPENING) - 1
    steps = [Trouble(skill, day + i, day + i + 1, failing, volume=_OPENING[i]) for i in range(whole)]
    return [*steps, Trouble(skill, day + whole, DAYS, failing)]


def _truth(
    kind: str, skill: int, flags: list[tuple[str, str]], first: int, within: int, *, last: int = DAYS - 1
) -> Truth:
    return Truth(kind, skill, frozenset(flags), first, first + within, last)
