"""Our own events as OpenTelemetry attributes, and back.

``pickwise.event`` names the type, ``pickwise.<field>`` holds a field: scalars as they are, a nested object dotted
(``pickwise.stage_ms.embed``), a list of strings as a string array, lists of objects and free values as JSON text.
The encoding follows the structs of ``pickwise.events``, so a field added there travels without a change here.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from pickwise.events import EVENT_TYPES, MAX_EVENT_BYTES, Event

AttributeValue = str | bool | int | float | list[str]

#: Common prefix of all attributes of ours.
PREFIX = "pickwise."
#: Type of the event that a span (or a span event of this same name) carries.
EVENT = "pickwise.event"
#: Resource attribute that names the project.
PROJECT = "pickwise.project"


def to_attributes(event: Event) -> dict[str, AttributeValue]:
    """The event as flat attributes; fields that are absent are left out."""
    name = event.type_name
    raw: dict[str, Any] = msgspec.to_builtins(event)
    attributes: dict[str, AttributeValue] = {EVENT: name}
    for field, value in raw.items():
        if value is None or field == "type" or (value == [] and field not in _KEPT_EMPTY[name]):
            continue
        if field in _JSON[name]:
            attributes[PREFIX + field] = msgspec.json.encode(value).decode()
        elif field in _NESTED[name]:
            nested = {f"{PREFIX}{field}.{key}": item for key, item in value.items() if item not in (None, [])}
            attributes.update(nested)
        else:
            attributes[PREFIX + field] = value
    return attributes


def from_attributes(attributes: dict[str, Any]) -> dict[str, Any] | None:
    """The raw event for ``decode_event``, or None where the attributes carry no event of ours.

    Attributes of other vocabularies are ignored; unknown ones of ours stay, to be counted as unknown fields.
    """
    name = attributes.get(EVENT)
    if name is None:
        return None
    places = _PLACES.get(name, {}) if isinstance(name, str) else {}
    raw: dict[str, Any] = {"type": name}
    nested: dict[str, dict[str, Any]] = {}
    for key, value in attributes.items():
        place = places.get(key)
        if place is None:
            if key.startswith(PREFIX) and key not in (EVENT, PROJECT):
                raw[key.removeprefix(PREFIX)] = value
            continue
        field, inner, is_json = place
        if inner is not None:
            nested.setdefault(field, {})[inner] = value
        elif is_json:
            raw[field] = _from_json(value)
        else:
            raw[field] = list(value) if isinstance(value, tuple) else value
    return raw | nested


def _from_json(value: Any) -> Any:
    if not isinstance(value, str) or len(value) > MAX_EVENT_BYTES:  # too long for an event, whatever it holds
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return value


def _fields(event_type: type[Event]) -> list[inspect.Field]:
    described = inspect.type_info(event_type)
    assert isinstance(described, inspect.StructType)
    return list(described.fields)


def _alternatives(field: inspect.Field) -> tuple[inspect.Type, ...]:
    return field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)


def _is_json(field: inspect.Field) -> bool:
    return any(
        isinstance(kind, inspect.AnyType | inspect.DictType)
        or (isinstance(kind, inspect.ListType) and not isinstance(kind.item_type, inspect.StrType))
        for kind in _alternatives(field)
    )


def _is_nested(field: inspect.Field) -> bool:
    return any(isinstance(kind, inspect.StructType) for kind in _alternatives(field))


_JSON = {name: frozenset(f.name for f in _fields(t) if _is_json(f)) for name, t in EVENT_TYPES.items()}
_NESTED = {name: frozenset(f.name for f in _fields(t) if _is_nested(f)) for name, t in EVENT_TYPES.items()}
#: Fields where an empty list says something else than absence (``picks``: given, and none).
_KEPT_EMPTY = {name: frozenset(f.name for f in _fields(t) if f.default is None) for name, t in EVENT_TYPES.items()}


def _places(name: str, event_type: type[Event]) -> dict[str, tuple[str, str | None, bool]]:
    """Where each attribute of an event type goes: field, field of the nested object, and whether it is JSON text."""
    places: dict[str, tuple[str, str | None, bool]] = {}
    for field in _fields(event_type):
        structs = [kind for kind in _alternatives(field) if isinstance(kind, inspect.StructType)]
        if structs:
            places |= {
                f"{PREFIX}{field.name}.{inner.name}": (field.name, inner.name, False) for inner in structs[0].fields
            }
        else:
            places[PREFIX + field.name] = (field.name, None, field.name in _JSON[name])
    return places


_PLACES = {name: _places(name, event_type) for name, event_type in EVENT_TYPES.items()}
