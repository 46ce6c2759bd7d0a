"""Which kinds of spans need no second look when they are archived.

Mapping the redacted span once more, to see what it tells otherwise than the whole one, costs as much as mapping it at
all. Spans of one kind (same scope, same names of attributes and events) fare alike: where a number of them differed in
nothing but what always differs (argument values, masked texts), that is stored for the next ones unseen. One in many
is still looked at, and so is each that tells of a failure, which may have been read in a result.
"""

from __future__ import annotations

from collector.facts import Facts
from collector.remembered import Remembered
from collector.spans import Span

#: A kind is trusted after so many looks; then one in so many is looked at.
_LOOKS = 8
_SAMPLE = 64
#: Kinds remembered; attribute names with numbers in them make ever new ones.
_MAX_KINDS = 2_048

Kind = tuple[str, ...]


class _Kind:
    """How often a kind came, and whether no look at one of it was a surprise."""

    __slots__ = ("is_trusted", "seen")

    def __init__(self) -> None:
        self.seen = 0
        self.is_trusted = True


class ItemShapes:
    """What is known of each kind."""

    def __init__(self) -> None:
        self._seen: Remembered[Kind, _Kind] = Remembered(_MAX_KINDS)

    def needs_look(self, kind: Kind, facts: Facts | None) -> bool:
        """Whether this one must be mapped once more; counts it."""
        if facts is not None and (facts.is_routed or _has_failed(facts)):
            return True
        known = self._of(kind)
        seen, known.seen = known.seen, known.seen + 1
        return not known.is_trusted or seen < _LOOKS or seen % _SAMPLE == 0

    def distrust(self, kind: Kind) -> None:
        """A look at one of the kind was a surprise."""
        self._of(kind).is_trusted = False

    def _of(self, kind: Kind) -> _Kind:
        known = self._seen.get(kind)
        if known is None:
            known = _Kind()
            self._seen.keep(kind, known)
        return known


def _has_failed(facts: Facts) -> bool:
    for call in facts.calls:  # noqa: SIM110 - a generator costs thrice the time
        if call.ok is False:
            return True
    return False


def kind_of(span: Span) -> Kind:
    return (span.scope_name, *span.attributes, *(event.name for event in span.events))
