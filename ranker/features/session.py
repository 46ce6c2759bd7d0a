"""What the session did just before."""

from __future__ import annotations

from ranker.decay import Numbers
from ranker.features.base import Context, Feature


def _transition(context: Context) -> Numbers:
    turn = context.turn
    return context.state.transitions.lift(turn.previous_skill_id, turn.skill_ids, turn.time)


FEATURES = (
    Feature("transition", "log ratio", "picks", "some skills follow others more often than chance", _transition),
)
