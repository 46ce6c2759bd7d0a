"""Whether a chain could be run as a template, as far as the registry says: five checks, each with its reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import duckdb
import polars as pl

from analytics.fetch import fetch
from analytics.status import current_status

OK = "ok"
NO = "no"
UNKNOWN = "unknown"

_REGISTRY = """
SELECT skill_id, is_active, source, entry FROM skills
WHERE project = $project AND authoritative AND valid_from <= $now AND (valid_to IS NULL OR valid_to > $now)
"""


@dataclass(frozen=True)
class Step:
    """A skill of a chain, and what is known of it now."""

    skill_id: str
    #: Whether the registry holds it; None: there is no registry.
    is_active: bool | None = None
    #: Whether its owner declared the entry; offers say nothing of needs and effects.
    is_declared: bool = False
    entry: dict[str, Any] = field(default_factory=dict)
    #: Why it is flagged as degraded; None: it is not.
    degraded: str | None = None


class Checker:
    """The checks against one state of a project's registry and flags."""

    def __init__(self, steps: dict[str, Step], has_registry: bool) -> None:
        self._steps = steps
        self._has_registry = has_registry

    def check(self, skills: Sequence[str]) -> dict[str, Any]:
        """``feasible`` (`yes`, `no`, `unknown`) and ``checks``: each with ``check``, ``verdict`` (`ok`, `no`,
        `unknown`) and ``reason``."""
        missing = False if self._has_registry else None
        steps = [self._steps.get(skill_id, Step(skill_id, is_active=missing)) for skill_id in skills]
        checks = [_judged(name, list(look(steps)), fine) for name, (look, fine) in CHECKS.items()]
        verdicts = {check["verdict"] for check in checks}
        return {"feasible": NO if NO in verdicts else UNKNOWN if UNKNOWN in verdicts else "yes", "checks": checks}


def load_checker(
    connection: duckdb.DuckDBPyConnection, project: str, now: datetime, status: pl.DataFrame | None = None
) -> Checker:
    """A checker as of ``now``. ``status``: rows of ``skill_status``, where they are newer than the connection's."""
    degraded = {
        row["skill_id"]: row["reason"]
        for row in current_status(connection, project, now, status).iter_rows(named=True)
        if row["status"] == "degraded"
    }
    steps = {
        row["skill_id"]: Step(
            skill_id=row["skill_id"],
            is_active=row["is_active"],
            is_declared=row["source"] == "declared",
            entry=json.loads(row["entry"]),
            degraded=degraded.get(row["skill_id"]),
        )
        for row in fetch(connection, _REGISTRY, project=project, now=now).iter_rows(named=True)
    }
    return Checker(steps, has_registry=bool(steps))


#: A verdict that is not `ok`, with what it is about.
Finding = tuple[str, str]


def _judged(name: str, findings: Sequence[Finding], fine: str) -> dict[str, str]:
    verdict = next((v for v in (NO, UNKNOWN) if any(found == v for found, _ in findings)), OK)
    reasons = dict.fromkeys(reason for found, reason in findings if found == verdict)
    return {"check": name, "verdict": verdict, "reason": "; ".join(reasons) or fine}


def _active(steps: Sequence[Step]) -> Iterator[Finding]:
    for step in steps:
        if step.is_active is None:
            yield UNKNOWN, "the project has no registry"
        elif not step.is_active:
            yield NO, f"{step.skill_id} is {'retired' if step.entry else 'not in the registry'}"


def _healthy(steps: Sequence[Step]) -> Iterator[Finding]:
    for step in steps:
        if step.degraded is not None:
            yield NO, f"{step.skill_id} is degraded ({step.degraded})"
        if step.entry.get("freshness") in ("degraded", "down"):
            yield NO, f"{step.skill_id} is {step.entry['freshness']}, says its owner"


