"""The weights that the service learned, as the discovery layer uses them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import httpx
import msgspec

from discovery.documents import PolledDocument

WEIGHTS_PATH = "/v1/weights"


class SkillWeights(msgspec.Struct, kw_only=True):
    """What use taught about one skill; the defaults are those of a skill that nobody has used."""

    heat: float = 0.5
    success: float | None = None
    success_logit: float = 0.0
    n_effective: float = 0.0
    status: str = "active"
    rollout_fraction: float = 1.0

    @property
    def success_gain(self) -> float:
        """success − p_d, where p_d is the domain's own success rate: logit p_d = logit p̂ − success_logit."""
        if self.success is None:
            return 0.0
        p = min(max(self.success, 1e-6), 1 - 1e-6)
        prior = 1 / (1 + math.exp(self.success_logit - math.log(p / (1 - p))))
        return p - prior


class Fusion(msgspec.Struct, kw_only=True):
    semantic: float = 1.0
    heat: float = 0.15
    success: float = 0.10
    #: Weight of BM25 by query type; absent: the defaults of ``discovery.fusion``.
    alpha: dict[str, float] | None = None


class Explore(msgspec.Struct, kw_only=True):
    slot: bool | int = False
    shuffle_fraction: float = 0.0


class ServedModel(msgspec.Struct, kw_only=True):
    version: str


class Weights(msgspec.Struct, kw_only=True):
    """The fields of the weights document that a discovery layer acts on."""

    version: str
    registry_version: str | None = None
    fusion: Fusion = msgspec.field(default_factory=Fusion)
    no_match_threshold: float | None = None
    explore: Explore = msgspec.field(default_factory=Explore)
    skills: dict[str, SkillWeights] = {}
    model: ServedModel | None = None

    def of(self, skill_id: str) -> SkillWeights:
        return self.skills.get(skill_id, _UNUSED)


_UNUSED = SkillWeights()


def decode_weights(raw: Any) -> Weights:
    """Raises ValueError naming the field that has the wrong form."""
    return msgspec.convert(_without_nulls(raw), Weights)


class WeightsClient(PolledDocument[Weights]):
    """Polls ``GET /v1/weights``. ``value`` is the last good document, None before the first."""

    def __init__(self, http: httpx.Client, cache_path: Path | None = None) -> None:
        super().__init__(http, WEIGHTS_PATH, decode_weights, cache_path)


def _without_nulls(raw: Any) -> Any:
    """A null means "not known", which is what the default of a field says."""
    if isinstance(raw, dict):
        return {key: _without_nulls(value) for key, value in raw.items() if value is not None}
    return raw
