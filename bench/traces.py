"""Trace requests as an instrumented agent sends them: what the measurements of the way in are made with."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

#: Spans of one user turn: the agent, two model calls with an HTTP request each, two tool calls.
SPANS_A_TURN = 7
_TOOLS = (
    ("get_weather", "Weather of a city, today and the next five days.", ("city", "unit")),
    ("search_flights", "Flights between two airports on a date, cheapest first.", ("origin", "destination", "date")),
    ("convert_currency", "Converts an amount of money with today's rate.", ("amount", "from_currency", "to_currency")),
    ("book_hotel", "Books a room for a number of nights.", ("city", "nights", "guests")),
    ("send_email", "Sends a message to one receiver.", ("to", "subject", "body")),
    ("query_database", "Runs a read-only query on the bookings.", ("statement",)),
    ("calculator", "Evaluates an arithmetic expression.", ("expression",)),
    ("list_calendar", "Events of a day.", ("date",)),
    ("create_ticket", "Opens a support ticket.", ("title", "priority")),
    ("translate_text", "Translates a text.", ("text", "language")),
)
_DEFINITIONS = json.dumps(
    [
        {
            "type": "function",
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {argument: {"type": "string"} for argument in arguments},
                "required": list(arguments),
            },
        }
        for name, description, arguments in _TOOLS
    ]
)
_WORDS = ("weather", "hotel", "flight", "Paris", "price", "tomorrow", "convert", "euro", "booking", "translate", "send")


def requests(count: int, turns_each: int, *, seed: int = 0, start_ns: int = 1_795_990_000_000_000_000) -> list[bytes]:
    """``count`` protobuf bodies of ``turns_each`` turns (7 spans each); every span of its own ids."""
    rng = random.Random(seed)
    bodies = []
    for number in range(count):
        request = ExportTraceServiceRequest()
        resource_spans = request.resource_spans.add()
        resource_spans.resource.attributes.extend(
            _pairs({"service.name": "travel-agent", "service.version": "1.4.2", "telemetry.sdk.language": "python"})
        )
        scope_spans = resource_spans.scope_spans.add()
        scope_spans.scope.name = "agent"
        for turn in range(turns_each):
            _turn(scope_spans, rng, start_ns + (number * turns_each + turn) * 5_000_000)
        bodies.append(request.SerializeToString())
    return bodies


def _turn(scope_spans: ScopeSpans, rng: random.Random, start_ns: int) -> None:
    trace_id, session = rng.randbytes(16), f"session-{rng.randrange(10**9)}"
    query = " ".join(rng.choices(_WORDS, k=9))
    picked = rng.sample(_TOOLS, 2)
    shared = {"gen_ai.conversation.id": session, "gen_ai.agent.name": "travel_agent", "gen_ai.provider.name": "openai"}
    agent = _span(
        scope_spans,
        rng,
        trace_id,
        b"",
        "invoke_agent travel_agent",
        start_ns,
        900_000_000,
        shared
        | {
            "gen_ai.operation.name": "invoke_agent",
        },
    )
    asked = [{"role": "user", "parts": [{"type": "text", "content": query}]}]
    calls = [
        {
            "type": "tool_call",
            "id": f"call_{rng.randbytes(8).hex()}",
            "name": name,
            "arguments": dict.fromkeys(of, "x" * 12),
        }
        for name, _, of in picked
    ]
    called = {"role": "assistant", "parts": calls, "finish_reason": "tool_call"}
    answers = [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": call["id"], "response": "done: " + "y" * 120}]}
        for call in calls
    ]
    said = {"role": "assistant", "parts": [{"type": "text", "content": "Here you are. " * 8}], "finish_reason": "stop"}
    for step, (told, answer) in enumerate(((asked, called), ([*asked, called, *answers], said))):
        at = start_ns + 1_000_000 + step * 400_000_000
        chat = _span(
            scope_spans,
            rng,
            trace_id,
            agent.span_id,
            "chat gpt-4o",
            at,
            200_000_000,
            shared
            | {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.response.model": "gpt-4o-2024-11-20",
                "gen_ai.tool.definitions": _DEFINITIONS,
                "gen_ai.input.messages": json.dumps(told),
                "gen_ai.output.messages": json.dumps([answer]),
                "gen_ai.usage.input_tokens": 900,
                "gen_ai.usage.output_tokens": 60,
                "server.address": "api.openai.com",
            },
        )
        _span(
            scope_spans,
            rng,
            trace_id,
            chat.span_id,
            "POST",
            at + 1_000_000,
            190_000_000,
            {
                "http.request.method": "POST",
                "url.full": "https://api.openai.com/v1/chat/completions",
                "http.response.status_code": 200,
                "server.address": "api.openai.com",
                "server.port": 443,
                "network.protocol.version": "1.1",
            },
        )
    for call in calls:
        failed = rng.random() < 0.1
        tool = _span(
            scope_spans, rng, trace_id, agent.span_id, f"execute_tool {call['name']}", start_ns + 250_000_000,
            rng.randrange(5_000_000, 90_000_000),
            shared | {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": str(call["name"]),
                "gen_ai.tool.call.id": str(call["id"]),
                "gen_ai.tool.call.arguments": json.dumps(call["arguments"]),
                "gen_ai.tool.call.result": "Error: no rooms left" if failed else "done: " + "y" * 120,
            },
        )  # fmt: skip
        if failed:
            tool.status.code = tool.status.STATUS_CODE_ERROR
            tool.attributes.extend(_pairs({"error.type": "ToolError"}))


def _span(
    scope_spans: ScopeSpans, rng: random.Random, trace_id: bytes, parent: bytes, name: str, start_ns: int,
    duration_ns: int, attributes: Mapping[str, object],
) -> Span:  # fmt: skip
    span = scope_spans.spans.add(
        trace_id=trace_id, span_id=rng.randbytes(8), parent_span_id=parent, name=name, kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=start_ns, end_time_unix_nano=start_ns + duration_ns,
    )  # fmt: skip
    span.attributes.extend(_pairs(attributes))
    return span


def _pairs(attributes: Mapping[str, object]) -> list[KeyValue]:
    return [
        KeyValue(
            key=key, value=AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=str(value))
        )
        for key, value in attributes.items()
    ]


def renewed(body: bytes, copies: int) -> list[bytes]:
    """Copies of a body, each with ids of its own (and the same links between them): far cheaper than new requests."""
    request = ExportTraceServiceRequest.FromString(body)
    ids = {
        i
        for resource_spans in request.resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
        for i in (span.trace_id, span.span_id)
    }
    places = [match.start() for match in re.finditer(b"|".join(re.escape(i) for i in sorted(ids)), body, re.DOTALL)]
    found = []
    for copy in range(copies):
        changed = bytearray(body)
        mark = (copy + 1).to_bytes(4, "big")
        for place in places:
            changed[place : place + 4] = bytes(a ^ b for a, b in zip(changed[place : place + 4], mark, strict=True))
        found.append(bytes(changed))
    return found
