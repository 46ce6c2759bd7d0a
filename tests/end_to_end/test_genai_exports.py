"""Exports of the GenAI conventions, Google ADK, AutoGen and FastMCP, posted to a collector and read back as rows.

What each recording holds was counted from its raw spans and records; `test_the_recordings_own_counts` does it again
without any mapper. The scenario (see the README beside the recordings) has 15 selections, 10 calls, 4 failed and 1
hallucinated. What differs, and why:

- google-adk: the exception ends turn 2, which leaves out a call and two turns: 13, 9, 4, 1. With log records alone the
  failed booking is open, as no later prompt quotes it, and `default` has no calls at all. The records of `schema1` have
  neither menus nor sessions: nothing is hallucinated, and only the 8 turns that call are known to be of an agent.
- langgraph, events: the exception ends turn 2, unreadable arguments end turn 6 and are exported nowhere: 11, 7, 3, 1.
  The log records quote results without an id, so that by themselves they tell of no failure.
- autogen: no menus, so that no name is judged and the six turns that only answer are not known as selections: 9, 10, 4.
- fastmcp: no model turns, so calls alone: 10, 4.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from analytics.tables import Tables
from collector.otlp import Encoding
from collector.service import Collector
from pickwise.settings import Settings

ADK = "google-adk-2.13.0"
LANGGRAPH = "langgraph-1.2.24+opentelemetry-instrumentation-langchain-0.62.4/events"
AUTOGEN = "autogen-agentchat-0.7.5"
FASTMCP = "fastmcp-4.2.3+mcp-2.3.0"
BOOKING = ("book_hotel", "exception")
CONVERSION = ("convert_currency", "invalid_arguments")
ROCKET = ("launch_rocket", "not_found")
SUM = ("calculator", "invalid_arguments")
ALL_FOUR = [BOOKING, CONVERSION, ROCKET, SUM]
UNTOLD = [BOOKING, ("convert_currency", "tool_error"), ROCKET, ("calculator", "tool_error")]

#: recording, what is sent of it: selections, without a pick, calls, hallucinated, queries, sessions; the failures.
RECORDINGS = {
    (f"{ADK}/default", "all"): ((13, 5, 9, 1, 0, 13), UNTOLD),
    (f"{ADK}/default", "traces"): ((13, 5, 9, 1, 0, 13), UNTOLD),
    (f"{ADK}/content", "all"): ((13, 5, 9, 1, 13, 13), ALL_FOUR),
    (f"{ADK}/content", "traces"): ((13, 5, 9, 1, 13, 13), ALL_FOUR),
    (f"{ADK}/content", "logs"): ((13, 5, 9, 1, 13, 13), [CONVERSION, ROCKET, SUM]),
    (f"{ADK}/schema1", "all"): ((13, 5, 9, 1, 13, 13), ALL_FOUR),
    (f"{ADK}/schema1", "traces"): ((13, 5, 9, 1, 13, 13), ALL_FOUR),
    (f"{ADK}/schema1", "logs"): ((8, 0, 9, 0, 8, 0), [CONVERSION, ROCKET, SUM]),
    (LANGGRAPH, "all"): ((11, 5, 7, 1, 11, 11), [BOOKING, CONVERSION, ROCKET]),
    (LANGGRAPH, "logs"): ((6, 0, 7, 0, 6, 0), []),
    (AUTOGEN, "all"): ((9, 0, 10, 0, 9, 0), ALL_FOUR),
    (f"{FASTMCP}/native", "all"): ((0, 0, 10, 0, 0, 0), [("book_hotel", "tool_error"), CONVERSION, ROCKET, SUM]),
}
COUNTS = """
select (select count(*) from selections where project = '{0}') selections,
       (select count(*) from selections where project = '{0}' and n_picks = 0) without_pick,
       (select count(*) from calls where project = '{0}') calls,
       (select count(*) from calls where project = '{0}' and name_class in ('unknown', 'near_miss')) hallucinated,
       (select count(query) from selections where project = '{0}') queries,
       (select count(session_id) from selections where project = '{0}') sessions
