"""What the learner reads of a log: turns, the outcomes of their picks, and registry entries, each with its own time.

Times are Unix seconds. A turn built from a request to rank has no picks yet; everything else is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pickwise.embed import Vectors
from ranker.decay import Numbers


@dataclass(slots=True)
class Turn:
    """One selection: the query and its candidates in the order shown."""

    selection_id: str
    time: float
    query: str
    vector: Vectors
    skill_ids: list[str]
    #: One array a score name of ``pickwise.scores.SCORES``, NaN where a candidate has none.
    scores: dict[str, Numbers]
    model: str = ""
    session_id: str = ""
    language: str | None = None
    previous_skill_id: str | None = None
    intent_domain: str | None = None
    intent_action: str | None = None
    intent_object: str | None = None
    ranked: bool = True
    randomized: bool = False
    #: Indices of the picked candidates, in the order shown.
    picked: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))


@dataclass(slots=True)
class Ended:
    """The end of one finished call."""

    time: float
    skill_id: str
    ok: bool
    error_kind: str | None
    latency_ms: float | None
    #: The turn that picked the skill, for its first success there; None otherwise.
    turn: Turn | None = None


@dataclass(slots=True)
class Registered:
    """A registry entry that holds from ``time`` on (minus infinity: from the beginning)."""

    time: float
    skill_id: str
    name: str
    description: str
    domain: str
    actions: frozenset[str]
    objects: frozenset[str]
    vector: Vectors
