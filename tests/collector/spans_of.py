"""Spans by hand, and log records of OTLP requests, for the tests of the archive, replay and forgetting."""

from __future__ import annotations

import json
from typing import Any

from collector.segment import Header, Record
from collector.spans import Span, SpanEvent

START = 1_790_000_000_000_000_000


def span(
    name: str = "chat m",
    attributes: dict[str, Any] | None = None,
    *,
    trace: int = 1,
    number: int = 1,
    status: tuple[int, str] = (0, ""),
    events: list[SpanEvent] | None = None,
    resource: dict[str, Any] | None = None,
    scope: str = "scope",
) -> Span:
    return Span(
        trace_id=f"{trace:032x}",
        span_id=f"{number:016x}",
        parent_span_id=None,
        name=name,
        kind=1,
        start_ns=START + number * 1_000_000,
        end_ns=START + number * 1_000_000 + 5_000_000,
        status_code=status[0],
        status_message=status[1],
        attributes=attributes or {},
        events=events or [],
        resource=resource or {},
        scope_name=scope,
        scope_version="",
    )


def tool_span(number: int = 1, tool: str = "search", **more: Any) -> Span:
    """An ``execute_tool`` span; keyword arguments besides those of ``span`` are attributes without their prefix."""
    named = {name: more.pop(name) for name in ("trace", "status", "events", "resource") if name in more}
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    attributes |= {f"gen_ai.tool.call.{name}": value for name, value in more.items() if name != "session"}
    if "session" in more:
        attributes["gen_ai.conversation.id"] = more["session"]
    return span(f"execute_tool {tool}", attributes, number=number, **named)


def chat_span(number: int = 1, query: str = "where is it?", session: str | None = None, **named: Any) -> Span:
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.tool.definitions": json.dumps([{"type": "function", "name": "search", "parameters": {}}]),
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": query}]}]),
        "gen_ai.output.messages": json.dumps(
            [
                {
                    "role": "assistant",
                    "parts": [{"type": "tool_call", "id": f"c{number}", "name": "search", "arguments": {"q": query}}],
                }
            ]
        ),
    }
    if session is not None:
        attributes["gen_ai.conversation.id"] = session
    return span("chat m", attributes, number=number, **named)


def body(*spans: Span) -> bytes:
    """An OTLP/JSON trace request with the spans."""
    return json.dumps(
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": _attributes(found.resource)},
                    "scopeSpans": [{"scope": {"name": found.scope_name}, "spans": [_span(found)]}],
                }
                for found in spans
            ]
        }
    ).encode()


def record(*spans: Span, seq: int = 1, project: str = "p", imported: bool = False) -> Record:
    """The log record of such a request."""
    content = body(*spans)
    header = Header(
        seq=seq, kind="traces", project=project, received_at=START + seq, encoding="json", imported=imported
    )
    return Record(header, content, len(content))


def _span(found: Span) -> dict[str, Any]:
    return {
        "traceId": found.trace_id,
        "spanId": found.span_id,
        "name": found.name,
        "kind": 1,
        "startTimeUnixNano": str(found.start_ns),
        "endTimeUnixNano": str(found.end_ns),
        "status": {"code": found.status_code, "message": found.status_message},
        "attributes": _attributes(found.attributes),
        "events": [
            {"name": event.name, "timeUnixNano": str(event.time_ns), "attributes": _attributes(event.attributes)}
            for event in found.events
        ],
    }


def _attributes(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": _attributes(value)}}
    return {"stringValue": value}
