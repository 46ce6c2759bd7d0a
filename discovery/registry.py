"""The registry as the discovery layer sees it: polled by version, decoded entry by entry."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from discovery.documents import PolledDocument
from pickwise.events import EventError
from pickwise.skills import Skill, decode_skill

logger = logging.getLogger(__name__)

REGISTRY_PATH = "/v1/registry"


@dataclass(frozen=True)
class Registry:
    """The active skills of one registry version."""

    version: str | None
    skills: tuple[Skill, ...]


def decode_registry(raw: Any) -> Registry:
    """Raises ValueError when the answer has no list of skills; an entry of the wrong form is logged and left out."""
    entries = raw.get("skills") if isinstance(raw, dict) else None
    if not isinstance(entries, list):
        raise ValueError("skills: expected a list of registry entries")
    skills = [skill for entry in entries if (skill := _entry(entry)) is not None and skill.is_active]
    return Registry(version=raw.get("registry_version"), skills=tuple(skills))


class RegistryClient(PolledDocument[Registry]):
    """Polls ``GET /v1/registry``. ``value`` is the last good registry, None before the first."""

    def __init__(self, http: httpx.Client, cache_path: Path | None = None) -> None:
        super().__init__(http, REGISTRY_PATH, decode_registry, cache_path)


def _entry(raw: object) -> Skill | None:
    try:
        return decode_skill(raw)[0]
    except EventError as error:
        logger.warning("registry: an entry is left out: %s", error)
        return None
