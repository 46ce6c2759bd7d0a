"""The demo's library: enough skills, both languages, valid entries, enough distinct questions."""

from __future__ import annotations

from collections import Counter

import pytest

from demo.agents import BAD_ARGUMENTS, DEMAND, INVENTED, NEAR_MISSES, RETIRED
from demo.library import fill, library, phrasings, queries
from pickwise.skills import Skill, decode_skill
from pickwise.text import script


@pytest.fixture(scope="module")
def skills() -> dict[str, Skill]:
    return {entry["skill_id"]: decode_skill(entry)[0] for entry in library()}


def active(skills: dict[str, Skill]) -> dict[str, Skill]:
    return {skill_id: skill for skill_id, skill in skills.items() if skill.is_active}


def test_entries_are_valid_and_unique(skills: dict[str, Skill]) -> None:
    assert len(skills) == len(library())
    assert all(decode_skill(entry)[1] == 0 for entry in library())
    assert all(skill.description and skill.domain for skill in skills.values())


def test_enough_skills_in_both_languages_and_many_domains(skills: dict[str, Skill]) -> None:
    found = active(skills)
    languages = Counter(asked.language for asked in phrasings().values())
    assert len(found) >= 120
    assert languages["en"] >= 80
    assert languages["zh"] >= 45
    assert len({skill.domain for skill in found.values()}) >= 8


def test_every_active_skill_is_asked_for_and_no_other(skills: dict[str, Skill]) -> None:
    assert set(phrasings()) == set(active(skills))


def test_neighbours_are_confusable() -> None:
    groups = Counter(asked.group for asked in phrasings().values())
    assert sum(1 for count in groups.values() if count >= 2) >= 30


def test_some_are_badly_described(skills: dict[str, Skill]) -> None:
    bad = [skill for skill in active(skills).values() if not skill.examples and not skill.not_for]
    assert {skill.skill_id for skill in bad} == {"run_job", "helper_tool", "general_zh"}


def test_questions_are_many_distinct_and_never_both_logged_and_held_out() -> None:
    logged, held_out = queries(held_out=False), queries(held_out=True)
    for skill_id in phrasings():
        texts = [query.text for query in (*logged[skill_id], *held_out[skill_id])]
        assert len(texts) == len(set(texts)) >= 12, skill_id
        assert len(held_out[skill_id]) >= 2, skill_id
    everything = [query.text for of in (logged, held_out) for asked in of.values() for query in asked]
    assert not {text for text, count in Counter(everything).items() if count > 1}


def test_no_slot_is_left_open_and_the_language_is_right() -> None:
    for of in (queries(held_out=False), queries(held_out=True)):
        for query in (query for asked in of.values() for query in asked):
            assert "{" not in query.text, query
            assert (script(query.text) == "cjk") == (query.language == "zh"), query


def test_questions_avoid_the_words_of_the_registry(skills: dict[str, Skill]) -> None:
    """No question is one of its skill's examples, which retrieval would simply find."""
    for skill_id, asked in phrasings().items():
        examples = {example.query for example in skills[skill_id].examples}
        assert not examples & {*asked.logged, *asked.held_out}


def test_filling_is_repeatable() -> None:
    assert fill("from {city} to {city2}", "flight_search") == fill("from {city} to {city2}", "flight_search")
    assert fill("no slot", "flight_search") == ["no slot"]
    # A domain has words of its own.
    assert fill("{topic@data}", "data_clean") != fill("{topic}", "email_send")
    assert set(fill("{topic}", "anomaly_detect")) <= {
        "sign-ups", "visits", "revenue", "returns", "conversions", "cancellations", "page views", "support calls",
    }  # fmt: skip


def test_the_agents_names_are_what_they_claim(skills: dict[str, Skill]) -> None:
    assert set(DEMAND) <= set(active(skills))
    assert all(not skills[name].is_active for name in RETIRED)
    assert not (set(INVENTED) | set(NEAR_MISSES)) & set(skills)
    schema = skills[BAD_ARGUMENTS].parameters_schema or {}
    assert "tax_code" in schema["properties"]
