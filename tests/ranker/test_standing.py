from __future__ import annotations

import numpy as np

from pickwise.scores import SCORES
from ranker import features
from ranker.decay import DAY_S
from ranker.features.base import Context
from ranker.standing import KEPT_S, Standing
from ranker.state import State
from ranker.turns import Ended, Registered, Turn

NOTHING: frozenset[str] = frozenset()
SKILLS = [f"skill_{number}" for number in range(6)]


def turn(now: float, skill_ids: list[str] = SKILLS) -> Turn:
    scores = {name: np.full(len(skill_ids), np.nan) for name in SCORES}
    return Turn("t", now, "book a flight", np.full(4, 0.5, np.float32), skill_ids, scores, picked=np.array([1]))


def fed() -> State:
    state = State(4)
    for number, name in enumerate(SKILLS):
        vector = np.eye(4, dtype=np.float32)[number % 4]
        state.feed(Registered(-np.inf, name, name, "does things", f"d{number % 2}", NOTHING, NOTHING, vector))
    for day in range(20):
        offered = turn(day * DAY_S)
        state.feed(offered)
        state.feed(Ended(day * DAY_S + 1, SKILLS[1], day % 3 > 0, None, 80.0, offered))
    return state


def computed(state: State, now: float) -> features.Matrix:
    return features.compute(Context(turn(now), state))[:, features.STANDING]


def test_what_is_kept_is_what_would_be_computed() -> None:
    state, now = fed(), 21 * DAY_S
    standing, rows = Standing(state), state.rows(SKILLS)
    np.testing.assert_array_equal(standing.of(rows[:3], now), computed(state, now)[:3])
    later = now + KEPT_S - 1
    found = standing.of(rows, later)  # half of them kept
    np.testing.assert_allclose(found, computed(state, later), atol=0.001)
    np.testing.assert_array_equal(found[:3], computed(state, now)[:3])
    np.testing.assert_array_equal(standing.of(rows, now + DAY_S), computed(state, now + DAY_S))


def test_a_new_fact_is_seen_at_once() -> None:
    state, now = fed(), 21 * DAY_S
    standing, rows = Standing(state), state.rows(SKILLS)
    before = standing.of(rows, now)
    state.feed(Ended(now, SKILLS[2], False, "tool_error", 4_000.0))
    state.feed(Registered(now, "another", "another", "new here", "d0", NOTHING, NOTHING, np.zeros(4, np.float32)))
    after = standing.of(rows, now + 1)
    assert not np.array_equal(before, after, equal_nan=True)
    np.testing.assert_array_equal(after, computed(state, now + 1))
    assert standing.of(state.rows(["another", "never met"]), now + 1).shape == (2, len(features.STANDING))


def test_a_matrix_from_kept_features_is_the_whole_matrix() -> None:
    state, now = fed(), 21 * DAY_S
    known = Standing(state).of(state.rows(SKILLS), now)
    context = Context(turn(now), state)
    np.testing.assert_array_equal(features.compute(context, known), features.compute(context))
