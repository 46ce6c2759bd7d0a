"""What a page shows while there is nothing to show: why, and the command that changes it."""

from __future__ import annotations

from html import escape

from dashboard import formats
from dashboard.cards import Html, show
from dashboard.state import Scope


def empty(title: str, reason: str, command: str = "") -> None:
    mend = f"<code>{escape(command)}</code>" if command else ""
    show(Html(f'<div class="pw-empty" data-pw="empty"><h3>{escape(title)}</h3><p>{escape(reason)}</p>{mend}</div>'))


def nothing(scope: Scope) -> None:
    """Instead of a page: nothing has come in for the project, or nothing within the window."""
    if not scope.has_data:
        empty(
            "Nothing here yet",
            f"Project {scope.project} has no selections or calls. Point an agent's OpenTelemetry exporter at Pickwise,"
            " or import a file; this page fills within seconds.",
            "pickwise import events.jsonl --format events",
        )
        return
    empty(
        "Nothing in this window",
        f"The newest event of project {scope.project} is from {formats.moment(scope.last)} UTC. Choose a longer window"
        " in the sidebar.",
    )


def small(reason: str) -> None:
    """A part of a page that has nothing to show."""
    show(Html(f'<div class="pw-note" style="padding: 0.6rem 0; white-space: normal">{escape(reason)}</div>'))
