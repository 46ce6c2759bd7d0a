"""A registry entry: the skill, as its owner declares it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from pickwise.events import EventError, SkillId, parse_time, reason_of
from pickwise.text import split_name

SkillKind = Literal["function", "mcp", "skill"]
Freshness = Literal["ok", "degraded", "down"]


class Capability(msgspec.Struct, kw_only=True, omit_defaults=True):
    action: str
    object: str | None = None


class Example(msgspec.Struct, kw_only=True, omit_defaults=True):
    query: str
    arguments: dict[str, Any] | None = None


class Resource(msgspec.Struct, kw_only=True, omit_defaults=True):
    kind: str
    name: str
    schema_version: str | None = None


class SideEffect(msgspec.Struct, kw_only=True, omit_defaults=True):
    read_only: bool | None = None
    idempotent: bool | None = None
    destructive: bool | None = None
    reversible: bool | None = None
    asynchronous: bool | None = None


class Rollout(msgspec.Struct, kw_only=True, omit_defaults=True):
    stage: str | None = None
    fraction: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class Skill(msgspec.Struct, kw_only=True, omit_defaults=True, tag="skill", tag_field="type"):
    """One entry of the registry. Only ``skill_id`` is required; ``name`` defaults to it."""

    skill_id: SkillId
    name: str | None = None
    kind: SkillKind | None = None
    version: str | None = None
    description: str | None = None
    domain: str | None = None
    capabilities: list[Capability] = []
    trigger_phrases: list[str] = []
    not_for: list[str] = []
    examples: list[Example] = []
    parameters_schema: dict[str, Any] | None = None
    outputs: Any = None
    required_permissions: list[str] = []
    dependencies: list[str] = []
    resources: list[Resource] = []
    preconditions: list[str] = []
    side_effect: SideEffect | None = None
    timeout_ms: float | None = None
    p99_ms: float | None = None
    lock_key: str | None = None
    owner: str | None = None
    freshness: Freshness | None = None
    is_active: bool = True
    rollout: Rollout | None = None
    valid_from: str | int | None = None

    @property
    def display_name(self) -> str:
        return self.name or self.skill_id

    @property
    def text(self) -> str:
        """What an embedding reads: the name in words, the description, and how the skill is asked for (trigger phrases,
        queries of examples), which lies nearer to what people ask than any description."""
        described = f"{split_name(self.display_name)}. {self.description or ''}".strip()
        return " . ".join([described, *self.trigger_phrases, *(example.query for example in self.examples)])


_FIELDS = frozenset(Skill.__struct_fields__) | {"type", "project", "event_id", "time"}


def decode_skill(raw: object) -> tuple[Skill, int]:
    """Turn one decoded JSON object into a registry entry; returns it with the count of unknown fields.

    Raises EventError naming the field and what was expected. A ``parameters_schema`` that is no valid JSON Schema is
    taken as it is (published tools have such; the review names it): refusing it would make the skill unknown.
    """
    if not isinstance(raw, dict):
        raise EventError(f"expected an object, got {type(raw).__name__}")
    try:
        skill = msgspec.convert({"type": "skill", **raw}, Skill)
    except msgspec.ValidationError as error:
        raise EventError(reason_of(error, Skill)) from error
    try:
        parse_time(skill.valid_from)
    except EventError as error:
        raise EventError(f"valid_from: {str(error).removeprefix('time: ')}") from error
    return skill, sum(1 for key in raw if key not in _FIELDS)
