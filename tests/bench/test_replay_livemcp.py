"""The replay of real picks, on a part of the recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import replay_livemcp
from bench.replay_livemcp import FORMULA, LEARNED, SHOWN, difference_by_session, markdown, replay


def test_every_session_is_ranked_by_what_the_others_taught(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_livemcp, "CACHE", tmp_path / "vectors")
    events = tmp_path / "events.jsonl"
    recorded = (shared / "data" / "events" / "livemcpbench.jsonl").read_text().splitlines()
    events.write_text("\n".join(recorded[:300]))
    found = replay(shared / "data" / "registry" / "livemcpbench.jsonl", events, "words", folds=3)
    assert len(found.models) == 3
    assert len({pick.session_id for pick in found.picks}) > 20
    assert all(set(pick.ranks) == {SHOWN, FORMULA, LEARNED} for pick in found.picks)
    assert {rank for pick in found.picks for rank in pick.ranks.values()} == {1, 2, 3}
    assert any(pick.ranks[LEARNED] != pick.ranks[SHOWN] for pick in found.picks)
    assert f"| {LEARNED} |" in markdown(found)


def test_the_interval_is_over_sessions() -> None:
    """Forty picks of two sessions that disagree say no more than two picks would."""
    paired = np.array([0.5] * 20 + [-0.5] * 20)
    assert difference_by_session(paired, ["a"] * 20 + ["b"] * 20) == "+0.000 [-0.500, +0.500]"
    assert difference_by_session(np.full(40, 0.5), ["a"] * 20 + ["b"] * 20) == "+0.500 [+0.500, +0.500]"
