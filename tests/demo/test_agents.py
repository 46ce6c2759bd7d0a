"""The simulated agents: repeatable, biased by rank as published, and failing as announced."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from demo.agents import (
    BAD_ARGUMENTS,
    DEMAND,
    EXAMINATION,
    FAILS_LATE,
    INVENTED,
    NEAR_MISSES,
    RECOVERS,
    RETIRED,
    Agents,
    Turn,
    examination,
)
from demo.library import Query, phrasings, queries


def turn(skill_id: str = "flight_search", model: str = "steep-1") -> Turn:
    return Turn("s", 1, model, Query("q", skill_id, "en"))


def play(seed: int) -> list[object]:
    agents = Agents(seed)
    seen: list[object] = []
    for asked in agents.turns(200, "logged"):
        picks = agents.pick(asked, ["flight_search", "flight_book", asked.query.skill_id])
        outcomes = [agents.attempt(pick, asked, "logged", 0.5, 1) for pick in picks]
        seen.append((asked, picks, outcomes, agents.verdict(asked, picks, True)))
    return seen


def test_a_seed_decides_everything() -> None:
    assert play(7) == play(7)
    assert play(7) != play(8)


def test_turns_are_sessions_of_one_language() -> None:
    turns = list(Agents(3).turns(500, "held_out"))
    assert len(turns) == 500
    by_session: dict[str, list[Turn]] = {}
    for asked in turns:
        by_session.setdefault(asked.session_id, []).append(asked)
    assert max(map(len, by_session.values())) > 1
    for session in by_session.values():
        assert [asked.number for asked in session] == list(range(1, len(session) + 1))
        assert len({(asked.query.language, asked.model) for asked in session}) == 1
    assert {asked.model for asked in turns} == set(EXAMINATION)


def test_held_out_questions_are_never_logged_ones() -> None:
    logged = {query.text for asked in queries(held_out=False).values() for query in asked}
    assert not logged & {asked.query.text for asked in Agents(1).turns(300, "held_out")}
    assert {asked.query.text for asked in Agents(1).turns(300, "logged")} <= logged


def test_every_skill_is_wanted_now_and_then() -> None:
    wanted = Counter(asked.query.skill_id for asked in Agents(1).turns(8_000, "logged"))
    assert set(wanted) == set(phrasings())
    assert all(wanted[skill] > 80 for skill in DEMAND)


def test_picks_fall_with_the_rank_as_the_model_looks() -> None:
    agents, share = Agents(5), {}
    others = ["sql_query", "image_edit", "workout_log", "hotel_book", "podcast_find", "tax_estimate", "ci_run"]
    for model in EXAMINATION:
        for rank in (1, 5):
            listed = [*others[: rank - 1], "flight_search", *others[rank - 1 :]]
            picks = [agents.pick(turn(model=model), listed) for _ in range(1_500)]
            share[model, rank] = sum("flight_search" in pick for pick in picks) / 1_500
    assert share["steep-1", 1] > share["steep-1", 5] + 0.2
    # The flat model looks at rank 5 three times as much.
    assert share["flat-2", 5] > share["steep-1", 5] + 0.1


def test_neighbours_are_picked_by_mistake_more_often_than_strangers() -> None:
    agents = Agents(5)
    assert agents.fit("flight_search", "flight_search") > agents.fit("flight_book", "flight_search")
    assert agents.fit("flight_book", "flight_search") > agents.fit("weather_forecast", "flight_search")
    assert agents.fit("weather_forecast", "flight_search") > agents.fit("sql_query", "flight_search")


def test_some_names_are_invented() -> None:
    agents = Agents(2)
    made_up = [p for _ in range(4_000) for p in agents.pick(turn(), ["flight_search"]) if p != "flight_search"]
    assert 0.015 <= len(made_up) / 4_000 <= 0.04
    assert set(made_up) <= {*INVENTED, *NEAR_MISSES, *RETIRED}
    assert set(made_up) & set(INVENTED)
    assert set(made_up) & set(NEAR_MISSES)
    assert set(made_up) & set(RETIRED)


def test_unknown_names_are_not_found() -> None:
    outcome = Agents(1).attempt("universal_lookup", turn(), "logged", 0.5, 1)
    assert (outcome.ok, outcome.error_kind) == (False, "not_found")


def success(skill_id: str, stage: str, progress: float, number: int = 1) -> float:
    agents = Agents(4)
    outcomes = [agents.attempt(skill_id, turn(skill_id), stage, progress, number) for _ in range(400)]  # type: ignore[arg-type]
    return sum(outcome.ok for outcome in outcomes) / 400


def test_skills_fail_as_announced() -> None:
    assert success(FAILS_LATE, "logged", 0.1) > 0.9
    assert success(FAILS_LATE, "logged", 0.5) < 0.15
    assert success(FAILS_LATE, "held_out", 0.0) < 0.15
    assert success(BAD_ARGUMENTS, "logged", 0.5) < 0.2
    assert success(RECOVERS, "logged", 0.5) < 0.2
    assert success(RECOVERS, "logged", 0.6) > 0.9
    assert success(RECOVERS, "held_out", 0.0) > 0.9
    assert success("flight_search", "logged", 0.5) > 0.9


def test_wrong_skills_fail_more_often() -> None:
    agents = Agents(4)
    outcomes = [agents.attempt("flight_book", turn("flight_search"), "logged", 0.5, 1) for _ in range(400)]
    assert 0.25 < sum(not outcome.ok for outcome in outcomes) / 400 < 0.5


@pytest.mark.parametrize("model", list(EXAMINATION))
def test_published_shares_sum_to_one(model: str) -> None:
    assert math.isclose(sum(EXAMINATION[model]), 1.0)
    assert examination(model, 1) == EXAMINATION[model][0]
    assert examination(model, 8) == EXAMINATION[model][-1] / 2
