"""Team-draft interleaving: two rankings in one list, each pick a vote for the one that put the skill there.

Radlinski, Kurup & Joachims, "How does clickthrough data reflect retrieval quality?", CIKM 2008: like two captains, the
rankings choose in turns, a coin deciding who begins each turn, and each takes its best skill that isn't in the list
yet. The same users and queries judge both, so it takes far fewer selections than a split of the traffic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

#: Which of two rankings chose a skill.
Team = Literal[0, 1]


def team_draft(first: Sequence[int], second: Sequence[int], rng: np.random.Generator) -> list[tuple[int, Team]]:
    """One list out of two orders of the same candidates, best first, and the team of each.

    Raises ValueError where they are not orders of the same candidates.
    """
    if sorted(first) != sorted(second):
        raise ValueError("expected two orders of the same candidates")
    orders = iter(first), iter(second)
    drafted: dict[int, Team] = {}
    while len(drafted) < len(first):
        begins: Team = 0 if rng.random() < 0.5 else 1
        turn: tuple[Team, Team] = (begins, 1 if begins == 0 else 0)
        for team in turn:
            best = next((candidate for candidate in orders[team] if candidate not in drafted), None)
            if best is not None:
                drafted[best] = team
    return list(drafted.items())
