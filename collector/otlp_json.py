"""OTLP in JSON: hex ids, integer enums (names tolerated), 64-bit integers as string or number."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from collector import json_text
from collector.clock import LAST_NS, time_problem
from collector.otlp_limits import MAX_DEPTH
from collector.spans import Attributes, LogRecord, Span, SpanEvent, SpanLink

_TRACE_ID = re.compile(r"(?!0{32})[0-9a-fA-F]{32}")
_SPAN_ID = re.compile(r"(?!0{16})[0-9a-fA-F]{16}")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|NaN|-?Infinity")
_INT64 = range(-(2**63), 2**63)
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


class Refused(NamedTuple):
    """A record that cannot be taken."""

    title: str
    reason: str


class Reader:
    """Reads the records of a decoded request; ``nonfinite`` counts the NaN and infinities that became null."""

    def __init__(self) -> None:
        self.nonfinite = 0

    def spans(self, document: dict[str, Any]) -> Iterator[Span | Refused]:
        """Every span of a request, or why it was refused, in their order."""
        return _records(document, ("resourceSpans", "scopeSpans", "spans"), self._resource, self._span)

    def logs(self, document: dict[str, Any]) -> Iterator[LogRecord | Refused]:
        return _records(document, ("resourceLogs", "scopeLogs", "logRecords"), self._resource, self._log)

    def _resource(self, resource: Any) -> Attributes:
        # A reader of its own: what a resource says is told once for many records, or for none.
        return Reader()._attributes(_object(resource, "resource").get("attributes"), "resource.attributes")

    def _span(self, raw: dict[str, Any], resource: Attributes, scope: dict[str, Any]) -> Span:
        status = _object(raw.get("status"), "status")
        return Span(
            trace_id=_id(raw, "traceId", _TRACE_ID, "32"),
            span_id=_id(raw, "spanId", _SPAN_ID, "16"),
            parent_span_id=_optional_id(raw, "parentSpanId", _SPAN_ID, "16"),
            name=_text(raw, "name"),
            kind=_enum(raw.get("kind"), _KIND),
            start_ns=_time(raw, "startTimeUnixNano"),
            end_ns=_time(raw, "endTimeUnixNano"),
            status_code=_enum(status.get("code"), _STATUS),
            status_message=_text(status, "message"),
            attributes=self._attributes(raw.get("attributes"), "attributes"),
            events=[self._event(event) for event in _objects(raw, "events")],
            links=[_link(link) for link in _objects(raw, "links")],
            resource=resource,
            scope_name=_text(scope, "name"),
            scope_version=_text(scope, "version"),
        )

    def _event(self, event: dict[str, Any]) -> SpanEvent:
        nanoseconds = _integer(event.get("timeUnixNano"))
        in_range = nanoseconds is not None and 0 <= nanoseconds < LAST_NS
        return SpanEvent(
            _text(event, "name"),
            nanoseconds if nanoseconds is not None and in_range else 0,
            self._attributes(event.get("attributes"), "events.attributes"),
        )

    def _log(self, raw: dict[str, Any], resource: Attributes, _scope: dict[str, Any]) -> LogRecord:
        time_ns, observed_ns = _time(raw, "timeUnixNano"), _time(raw, "observedTimeUnixNano")
        return LogRecord(
            trace_id=_optional_id(raw, "traceId", _TRACE_ID, "32"),
            span_id=_optional_id(raw, "spanId", _SPAN_ID, "16"),
            time_ns=time_ns or observed_ns,
            event_name=_text(raw, "eventName"),
            body=self._value(raw.get("body"), "body"),
            attributes=self._attributes(raw.get("attributes"), "attributes"),
            resource=resource,
        )

    def _attributes(self, pairs: Any, field: str, depth: int = 0) -> Attributes:
        if pairs is None:
            return {}
        if not isinstance(pairs, list):
            raise WrongForm(f"{field}: expected a list of {{key, value}}, got {_kind(pairs)}")
        attributes: Attributes = {}
        for pair in pairs:
            if not isinstance(pair, dict) or not isinstance(key := pair.get("key", ""), str):
                raise WrongForm(f"{field}: expected {{key, value}} objects, got {pair!r:.60}")
            attributes[key] = self._value(pair.get("value"), field, depth)
        return attributes

    def _value(self, value: Any, field: str, depth: int = 0) -> Any:
        """The plain value of an AnyValue object; one of an unknown kind is null."""
        if depth > MAX_DEPTH:
            raise WrongForm(f"{field}: expected values nested at most {MAX_DEPTH} deep")
        if value is None:
            return None
        if not isinstance(value, dict):
            raise WrongForm(f"{field}: expected a value object like {{stringValue: …}}, got {value!r:.60}")
        if isinstance(text := value.get("stringValue"), str):  # nearly always, and the first of the readers
            return text
        for kind, read in _READERS.items():
            if value.get(kind) is not None:
                return read(self, value[kind], field, depth)
        return None

    def _string_value(self, value: Any, field: str, _depth: int) -> str:
        if not isinstance(value, str):
            raise WrongForm(f"{field}: expected a string in stringValue, got {value!r:.60}")
        return value

    def _bytes_value(self, value: Any, field: str, _depth: int) -> str:
        if not isinstance(value, str):
            raise WrongForm(f"{field}: expected base64 text in bytesValue, got {value!r:.60}")
        return value

    def _int_value(self, value: Any, field: str, _depth: int) -> int:
        number = _integer(value)
        if number is None or number not in _INT64:
            raise WrongForm(f"{field}: expected an integer of 64 bits in intValue, got {value!r:.60}")
        return number

    def _double_value(self, value: Any, field: str, _depth: int) -> float | None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number and not (isinstance(value, str) and _NUMBER.fullmatch(value)):
            raise WrongForm(f"{field}: expected a number in doubleValue, got {value!r:.60}")
        try:
            number = float(value)
        except OverflowError:  # an integer beyond every float
            number = math.inf
        if math.isfinite(number):
            return number
        self.nonfinite += 1
        return None

    def _bool_value(self, value: Any, field: str, _depth: int) -> bool:
        if value is True or value == "true":
            return True
        if value is False or value == "false":
            return False
        raise WrongForm(f"{field}: expected true or false in boolValue, got {value!r:.60}")

    def _array_value(self, value: Any, field: str, depth: int) -> list[Any]:
        items = value.get("values") if isinstance(value, dict) else value
        if not isinstance(items, list | None) or not isinstance(value, dict):
            raise WrongForm(f"{field}: expected {{values: […]}} in arrayValue, got {value!r:.60}")
        return [self._value(item, field, depth + 1) for item in items or ()]

    def _kvlist_value(self, value: Any, field: str, depth: int) -> Attributes:
        if not isinstance(value, dict):
            raise WrongForm(f"{field}: expected {{values: […]}} in kvlistValue, got {value!r:.60}")
        return self._attributes(value.get("values"), field, depth + 1)


def data_points(document: dict[str, Any]) -> int:
    """How many data points a metric request holds."""
    path = ("resourceMetrics", "scopeMetrics", "metrics")
    return sum(_points(metric) for metric, _, _ in _walk(document, path, lambda _: {}))


def _points(metric: dict[str, Any] | WrongForm) -> int:
    data = metric.values() if isinstance(metric, dict) else ()
    found = (held.get("dataPoints") for held in data if isinstance(held, dict))
    return sum(len(points) for points in found if isinstance(points, list))


_READERS: dict[str, Callable[[Reader, Any, str, int], Any]] = {
    "stringValue": Reader._string_value,
    "intValue": Reader._int_value,
    "boolValue": Reader._bool_value,
    "doubleValue": Reader._double_value,
    "arrayValue": Reader._array_value,
    "kvlistValue": Reader._kvlist_value,
    "bytesValue": Reader._bytes_value,
}


def _records(
    document: dict[str, Any],
    path: tuple[str, str, str],
    read_resource: Callable[[Any], Attributes],
    read: Callable[[dict[str, Any], Attributes, dict[str, Any]], RecordT],
) -> Iterator[RecordT | Refused]:
    for raw, resource, scope in _walk(document, path, read_resource):
        try:
            if isinstance(raw, WrongForm):
                raise raw
            if isinstance(resource, WrongForm):
                raise resource
            yield read(raw, resource, scope)
        except WrongForm as error:
            yield Refused(_title(raw), str(error))


def _walk(
    document: dict[str, Any], path: tuple[str, str, str], read_resource: Callable[[Any], Attributes]
) -> Iterator[tuple[dict[str, Any] | WrongForm, Attributes | WrongForm, dict[str, Any]]]:
    """Every record with its resource and scope; what should hold records and does not is a WrongForm in their place."""
    outer, middle, inner = path
    for group in _members(document, outer, json_text.opened):
        if isinstance(group, WrongForm):
            yield group, {}, {}
            continue
        resource = _tried(_resource_in, group, read_resource)
        for scoped in _members(group, middle, json_text.opened):
            if isinstance(scoped, WrongForm):
                yield scoped, resource, {}
                continue
            scope = _tried(_scope_in, scoped)
            for raw in _members(scoped, inner, json_text.whole):
                yield (scope, resource, {}) if isinstance(scope, WrongForm) else (raw, resource, scope)


def _members(holder: dict[str, Any], field: str, read: Callable[[Any], Any]) -> Iterator[dict[str, Any] | WrongForm]:
    """The objects of a list. They are taken from its text one by one where it is not decoded yet."""
    value = _tried(json_text.opened, holder.get(field))
    if isinstance(value, WrongForm):
        yield value
        return
    if value is not None and not isinstance(value, list):
        yield WrongForm(f"{field}: expected a list, got {_kind(value)}")
        return
    for text in value or ():
        item = _tried(read, text)
        if isinstance(item, dict | WrongForm):
            yield item
        else:
            yield WrongForm(f"{field}: expected objects, got {_kind(item)}")


def _resource_in(group: dict[str, Any], read: Callable[[Any], Attributes]) -> Attributes:
    return read(json_text.whole(group.get("resource")))


def _scope_in(scoped: dict[str, Any]) -> dict[str, Any]:
    return _object(json_text.whole(scoped.get("scope")), "scope")


def _tried(read: Callable[..., Any], *arguments: Any) -> Any:
    """What is read, or why it cannot be, as a WrongForm."""
    try:
        return read(*arguments)
    except WrongForm as error:
        return error
    except ValueError as error:
        return WrongForm(f"expected JSON: {error}")


def _title(raw: Any) -> str:
    if not isinstance(raw, dict):
        return "record"
    return f"{raw.get('name', raw.get('eventName', 'record'))!s:.60} (spanId {raw.get('spanId')!s:.40})"


def _kind(value: Any) -> str:
    return type(value).__name__


def _object(value: Any, field: str) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise WrongForm(f"{field}: expected an object, got {_kind(value)}")
    return value or {}


def _objects(holder: dict[str, Any], field: str) -> list[dict[str, Any]]:
    value = holder.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise WrongForm(f"{field}: expected a list of objects, got {value!r:.60}")
    return value


def _link(link: dict[str, Any]) -> SpanLink:
    return SpanLink(_text(link, "traceId").lower(), _text(link, "spanId").lower())


def _id(raw: dict[str, Any], field: str, form: re.Pattern[str], digits: str) -> str:
    value = raw.get(field)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise WrongForm(f"{field}: expected {digits} hex digits, not all zero, got {value!r:.60}")
    return value.lower()


def _optional_id(raw: dict[str, Any], field: str, form: re.Pattern[str], digits: str) -> str | None:
    """None where there is no id: absent, empty, or all zero."""
    value = raw.get(field)
    return None if value is None or value in ("", "0" * int(digits)) else _id(raw, field, form, digits)


def _text(holder: dict[str, Any], field: str) -> str:
    value = holder.get(field)
    if value is not None and not isinstance(value, str):
        raise WrongForm(f"{field}: expected a string, got {value!r:.60}")
    return value or ""


def _enum(value: Any, names: dict[str, int]) -> int:
    """The number of an enum value; 0 for what is none, as newer senders know names that are not known here."""
    if isinstance(value, str):
        return names.get(value, int(value) if value.isdecimal() and len(value) < 4 else 0)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _time(raw: dict[str, Any], field: str) -> int:
    value = raw.get(field)
    if value is None or value == "":
        return 0
    nanoseconds = _integer(value)
    if nanoseconds is None:
        raise WrongForm(f"{field}: expected Unix nanoseconds as string or number, got {value!r:.60}")
    if problem := time_problem(field, nanoseconds):
        raise WrongForm(problem)
    return nanoseconds


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value) if isinstance(value, str) and _INTEGER.fullmatch(value) else None
