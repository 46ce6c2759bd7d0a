"""Relevance of an impression from what the agent did with it.

2: picked, and the skill did its work. 1: picked, outcome unknown or not the skill's fault. 0: otherwise: skipped,
never reached, or picked and failed by its own fault. The whole list is the group: learning only from lists cut at the
pick measured worse than no learning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pickwise.events import CALLER_FAULTS

Label = Literal[0, 1, 2]
SUCCEEDED: Label = 2
PICKED: Label = 1
IRRELEVANT: Label = 0

#: What the calls of a pick say together: did its work, failed by its own fault, or nothing about the skill.
Outcome = Literal["succeeded", "failed", "unknown"]


def outcome_of(calls: Iterable[tuple[bool | None, str | None]]) -> Outcome:
    """The outcome of one pick from its calls, each (ok, error_kind); a success among them counts."""
    found: Outcome = "unknown"
    for ok, error_kind in calls:
        if ok:
            return "succeeded"
        if ok is False and error_kind not in CALLER_FAULTS:
            found = "failed"
    return found


def label(picked: bool, outcome: Outcome) -> Label:
    if not picked or outcome == "failed":
        return IRRELEVANT
    return SUCCEEDED if outcome == "succeeded" else PICKED
