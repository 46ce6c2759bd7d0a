"""Which attributes the mappers read, and what an attribute of a name holds.

The names are those of ``mapping/attributes``: a constant there is read by that very name or, where it has a dot, as a
prefix of numbered names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Literal, NamedTuple

from collector.mapping import attributes as names
from collector.remembered import Remembered
from collector.spans import Attributes
from pickwise.attributes import PREFIX

#: Attributes and events that any span may have: they alone do not make it one that a mapper could know.
ANY_SPAN = frozenset(
    {
        names.ENVIRONMENT,
        names.ENVIRONMENT_OLD,
        names.SERVICE_VERSION,
        names.ERROR_TYPE,
        names.HTTP_STATUS,
        names.EXCEPTION_EVENT,
        names.EXCEPTION_TYPE,
        names.EXCEPTION_MESSAGE,
        names.SESSION_ID,
    }
)
#: Names and labels that are remembered; senders may invent ever new ones.
CACHED = 8_192
_LAYOUTS = 1_024
#: Where instrumentations say what kind of a thing a span is about.
_KINDS = frozenset({names.OI_KIND, names.TL_KIND, names.LS_KIND, names.LF_KIND, names.ML_KIND, names.OPERATION})

#: What an attribute of a name holds.
Content = Literal["label", "arguments", "result", "definitions", "other"]
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_LABELS = frozenset(
    {"attempt", "code", "depth", "destination", "environment", "event", "id", "ids", "index"}
    | {"kind", "label", "language", "method", "model", "name", "names", "operation", "phase"}
    | {"project", "provider", "rank", "ranked", "reason", "reasons", "role", "score", "stage", "status"}
    | {"strategy", "system", "team", "turn", "type", "version"}
)
_ARGUMENTS = frozenset(["args", "arguments"])
_RESULTS = frozenset(["result", "results", "observation"])
_DEFINITIONS = frozenset(["tools", "definitions", "functions", "parameters", "schema"])
#: ``llm.input_messages.0.message.role``: the group that a flattened attribute belongs to, and its list.
_GROUP = re.compile(r"((.+?)\.\d+)\.")


class Place(NamedTuple):
    """How an attribute of a name is kept."""

    content: Content
    #: It says that a mapper could know the span.
    is_telling: bool
    #: Group and list of a flattened attribute; both '' for others.
    group: str
    family: str


class Layout(NamedTuple):
    """What attributes of some names hold, without those that no mapper reads."""

    #: All of them, in their order.
    names: tuple[str, ...]
    #: Those that hold labels.
    labels: tuple[str, ...]
    #: The others: name, what it holds, and how it is kept.
    places: tuple[tuple[str, Content, Place], ...]
    #: Some attribute says that a mapper could know the span.
    is_telling: bool
    #: Those that say what kind of a thing the span is about.
    kinds: tuple[str, ...]
    #: Those with the role of a group of flattened attributes, each with its group.
    roles: tuple[tuple[str, str], ...]
    #: Its own: stands for all the names where a dictionary is asked for something that hangs on them.
    number: int


def _constants() -> tuple[frozenset[str], tuple[str, ...]]:
    """The names that mappers read, and the prefixes of those that they read by prefix."""
    found: set[str] = set()
    for constant, value in vars(names).items():
        values = [value] if isinstance(value, str) else value
        if constant.isupper() and isinstance(values, list | tuple | set | frozenset):
            found.update(name for name in values if isinstance(name, str))
    # A word without a dot stands for one attribute, or for what follows a prefix: as a prefix it would be too wide.
    return frozenset(found), (PREFIX, *(f"{name.rstrip('.')}." for name in sorted(found) if "." in name))


NAMES, _PREFIXES = _constants()


_layouts: Remembered[tuple[str, ...], Layout] = Remembered(_LAYOUTS)
_numbers = count()


def layout_of(attributes: Attributes) -> Layout:
    """What the attributes hold. Spans of one kind have the same names, so it is found out once."""
    key = tuple(attributes)
    found = _layouts.get(key)
    if found is None:
        found = _layout(key)
        _layouts.keep(key, found)
    return found


def _layout(attributes: Sequence[str]) -> Layout:
    places = [(name, place.content, place) for name in attributes if (place := place_of(name)) is not None]
    return Layout(
        tuple(name for name, _, _ in places),
        tuple(name for name, content, _ in places if content == "label"),
        tuple(place for place in places if place[1] != "label"),
        any(place.is_telling for _, _, place in places),
        tuple(name for name in attributes if name in _KINDS),
        tuple((name, found[1]) for name in attributes if name.endswith("role") and (found := _GROUP.match(name))),
        next(_numbers),
    )


def place_of(name: str) -> Place | None:
    """How to keep the attribute; None for one that no mapper reads."""
    if name not in NAMES and not name.startswith(_PREFIXES):
        return None
    found = _GROUP.match(name)
    group, family = (found[1], found[2]) if found else ("", "")
    return Place(_content(name), name not in ANY_SPAN, group, family)


def _content(name: str) -> Content:
    words = [word.lower() for word in _WORD.findall(name)]
    last = words[-1] if words else ""
    if last in _LABELS:
        return "label"
    if last in _ARGUMENTS:
        return "arguments"
    if last in _RESULTS or (last in ("response", "output") and "tool" in words):
        return "result"
    return "other" if _DEFINITIONS.isdisjoint(words) else "definitions"


def group_roles(attributes: Attributes, layout: Layout) -> dict[str, str]:
    """The role of each group of flattened attributes (``llm.input_messages.0`` -> `user`)."""
    return {group: role for name, group in layout.roles if isinstance(role := attributes[name], str)}
