"""Who may listen where: beyond this machine only with API keys, unless ``--insecure`` says otherwise."""

from __future__ import annotations

from collector.keys import has_active_key
from pickwise.settings import Settings


class ExposedError(RuntimeError):
    """Listening beyond loopback without keys was asked for, but not with ``--insecure``."""


def is_exposed(settings: Settings) -> bool:
    """Whether other machines can reach the host of the settings."""
    return settings.host not in {"localhost", "::1"} and not settings.host.startswith("127.")


def refuse_exposure(settings: Settings) -> None:
    """Raises ExposedError when other machines could reach the collector and no key keeps them out."""
    if settings.insecure or not is_exposed(settings):
        return
    if settings.require_keys is False:
        raise ExposedError(_refusal(settings, "the setting require_keys is false", "leave require_keys out"))
    if not has_active_key(settings.data_dir):
        mend = f"make a key first with `pickwise keys create --data-dir {settings.data_dir}`"
        raise ExposedError(_refusal(settings, f"{settings.data_dir} has no active API key", mend))


def pages_host(settings: Settings) -> str:
    """Where the dashboard of a whole service listens: it asks for no key, so it stays on this machine."""
    return settings.host if settings.insecure or not is_exposed(settings) else "127.0.0.1"


def refuse_exposed_pages(settings: Settings) -> None:
    """Raises ExposedError when other machines could reach the dashboard, which asks for no key."""
    if is_exposed(settings) and not settings.insecure:
        mend = "put a proxy that asks who is there in front of it"
        raise ExposedError(_refusal(settings, "the dashboard asks for no key", mend))


def _refusal(settings: Settings, why: str, mend: str) -> str:
    return (
        f"host {settings.host} is reachable from other machines, and {why}: {mend}, "
        "listen on 127.0.0.1, or pass --insecure if the network is trusted"
    )
