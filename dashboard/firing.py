"""What is wrong right now: alerts that fire, and the status of skills."""

from __future__ import annotations

from typing import Any

import polars as pl

from dashboard import cards, data, formats, links
from dashboard.cards import Cell, Tone
from dashboard.state import Scope

FIRING = "firing"
#: Alerts that a banner names.
_SHOWN = 4
_STATUS_TONES: dict[str, Tone] = {"degraded": "bad", "observation": "warn"}


def alerts(scope: Scope) -> list[dict[str, Any]]:
    """The alerts whose newest state is `firing`, newest first."""
    changes = data.alerts(scope.source, scope.project)
    newest = changes.unique("alert_id", keep="first", maintain_order=True)
    return newest.filter(pl.col("state") == FIRING).to_dicts()


def banner(scope: Scope) -> None:
    """The alerts that fire, above everything else; red when one of them is critical."""
    found = alerts(scope)
    if not found:
        return
    lines = [
        cards.join(
            [
                alert["message"] or alert["rule"],
                cards.note(f"since {formats.clock(alert['started_at'] or alert['time'])}"),
            ]
        )
        for alert in found[:_SHOWN]
    ]
    if len(found) > _SHOWN:
        lines.append(cards.link(f"and {len(found) - _SHOWN} more", links.page(scope, links.ALERTS)))
    cards.banner(lines, "bad" if any(alert["severity"] == "critical" for alert in found) else "warn")


def status_badge(status: str | None, is_active: bool | None) -> Cell:
    """A skill's standing: what the nightly job says, else what the registry says."""
    if is_active is None:
        return cards.badge("not registered", "warn")
    if not is_active:
        return cards.badge("retired")
    if status is None or status == "active":
        return cards.text("active", "quiet")
    return cards.badge(status, _STATUS_TONES.get(status, ""))
