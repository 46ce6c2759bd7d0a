"""What a rule of a dialect is, and which rules a span is shown to."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from collector.facts import Facts
from collector.mapping.attributes import OPERATION
from collector.spans import LogRecord, Span
from pickwise.settings import Settings

#: Maps a span that it knows; None for the others. A rule opens with its guard, as most spans are not its own.
Rule = Callable[[Span, Settings], Facts | None]
LogRule = Callable[[LogRecord, Settings], Facts | None]

_MARKS: dict[Rule, frozenset[str]] = {}


def marked(*names: str) -> Callable[[Rule], Rule]:
    """Say of a rule that the spans it knows have one of these names, among their attributes or their events, or one
    of these operations, see ``operating``.

    It spares the rule to be asked of the others. A rule without marks is asked of every span.
    """

    def mark(rule: Rule) -> Rule:
        _MARKS[rule] = frozenset(names)
        return rule

    return mark


def operating(*operations: str) -> tuple[str, ...]:
    """Marks of spans whose ``gen_ai.operation.name`` is one of these: most spans of agents have some other."""
    return tuple(f"{OPERATION}={operation}" for operation in operations)


def marks_of(rules: tuple[Rule, ...]) -> frozenset[str]:
    """All marks of the rules."""
    return frozenset().union(*(_MARKS.get(rule, ()) for rule in rules))


# Senders cannot fill it: what it is asked with are our own names.
@lru_cache(maxsize=1_024)
def rules_for(rules: tuple[Rule, ...], found: frozenset[str]) -> tuple[Rule, ...]:
    """The rules, in their order, that could know a span with those of their marks."""
    return tuple(rule for rule in rules if rule not in _MARKS or not _MARKS[rule].isdisjoint(found))
