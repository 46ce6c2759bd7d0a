"""A day and a half of an agent's work, written to the lake as the collector writes it.

Simulated, from a fixed seed: position-biased picks, a skill that fails, one that is called with bad arguments,
invented names, and a spell of embedding outage during which every selection fell back to keyword search.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from collector import skill_changes
from collector.events_in import parse_events
from collector.lake import Lake
from collector.redact import Redactor
from pickwise.settings import Settings
from tests.collector.frames_of import to_frames
from tests.dashboard.library import LIBRARY, LibrarySkill

Event = dict[str, Any]

FAILING_SKILL = "calendar.sync_shared"
BAD_ARGUMENTS_SKILL = "billing.refund_partial"
INVENTED = ("calendar.creat_event", "mail.searchThreads", "weather.forecast")
MODELS = ("atlas-large", "swift-mini")
#: Share of picks by rank, per model: one looks at the top only, one looks further down.
_LOOK = {"atlas-large": (0.72, 0.14, 0.07, 0.04, 0.03), "swift-mini": (0.42, 0.24, 0.16, 0.10, 0.08)}
_SPAN = timedelta(hours=36)
_OUTAGE = (0.74, 0.79)
_PROBE_EVERY = timedelta(seconds=30)
_MENU = 8


def write_events(data_dir: Path, events: list[Event], project: str = "default", received_at: int | None = None) -> None:
    """Store native events as if they had come in one request."""
    body = b"\n".join(msgspec.json.encode(event) for event in events)
    parsed = parse_events(body, "ndjson")
    if parsed.rejected:
        raise ValueError(f"the seed is wrong: {parsed.rejected[0].reason}")
    received = received_at or int(datetime.now(UTC).timestamp() * 1e9)
    frames = to_frames(
        project, parsed.facts, received_at=received, source_request="1-0", redactor=Redactor(Settings(), b"k" * 32)
    )
    lake = Lake(data_dir)
    for table, frame in frames.items():
        lake.append(table, frame)


def write_registry(data_dir: Path, library: tuple[LibrarySkill, ...] = LIBRARY, project: str = "default") -> None:
    """Store the library as the project's first registry write."""
    changes = [
        skill_changes.SkillChange(
            skill_id=skill.skill_id,
            op="upsert",
            time=0,
            entry={
                "skill_id": skill.skill_id,
                "name": skill.skill_id.partition(".")[2].replace("_", " "),
                "kind": "function",
                "domain": skill.domain,
                "description": skill.description,
            },
        )
        for skill in library
    ]
    rows = skill_changes.to_rows(
        changes,
        project=project,
        source="declared",
        seq=1,
        received_at=int(datetime.now(UTC).timestamp() * 1e9),
        source_request="1-0",
        registry_version="r1",
    )
    Lake(data_dir).append("skills", rows)


def seed(data_dir: Path, turns: int = 420, end: datetime | None = None, project: str = "default") -> list[Event]:
    """Registry and events of one project, ending at ``end`` (default: a minute ago); returns the events."""
    write_registry(data_dir, project=project)
    until = end or datetime.now(UTC) - timedelta(minutes=1)
    events = list(simulate(turns, until, np.random.default_rng(7)))
    write_events(data_dir, events, project)
    return events


def simulate(turns: int, end: datetime, rng: np.random.Generator) -> Iterator[Event]:
    """Events of so many turns, evenly loaded over the span before ``end``."""
    shares = np.sort(rng.random(turns))
    outage = [end - _SPAN * (1 - share) for share in _OUTAGE]
    yield from _routes(outage)
    for number, share in enumerate(map(float, shares)):
        yield from _turn(number, end - _SPAN * (1 - share), _OUTAGE[0] <= share < _OUTAGE[1], rng)


def _routes(outage: list[datetime]) -> Iterator[Event]:
    start, stop = outage
    common = {"type": "route", "instance": "discovery-1"}
    yield common | {"time": start.isoformat(), "state": "degraded", "reason": "embedding timeout", "p99_ms": 2140.0}
    probes = int((stop - start) / _PROBE_EVERY)
    for number in range(1, probes):
        yield common | {
            "time": (start + number * _PROBE_EVERY).isoformat(),
            "state": "probe",
            "reason": "still failing",
        }
    yield common | {"time": stop.isoformat(), "state": "recovered", "p99_ms": 41.0}


def _turn(number: int, moment: datetime, fallback: bool, rng: np.random.Generator) -> Iterator[Event]:
    target = LIBRARY[int(rng.integers(len(LIBRARY)))]
    model = MODELS[int(rng.random() < 0.4)]
    menu = _menu(target, fallback, rng)
    picks = _picks(menu, target, model, rng)
    event_id = f"turn-{number:04d}"
    common = {"trace_id": f"{number + 1:032x}", "session_id": f"s{number // 3}", "agent": "assistant", "model": model}
    yield common | {
        "type": "selection",
        "event_id": event_id,
        "time": moment.isoformat(),
        "query": str(rng.choice(np.array(target.queries))),
        "candidates": _candidates(menu, fallback, rng),
        "ranked": True,
        "picks": picks,
        "strategy": "bm25" if fallback else "hybrid",
        "fallback": fallback,
        "fallback_reason": "embedding timeout" if fallback else None,
        "stage_ms": _stages(fallback, rng),
        "menu_tokens": int(rng.normal(900, 80)),
    }
    for order, skill_id in enumerate(picks):
        yield from _call(common, event_id, order, skill_id, moment + timedelta(seconds=1 + order), rng)
    if picks and rng.random() < 0.15:
        yield common | {
            "type": "feedback",
            "event_id": f"fb-{number:04d}",
            "time": (moment + timedelta(seconds=30)).isoformat(),
            "selection_id": event_id,
            "kind": "accepted" if picks[0] == target.skill_id else "wrong_skill",
            "expected": None if picks[0] == target.skill_id else [target.skill_id],
            "source": "human",
        }


