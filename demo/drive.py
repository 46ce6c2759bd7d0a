"""Turns through the discovery layer and real OpenTelemetry: search, pick, call, verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from demo.agents import BAD_ARGUMENTS, Agents, Outcome, Stage, Turn
from demo.library import Query, library
from discovery.layer import DiscoveryLayer, Offered
from pickwise.events import ErrorKind
from pickwise.trace import SelectionScope, SelectionTracer

AGENT = "demo-agent"
K = 8
NDCG_DEPTH = 5
BOOTSTRAPS = 2_000


class ToolFault(RuntimeError):  # noqa: N818 - it is the tool's fault, not the program's
    """How a simulated skill fails; the tracing helper reads ``error_kind``."""

    def __init__(self, error_kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.error_kind = error_kind


@dataclass
class Driver:
    """Drives turns one after another. ``previous`` is the skill that the session's last turn picked."""

    layer: DiscoveryLayer
    tracer: SelectionTracer
    agents: Agents
    session_id: str | None = None
    previous: str | None = None

    def turn(self, turn: Turn, stage: Stage, progress: float) -> None:
        """One turn; ``progress`` in [0, 1] is how far the stage has come."""
        if turn.session_id != self.session_id:
            self.session_id, self.previous = turn.session_id, None
        with self.layer.select(
            turn.query.text,
            K,
            session_id=turn.session_id,
            model=turn.model,
            agent=AGENT,
            turn=turn.number,
            previous_skill_id=self.previous,
            language=turn.query.language,
        ) as selection:
            picks = self.agents.pick(turn, [candidate.skill_id for candidate in selection.event.candidates])
            selection.pick(*picks)
        ended_well = [self._call(selection, skill_id, turn, stage, progress) for skill_id in picks]
        verdict = self.agents.verdict(turn, picks, all(ended_well))
        if verdict is not None:
            self.tracer.feedback(
                verdict.kind,
                selection_id=selection.selection_id,
                session_id=turn.session_id,
                value=verdict.value,
                expected=verdict.expected or None,
                source="human",
                annotator="simulated",
            )
        self.previous = picks[0] if picks else None

    def _call(self, selection: SelectionScope, skill_id: str, turn: Turn, stage: Stage, progress: float) -> bool:
        """Call a skill, at most twice; True when it went well in the end."""
        call_id: str | None = None
        for number in (1, 2):
            outcome = self.agents.attempt(skill_id, turn, stage, progress, number)
            call_id = _attempt(selection, skill_id, outcome, call_id, number)
            if outcome.ok or not self.agents.retries(outcome, number):
                return outcome.ok
        return False


def _attempt(selection: SelectionScope, skill_id: str, outcome: Outcome, call_id: str | None, number: int) -> str:
    with selection.call(skill_id, arguments_for(skill_id), call_id=call_id, attempt=number) as call:
        call.event.retryable = outcome.retryable or None
        call.took(outcome.validate_ms + outcome.exec_ms)
        try:
            with call.phase("validate", outcome.validate_ms):
                _fail_unless(outcome.ok or outcome.exec_ms > 0, outcome)
            with call.phase("exec", outcome.exec_ms):
                _fail_unless(outcome.ok, outcome)
        except ToolFault as fault:
            call.fail(fault.error_kind, str(fault))
    return call.call_id


def _fail_unless(good: bool, outcome: Outcome) -> None:
    if not good:
        raise ToolFault(outcome.error_kind or "other", outcome.message or "")


def arguments_for(skill_id: str) -> dict[str, Any]:
    """Plausible arguments by the skill's schema; the bills get the tax rate where a tax code belongs."""
    properties = _properties().get(skill_id, {})
    arguments = {name: _SAMPLES.get(schema["type"], "example") for name, schema in properties.items()}
    arguments |= {name: schema["enum"][0] for name, schema in properties.items() if "enum" in schema}
    return arguments | ({"tax_code": "19 %"} if skill_id == BAD_ARGUMENTS else {})


_SAMPLES: dict[str, Any] = {"number": 42.5, "integer": 3, "array": ["example"], "boolean": True}


@lru_cache(maxsize=1)
def _properties() -> dict[str, dict[str, Any]]:
    return {entry["skill_id"]: entry.get("parameters_schema", {}).get("properties", {}) for entry in library()}


@dataclass(frozen=True)
class Judged:
    """NDCG@5 of each list against the one right skill, and the share of lists that a model ordered."""

    gains: list[float]
    by_model: float


def ndcg(layer: DiscoveryLayer, asked: Sequence[Query], model: str, learned: bool) -> Judged:
    """Judge the list of each query, without sending any event."""
    found = [layer.search(query.text, K, model=model, learned=learned) for query in asked]
    gains = [_gain(offered, query) for offered, query in zip(found, asked, strict=True)]
    return Judged(gains, sum(offered.model_version is not None for offered in found) / len(found))


def _gain(offered: Offered, query: Query) -> float:
    shown = [candidate.skill_id for candidate in offered.candidates[:NDCG_DEPTH]]
    return 1 / math.log2(shown.index(query.skill_id) + 2) if query.skill_id in shown else 0.0


def bootstrap_mean(values: Sequence[float], seed: int = 7) -> tuple[float, float, float]:
    """Mean and its 95 % bootstrap interval over queries."""
    sample = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    means = sample[rng.integers(0, sample.size, size=(BOOTSTRAPS, sample.size))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(sample.mean()), float(low), float(high)
