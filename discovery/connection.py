"""The connection of a discovery layer to the service."""

from __future__ import annotations

import os

import httpx

#: Idle connections are left before the server ends them (uvicorn: after 5 s), else a request may meet a closed one.
KEEPALIVE_S = 2.0
_TIMEOUT_S = 10.0


def connect(base_url: str, project: str | None, api_key: str | None) -> httpx.Client:
    """A client for the project, with the key given or of ``PICKWISE_API_KEY``."""
    headers = {"X-Pickwise-Project": project} if project else {}
    api_key = api_key or os.environ.get("PICKWISE_API_KEY")
    return httpx.Client(
        base_url=base_url,
        headers=headers | ({"Authorization": f"Bearer {api_key}"} if api_key else {}),
        timeout=_TIMEOUT_S,
        limits=httpx.Limits(keepalive_expiry=KEEPALIVE_S),
    )
