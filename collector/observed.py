"""The observed registry: a project that declares none learns it from what was offered to its models.

A row says that a skill was offered, with that definition, from that time on. Rows are written once for a definition,
and again only when it turns out to have been offered earlier, so that any order of arrival ends in the same history.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import msgspec
import polars as pl

from collector.facts import Offer, OfferedSkill, SelectionFact
from collector.redact import Redactor
from collector.remembered import Remembered
from collector.skill_changes import SkillChange, entry_fact, masked_value
from pickwise.events import Candidate, Selection, parse_time

logger = logging.getLogger(__name__)

#: Invented ids must not fill the memory: what a project offers beyond this is not learned.
MAX_SKILLS = 200_000
#: A definition that says something else in every offer, the time of day perhaps, must not either.
MAX_DEFINITIONS = 1_000
#: Definitions that are masked once, and the characters of their JSON: decoded they take up to 22 times as much.
_KEPT, _KEPT_CHARS = 8_192, 2 * 2**20
#: What is known of a skill, by field.
Entry = dict[str, object]
#: What an offer by name alone says.
_BARE = {"skill_id", "name"}


@dataclass(slots=True)
class _Known:
    """What was written of one skill: its earliest time by definition, and the times written without a definition."""

    definitions: dict[str, int] = field(default_factory=dict)
    bare: list[int] = field(default_factory=list)

    @property
    def earliest(self) -> int | None:
        times = [*self.definitions.values(), *self.bare]
        return min(times, default=None)


class Offers(NamedTuple):
    """What one request offered: each definition once, at its earliest time; candidates by id alone, times in ns."""

    skills: list[OfferedSkill]
    candidates: dict[str, int]

    @classmethod
    def of(cls, offered: Iterable[Offer], selections: Iterable[Selection], received_at: int) -> Self:
        """``received_at`` (ns) stands in for no time."""
        return cls(_earliest(offered), _candidate_times(selections, received_at))


class ObservedSkills:
    """What was written so far, by project and skill. ``changes`` tells what is new; ``learn`` remembers it."""

    def __init__(self, redactor: Redactor) -> None:
        """``redactor``: masks secrets in definitions, which nobody declared to be kept."""
        self._redactor = redactor
        self._projects: dict[str, dict[str, _Known]] = {}
        #: Masked definitions with their hash, by the hash of what was offered.
        self._masked: Remembered[tuple[str], tuple[Entry, str]] = Remembered(_KEPT, _KEPT_CHARS)

    @classmethod
    def of_rows(cls, rows: pl.DataFrame, redactor: Redactor) -> ObservedSkills:
        """From the rows of table ``skills``."""
        observed = cls(redactor)
        wanted = rows.filter(pl.col("source") == "observed").select(
            "project", "skill_id", "fact", pl.col("time").dt.epoch("us").alias("time")
        )
        for project, skill_id, fact, time in wanted.iter_rows():
            observed._note(project, skill_id, fact, time)
        return observed

    def learn(self, project: str, offers: Offers) -> list[SkillChange]:
        """The rows to write for what was offered, remembered as written.

        The candidates of selections are skills offered by id alone. A known definition says more, so an id is
        written only when nothing is known of it by that time.
        """
        changes = [change for skill in offers.skills for change in self._defined(project, skill)]
        for skill_id, time in offers.candidates.items():
            changes += self._bare(project, skill_id, time // 1_000)
        return changes

    def _defined(self, project: str, skill: OfferedSkill) -> list[SkillChange]:
        entry = _entry(skill)
        if entry.keys() <= _BARE and skill.name in (None, skill.skill_id):
            return self._bare(project, skill.skill_id, skill.time // 1_000)
        time = skill.time // 1_000
        known = self._known(project, skill.skill_id)
        entry, fact = self._definition(entry)
        if known is None or known.definitions.get(fact, time + 1) <= time:
            return []
        if fact not in known.definitions and len(known.definitions) >= MAX_DEFINITIONS:
            logger.warning(
                "project %s: %s has more than %d definitions, no more are learned",
                project,
                skill.skill_id,
                MAX_DEFINITIONS,
            )
            return []
        # Rows by id alone that lie later would hide the definition from there on: say it again at their times.
        hidden = [at for at in known.bare if at > time and not any(t <= at for t in known.definitions.values())]
        self._note(project, skill.skill_id, fact, time)
        return [SkillChange(skill_id=skill.skill_id, op="upsert", time=at, entry=entry) for at in (time, *hidden)]

    def _definition(self, entry: Entry) -> tuple[Entry, str]:
        """The masked entry, and its hash: a table holds none of what was masked, not even as a hash."""
        key = (entry_fact("upsert", entry),)
        found = self._masked.get(key)
        if found is None:
            masked: Entry = {name: masked_value(value, self._redactor) for name, value in entry.items()}
            found = masked, entry_fact("upsert", masked)
            self._masked.keep(key, found, weight=len(msgspec.json.encode(masked)))
        return found

    def _bare(self, project: str, skill_id: str, time: int) -> list[SkillChange]:
        known = self._known(project, skill_id)
        if known is None or (known.earliest is not None and known.earliest <= time):
            return []
        change = SkillChange(skill_id=skill_id, op="upsert", time=time, entry={"skill_id": skill_id})
        self._note(project, skill_id, change.fact, time)
        return [change]

    def _known(self, project: str, skill_id: str) -> _Known | None:
        skills = self._projects.setdefault(project, {})
        known = skills.get(skill_id)
        if known is not None:
            return known
        if len(skills) >= MAX_SKILLS:
            logger.warning("project %s offers more than %d skills: %s is not learned", project, MAX_SKILLS, skill_id)
            return None
        return skills.setdefault(skill_id, _Known())

    def _note(self, project: str, skill_id: str, fact: str, time: int) -> None:
        known = self._projects.setdefault(project, {}).setdefault(skill_id, _Known())
        if fact == entry_fact("upsert", {"skill_id": skill_id}):
            known.bare.append(time)
        else:
            known.definitions[fact] = min(time, known.definitions.get(fact, time))


def _earliest(offered: Iterable[Offer]) -> list[OfferedSkill]:
    """Each skill and definition at its earliest time, in order of time.

    Menus and schemas are told apart by identity: the same menu, turn after turn, is one object. Equal ones that are
    not the same only come to be looked at twice.
    """
    menus: dict[int, Offer] = {}
    for offer in offered:
        earlier = menus.get(id(offer.skills))
        if earlier is None or offer.time < earlier.time:
            menus[id(offer.skills)] = offer
    first: dict[tuple[str, str | None, str | None, int], OfferedSkill] = {}
    for offer in menus.values():
        for skill in offer.skills:
            key = (skill.skill_id, skill.name, skill.description, id(skill.parameters_schema))
            known = first.get(key)
            if known is None or offer.time < known.time:
                first[key] = OfferedSkill.of(skill, offer.time)
    return sorted(first.values(), key=lambda skill: (skill.time, skill.skill_id))


def _candidate_times(selections: Iterable[Selection], received_at: int) -> dict[str, int]:
    """The earliest time (ns) at which each candidate was offered."""
    menus: dict[int, tuple[int, list[Candidate]]] = {}  # the same menu, turn after turn, is one list
    for selection in selections:
        if isinstance(selection, SelectionFact) and selection.role == "retrieval":
            continue  # what a search found may be documents
        time = parse_time(selection.time) or received_at
        known = menus.get(id(selection.candidates))
        if known is None or time < known[0]:
            menus[id(selection.candidates)] = time, selection.candidates
    first: dict[str, int] = {}
    for time, candidates in menus.values():
        for candidate in candidates:
            if time < first.get(candidate.skill_id, time + 1):
                first[candidate.skill_id] = time
    return first


def _entry(skill: OfferedSkill) -> Entry:
    entry = {
        "skill_id": skill.skill_id,
        "name": skill.name,
        "description": skill.description,
        "parameters_schema": skill.parameters_schema,
    }
    return {name: value for name, value in entry.items() if value is not None}