"""
FAILURES = "select skill_id, error_kind from calls where project = '{0}' and not ok order by started_at"
#: A request: `traces` or `logs`, and its body.
Request = tuple[str, bytes]


def collected(data_dir: Path, by_project: Mapping[str, Sequence[Request]], encoding: Encoding = "protobuf") -> Tables:
    """The tables after a collector took the requests of each project, in this order."""
    collector = Collector(Settings(data_dir=data_dir))
    collector.start()
    try:
        for project, requests in by_project.items():
            for kind, body in requests:
                submit = collector.submit_logs if kind == "logs" else collector.submit_traces
                parsed, written = submit(body, encoding, project)
                assert parsed.rejected == 0
                assert written is None or written.result(10)
        assert collector.refresh()
    finally:
        collector.stop()
    return Tables(data_dir)


def requests_of(folder: Path, kind: str = "all") -> list[Request]:
    named = [("logs" if "-logs" in path.name else "traces", path) for path in sorted(folder.glob("*.bin"))]
    return [(sent, path.read_bytes()) for sent, path in named if kind in ("all", sent)]


def contents(tables: Tables, project: str) -> list[Any]:
    # When and by which request it came, and the digest whose key each installation makes for itself, may differ.
    drop = {"selections": "project, received_at, source_request", "calls": "project, received_at, args_digest"}
    return [
        tables.sql(f"select * exclude ({drop[table]}) from {table} where project = '{project}' order by {key}")
        for table, key in (("selections", "event_id"), ("calls", "call_key"))
    ]


@pytest.fixture(scope="module")
def told(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """All recordings, each a project of its own, named by its place."""
    sent = {str(place): requests_of(shared / "otlp" / name, kind) for place, (name, kind) in enumerate(RECORDINGS)}
    return collected(tmp_path_factory.mktemp("told"), sent)


@pytest.mark.parametrize("recording", RECORDINGS, ids=" ".join)
def test_what_a_recording_tells(told: Tables, recording: tuple[str, str]) -> None:
    project = list(RECORDINGS).index(recording)
    counts, failures = RECORDINGS[recording]
    assert tuple(told.sql(COUNTS.format(project))[0].values()) == counts
    assert [tuple(row.values()) for row in told.sql(FAILURES.format(project))] == failures


@pytest.mark.parametrize(
    "recording", [f"{ADK}/content", f"{ADK}/schema1", LANGGRAPH, AUTOGEN, f"{FASTMCP}/openinference"]
)
def test_order_and_repetition_change_nothing(shared: Path, tmp_path: Path, recording: str) -> None:
    requests = requests_of(shared / "otlp" / recording)
    orders = {"once": requests, "twice": [*requests, *requests], "backwards": requests[::-1]}
    tables = collected(tmp_path, orders)
    assert contents(tables, "once") == contents(tables, "twice") == contents(tables, "backwards")


# --- log records -----------------------------------------------------------------------------------------------------

TRACE = "0af7651916cd43dd8448eb211c80319c"
START = 1_795_982_200_000_000_000
MODEL_SPAN = {"gen_ai.operation.name": "chat", "gen_ai.tool.definitions": '[{"type": "function", "name": "get"}]'}
DETAILS = "gen_ai.client.inference.operation.details"


def value(plain: Any) -> dict[str, Any]:
    if isinstance(plain, str):
        return {"stringValue": plain}
    if isinstance(plain, int):
        return {"intValue": str(plain)}
    if isinstance(plain, list):
        return {"arrayValue": {"values": [value(item) for item in plain]}}
    return {"kvlistValue": {"values": pairs(plain)}}


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value(plain)} for key, plain in attributes.items()]


def model_spans(*starts_ms: int) -> tuple[str, bytes]:
    """Model spans without messages, 10 ms each; the n-th has the span id n, from 1."""
    spans = [
        {
            "traceId": TRACE,
            "spanId": f"{place:016x}",
            "name": "chat",
            "startTimeUnixNano": str(START + start * 1_000_000),
            "endTimeUnixNano": str(START + (start + 10) * 1_000_000),
            "attributes": pairs(MODEL_SPAN),
        }
        for place, start in enumerate(starts_ms, 1)
    ]
    return "traces", json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def record(place: int, at_ms: int, name: str, body: Any = None, **attributes: Any) -> dict[str, Any]:
    return {
        "traceId": TRACE,
        "spanId": f"{place:016x}",
        "timeUnixNano": str(START + at_ms * 1_000_000),
        "eventName": name,
        "attributes": pairs({f"gen_ai.{key}.messages": told for key, told in attributes.items()}),
        **({} if body is None else {"body": value(body)}),
    }


def records(*found: dict[str, Any]) -> tuple[str, bytes]:
    return "logs", json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": list(found)}]}]}).encode()


def reused_id_in_details() -> list[dict[str, Any]]:
    asked = {"role": "user", "parts": [{"type": "text", "content": "q"}]}
    first, second = (
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "0", "name": "get", "arguments": {"a": a}}]}
        for a in (1, 2)
    )
    failed, fine = (
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "0", "response": response}]}
        for response in ({"error": "boom"}, "fine")
    )
    return [
        record(1, 9, DETAILS, input=[asked], output=[first]),
        record(2, 29, DETAILS, input=[asked, first, failed], output=[second]),
        record(3, 49, DETAILS, input=[asked, first, failed, second, fine], output=[]),
    ]


def reused_id_message_by_message() -> list[dict[str, Any]]:
    first, second = (
        {
            "tool_calls": [
                {"id": "0", "type": "function", "function": {"name": "get", "arguments": json.dumps({"a": a})}}
            ]
        }
        for a in (1, 2)
    )
    asked, failed, fine = {"content": "q"}, {"id": "0", "content": '{"error": "boom"}'}, {"id": "0", "content": "fine"}
    told = [
        [("user", asked), (None, first)],
        [("user", asked), ("assistant", first), ("tool", failed), (None, second)],
        [("user", asked), ("assistant", first), ("tool", failed), ("assistant", second), ("tool", fine), (None, {})],
    ]
    return [
        record(
            place,
            place * 20 - 19 + step,
            f"gen_ai.{role}.message" if role else "gen_ai.choice",
            body if role else {"index": 0, "message": body},
        )
        for place, turn in enumerate(told, 1)
        for step, (role, body) in enumerate(turn)
    ]


@pytest.mark.parametrize(
    "quoted", [reused_id_in_details(), reused_id_message_by_message()], ids=["details", "messages"]
)
def test_a_record_quotes_what_came_before_its_turn(tmp_path: Path, quoted: list[dict[str, Any]]) -> None:
    """A record's own time lies within its turn. The answer that it quotes is not of the call that the turn proposes,
    though both have one id."""
    spans = model_spans(0, 20, 40)
    orders: dict[str, Sequence[Request]] = {
        "alone": [records(*quoted)],
        "after": [spans, records(*quoted)],
        "before": [records(*quoted), spans],
        "apart": [records(one) for one in quoted[::-1]] + [spans],
    }
    tables = collected(tmp_path, orders, "json")
    for project in orders:
        calls = tables.sql(f"select ok, args_keys from calls where project = '{project}' order by started_at")
        assert [(call["ok"], call["args_keys"]) for call in calls] == [(False, ["a"]), (True, ["a"])]
    assert contents(tables, "after") == contents(tables, "before") == contents(tables, "apart")
    starts = tables.sql(
        "select epoch_ns(time) as start, query, n_candidates from selections where project = 'after' order by time"
    )
    assert [(row["start"] - START) // 1_000_000 for row in starts] == [0, 20, 40]
    assert {(row["query"], row["n_candidates"]) for row in starts} == {("q", 1)}


def test_of_a_conversation_told_message_by_message_the_newest_question_is_the_query(tmp_path: Path) -> None:
    calls = {"tool_calls": [{"id": "0", "function": {"name": "get", "arguments": "{}"}}]}
    conversation = [
        record(1, 1, "gen_ai.user.message", {"content": "an older and longer question"}),
        record(1, 2, "gen_ai.assistant.message", {"content": "answered"}),
        record(1, 3, "gen_ai.user.message", {"content": "the newest"}),
        record(1, 9, "gen_ai.choice", {"index": 0, "message": calls}),
    ]
    apart = [records(one) for one in conversation]
    tables = collected(
        tmp_path, {"orderly": [model_spans(0), *apart], "backwards": [*apart[::-1], model_spans(0)]}, "json"
    )
    assert [row["query"] for row in tables.sql("select query from selections")] == ["the newest", "the newest"]


# --- MCP inside the agent's own span ---------------------------------------------------------------------------------


def attribute(span: Span, key: str) -> str:
    return next((pair.value.string_value for pair in span.attributes if pair.key == key), "")


def spans_of(body: bytes) -> list[Span]:
    request = ExportTraceServiceRequest.FromString(body)
    return [span for group in request.resource_spans for scope in group.scope_spans for span in scope.spans]


def surrounded(body: bytes) -> bytes:
    """The request with a span `execute_tool` of the model's framework around each client span of an MCP call."""
    request = ExportTraceServiceRequest.FromString(body)
    for group in request.resource_spans:
        for scope in group.scope_spans:
            for span in list(scope.spans):
                if span.kind != Span.SPAN_KIND_CLIENT or not span.name.startswith("tools/call "):
                    continue
                outer = scope.spans.add()
                outer.CopyFrom(span)
                outer.name, outer.kind = span.name.replace("tools/call", "execute_tool"), Span.SPAN_KIND_INTERNAL
                outer.span_id = bytes(byte ^ 0xFF for byte in span.span_id)
                span.parent_span_id = outer.span_id
                del outer.attributes[:]
                outer.attributes.extend(
                    KeyValue(key=key, value=AnyValue(string_value=text))
                    for key, text in (
                        ("gen_ai.operation.name", "execute_tool"),
                        ("gen_ai.tool.name", attribute(span, "gen_ai.tool.name")),
                        ("gen_ai.tool.call.id", f"call_{span.span_id.hex()}"),
                    )
                )
                outer.status.message = ""  # a framework that knows no more than that it failed
    return request.SerializeToString()