def _menu(target: LibrarySkill, fallback: bool, rng: np.random.Generator) -> list[str]:
    """The target among its neighbours; keyword search finds it further down, or not at all."""
    near = [skill.skill_id for skill in LIBRARY if skill.domain == target.domain and skill is not target]
    far = [skill.skill_id for skill in LIBRARY if skill.domain != target.domain]
    others = [*rng.permutation(near), *rng.permutation(far)][: _MENU - 1]
    if fallback and rng.random() < 0.25:
        return [*map(str, others), str(rng.choice(far))]
    rank = int(min(rng.geometric(0.35 if fallback else 0.62) - 1, _MENU - 1))
    return [*map(str, others[:rank]), target.skill_id, *map(str, others[rank:])]


def _picks(menu: list[str], target: LibrarySkill, model: str, rng: np.random.Generator) -> list[str]:
    if rng.random() < 0.02:
        return [str(rng.choice(np.array(INVENTED)))]
    look = np.array(_LOOK[model])
    right = np.array([skill_id == target.skill_id for skill_id in menu[: len(look)]])
    chances = np.sqrt(look / look[0]) * np.where(right, 0.95, 0.08)
    picked = [skill_id for skill_id, chance in zip(menu, chances, strict=False) if rng.random() < chance]
    return picked[:2]


def _candidates(menu: list[str], fallback: bool, rng: np.random.Generator) -> list[Event]:
    scores = np.sort(rng.uniform(0.15, 0.95, len(menu)))[::-1]
    return [
        {
            "skill_id": skill_id,
            "score": round(float(score), 4),
            "bm25": round(float(score * rng.uniform(6, 12)), 3),
            "dense": None if fallback else round(float(np.clip(score + rng.normal(0, 0.06), 0, 1)), 4),
            "source": "bm25" if fallback else str(rng.choice(np.array(("dense", "bm25", "usage")), p=(0.6, 0.3, 0.1))),
        }
        for skill_id, score in zip(menu, scores, strict=True)
    ]


def _stages(fallback: bool, rng: np.random.Generator) -> dict[str, float]:
    times = {
        "intent": rng.gamma(4, 1.0),
        "embed": rng.gamma(3, 700 if fallback else 3.0),
        "sparse": rng.gamma(4, 0.6),
        "merge": rng.gamma(2, 0.2),
        "rerank": rng.gamma(5, 9),
        "llm_select": rng.gamma(6, 120),
    }
    if not fallback:
        times["dense"] = rng.gamma(5, 1.4)
    return {stage: round(float(ms), 2) for stage, ms in (times | {"total": sum(times.values())}).items()}


def _call(
    common: Event, selection_id: str, order: int, skill_id: str, moment: datetime, rng: np.random.Generator
) -> Iterator[Event]:
    """The phases of one call, up to the one that fails."""
    error_kind = _error(skill_id, rng)
    failing = {"invalid_arguments": "validate", "not_found": "invoke"}.get(error_kind or "", "exec")
    slow = 6 if skill_id == FAILING_SKILL else 1
    durations = {
        "invoke": rng.gamma(3, 0.4),
        "validate": rng.gamma(3, 0.8),
        "exec": rng.gamma(4, 60.0) * slow,
        "output": rng.gamma(2, 1.5),
    }
    for phase, latency in durations.items():
        failed = error_kind is not None and phase == failing
        yield common | {
            "type": "call",
            "time": moment.isoformat(),
            "call_id": f"{selection_id}-c{order}",
            "selection_id": selection_id,
            "skill_id": skill_id,
            "phase": phase,
            "ok": not failed,
            "latency_ms": round(float(latency), 2),
            "error_kind": error_kind if failed else None,
            "error_message": _MESSAGES.get(error_kind or "") if failed else None,
            "arguments": {"text": "…"} if phase == "invoke" else None,
        }
        if failed:
            return
        moment += timedelta(milliseconds=float(latency))


_MESSAGES = {
    "http_5xx": "503 Service Unavailable from the calendar provider",
    "invalid_arguments": "amount: expected a number, got a string",
    "not_found": "no such tool",
    "timeout": "no answer within 5 s",
    "tool_error": "the tool reported an error",
}


def _error(skill_id: str, rng: np.random.Generator) -> str | None:
    chance = rng.random()
    if skill_id in INVENTED:
        return "not_found"
    if skill_id == FAILING_SKILL:
        return "http_5xx" if chance < 0.7 else "timeout" if chance < 0.82 else None
    if skill_id == BAD_ARGUMENTS_SKILL:
        return "invalid_arguments" if chance < 0.55 else None
    return "timeout" if chance < 0.02 else "tool_error" if chance < 0.045 else None
