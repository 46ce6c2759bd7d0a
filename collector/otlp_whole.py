"""A protobuf trace request judged as a whole, where each of its spans is as spans are.

The door keeps nothing of a request, so that it need not make five hundred messages of it and look at each. When a
field that may stand once comes again, protobuf merges it into the one before: in a form of the request where a span may
stand once, the ids of all spans are a list, and so are their times. Whatever is unusual is left to the general way,
which tells what it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.clock import LAST_NS, PLAUSIBLE_NS
from collector.otlp_protobuf import SPAN_ID_BYTES, TRACE_ID_BYTES
from collector.weight import LIGHT_BYTES, LIGHT_RECORDS

#: Resources and scopes of a request, and levels of values in values, that are not unusual.
_GROUPS = 256
_LEVELS = 4
_ZERO_TRACE = bytes(TRACE_ID_BYTES)
_ZERO_SPAN = bytes(SPAN_ID_BYTES)
_Field = FieldDescriptorProto
#: What is to be a list, though a span, or a value, has one of it.
_LISTS = {
    "Span": {"trace_id", "span_id", "parent_span_id", "start_time_unix_nano", "end_time_unix_nano"},
    "AnyValue": {"double_value"},
}


def count_spans(body: bytes) -> int | None:
    """How many spans the request has, where all can be taken and each number is finite; None where it must be looked
    at more closely."""
    if len(body) > LIGHT_BYTES:
        return None
    try:
        if not _is_usual(_Merged.FromString(body)):
            return None
        outline = _Outline.FromString(body)
    except DecodeError:
        return None
    # A list of good ids can hide that a span has two and another none.
    return _spans_in(outline) if outline.IsInitialized() else None


def _is_usual(merged: Any) -> bool:
    resource = merged.resource_spans
    scope = resource.scope_spans
    span = scope.spans
    values = (resource.resource, scope.scope, span, span.events, span.links)
    return (
        0 < len(span.trace_id) <= LIGHT_RECORDS
        and _are_ids(span.trace_id[:], TRACE_ID_BYTES, _ZERO_TRACE)
        and len(span.span_id) <= LIGHT_RECORDS
        and _are_ids(span.span_id[:], SPAN_ID_BYTES, _ZERO_SPAN)
        and {SPAN_ID_BYTES, 0}.issuperset(map(len, span.parent_span_id))
        and _are_times(span.start_time_unix_nano[:])
        and _are_times(span.end_time_unix_nano[:])
        # What is cut on the wire, as requests and their groups are, is read less leniently than messages are.
        and not any(len(UnknownFieldSet(message)) for message in (merged, resource, scope))
        and all(_are_finite(holder.attributes.value) for holder in values)
    )


def _are_ids(found: list[bytes], length: int, zero: bytes) -> bool:
    return set(map(len, found)) == {length} and zero not in found


def _are_times(found: list[int]) -> bool:
    return not found or (min(found) >= PLAUSIBLE_NS and max(found) < LAST_NS)


def _are_finite(value: Any, levels: int = _LEVELS) -> bool:
    """Whether all the numbers that were merged into a value are."""
    if not all(map(math.isfinite, value.double_value)):
        return False
    inner = []
    if value.HasField("array_value"):
        inner.append(value.array_value.values)
    if value.HasField("kvlist_value"):
        inner.append(value.kvlist_value.values.value)
    return not inner or (levels > 0 and all(_are_finite(one, levels - 1) for one in inner))


def _spans_in(outline: Any) -> int | None:
    count = 0
    groups = outline.resource_spans
    if len(groups) > _GROUPS:
        return None
    for group in groups:
        if len(group.scope_spans) > _GROUPS:
            return None
        count += sum(len(scope.spans) for scope in group.scope_spans)
    return count if count <= LIGHT_RECORDS else None


def _merged_form() -> type[Message]:
    """The request with the fields that may stand many times standing once, but for those that are to be lists."""
    request = ExportTraceServiceRequest.DESCRIPTOR
    pool = DescriptorPool()
    for file in _with_dependencies(request.file):
        form = FileDescriptorProto()
        file.CopyToProto(form)
        for message in form.message_type:
            _merge_fields(message)
        pool.AddSerializedFile(form.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(request.full_name))


def _with_dependencies(file: FileDescriptor) -> Iterator[FileDescriptor]:
    """The file after those it needs, each once."""
    found: dict[str, FileDescriptor] = {}

    def visit(file: FileDescriptor) -> None:
        for needed in file.dependencies:
            visit(needed)
        found[file.name] = file

    visit(file)
    yield from found.values()


def _merge_fields(message: DescriptorProto) -> None:
    for inner in message.nested_type:
        _merge_fields(inner)
    lists = _LISTS.get(message.name, set())
    for field in message.field:
        field.ClearField("oneof_index")  # of alternatives only the last would be left
        field.ClearField("proto3_optional")
        field.label = _Field.LABEL_REPEATED if field.name in lists else _Field.LABEL_OPTIONAL
    message.ClearField("oneof_decl")


def _outline_form() -> type[Message]:
    """The request with nothing in it but its spans, and of these the ids that none may be without."""
    form = FileDescriptorProto(name="outline.proto", package="outline", syntax="proto2")

    def add(name: str, *fields: FieldDescriptorProto) -> None:
        form.message_type.add(name=name, field=fields)

    def many(name: str, number: int, of: str) -> FieldDescriptorProto:
        kind = _Field.TYPE_MESSAGE
        return _Field(name=name, number=number, label=_Field.LABEL_REPEATED, type=kind, type_name=f".outline.{of}")

    def required(name: str, number: int) -> FieldDescriptorProto:
        return _Field(name=name, number=number, label=_Field.LABEL_REQUIRED, type=_Field.TYPE_BYTES)

    add("Span", required("trace_id", 1), required("span_id", 2))
    add("Scope", many("spans", 2, "Span"))
    add("Group", many("scope_spans", 2, "Scope"))
    add("Request", many("resource_spans", 1, "Group"))
    pool = DescriptorPool()
    pool.AddSerializedFile(form.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("outline.Request"))


_Merged = _merged_form()
_Outline = _outline_form()
