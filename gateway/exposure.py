"""Who may listen where: without API keys only this machine, unless ``--insecure`` says otherwise."""

from __future__ import annotations

from pickwise.settings import Settings


class ExposedError(RuntimeError):
    """Listening beyond loopback without keys was asked for, but not with ``--insecure``."""


def refuse_exposure(settings: Settings) -> None:
    """Raises ExposedError when other machines could reach the host of the settings."""
    if settings.insecure or settings.host in {"localhost", "::1"} or settings.host.startswith("127."):
        return
    raise ExposedError(
        f"host {settings.host} is reachable from other machines, and nothing here asks for a key: "
        "listen on 127.0.0.1, or pass --insecure if the network is trusted"
    )
