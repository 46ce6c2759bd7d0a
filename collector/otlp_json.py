"""OTLP in JSON: hex ids, integer enums (names tolerated), 64-bit integers as string or number."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from collector.spans import Attributes, LogRecord, Span, SpanEvent
from pickwise.events import MAX_TIME_NS

_TRACE_ID = re.compile(r"(?!0{32})[0-9a-fA-F]{32}")
_SPAN_ID = re.compile(r"(?!0{16})[0-9a-fA-F]{16}")
#: So many refused records are spelled out; the others are counted.
NAMED_REFUSALS = 5
_MAX_DEPTH = 50
_ZERO_SPAN = "0" * 16
_STATUS = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
_KIND = {
    "SPAN_KIND_UNSPECIFIED": 0,
    "SPAN_KIND_INTERNAL": 1,
    "SPAN_KIND_SERVER": 2,
    "SPAN_KIND_CLIENT": 3,
    "SPAN_KIND_PRODUCER": 4,
    "SPAN_KIND_CONSUMER": 5,
}

RecordT = TypeVar("RecordT")


class WrongForm(ValueError):  # noqa: N818 - a property of the input
    """A part of the request is not what OTLP/JSON says; the message names the field."""


def spans(document: Any) -> tuple[list[Span], list[str]]:
    """The acceptable spans of a request, and why each of the others was refused."""
    return _records(document, "resourceSpans", "scopeSpans", "spans", _span)


def logs(document: Any) -> tuple[list[LogRecord], list[str]]:
    return _records(document, "resourceLogs", "scopeLogs", "logRecords", _log)


def _records(
    document: dict[str, Any],
    outer: str,
    middle: str,
    inner: str,
    read: Callable[[dict[str, Any], Attributes, dict[str, Any]], RecordT],
) -> tuple[list[RecordT], list[str]]:
    records: list[RecordT] = []
    problems: list[str] = []
    for raw, resource, scope in _walk(document, outer, middle, inner):
        try:
            if isinstance(resource, WrongForm):
                raise resource
            if isinstance(raw, WrongForm):
                raise raw
            records.append(read(raw, resource, scope))
        except WrongForm as error:
            problems.append(f"{_title(raw)}: {error}" if len(problems) < NAMED_REFUSALS else "")
    return records, problems


def _walk(
    document: dict[str, Any], outer: str, middle: str, inner: str
) -> Iterator[tuple[Any, Attributes | WrongForm, dict[str, Any]]]:
    """Every record with its resource and scope; what should hold records and does not is a WrongForm in their place."""
    for group in _members(document, outer):
        if isinstance(group, WrongForm):
            yield group, {}, {}
            continue
        resource = _resource(group.get("resource"))
        for scoped in _members(group, middle):
            if isinstance(scoped, WrongForm):
                yield scoped, resource, {}
                continue
            scope = scoped.get("scope")
            for raw in _members(scoped, inner):
                yield raw, resource, scope if isinstance(scope, dict) else {}


def _members(holder: dict[str, Any], field: str) -> Iterator[dict[str, Any] | WrongForm]:
    value = holder.get(field)
    if value is not None and not isinstance(value, list):
        yield WrongForm(f"{field}: expected a list, got {type(value).__name__}")
        return
    for item in value or ():
        yield item if isinstance(item, dict) else WrongForm(f"{field}: expected objects, got {type(item).__name__}")


def _resource(resource: Any) -> Attributes | WrongForm:
    try:
        return _attributes(resource.get("attributes") if isinstance(resource, dict) else None, "resource.attributes")
    except WrongForm as error:
        return error


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in _list(value) if isinstance(item, dict)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _title(raw: Any) -> str:
    if not isinstance(raw, dict):
        return "record"
    return f"{raw.get('name', raw.get('eventName', 'record'))!s:.60} (spanId {raw.get('spanId')!s:.40})"


def _span(raw: dict[str, Any], resource: Attributes, scope: dict[str, Any]) -> Span:
    status = raw.get("status")
    status = status if isinstance(status, dict) else {}
    return Span(
        trace_id=_id(raw, "traceId", _TRACE_ID, "32"),
        span_id=_id(raw, "spanId", _SPAN_ID, "16"),
        parent_span_id=_parent(raw),
        name=_text(raw.get("name")),
        kind=_enum(raw.get("kind"), _KIND),
        start_ns=_time(raw, "startTimeUnixNano"),
        end_ns=_time(raw, "endTimeUnixNano"),
        status_code=_enum(status.get("code"), _STATUS),
        status_message=_text(status.get("message")),
        attributes=_attributes(raw.get("attributes"), "attributes"),
        events=[
            SpanEvent(
                _text(event.get("name")),
                _time(event, "timeUnixNano"),
                _attributes(event.get("attributes"), "events.attributes"),
            )
            for event in _objects(raw.get("events"))
        ],
        resource=resource,
        scope_name=_text(scope.get("name")),
        scope_version=_text(scope.get("version")),
    )


def _log(raw: dict[str, Any], resource: Attributes, _scope: dict[str, Any]) -> LogRecord:
    return LogRecord(
        trace_id=_id(raw, "traceId", _TRACE_ID, "32") if raw.get("traceId") else None,
        span_id=_id(raw, "spanId", _SPAN_ID, "16") if raw.get("spanId") else None,
        time_ns=_time(raw, "timeUnixNano") or _time(raw, "observedTimeUnixNano"),
        event_name=_text(raw.get("eventName")),
        body=_value(raw.get("body"), "body"),
        attributes=_attributes(raw.get("attributes"), "attributes"),
        resource=resource,
    )


def _id(raw: dict[str, Any], field: str, pattern: re.Pattern[str], digits: str) -> str:
    value = raw.get(field)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise WrongForm(f"{field}: expected {digits} hex digits, not all zero, got {value!r:.60}")
    return value.lower()


def _parent(raw: dict[str, Any]) -> str | None:
    value = raw.get("parentSpanId")
    if not value or value == _ZERO_SPAN:
        return None
    return _id(raw, "parentSpanId", _SPAN_ID, "16")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _enum(value: Any, names: dict[str, int]) -> int:
    if isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return names.get(value) or (int(value) if value.isdecimal() and len(value) < 4 else 0)
    return 0


def _time(raw: dict[str, Any], field: str) -> int:
    value = raw.get(field)
    if value is None or value == "":
        return 0
    nanoseconds = _integer(value)
    if nanoseconds is None or not 0 <= nanoseconds <= MAX_TIME_NS:
        raise WrongForm(f"{field}: expected Unix nanoseconds as string or number, before 2262, got {value!r:.60}")
    return nanoseconds


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str) and len(value) <= 20 and value.removeprefix("-").isdecimal():
        return int(value)
    return None


def _attributes(pairs: Any, field: str, depth: int = 0) -> Attributes:
    if pairs is None:
        return {}
    if not isinstance(pairs, list):
        raise WrongForm(f"{field}: expected a list of {{key, value}}, got {type(pairs).__name__}")
    attributes: Attributes = {}
    for pair in pairs:
        if not isinstance(pair, dict) or not isinstance(pair.get("key"), str):
            raise WrongForm(f"{field}: expected {{key, value}} objects, got {pair!r:.60}")
        attributes[pair["key"]] = _value(pair.get("value"), field, depth)
    return attributes


def _value(value: Any, field: str, depth: int = 0) -> Any:
    """The plain value of an AnyValue object; one of an unknown kind is null."""
    if depth > _MAX_DEPTH:
        raise WrongForm(f"{field}: expected values nested at most {_MAX_DEPTH} deep")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise WrongForm(f"{field}: expected a value object like {{stringValue: …}}, got {value!r:.60}")
    for kind, read in _READERS.items():
        if kind in value:
            return read(value[kind], field, depth)
    return None


def _string_value(value: Any, field: str, _depth: int) -> str:
    if not isinstance(value, str):
        raise WrongForm(f"{field}: expected a string in stringValue, got {value!r:.60}")
    return value


def _int_value(value: Any, field: str, _depth: int) -> int:
    number = _integer(value)
    if number is None:
        raise WrongForm(f"{field}: expected an integer in intValue, got {value!r:.60}")
    return number


def _double_value(value: Any, field: str, _depth: int) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise WrongForm(f"{field}: expected a number in doubleValue, got {value!r:.60}") from error
    return number if math.isfinite(number) else None


def _bool_value(value: Any, field: str, _depth: int) -> bool:
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise WrongForm(f"{field}: expected true or false in boolValue, got {value!r:.60}")


def _array_value(value: Any, field: str, depth: int) -> list[Any]:
    items = value.get("values", []) if isinstance(value, dict) else None
    if not isinstance(items, list):
        raise WrongForm(f"{field}: expected {{values: […]}} in arrayValue, got {value!r:.60}")
    return [_value(item, field, depth + 1) for item in items]


def _kvlist_value(value: Any, field: str, depth: int) -> Attributes:
    if not isinstance(value, dict):
        raise WrongForm(f"{field}: expected {{values: […]}} in kvlistValue, got {value!r:.60}")
    return _attributes(value.get("values"), field, depth + 1)


_READERS: dict[str, Callable[[Any, str, int], Any]] = {
    "stringValue": _string_value,
    "intValue": _int_value,
    "boolValue": _bool_value,
    "doubleValue": _double_value,
    "arrayValue": _array_value,
    "kvlistValue": _kvlist_value,
    "bytesValue": _string_value,
}
