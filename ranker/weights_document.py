"""The weights document: its fields, its version and when it counts as changed."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from ranker import formula, heat, success

#: A value that moves by less than this is the same.
MOVED = 0.001
#: Share of ranked traffic that shows a shuffled top five.
SHUFFLE_FRACTION = 0.05


class SkillEntry(msgspec.Struct, kw_only=True):
    heat: float
    heat_log: float
    success: float
    success_logit: float
    n_effective: float
    status: str
    rollout_fraction: float


class HalfLives(msgspec.Struct, kw_only=True):
    success: float = success.HALF_LIFE_DAYS
    heat: float = heat.HALF_LIFE_DAYS


class Fusion(msgspec.Struct, kw_only=True):
    semantic: float = 1.0
    heat: float = formula.HEAT_COEFFICIENT
    success: float = formula.SUCCESS_COEFFICIENT
    #: By query type; empty until learned.
    alpha: dict[str, float] = {}


class Explore(msgspec.Struct, kw_only=True):
    slot: bool = True
    shuffle_fraction: float = SHUFFLE_FRACTION


class ServedModel(msgspec.Struct, kw_only=True):
    version: str
    features: list[str]
    sha256: str


class Canary(msgspec.Struct, kw_only=True):
    version: str
    fraction: float


class WeightsDocument(msgspec.Struct, kw_only=True):
    """What ``GET /v1/weights`` answers. ``no_match_threshold`` is a cosine; null until there is enough to calibrate."""

    version: str = ""
    created_at: str = "1970-01-01T00:00:00Z"
    project: str
    registry_version: str | None = None
    half_life_days: HalfLives = msgspec.field(default_factory=HalfLives)
    fusion: Fusion = msgspec.field(default_factory=Fusion)
    no_match_threshold: float | None = None
    explore: Explore = msgspec.field(default_factory=Explore)
    skills: dict[str, SkillEntry] = {}
    model: ServedModel | None = None
    canary: Canary | None = None


def content_version(document: WeightsDocument) -> str:
    content: dict[str, Any] = msgspec.to_builtins(document)
    del content["version"], content["created_at"]
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:16]


def empty(project: str) -> WeightsDocument:
    document = WeightsDocument(project=project)
    document.version = content_version(document)
    return document


def changed(old: WeightsDocument, new: WeightsDocument, *, new_events: bool) -> bool:
    """Whether a refresh makes a new version: new events moved a value, or something else than a value changed."""
    if _structure(old) != _structure(new):
        return True
    return new_events and any(abs(a - b) >= MOVED for a, b in zip(_values(old), _values(new), strict=True))


def _structure(document: WeightsDocument) -> Any:
    """All that is not a measured value."""
    statuses = {skill_id: (entry.status, entry.rollout_fraction) for skill_id, entry in document.skills.items()}
    return (
        statuses,
        document.registry_version,
        document.half_life_days,
        document.fusion,
        document.explore,
        document.model,
        document.canary,
        document.no_match_threshold is None,
    )


def _values(document: WeightsDocument) -> list[float]:
    found = [document.no_match_threshold or 0.0]
    for skill_id in sorted(document.skills):
        entry = document.skills[skill_id]
        found += [entry.heat, entry.heat_log, entry.success, entry.success_logit, entry.n_effective]
    return found
