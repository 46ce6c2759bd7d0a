"""OTLP requests as hypothesis makes them: messages of the protobuf definitions, and bodies that are then spoilt.

Attribute names are those that the mapping reads, and their values often JSON, so that what is accepted is also mapped.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from collector.mapping import attributes
from pickwise.attributes import PREFIX
from pickwise.events import EVENT_TYPES

_TOOLS = ["weather", "srv/mail.send", "wéther", "", "a\0b", "x" * 600]
_OPERATIONS = ["execute_tool", "chat", "invoke_agent", "retrieval", "evaluate", "tools/call", "generate_content"]
_KINDS = ["LLM", "TOOL", "RETRIEVER", "RERANKER", "AGENT", "CHAIN", "tool", "llm"]
NAMES = sorted(value for name, value in vars(attributes).items() if name.isupper() and isinstance(value, str))
_OURS = sorted({PREFIX + field for event in EVENT_TYPES.values() for field in event.__struct_fields__})

#: What messages, tool definitions and arguments look like, and how they go wrong.
_PARTS: list[Any] = [
    {"role": "user", "content": "book a room"},
    {"role": "user", "parts": [{"type": "text", "content": "book a room"}]},
    {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Köln"}}],
    },
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "result": {"isError": True}}]},
    {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "weather", "arguments": '{"a": 1}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "fine"}]},
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}},
    {"name": "weather", "description": None, "inputSchema": {"properties": []}},
    {"skill_id": "weather", "score": 0.5, "propensity": "half"},
    {"isError": True, "content": [{"type": "text", "text": "HTTP 503"}]},
]
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([*_TOOLS, *_OPERATIONS, "c1"])
_JSON = st.recursive(
    _SCALARS | st.sampled_from(_PARTS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "id", "arguments", "parts", "content", "role", "type", "input", "tools"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)
TEXTS = (
    st.sampled_from([*_TOOLS, *_OPERATIONS, *_KINDS, "call", "selection", "feedback", "timeout", "503"])
    | st.text(max_size=12)
    | _JSON.map(json.dumps)
)
KEYS = st.sampled_from(NAMES) | st.sampled_from(_OURS) | st.text(max_size=6)
TIMES = st.sampled_from(
    [1_770_000_000 * 10**9, 1_770_000_001 * 10**9, 0, 1, 1_770_000_000, 2**63 - 1, 2**63, 2**64 - 1]
)
#: Mostly good ones: what is refused is not mapped.
TRACE_IDS = st.sampled_from([b"\1" * 16] * 8 + [b"\2" * 16] * 4 + [bytes(16), b"", b"short"])
SPAN_IDS = st.sampled_from([b"\1" * 8, b"\2" * 8, b"\3" * 8] * 5 + [bytes(8), b"", b"long" * 3])
PARENTS = st.sampled_from([b"", b"\1" * 8, b"\2" * 8] * 4 + [bytes(8), b"x"])

_MESSAGES = json.dumps(_PARTS[:6])
#: Spans as agents send them: what is drawn is laid over one of these.
RECIPES: list[dict[str, str]] = [
    {},
    {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather", "gen_ai.tool.call.id": "c1"},
    {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": _MESSAGES,
        "gen_ai.output.messages": _MESSAGES,
        "gen_ai.tool.definitions": json.dumps(_PARTS[6:8]),
    },
    {"openinference.span.kind": "TOOL", "tool.name": "weather", "input.value": '{"city": 1}', "output.value": "{}"},
    {
        "openinference.span.kind": "LLM",
        "llm.tools.0.tool.json_schema": json.dumps(_PARTS[6]),
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "weather",
    },
    {"openinference.span.kind": "CHAIN", "input.value": _MESSAGES, "output.value": _MESSAGES},
    {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "weather", "ai.toolCall.args": "{}"},
    {"traceloop.span.kind": "tool", "traceloop.entity.name": "weather", "traceloop.entity.input": _MESSAGES},
    {"mcp.method.name": "tools/call", "gen_ai.tool.name": "weather"},
    {"pickwise.event": "selection", "pickwise.query": "a room", "pickwise.candidates": '[{"skill_id": "a"}]'},
    {"pickwise.event": "call", "pickwise.skill_id": "weather", "pickwise.phase": "exec"},
]
_KINDS_OF_VALUE = [field.name for field in AnyValue.DESCRIPTOR.fields if field.message_type is None]


def _scalar(kind: str) -> st.SearchStrategy[AnyValue]:
    values: st.SearchStrategy[Any] = {
        "string_value": TEXTS,
        "bool_value": st.booleans(),
        "double_value": st.floats(),
        "bytes_value": st.binary(max_size=8),
    }.get(kind, st.integers(0, 2**31 - 1) if kind.endswith("index") else st.integers(-(2**63), 2**63 - 1))
    return values.map(lambda value: AnyValue(**{kind: value}))


VALUES = st.recursive(
    st.just(AnyValue())
    | TEXTS.map(lambda text: AnyValue(string_value=text))
    | st.one_of(*map(_scalar, _KINDS_OF_VALUE)),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda values: AnyValue(array_value=ArrayValue(values=values)))
        | st.lists(st.builds(KeyValue, key=KEYS, value=inner), max_size=3).map(
            lambda pairs: AnyValue(kvlist_value=KeyValueList(values=pairs))
        )
    ),
    max_leaves=4,
)


@st.composite
def _attributes(draw: st.DrawFn) -> list[KeyValue]:
    recipe = draw(st.sampled_from(RECIPES))
    pairs = [KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in recipe.items()]
    keys = st.sampled_from(sorted(recipe)) | KEYS if recipe else KEYS
    pairs += draw(st.lists(st.builds(KeyValue, key=keys, value=VALUES), max_size=2))
    return pairs


_EVENTS = st.builds(
    Span.Event,
    name=st.sampled_from(["exception", "gen_ai.evaluation.result", "pickwise.event", "gen_ai.choice", "x"]),
    time_unix_nano=TIMES,
    attributes=_attributes(),
)
SPANS = st.builds(
    Span,
    trace_id=TRACE_IDS,
    span_id=SPAN_IDS,
    parent_span_id=PARENTS,
    name=TEXTS,
    kind=st.integers(0, 7),
    start_time_unix_nano=TIMES,
    end_time_unix_nano=TIMES,
    attributes=_attributes(),
    events=st.lists(_EVENTS, max_size=1),
    links=st.lists(st.builds(Span.Link, trace_id=TRACE_IDS, span_id=SPAN_IDS), max_size=1),
    status=st.builds(Status, code=st.integers(0, 3), message=TEXTS),
)
RECORDS = st.builds(
    LogRecord,
    trace_id=TRACE_IDS,
    span_id=SPAN_IDS,
    time_unix_nano=TIMES,
    observed_time_unix_nano=TIMES,
    event_name=st.sampled_from(["", "gen_ai.evaluation.result", "gen_ai.choice", "gen_ai.user.message", "x"]),
    body=VALUES,
    attributes=_attributes(),
)
_RESOURCES = st.builds(Resource, attributes=st.lists(st.builds(KeyValue, key=KEYS, value=VALUES), max_size=1))
TRACES = st.builds(
    lambda resource, spans, more: ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(resource=resource, scope_spans=[ScopeSpans(spans=spans), ScopeSpans(spans=more)]),
            ResourceSpans(),
        ]
    ),
    _RESOURCES,
    st.lists(SPANS, max_size=2),
    st.lists(SPANS, max_size=1),
)
LOGS = st.builds(
    lambda resource, records: ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(resource=resource, scope_logs=[ScopeLogs(log_records=records)])]
    ),
    _RESOURCES,
    st.lists(RECORDS, max_size=3),
)


def as_json(request: Message) -> dict[str, Any]:
    """The request in OTLP's JSON, by another road than the collector's: ids in hex, enums as numbers."""
    document = json_format.MessageToDict(request, use_integers_for_enums=True)
    _hex_ids(document)
    return document


def _hex_ids(value: Any) -> None:
    if isinstance(value, list):
        for item in value:
            _hex_ids(item)
    elif isinstance(value, dict):
        for key in ("traceId", "spanId", "parentSpanId"):
            if isinstance(value.get(key), str):
                value[key] = base64.b64decode(value[key]).hex()
        for item in value.values():
            _hex_ids(item)


@st.composite
def spoilt(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> bytes:
    """A body with a few bytes changed, left out or put in, or cut short."""
    body = bytearray(draw(bodies))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        noise = draw(
            st.binary(max_size=4) | st.sampled_from([b"\xff", b"NaN", b"1e999", b'"', b"[[", b"}", rb"\ud800"])
        )
        body[at : at + draw(st.integers(0, 4))] = noise
    return bytes(body[: draw(st.integers(0, len(body)))] if not draw(st.integers(0, 5)) else body)