def _inputs(steps: Sequence[Step]) -> Iterator[Finding]:
    """What a later step requires must come from the outputs of those before, or be what one of them required too."""
    given: set[str] = set()
    silent: list[str] = []
    for i, step in enumerate(steps):
        required = required_inputs(step.entry)
        outputs = output_names(step.entry.get("outputs"))
        if i and required is None:
            yield UNKNOWN, f"{step.skill_id}: the registry doesn't say what it requires"
        for name in (required or []) if i else []:
            if _folded(name) in given:
                continue
            if silent:
                yield UNKNOWN, f"{step.skill_id} requires {name}: the registry doesn't say what {silent[0]} gives"
            else:
                yield NO, f"{step.skill_id} requires {name}, which no step before it takes or gives"
        given |= {_folded(name) for name in (*(required or []), *(outputs or []))}
        silent += [step.skill_id] if outputs is None else []


def _order(steps: Sequence[Step]) -> Iterator[Finding]:
    skills = [step.skill_id for step in steps]
    for i, step in enumerate(steps):
        if not step.is_declared:
            yield UNKNOWN, f"{step.skill_id}: the registry doesn't say what must come before it"
        for needed in step.entry.get("dependencies", []):
            if needed in skills[i + 1 :]:
                yield NO, f"{step.skill_id} depends on {needed}, which comes after it"
            elif needed not in skills[: i + 1]:
                yield UNKNOWN, f"{step.skill_id} depends on {needed}, which is not in the chain"
        for condition in step.entry.get("preconditions", []):
            yield UNKNOWN, f"{step.skill_id} has a precondition: {condition}"


def _effects(steps: Sequence[Step]) -> Iterator[Finding]:
    for i, step in enumerate(steps):
        effect = step.entry.get("side_effect") or {}
        if effect.get("destructive") and not effect.get("idempotent"):
            yield NO, f"{step.skill_id} is destructive and not declared idempotent"
        elif effect.get("destructive") is None and not effect.get("read_only"):
            yield UNKNOWN, f"{step.skill_id}: the registry doesn't say whether it destroys anything"
        if effect.get("asynchronous") and i + 1 < len(steps):
            yield UNKNOWN, f"{step.skill_id} is asynchronous: the step after it may begin too early"


#: Each check: what it finds, and what is said when it finds nothing.
CHECKS: dict[str, tuple[Callable[[Sequence[Step]], Iterator[Finding]], str]] = {
    "active": (_active, "every skill is in the registry and active"),
    "healthy": (_healthy, "no skill is degraded"),
    "inputs": (_inputs, "what later steps require is taken or given by steps before them"),
    "order": (_order, "what skills depend on comes before them"),
    "effects": (_effects, "nothing destructive that can't be repeated"),
}


def required_inputs(entry: dict[str, Any]) -> list[str] | None:
    """Names of arguments that must be given: required, without a default. None: the entry doesn't say."""
    schema = entry.get("parameters_schema")
    if not isinstance(schema, dict):
        return None
    required, properties = schema.get("required") or [], schema.get("properties") or {}
    if not isinstance(required, list) or not isinstance(properties, dict):
        return None
    return [name for name in map(str, required) if "default" not in _object(properties.get(name))]


def output_names(outputs: Any) -> list[str] | None:
    """Names of what a skill gives, from a JSON Schema (of a list: of its items), an object by name, or a list of names.

    None: not told in a form that has names.
    """
    if isinstance(outputs, list):
        names = [item.get("name") if isinstance(item, dict) else item for item in outputs]
        texts = [name for name in names if isinstance(name, str)]
        return texts if len(texts) == len(names) else None
    if not isinstance(outputs, dict) or not outputs:
        return None
    if isinstance(outputs.get("properties"), dict):
        return list(outputs["properties"])
    if "type" in outputs or "$schema" in outputs:
        return output_names(outputs.get("items"))
    return list(outputs)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _folded(name: str) -> str:
    """Without case and separators: `orderId` is `order_id`."""
    return re.sub(r"[\W_]+", "", name).lower()
