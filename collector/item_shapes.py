"""Which kinds of spans need no second look when they are archived.

Mapping the redacted span once more, to see what it tells otherwise than the whole one, costs as much as mapping it at
all. Spans of one kind (same scope, same names of attributes and events) fare alike: where a number of them differed in
nothing but what always differs (argument values, masked texts), that is stored for the next ones unseen. One in many
is still looked at, and so is each that tells of a failure, which may have been read in a result.
"""

from __future__ import annotations

from collections import OrderedDict

from collector.facts import Facts
from collector.spans import Span

#: A kind is trusted after so many looks; then one in so many is looked at.
_LOOKS = 8
_SAMPLE = 64
#: Kinds remembered; attribute names with numbers in them make ever new ones.
_MAX_KINDS = 2_048
_NEVER = -1

Kind = tuple[str, ...]


class ItemShapes:
    """How often each kind came, or that it is never trusted."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Kind, int] = OrderedDict()

    def needs_look(self, kind: Kind, facts: Facts | None) -> bool:
        """Whether this one must be mapped once more; counts it."""
        if facts is not None and (facts.is_routed or any(call.ok is False for call in facts.calls)):
            return True
        seen = self._seen.pop(kind, 0)
        self._seen[kind] = seen if seen == _NEVER else seen + 1
        if len(self._seen) > _MAX_KINDS:
            self._seen.popitem(last=False)
        return seen < _LOOKS or seen % _SAMPLE == 0

    def distrust(self, kind: Kind) -> None:
        """A look at one of the kind was a surprise."""
        self._seen[kind] = _NEVER


def kind_of(span: Span) -> Kind:
    return (span.scope_name, *span.attributes, *(event.name for event in span.events))
