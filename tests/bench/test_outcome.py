"""Failing and mended skills, a few hundred turns of each phase."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from bench import outcome
from bench.outcome import DEMOTED, FAILS, FORMULA, MODEL, RETRIEVAL, _let_fail, _standings, checkpoints, markdown, run


def calls(skill_id: str, count: int) -> list[dict[str, Any]]:
    """One good call a turn, a turn a minute."""
    return [
        {
            "type": "call",
            "selection_id": f"turn-{turn}",
            "skill_id": skill_id,
            "time": int((20_000 * 86_400 + turn * 60) * 1e9),
            "ok": True,
        }
        for turn in range(count)
    ]


def test_calls_of_failing_skills_fail_in_the_middle_phase_and_degrade_them() -> None:
    events = calls("a", 900) + calls("b", 900)
    _let_fail(events, {"a"}, 300, seed=0)
    failed = [event for event in events if not event["ok"]]
    assert {event["skill_id"] for event in failed} == {"a"}
    assert {event["error_kind"] for event in failed} == {"tool_error"}
    assert all(300 <= int(event["selection_id"].removeprefix("turn-")) < 600 for event in failed)
    assert len(failed) / 300 == pytest.approx(FAILS, abs=0.06)
    found = _standings([event for event in events if event["skill_id"] == "b" or not event["ok"]], 20_001 * 86_400.0)
    assert {skill_id: standing.status for skill_id, standing in found.items()} == {"a": "degraded", "b": "active"}


def test_every_moment_is_looked_at(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "CACHE", tmp_path / "vectors")
    given = Namespace(data=shared / "data" / "ranking", embedder="words", turns=400, queries=150)
    found = list(run(given, seed=1))
    assert [moment.turns for moment in found] == checkpoints(400) == [400, 800, 850, 900, 1000, 1200]
    good, failing = found[0], found[1]
    assert set(good.failing_first) == {RETRIEVAL, FORMULA, MODEL, DEMOTED}
    assert failing.failing_first[FORMULA] < good.failing_first[FORMULA]
    assert failing.failing_first[RETRIEVAL] == good.failing_first[RETRIEVAL]
    assert "400 turns after the mend" in markdown([found], 400)