def test_the_frameworks_span_around_three_of_mcp_is_the_same_call(shared: Path, tmp_path: Path) -> None:
    """Forty spans are ten calls; the framework's has the call's id, the server's says why it failed."""
    requests = [(kind, surrounded(body)) for kind, body in requests_of(shared / "otlp" / FASTMCP / "native")]
    tables = collected(tmp_path, {"default": requests})
    assert tables.sql("select count(*) n, count(distinct call_id) ids from calls") == [{"n": 10, "ids": 10}]
    assert [tuple(row.values()) for row in tables.sql(FAILURES.format("default"))][1:] == [CONVERSION, ROCKET, SUM]


# --- counted without mappers -----------------------------------------------------------------------------------------


def failed(spans: Sequence[Span]) -> list[str]:
    return [attribute(span, "gen_ai.tool.name") for span in spans if span.status.code == 2]


def parts(span: Span, key: str) -> Iterator[dict[str, Any]]:
    for message in json.loads(attribute(span, key) or "[]"):
        yield from message.get("parts", [])


def test_the_recordings_own_counts(shared: Path) -> None:
    """What the figures above were counted with: raw spans only."""
    spans = [span for _, body in requests_of(shared / "otlp" / ADK / "content", "traces") for span in spans_of(body)]
    turns = [span for span in spans if attribute(span, "gen_ai.operation.name") == "generate_content"]
    tools = [span for span in spans if attribute(span, "gen_ai.operation.name") == "execute_tool"]
    tools = [span for span in tools if attribute(span, "gen_ai.tool.name") != "(merged tools)"]
    called = [part for span in turns for part in parts(span, "gen_ai.output.messages") if part["type"] == "tool_call"]
    menu = {tool["name"] for span in turns for tool in json.loads(attribute(span, "gen_ai.tool.definitions"))}
    assert (len(turns), len(called), len(tools)) == (13, 9, 9)
    assert failed(tools) == [name for name, _ in ALL_FOUR]
    assert [part["name"] for part in called if part["name"] not in menu] == ["launch_rocket"]

    spans = [span for _, body in requests_of(shared / "otlp" / ADK / "schema1", "traces") for span in spans_of(body)]
    requests = [
        json.loads(attribute(span, "gcp.vertex.agent.llm_request")) for span in spans if span.name == "call_llm"
    ]
    assert [len(request["config"]["tools"][0]["function_declarations"]) for request in requests] == [10] * 13

    spans = [span for _, body in requests_of(shared / "otlp" / LANGGRAPH, "traces") for span in spans_of(body)]
    turns = [span for span in spans if attribute(span, "gen_ai.operation.name") == "chat"]
    called = [part for span in turns for part in parts(span, "gen_ai.output.messages") if part["type"] == "tool_call"]
    tools = [span for span in spans if attribute(span, "gen_ai.operation.name") == "execute_tool"]
    assert all(attribute(span, "gen_ai.tool.definitions") for span in turns)
    assert (len(turns), len(called), len(tools), len(failed(tools))) == (11, 7, 6, 2)

    spans = [span for _, body in requests_of(shared / "otlp" / AUTOGEN) for span in spans_of(body)]
    handled = [json.loads(text) for span in spans if (text := attribute(span, "message")).startswith("{")]
    told = [message for whole in handled for message in [whole.get("message"), *inner(whole)] if message]
    events = {message["id"]: message for message in told if message["type"].startswith("ToolCall")}
    kinds = Counter(message["type"] for message in events.values())
    items = [item for message in events.values() for item in message["content"]]
    assert kinds == {"ToolCallRequestEvent": 9, "ToolCallExecutionEvent": 9}
    assert (sum("arguments" in item for item in items), sum(item.get("is_error", False) for item in items)) == (10, 4)

    spans = [span for _, body in requests_of(shared / "otlp" / FASTMCP / "native") for span in spans_of(body)]
    served = [span for span in spans if span.kind == Span.SPAN_KIND_SERVER and span.name.startswith("tools/call ")]
    assert (len(served), failed(served)) == (10, [name for name, _ in ALL_FOUR])


def inner(whole: dict[str, Any]) -> list[dict[str, Any]]:
    response = whole.get("response")
    return response["inner_messages"] if isinstance(response, dict) else []
