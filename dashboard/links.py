"""Addresses of pages, with what they are about and the project and window in hand.

Relative, so that they also work behind a proxy that serves the dashboard under a path of its own.
"""

from __future__ import annotations

from urllib.parse import urlencode

from dashboard.state import DEFAULT_WINDOW, PROJECT_KEY, WINDOW_KEY, Scope

OVERVIEW = "overview"
SKILLS = "skill"
SELECTIONS = "selection"
WEIGHTS = "weights"
ALERTS = "alerts"

#: Query parameters that pages read.
SKILL_ID = "skill_id"
EVENT_ID = "event_id"
#: Which list a page shows: a name each, as pages share what is chosen.
SKILLS_LIST = "list"
SELECTIONS_LIST = "show"
CONFUSED = "Confused pairs"
QUESTIONS = "Kinds of questions"


def skill(scope: Scope, skill_id: str) -> str:
    return page(scope, SKILLS, {SKILL_ID: skill_id})


def selection(scope: Scope, event_id: str) -> str:
    return page(scope, SELECTIONS, {EVENT_ID: event_id})


def page(scope: Scope, path: str, parameters: dict[str, str] | None = None) -> str:
    chosen = {PROJECT_KEY: scope.project}
    if scope.window != DEFAULT_WINDOW:
        chosen[WINDOW_KEY] = scope.window
    return f"{path}?{urlencode(chosen | (parameters or {}))}"
