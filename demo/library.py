"""The demo's tool library and the questions that its simulated users ask, written for this project."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import msgspec

#: Ways to fill the slots of one phrasing.
FILLS = 4

_SLOT = re.compile(r"\{([^{}]+)\}")


class Phrasings(msgspec.Struct, frozen=True):
    """How people ask for one skill: hand-written templates with ``{slots}``, in the words of users, not of its owner.

    Skills of one ``group`` are easily taken for each other.
    """

    skill_id: str
    language: str
    group: str
    logged: tuple[str, ...]
    held_out: tuple[str, ...]


@dataclass(frozen=True)
class Query:
    """One question, and the skill that answers it."""

    text: str
    skill_id: str
    language: str


def library() -> list[dict[str, Any]]:
    """The registry entries, as they are put to ``/v1/registry``."""
    return [msgspec.json.decode(line) for line in _lines("library.jsonl")]


@lru_cache(maxsize=1)
def phrasings() -> dict[str, Phrasings]:
    """By skill, in the order of the library."""
    return {p.skill_id: p for line in _lines("phrasings.jsonl") for p in [msgspec.json.decode(line, type=Phrasings)]}


def queries(held_out: bool) -> dict[str, list[Query]]:
    """The questions by skill: of the logged phrasings, or of those that are only asked after learning."""
    return {
        skill_id: [
            Query(text, skill_id, asked.language)
            for template in (asked.held_out if held_out else asked.logged)
            for text in fill(template, skill_id)
        ]
        for skill_id, asked in phrasings().items()
    }


def fill(template: str, skill_id: str) -> list[str]:
    """Up to ``FILLS`` distinct questions from one template, always the same ones."""
    rng = random.Random(f"{skill_id}/{template}")
    found: dict[str, None] = {}
    for _ in range(4 * FILLS):
        found[_SLOT.sub(lambda slot: rng.choice(_values(slot[1], skill_id)), template)] = None
        if len(found) == FILLS:
            break
    return list(found)


def _values(slot: str, skill_id: str) -> list[str]:
    """The words for a slot; a domain may have its own (``topic@devops``)."""
    return _slots().get(f"{slot}@{_domains()[skill_id]}") or _slots()[slot]


@lru_cache(maxsize=1)
def _slots() -> dict[str, list[str]]:
    return msgspec.json.decode(files("demo").joinpath("slots.json").read_bytes(), type=dict[str, list[str]])


@lru_cache(maxsize=1)
def _domains() -> dict[str, str]:
    return {entry["skill_id"]: entry["domain"] for entry in library()}


def _lines(name: str) -> list[str]:
    return files("demo").joinpath(name).read_text(encoding="utf-8").splitlines()
