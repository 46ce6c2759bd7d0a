"""The declared registry: what the owners of a project's skills say of them, with its history.

A write holds from its time on, whatever was written before. A project's first write holds from the beginning of time,
a later one from its ``valid_from`` or its receipt. Entries that change nothing write nothing.
"""

from __future__ import annotations

import hashlib
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec
import polars as pl

from collector.events_in import Item, item_id
from collector.review import Finding, review
from collector.skill_changes import SkillChange
from pickwise.events import EventError, parse_time
from pickwise.skills import Skill, decode_skill

#: Entries of one write; the request cap admits more only for entries that say nothing.
MAX_ENTRIES = 100_000
_COMMIT_TIMEOUT_S = 60.0
#: Findings that a strict refusal repeats.
_NAMED = 3


class UnknownSkill(LookupError):  # noqa: N818 - the caller's mistake, answered with 404
    """The project's registry has no active entry of that id."""


class StrictRefusal(ValueError):  # noqa: N818 - an answer more than an error
    """A strict write has findings of severity `error`; nothing was written."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings
        named = "; ".join(f"{finding.skill_id}: {finding.message}" for finding in findings[:_NAMED])
        super().__init__(f"strict: {len(findings)} finding(s) of severity error, nothing was written: {named}")


class RegistryWrite(msgspec.Struct, frozen=True):
    """The body of a log record of kind `registry`: changes that are already validated and planned."""

    changes: list[SkillChange]
    registry_version: str


class SkillRejection(msgspec.Struct, frozen=True):
    index: int
    skill_id: str | None
    reason: str


class Answer(msgspec.Struct, frozen=True):
    """What a write answers."""

    registry_version: str
    accepted: int
    rejected: list[SkillRejection]
    findings: list[Finding]


class _Version(NamedTuple):
    """The state of one skill from ``time`` (microseconds) on."""

    time: int
    change: SkillChange

    @property
    def is_active(self) -> bool:
        return self.change.op == "upsert" and bool(self.change.entry.get("is_active", True))


@dataclass(slots=True)
class _Project:
    """History by skill, each in order of time."""

    skills: dict[str, list[_Version]] = field(default_factory=dict)

    def active(self, at: int | None = None) -> dict[str, dict[str, Any]]:
        """Entries that hold at a time in microseconds (None: after all writes), by id."""
        found: dict[str, dict[str, Any]] = {}
        for skill_id, history in sorted(self.skills.items()):
            version = history[-1] if at is None else _version_at(history, at)
            if version is not None and version.is_active:
                found[skill_id] = version.change.entry
        return found

    def apply(self, changes: Iterable[SkillChange]) -> None:
        for change in changes:
            history = self.skills.setdefault(change.skill_id, [])
            history.insert(bisect_right(history, change.time, key=lambda v: v.time), _Version(change.time, change))


#: Appends a record of kind `registry`: (project, body, receipt in nanoseconds, entries) -> its sequence number.
AppendWrite = Callable[[str, bytes, int, int], Future[int]]


class Registry:
    """The declared registries of all projects. Writes are durable before they are answered, and answered in order."""

    def __init__(self, append: AppendWrite) -> None:
        self._append = append
        self._projects: dict[str, _Project] = {}
        self._writing = threading.Lock()

    def load(self, rows: pl.DataFrame) -> None:
        """Take over the declared rows of table ``skills``."""
        declared = rows.filter(pl.col("source") == "declared").sort("project", "time", "seq", maintain_order=True)
        columns = declared.select(
            "project", "skill_id", "op", pl.col("time").dt.epoch("us").alias("time"), "entry"
        ).iter_rows()
        for project, skill_id, op, at, entry in columns:
            content = msgspec.json.decode(entry) if entry else {}
            change = SkillChange(skill_id=skill_id, op=op, time=at, entry=content)
            self._projects.setdefault(project, _Project()).apply([change])

    def projects(self) -> list[str]:
        return sorted(self._projects)

    def version(self, project: str) -> str:
        """A hash of the project's active entries; the same entries have the same version."""
        return _version_of(self._projects.get(project, _Project()).active())

    def entries(self, project: str, at: int | None = None) -> list[dict[str, Any]]:
        """Active entries, by id; ``at`` (Unix nanoseconds) gives those that held then."""
        moment = time.time_ns() if at is None else at
        return list(self._projects.get(project, _Project()).active(moment // 1_000).values())

    def is_declared(self, project: str) -> bool:
        return project in self._projects

    def replace(self, project: str, items: Sequence[Item], *, strict: bool = False) -> Answer:
        """Make the items the project's whole registry: entries absent from them are retired.

        An entry that is refused is not absent: its earlier version stays. Raises Overloaded, StrictRefusal.
        """
        return self._write("replace", project, items, strict)

    def upsert(self, project: str, items: Sequence[Item], *, strict: bool = False) -> Answer:
        """Add the items to the project's registry, in place of earlier versions. Raises Overloaded, StrictRefusal."""
        return self._write("upsert", project, items, strict)

    def retire(self, project: str, skill_id: str) -> Answer:
        """End an entry now. Raises UnknownSkill when there is none, Overloaded."""
        with self._writing:
            known = self._projects.get(project, _Project())
            if skill_id not in known.active():
                raise UnknownSkill(f"project {project} has no active skill {skill_id!r}")
            received_at = time.time_ns()
            version = self._commit(project, _retirements(known, [skill_id], received_at // 1_000), received_at, 1)
        return Answer(version, 1, [], [])

    def _write(self, mode: Literal["replace", "upsert"], project: str, items: Sequence[Item], strict: bool) -> Answer:
        skills, rejected = _validate(items)
        if not skills and rejected:
            return Answer(self.version(project), 0, rejected, [])
        with self._writing:
            received_at = time.time_ns()
            known = self._projects.get(project, _Project())
            changes = _upserts(known, skills, received_at // 1_000)
            if mode == "replace":
                kept = {skill.skill_id for skill in skills} | {r.skill_id for r in rejected if r.skill_id}
                gone = [skill_id for skill_id in known.active() if skill_id not in kept]
                changes += _retirements(known, gone, received_at // 1_000)
            findings = _findings(known, changes, {skill.skill_id for skill in skills})
            errors = [finding for finding in findings if finding.severity == "error"]
            if strict and errors:
                raise StrictRefusal(errors)
            version = self._commit(project, changes, received_at, len(skills))
        return Answer(version, len(skills), rejected, findings)

    def _commit(self, project: str, changes: list[SkillChange], received_at: int, entries: int) -> str:
        """Log the changes, wait until they are on disk, then let them show."""
        if not changes:
            return self.version(project)
        version = _version_of(_after(self._projects.get(project, _Project()), changes).active())
        body = msgspec.json.encode(RegistryWrite(changes, version))
        self._append(project, body, received_at, entries).result(_COMMIT_TIMEOUT_S)
        self._projects.setdefault(project, _Project()).apply(changes)
        return version


def decode_write(body: bytes) -> RegistryWrite:
    """The changes of a log record of kind `registry`."""
    return msgspec.json.decode(body, type=RegistryWrite)


def _validate(items: Sequence[Item]) -> tuple[list[Skill], list[SkillRejection]]:
    """The entries that can be taken, and why the others can't: each is judged alone, the first of an id wins."""
    skills: dict[str, Skill] = {}
    rejected: list[SkillRejection] = []
    for item in items:
        skill_id = item_id(item.value, "skill_id")
        try:
            if item.reason is not None:
                raise EventError(item.reason)
            if len(skills) >= MAX_ENTRIES:
                raise EventError(f"expected at most {MAX_ENTRIES} entries a request")
            skill, _ = decode_skill(item.value)
            if skill.skill_id in skills:
                raise EventError("skill_id: an earlier entry of this request has the same")
            skills[skill.skill_id] = skill
        except EventError as error:
            rejected.append(SkillRejection(item.index, skill_id, str(error)))
    return list(skills.values()), rejected


def _upserts(known: _Project, skills: Iterable[Skill], received_at: int) -> list[SkillChange]:
    default = 0 if not known.skills else received_at
    changes: list[SkillChange] = []
    for skill in skills:
        given = parse_time(skill.valid_from)
        entry = _entry(skill)
        history = known.skills.get(skill.skill_id, [])
        for at in _times(history, default if given is None else given // 1_000):
            change = SkillChange(skill_id=skill.skill_id, op="upsert", time=at, entry=entry)
            held = _version_at(history, at)
            if held is None or held.change.fact != change.fact:
                changes.append(change)
    return changes


def _retirements(known: _Project, skill_ids: Iterable[str], received_at: int) -> list[SkillChange]:
    return [
        SkillChange(skill_id=skill_id, op="retire", time=at)
        for skill_id in skill_ids
        for at in _times(known.skills[skill_id], received_at)
    ]


def _times(history: list[_Version], start: int) -> list[int]:
    """Where a change that holds from ``start`` on must be written: there, and wherever the history says otherwise."""
    return [start, *sorted({version.time for version in history if version.time > start})]


def _version_at(history: list[_Version], at: int) -> _Version | None:
    found = bisect_right(history, at, key=lambda version: version.time)
    return history[found - 1] if found else None


def _entry(skill: Skill) -> dict[str, Any]:
    """The entry as it is kept: its content, without what only the write needs."""
    entry: dict[str, Any] = msgspec.to_builtins(skill)
    for name in ("type", "valid_from"):
        entry.pop(name, None)
    return entry | {"name": skill.display_name}


def _after(known: _Project, changes: list[SkillChange]) -> _Project:
    touched = {change.skill_id for change in changes}
    copy = _Project({**known.skills, **{skill_id: list(known.skills.get(skill_id, [])) for skill_id in touched}})
    copy.apply(changes)
    return copy


def _findings(known: _Project, changes: list[SkillChange], written: set[str]) -> list[Finding]:
    """Findings of the registry as it will be that concern the entries of this write."""
    entries = _after(known, changes).active()
    return review(list(entries.values()), concerning=written)


def _version_of(entries: dict[str, dict[str, Any]]) -> str:
    content = msgspec.json.encode(sorted(entries.items()), order="deterministic")
    return hashlib.blake2b(content, digest_size=6).hexdigest()
