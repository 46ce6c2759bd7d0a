"""Which kinds of spans need no second look when they are archived.

Mapping the redacted span once more, to see what it tells otherwise than the whole one, costs as much as mapping it at
all. Spans of one kind (same scope, same names of attributes and events) fare alike: where a number of them differed in
nothing but what always differs (argument values, masked texts), that is stored for the next ones unseen. One in many
is still looked at. A failure may have been read in a result, which redaction takes away: of failed runs, those are of
one kind that failed alike and have all else in common that a failure is read in; other failures are always looked at.
"""

from __future__ import annotations

from collections.abc import Hashable

from collector.facts import Facts
from collector.mapping import attributes as names
from collector.read_attributes import Layout
from collector.remembered import Remembered
from collector.spans import Span

#: A kind is trusted after so many looks; then one in so many is looked at.
_LOOKS = 8
_SAMPLE = 256
#: Kinds remembered; attribute names with numbers in them make ever new ones.
_MAX_KINDS = 2_048
#: Longer error messages hardly come again.
_MAX_MESSAGE = 256

Kind = tuple[Hashable, ...]


class Shape:
    """What is known of a kind: how often it came, and what looks at some of it showed."""

    __slots__ = ("hides_failure", "is_trusted", "seen")

    def __init__(self) -> None:
        self.seen = 0
        #: No look was a surprise.
        self.is_trusted = True
        #: The redacted span does not tell that a call failed, or how.
        self.hides_failure = False

    def needs_look(self) -> bool:
        """Whether this one must be mapped once more; counts it."""
        seen, self.seen = self.seen, self.seen + 1
        return not self.is_trusted or seen < _LOOKS or seen % _SAMPLE == 0


class ItemShapes:
    """What is known of each kind."""

    def __init__(self) -> None:
        self._seen: Remembered[Kind, Shape] = Remembered(_MAX_KINDS)

    def of(self, kind: Kind) -> Shape:
        known = self._seen.get(kind)
        if known is None:
            known = Shape()
            self._seen.keep(kind, known)
        return known


def kind_of(redacted: Span, layout: Layout, facts: Facts | None) -> Kind | None:
    """The kind of a span, None for one that must be looked at. ``layout``: that of its attributes, all of them."""
    if facts is not None:
        if facts.is_routed:
            return None
        for call in facts.calls:
            if call.ok is False:
                return _kind_of_failure(redacted, layout, facts)
    if redacted.events:
        return (redacted.scope_name, layout.number, *[event.name for event in redacted.events])
    return (redacted.scope_name, layout.number)


def _kind_of_failure(redacted: Span, layout: Layout, facts: Facts) -> Kind | None:
    error_type = redacted.attributes.get(names.ERROR_TYPE, "")
    http_status = redacted.attributes.get(names.HTTP_STATUS, 0)
    failed = [call for call in facts.calls if call.ok is False]
    if (
        redacted.events
        or len(redacted.status_message) > _MAX_MESSAGE
        or not isinstance(error_type, str)
        or not isinstance(http_status, str | int)
        or any(call.role != "run" for call in failed)
    ):
        return None
    told = frozenset([call.error_kind for call in failed])
    status = redacted.status_code, redacted.status_message
    return (redacted.scope_name, layout.number, told, error_type, http_status, *status)
