"""What a project is offered becomes the same history in any order of arrival."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import observed as module
from collector.facts import DefinedSkill, Offer, OfferedSkill
from collector.observed import ObservedSkills, Offers
from collector.redact import Redactor
from collector.skill_changes import SkillChange, to_rows
from pickwise.events import Candidate, Selection
from pickwise.settings import Settings

#: Description, or None for the id alone, and time in microseconds.
Told = tuple[str | None, int]

REDACTOR = Redactor(Settings(), b"k" * 32)


def learn(known: ObservedSkills, offers: list[Told], skill_id: str = "s") -> list[SkillChange]:
    """Offers of one skill."""
    defined = [Offer(at * 1_000, (DefinedSkill(skill_id=skill_id, description=text),)) for text, at in offers if text]
    bare = [Selection(time=at * 1_000, candidates=[Candidate(skill_id=skill_id)]) for text, at in offers if not text]
    return known.learn("p", Offers.of(defined, bare, received_at=10**18))


def held_at(changes: list[SkillChange], time: int) -> SkillChange | None:
    """What a reader sees: the newest row by time, the last written of equal ones."""
    due = [(change.time, order, change) for order, change in enumerate(changes) if change.time <= time]
    return max(due, key=lambda found: found[:2])[2] if due else None


OFFERS = st.tuples(st.sampled_from([None, "one", "two"]), st.integers(1, 8))


@given(st.lists(st.lists(OFFERS, max_size=3), max_size=6))
def test_a_skill_is_known_from_its_first_offer_and_defined_from_its_first_definition(
    batches: list[list[Told]],
) -> None:
    known = ObservedSkills(REDACTOR)
    changes = [change for batch in batches for change in learn(known, batch)]
    offers = [offer for batch in batches for offer in batch]
    for time in range(10):
        held = held_at(changes, time)
        assert (held is not None) == any(at <= time for _, at in offers)
        defined = held is not None and "description" in held.entry
        assert defined == any(at <= time for text, at in offers if text)


@given(st.lists(OFFERS, max_size=6))
def test_what_was_written_is_not_written_again_nor_after_a_restart(offers: list[Told]) -> None:
    known = ObservedSkills(REDACTOR)
    changes = learn(known, offers)
    assert learn(known, offers) == []
    rows = to_rows(changes, project="p", source="observed", seq=1, received_at=10**18, source_request="1")
    assert learn(ObservedSkills.of_rows(rows, REDACTOR), offers) == []


def test_declared_rows_are_no_observation() -> None:
    change = SkillChange(skill_id="s", op="upsert", time=1, entry={"skill_id": "s"})
    rows = to_rows([change], project="p", source="declared", seq=1, received_at=10**18, source_request="1")
    assert len(learn(ObservedSkills.of_rows(rows, REDACTOR), [(None, 5)])) == 1


def test_projects_and_receipt_times() -> None:
    known = ObservedSkills(REDACTOR)
    selection = Selection(candidates=[Candidate(skill_id="a"), Candidate(skill_id="b")])
    (first, _) = known.learn("p", Offers.of([], [selection], received_at=7_000))
    assert first.time == 7
    assert len(known.learn("q", Offers.of([], [selection], received_at=7_000))) == 2


def test_a_menu_that_turns_share_counts_from_the_first_of_them() -> None:
    menu = [Candidate(skill_id="a"), Candidate(skill_id="b")]
    turns = [Selection(time=at, candidates=menu) for at in (9_000, 4_000, 6_000)]
    other = Selection(time=5_000, candidates=[Candidate(skill_id="b"), Candidate(skill_id="c")])
    offers = Offers.of([], [*turns, other], received_at=10**18)
    assert offers.candidates == {"a": 4_000, "b": 4_000, "c": 5_000}


def test_a_definition_counts_from_its_first_offer_whichever_menus_hold_it() -> None:
    schema: dict[str, object] = {"type": "object"}
    shared = DefinedSkill(skill_id="b", parameters_schema=schema)
    menu = (DefinedSkill(skill_id="a"), shared)
    other = (DefinedSkill(skill_id="b", parameters_schema=schema), DefinedSkill(skill_id="b", description="two"))
    offered = [Offer(9, menu), Offer(5, other), Offer(7, menu)]
    assert Offers.of(offered, [], received_at=10**18).skills == [
        OfferedSkill(skill_id="b", time=5, parameters_schema=schema),
        OfferedSkill(skill_id="b", time=5, description="two"),
        OfferedSkill(skill_id="a", time=7),
    ]


def test_invented_skills_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SKILLS", 2)
    known = ObservedSkills(REDACTOR)
    assert [len(learn(known, [(None, 1)], skill_id=name)) for name in "abc"] == [1, 1, 0]
    assert learn(known, [("text", 1)], skill_id="a")


def test_definitions_that_never_end_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DEFINITIONS", 2)
    known = ObservedSkills(REDACTOR)
    told = [learn(known, [(f"it is {hour} o'clock", hour)]) for hour in range(1, 6)]
    assert [len(changes) for changes in told] == [1, 1, 0, 0, 0]
    assert not learn(known, [("it is 2 o'clock", 9)])
    assert learn(known, [("it is 2 o'clock", 0)]), "what is known may turn out to be older"


def test_rows_hold_the_entry_as_json() -> None:
    skill = DefinedSkill(skill_id="s", name="n", description="d", parameters_schema={"type": "object"})
    changes = ObservedSkills(REDACTOR).learn("p", Offers.of([Offer(5_000, (skill,))], [], received_at=0))
    rows = to_rows(changes, project="p", source="observed", seq=3, received_at=9_000, source_request="x")
    (row,) = rows.with_columns(pl.col("time", "received_at").dt.epoch("us")).rows(named=True)
    assert (row["time"], row["received_at"], row["seq"], row["name"], row["op"]) == (5, 9, 3, "n", "upsert")
    assert row["entry"] == '{"skill_id":"s","name":"n","description":"d","parameters_schema":{"type":"object"}}'


def test_an_offer_by_name_alone_defines_nothing() -> None:
    known = ObservedSkills(REDACTOR)
    by_name = (DefinedSkill(skill_id="s", name="s"),)
    named = Offer(2_000, by_name)
    defined = Offer(1_000, (DefinedSkill(skill_id="s", name="s", description="one"),))
    assert [change.entry for change in known.learn("p", Offers.of([named], [], received_at=10**18))] == [
        {"skill_id": "s"}
    ]
    changes = known.learn("p", Offers.of([defined], [], received_at=10**18))
    assert [(change.time, change.entry["description"]) for change in changes] == [(1, "one"), (2, "one")]
    assert known.learn("p", Offers.of([Offer(3_000, by_name)], [], received_at=10**18)) == []
