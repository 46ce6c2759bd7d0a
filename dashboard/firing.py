"""What is wrong right now: alerts that fire, and the status of skills."""

from __future__ import annotations

from typing import Any

import polars as pl

from dashboard import cards, data, formats
from dashboard.cards import Cell, Tone
from dashboard.state import Scope

FIRING = "firing"
_STATUS_TONES: dict[str, Tone] = {"degraded": "bad", "observation": "warn"}


def alerts(scope: Scope) -> list[dict[str, Any]]:
    """The alerts whose newest state is `firing`, newest first."""
    changes = data.alerts(scope.source, scope.project)
    newest = changes.unique("alert_id", keep="first", maintain_order=True)
    return newest.filter(pl.col("state") == FIRING).to_dicts()


def banners(scope: Scope) -> None:
    """One line an alert that fires, above everything else."""
    for alert in alerts(scope):
        since = cards.note(f"firing since {formats.clock(alert['started_at'] or alert['time'])}")
        cards.banner(
            cards.join([alert["message"] or alert["rule"], since]), "bad" if alert["severity"] == "critical" else "warn"
        )


def status_badge(status: str | None, is_active: bool | None) -> Cell:
    """A skill's standing: what the nightly job says, else what the registry says."""
    if is_active is None:
        return cards.badge("not registered", "warn")
    if not is_active:
        return cards.badge("retired")
    if status is None or status == "active":
        return cards.text("active", "quiet")
    return cards.badge(status, _STATUS_TONES.get(status, ""))
