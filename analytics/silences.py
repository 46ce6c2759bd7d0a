"""Silences: times in which alerts are followed and recorded, but nobody is told that one fires.

An operator asks for one by command; a rule has its own hours of the week.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from collector.control import Control
from pickwise.events import derive_event_id

_PREFIX = "silence/"
_ID_LENGTH = 8
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = "|".join(_DAYS)
_HOURS = re.compile(rf"(?:({_DAY})((?:,(?:{_DAY}))*) )?(\d\d):([0-5]\d)-(\d\d):([0-5]\d)")


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator asked for: from ``start`` up to ``end`` nobody is told of these alerts. ``rule``, ``group``
    None: of all."""

    project: str
    rule: str | None = None
    group: str | None = None
    start: datetime
    end: datetime
    reason: str = ""

    @property
    def id(self) -> str:
        what = self.project, self.rule or "", repr(self.group), self.start.isoformat()
        return derive_event_id(*what)[:_ID_LENGTH]

    def covers(self, project: str, rule: str, group: str, at: datetime) -> bool:
        return (
            self.project == project
            and self.rule in (None, rule)
            and self.group in (None, group)
            and self.start <= at < self.end
        )


@dataclass(frozen=True)
class Hours:
    """Hours of some days of the week, UTC. Where ``end`` is not after ``start`` they last into the next day."""

    days: frozenset[int]
    start: timedelta
    end: timedelta

    def cover(self, at: datetime) -> bool:
        midnight = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return any(self._since(midnight - timedelta(days=days), at) for days in (0, 1))

    def _since(self, midnight: datetime, at: datetime) -> bool:
        end = self.end if self.end > self.start else self.end + timedelta(days=1)
        return midnight.weekday() in self.days and self.start <= at - midnight < end


def parse_hours(value: str) -> Hours:
    """``22:00-06:00`` or ``sat,sun 00:00-24:00``. Raises ValueError."""
    found = _HOURS.fullmatch(value)
    if found is None:
        raise ValueError(f"expected hours of UTC such as 22:00-06:00 or sat,sun 00:00-24:00; got {value!r:.60}")
    first, others, *numbers = found.groups()
    names = f"{first}{others}".split(",") if first else _DAYS
    hour, minute, end_hour, end_minute = map(int, numbers)
    start, end = timedelta(hours=hour, minutes=minute), timedelta(hours=end_hour, minutes=end_minute)
    if start >= timedelta(days=1) or end > timedelta(days=1):
        raise ValueError(f"expected hours from 00:00 to 24:00; got {value!r:.60}")
    return Hours(frozenset(map(_DAYS.index, names)), start, end)


def add(control: Control, silence: Silence) -> None:
    control.put(f"{_PREFIX}{silence.id}", msgspec.to_builtins(silence))


def remove(control: Control, silence_id: str) -> bool:
    """End a silence at once; False where there is none of that id."""
    found = control.get(f"{_PREFIX}{silence_id}") is not None
    control.put(f"{_PREFIX}{silence_id}", None)
    return found


def standing(control: Control, now: datetime) -> list[Silence]:
    """The silences that are not over, the next to end first; those that are, are forgotten."""
    found = [msgspec.convert(value, Silence) for value in control.items(_PREFIX).values()]
    for silence in found:
        if silence.end <= now:
            remove(control, silence.id)
    return sorted((silence for silence in found if silence.end > now), key=lambda silence: silence.end)
