"""How `pickwise forget`, `replay` and `retention` are done: by the service that holds the folder, or by ourselves."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import msgspec

from analytics.settle import remove_gone
from collector.lock import FolderHeld, holder
from collector.operations import ReplayRequest
from collector.projects import is_project
from collector.service import Collector
from gateway.intake import ServiceRefused, key_header, reason, service_url
from pickwise.settings import Settings

_KEY_HINTS = {
    401: "; give a key of the project in PICKWISE_API_KEY",
    403: "; PICKWISE_API_KEY must hold a key of the project with the role admin",
}


def forget(settings: Settings, project: str, session_id: str) -> dict[str, Any]:
    """Remove a session from everywhere; what was removed. Raises FolderHeld, ServiceRefused."""
    return _operate(
        settings,
        project,
        "/v1/forget",
        {"session_id": session_id},
        lambda collector: collector.forget(project, session_id),
    )


def replay(settings: Settings, project: str, request: ReplayRequest) -> dict[str, Any]:
    """Map the archived requests of a window anew; what changed. Raises FolderHeld, ServiceRefused."""
    window = {"from": request.start, "to": request.end}
    return _operate(
        settings,
        project,
        "/v1/replay",
        {name: str(moment) for name, moment in window.items() if moment is not None} | {"dry_run": request.dry_run},
        lambda collector: collector.replay(request),
    )


def retain(settings: Settings, project: str, *, dry_run: bool) -> dict[str, Any]:
    """Remove what is older than the settings say; what was removed. Raises FolderHeld, ServiceRefused."""
    return _operate(
        settings,
        project,
        "/v1/retention",
        {"dry_run": dry_run},
        lambda collector: collector.retain(project, dry_run=dry_run),
    )


def _operate(
    settings: Settings,
    project: str,
    path: str,
    body: dict[str, Any],
    begin: Callable[[Collector], Future[Any]],
) -> dict[str, Any]:
    if not is_project(project):
        raise ServiceRefused(f"project: expected 1 to 64 of A-Z a-z 0-9 . _ -, got {project!r:.80}")
    held = holder(settings.data_dir)
    if held is None:
        return _by_ourselves(settings, begin)
    if held.http_port is None:
        raise FolderHeld(Path(settings.data_dir), held)
    headers = {"X-Pickwise-Project": project} | key_header(settings)
    # However long it takes: the service answers when it is done, and has it written down if it ends before.
    with httpx.Client(base_url=service_url(held), headers=headers, timeout=None, trust_env=False) as client:
        answer = client.post(path, json=body)
    if answer.is_error:
        mend = _KEY_HINTS.get(answer.status_code, "")
        raise ServiceRefused(
            f"the service at {service_url(held)} answered {answer.status_code}: {reason(answer)}{mend}"
        )
    document: dict[str, Any] = answer.json()
    return document


def _by_ourselves(settings: Settings, begin: Callable[[Collector], Future[Any]]) -> dict[str, Any]:
    collector = Collector(settings)
    collector.start()
    try:
        report: dict[str, Any] = msgspec.to_builtins(begin(collector).result())
    finally:
        collector.stop()
    remove_gone(settings.data_dir)
    return report
