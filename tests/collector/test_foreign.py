"""Items that name another project than the key's: told apart by what they say, looked for only where one may be."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.foreign import OwnLogs, OwnTraces, own_logs, own_traces
from collector.otlp import ParsedTraces, parse_logs, parse_traces


def request(*projects: Any, name: str = "span", place: str = "resource") -> bytes:
    found = ExportTraceServiceRequest()
    for index, project in enumerate(projects):
        group = found.resource_spans.add()
        span = group.scope_spans.add().spans.add(name=f"{name} {index}", trace_id=b"\1" * 16, span_id=b"\2" * 8)
        span.events.add(name="pickwise.event")
        places: dict[str, Any] = {"resource": group.resource, "span": span, "event": span.events[0]}
        attributes = places[place].attributes
        if isinstance(project, str):
            attributes.add(key="pickwise.project").value.string_value = project
        elif project is not None:
            attributes.add(key="pickwise.project").value.int_value = project
    return found.SerializeToString()


def own(body: bytes, project: str = "mine") -> ParsedTraces | OwnTraces:
    return own_traces(parse_traces(body, "protobuf"), body, project)


@pytest.mark.parametrize("projects", [(), (None,), ("mine",), ("mine", None, "mine")])
def test_who_names_its_own_project_or_none_is_not_looked_into(projects: tuple[Any, ...]) -> None:
    assert isinstance(own(request(*projects)), ParsedTraces)


@pytest.mark.parametrize("place", ["resource", "span", "event"])
@pytest.mark.parametrize("other", ["theirs", "mine2", "min", "a b", 7])
def test_others_are_refused_by_name(place: str, other: Any) -> None:
    found = own(request("mine", other, None, place=place))
    assert (found.rejected, found.span_count) == (1, 3)
    assert "span 1: project: expected mine, the key's, or none; pickwise.project names another" in found.message
    assert [span.name for span in found.spans()] == ["span 0", "span 2"]


def test_an_empty_name_is_none() -> None:
    assert own(request("", "mine")).rejected == 0


def test_a_few_are_named_and_the_rest_counted() -> None:
    message = own(request(*["theirs"] * 9)).message
    assert message.startswith("span 0, span 1, span 2, span 3, span 4 and 4 more: ")


def test_what_was_refused_before_stays_refused() -> None:
    body = request("theirs") + request("mine").replace(b"\2" * 8, b"\0" * 8)
    found = own(body)
    assert found.rejected == found.span_count == 2
    assert "span_id" in found.message
    assert "another project" in found.message
    assert list(found.spans()) == []


def test_log_records_alike() -> None:
    found = ExportLogsServiceRequest()
    for project in ("mine", "theirs"):
        group = found.resource_logs.add()
        group.resource.attributes.add(key="pickwise.project").value.string_value = project
        group.scope_logs.add().log_records.add(event_name=f"e-{project}")
    body = found.SerializeToString()
    kept = own_logs(parse_logs(body, "protobuf"), body, "mine")
    assert isinstance(kept, OwnLogs)
    assert (kept.rejected, kept.record_count) == (1, 2)
    assert [record.event_name for record in kept.records()] == ["e-mine"]
