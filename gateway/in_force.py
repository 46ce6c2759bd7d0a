"""Settings that a running service took at its start: a command beside it can't change them, and says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import msgspec

from collector.lock import holder
from gateway.intake import key_header, service_url
from pickwise.settings import Settings

#: What tells how long things are kept.
KEEPING = ("retention_days", "retention", "archive_days", "dead_letter_days")
#: What tells how spans and events become rows, and what of them is stored.
MAPPING = ("error_patterns", "router_tools", "proxy_tools", "known_tools", "store_queries", "allow_arguments")
_TIMEOUT_S = 10.0
_SHOWN_CHARS = 80


def in_force(settings: Settings) -> dict[str, Any]:
    """What these settings say, as JSON; no secret is among them."""
    return settings.model_dump(mode="json", include={*KEEPING, *MAPPING})


def without_effect(settings: Settings, names: Sequence[str], project: str) -> Iterator[str]:
    """A sentence for each of the named settings that the service that holds the folder has otherwise.

    None where no service runs, and where it doesn't answer or wants another key: the command itself says so then.
    """
    held = holder(settings.data_dir)
    if held is None or held.http_port is None:
        return
    headers = {"X-Pickwise-Project": project} | key_header(settings)
    try:
        answer = httpx.get(f"{service_url(held)}/v1/settings", headers=headers, timeout=_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError:
        return
    theirs: dict[str, Any] = answer.json() if answer.is_success else {}
    for name, ours in in_force(settings).items():
        if name in names and name in theirs and theirs[name] != ours:
            yield (
                f"{name} is {_short(theirs[name])} in the running service (process {held.pid}), which does this; "
                f"{_short(ours)} here has no effect: start the service anew with it"
            )


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
