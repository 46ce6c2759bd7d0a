"""Addresses of the dashboard's pages for whoever reads a notification: its menu and its windows are told here again."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlencode

from pickwise.settings import Settings

#: The windows that the dashboard offers, the shortest first.
_WINDOWS = {
    "Last hour": timedelta(hours=1),
    "Last 24 hours": timedelta(days=1),
    "Last 7 days": timedelta(days=7),
    "Last 30 days": timedelta(days=30),
}


def dashboard_url(settings: Settings) -> str:
    """Where the dashboard of these settings answers; on any address of the machine: on loopback."""
    host = "127.0.0.1" if settings.host in {"0.0.0.0", "::"} else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.dashboard_port}"


def overview(base: str, project: str, window: timedelta) -> str:
    """The page with every metric, over the shortest window that holds the rule's."""
    shown = next((name for name, length in _WINDOWS.items() if window <= length), "All")
    return f"{base}/?{urlencode({'project': project, 'window': shown})}"


def skill(base: str, project: str, skill_id: str) -> str:
    return f"{base}/skill?{urlencode({'project': project, 'skill_id': skill_id})}"


def alerts(base: str, project: str) -> str:
    return f"{base}/alerts?{urlencode({'project': project})}"
