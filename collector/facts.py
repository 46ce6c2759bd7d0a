"""What decoding a request yields, before redaction and before any table.

A fact is an event plus what only the wire knows. Facts about one thing fold into one row when they are read,
the same way in any order, so nothing here depends on what arrived before.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pickwise.events import Call, Event, Feedback, Route, Selection

#: How a call fact knows of the call: a model proposed it, something ran it, or its answer was quoted in a later
#: prompt. An ``answer`` alone never makes a call: conversations are repeated in later traces; where it does not know
#: its tool, ``skill_id`` is empty. A ``search`` is no call but a router tool's run; it says what the spans within it
#: are, which may not tell their arguments.
CallRole = Literal["propose", "run", "answer", "search"]

#: How a selection fact knows of the selection. ``turn``: it is one. ``run``: a whole agent run told as one; what it
#: knows (query, session, agent) fills what the turns of its trace leave out, and it is a selection by itself only where
#: its trace tells of no turn and it says what was offered. One with a turn's event id tells of that turn alone (a log
#: record of one message, a model span without messages). ``retrieval``: a search or rerank that says in which order,
#: and with which scores, a later turn of its trace was offered its skills; never a selection by itself. ``search``: a
#: router tool's run that doesn't know its call's id: one with the search of its trace and query that does, if there is.
#: ``step``: one turn of a run, told by the run's messages or by a span around the turn. Where its trace tells of no
#: turn, it is one if something was offered (which its run may tell) or called; elsewhere it is a run.
SelectionRole = Literal["turn", "run", "retrieval", "search", "step"]


# None of these can be part of a cycle, as they hold plain values only: the garbage collector need not look.


class SelectionFact(Selection, kw_only=True, gc=False, tag="selection", tag_field="type"):
    """A selection as seen from one place on the wire.

    All selections with the same menu may have the same list of ``candidates``: replace it, never change it.
    """

    role: SelectionRole = "turn"
    #: When its span ended (ns), and the span around it: which runs and retrievals lie within which.
    ended_at: int | None = None
    parent_span_id: str | None = None


class CallFact(Call, kw_only=True, gc=False, tag="call", tag_field="type"):
    """A call as seen from one place on the wire."""

    role: CallRole = "run"
    #: Position among the calls that its source lists, from 0.
    ordinal: int | None = None
    parent_span_id: str | None = None


class DefinedSkill(msgspec.Struct, kw_only=True, gc=False):
    """A tool as it is defined where it is offered to a model: what a project without a registry learns from."""

    skill_id: str
    name: str | None = None
    description: str | None = None
    parameters_schema: dict[str, Any] | None = None


class OfferedSkill(DefinedSkill, kw_only=True, gc=False):
    """A definition with the time (ns) at which it was offered."""

    time: int

    @classmethod
    def of(cls, skill: DefinedSkill, time: int) -> OfferedSkill:
        return cls(
            skill_id=skill.skill_id,
            time=time,
            name=skill.name,
            description=skill.description,
            parameters_schema=skill.parameters_schema,
        )


class Offer(msgspec.Struct, gc=False):
    """A menu as it was offered at a time (ns). All offers of a menu may have the same ``skills``: never change them."""

    time: int
    skills: tuple[DefinedSkill, ...]


#: The fields of ``Facts`` that list events.
EVENT_LISTS = ("selections", "calls", "feedback", "routes")


class Facts(msgspec.Struct, gc=False):
    """All that one request, or one batch of requests, says. Events carry nanosecond ``time`` and an ``event_id``."""

    selections: list[Selection] = []
    calls: list[CallFact] = []
    feedback: list[Feedback] = []
    routes: list[Route] = []
    offered: list[Offer] = []
    #: Whether router or proxy tools were read through: what says so is gone once values are taken out.
    is_routed: bool = False

    def extend(self, other: Facts) -> None:
        self.selections += other.selections
        self.calls += other.calls
        self.feedback += other.feedback
        self.routes += other.routes
        self.offered += other.offered
        self.is_routed |= other.is_routed

    @property
    def events(self) -> list[Event]:
        return [*self.selections, *self.calls, *self.feedback, *self.routes]

    @property
    def offered_skills(self) -> list[OfferedSkill]:
        """The skills of all offers, each with its time."""
        return [OfferedSkill.of(skill, offer.time) for offer in self.offered for skill in offer.skills]

    def __len__(self) -> int:
        return len(self.selections) + len(self.calls) + len(self.feedback) + len(self.routes)
