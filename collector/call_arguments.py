"""What is kept of the arguments of a call: their names, a digest, and their text without what must not be kept."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from collector.mapping.conversation import from_json
from collector.redact import Redactor

#: No tool takes arguments nested so deep; beyond, encoders run out of stack.
_MAX_DEPTH = 64
_NESTED = (dict, list)
_NESTED_TYPES = frozenset(_NESTED)
#: What is kept of so many arguments, none of them longer as JSON, is remembered.
_KEPT = 1_024
_KEPT_BYTES = 1_024
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class Arguments(NamedTuple):
    """What is kept of the arguments of a call, and how many values were taken out."""

    digest: str | None
    names: list[str] | None
    redacted: str | None
    taken_out: int


NO_ARGUMENTS = Arguments(None, None, None, 0)


class ArgumentsKeeper:
    """Makes ``Arguments`` and remembers them: a call is told by the turn that proposed it and by its run."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._kept: dict[tuple[str, bytes], Arguments] = {}

    def of(self, skill_id: str, arguments: Any) -> Arguments:
        key = skill_id, _encode(arguments)
        known = self._kept.get(key)
        if known is not None:
            self._redactor.counts["argument"] += known.taken_out
            return known
        made = self._made(skill_id, arguments)
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        if len(key[1]) <= _KEPT_BYTES:
            self._kept[key] = made
        return made

    def _made(self, skill_id: str, arguments: Any) -> Arguments:
        redactor = self._redactor
        before = redactor.counts["argument"]
        redacted = redactor.arguments(skill_id, arguments)
        return Arguments(
            redactor.digest(_encode_sorted(arguments)),
            sorted(arguments) if isinstance(arguments, dict) else None,
            redacted,
            redactor.counts["argument"] - before,
        )


def canonical_arguments(value: Any) -> Any:
    """The arguments decoded, whether they came as an object or as JSON text; text that is no JSON stays text."""
    decoded = from_json(value) if isinstance(value, str) else value
    if not isinstance(decoded, _NESTED):
        return value
    return decoded if _is_shallow(decoded) else f"nested deeper than {_MAX_DEPTH}"


def _is_shallow(value: Any) -> bool:
    """Whether the value can be walked and encoded wherever it goes."""
    if _NESTED_TYPES.isdisjoint(map(type, value.values() if isinstance(value, dict) else value)):
        return True  # as most are
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, _NESTED)
        ]
        if not level:
            return True
    return False
