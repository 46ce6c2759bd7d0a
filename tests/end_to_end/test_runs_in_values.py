"""Exports with nothing but CHAIN and AGENT spans, whose values hold messages in the form of this or that library."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from analytics.tables import Tables
from pickwise.settings import Settings
from tests.end_to_end.test_agent_runs import collect

START, SECOND = 1_795_000_000_000_000_000, 1_000_000_000
QUERY = "What is the weather in Paris and in Rome?"
MENU = ["get_weather", "send_email"]
#: (id, tool, arguments, result, failed) of the calls of each turn but the last, which says something.
TURNS: list[list[tuple[str, str, dict[str, str], str, bool]]] = [
    [("c1", "get_weather", {"city": "Paris"}, "21", False), ("c2", "get_weather", {"city": "Rome"}, "Error: no", True)],
    [("c3", "launch_rocket", {}, "there is no such tool", True)],
]
Messages = list[Any]
Form = Callable[[], Messages]


def openai() -> Messages:
    messages: Messages = [{"role": "user", "content": QUERY}]
    for calls in TURNS:
        listed = [
            {"id": key, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for key, name, arguments, *_ in calls
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": listed})
        messages += [{"role": "tool", "tool_call_id": key, "content": text} for key, _, _, text, _ in calls]
    return [*messages, {"role": "assistant", "content": "done"}]


def openai_without_ids() -> Messages:
    messages: Messages = [{"role": "user", "content": QUERY}]
    for calls in TURNS:
        listed = [{"function": {"name": name, "arguments": json.dumps(arguments)}} for _, name, arguments, *_ in calls]
        messages.append({"role": "assistant", "content": None, "tool_calls": listed})
        messages += [{"role": "tool", "name": name, "content": text} for _, name, _, text, _ in calls]
    return [*messages, {"role": "assistant", "content": "done"}]


def responses() -> Messages:
    messages: Messages = [{"role": "user", "content": QUERY}]
    for calls in TURNS:
        messages += [
            {"type": "function_call", "call_id": key, "name": name, "arguments": json.dumps(arguments)}
            for key, name, arguments, *_ in calls
        ]
        messages += [{"type": "function_call_output", "call_id": key, "output": text} for key, _, _, text, _ in calls]
    return [*messages, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}]


def anthropic() -> Messages:
    messages: Messages = [{"role": "user", "content": QUERY}]
    for calls in TURNS:
        used = [{"type": "tool_use", "id": key, "name": name, "input": given} for key, name, given, *_ in calls]
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, *used]})
        results = [
            {"type": "tool_result", "tool_use_id": key, "content": text, "is_error": failed}
            for key, _, _, text, failed in calls
        ]
        messages.append({"role": "user", "content": results})
    return [*messages, {"role": "assistant", "content": [{"type": "text", "text": "done"}]}]


def langchain() -> Messages:
    messages: Messages = [{"type": "human", "data": {"content": QUERY, "type": "human"}}]
    for calls in TURNS:
        listed = [{"name": name, "args": given, "id": key, "type": "tool_call"} for key, name, given, *_ in calls]
        messages.append({"type": "ai", "data": {"content": "", "type": "ai", "tool_calls": listed}})
        messages += [
            {
                "type": "tool",
                "data": {
                    "content": text,
                    "type": "tool",
                    "name": name,
                    "tool_call_id": key,
                    "status": "error" if failed else "success",
                },
            }
            for key, name, _, text, failed in calls
        ]
    return [*messages, {"type": "ai", "data": {"content": "done", "type": "ai", "tool_calls": []}}]


def haystack() -> Messages:
    messages: Messages = [{"role": "user", "content": [{"text": QUERY}]}]
    for calls in TURNS:
        listed = [{"tool_call": {"tool_name": name, "arguments": given, "id": key}} for key, name, given, *_ in calls]
        messages.append({"role": "assistant", "content": listed})
        messages += [
            {
                "role": "tool",
                "content": [
                    {
                        "tool_call_result": {
                            "result": text,
                            "origin": {"tool_name": name, "arguments": given, "id": key},
                            "error": failed,
                        }
                    }
                ],
            }
            for key, name, given, text, failed in calls
        ]
    return [*messages, {"role": "assistant", "content": [{"text": "done"}]}]


FORMS: list[Form] = [openai, openai_without_ids, anthropic, langchain, haystack]


class Trace:
    """Spans of one trace, each a second after the one before and within it."""

    def __init__(self, number: int) -> None:
        self._trace_id = number.to_bytes(16, "big")
        self.request = ExportTraceServiceRequest()
        self._spans = self.request.resource_spans.add().scope_spans.add().spans

    def add(self, kind: str, parent: int = 0, **attributes: Any) -> int:
        place = len(self._spans) + 1
        span = self._spans.add(
            trace_id=self._trace_id,
            span_id=place.to_bytes(8, "big"),
            parent_span_id=parent.to_bytes(8, "big") if parent else b"",
            name="run",
            start_time_unix_nano=START + place * SECOND,
            end_time_unix_nano=START + 100 * SECOND - place * SECOND,
        )
        for key, value in ({"openinference.span.kind": kind} | attributes).items():
            text = value if isinstance(value, str) else json.dumps(value)
            span.attributes.add(key=key.replace("_value", ".value")).value.string_value = text
        return place


def told(folder: Path, *traces: Trace) -> Tables:
    settings = Settings(data_dir=folder, flush_interval_s=0.05, error_patterns=["^Error"])
    return collect(folder, [trace.request.SerializeToString() for trace in traces], settings)


def turns(tables: Tables, number: int) -> list[tuple[Any, ...]]:
    found = tables.sql(
        f"select query, n_candidates, picks, closing from selections where trace_id = '{number:032x}' order by time"
    )
    return [tuple(row.values()) for row in found]


def calls(tables: Tables, number: int) -> list[tuple[Any, ...]]:
    found = tables.sql(
        "select skill_id, args_keys, ok, error_kind, name_class from calls"
        f" where trace_id = '{number:032x}' order by skill_id, call_id, ordinal"
    )
    return [tuple(row.values()) for row in found]


EXPECTED_TURNS: list[tuple[Any, ...]] = [
    (QUERY, 2, ["get_weather"], False),
    (QUERY, 2, ["launch_rocket"], False),
    (QUERY, 2, [], True),
]
EXPECTED_CALLS: list[tuple[Any, ...]] = [
    ("get_weather", ["city"], True, None, "known"),
    ("get_weather", ["city"], False, "tool_error", "known"),
    ("launch_rocket", [], False, "not_found", "unknown"),
]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """A trace for each form: the run and the agent in it repeat the same, and each of its nodes a part."""
    traces: list[Trace] = []
    for number, form in enumerate(FORMS, 1):
        trace, messages = Trace(number), form()
        outer = trace.add("CHAIN", output_value={"agent": {"messages": messages}})
        agent = trace.add("AGENT", outer, input_value=QUERY, output_value={"messages": messages, "tools": MENU})
        for place in range(1, len(messages)):
            given, returned = {"messages": messages[:place]}, [messages[place]]
            trace.add("CHAIN", agent, input_value=given, output_value=returned)
        traces.append(trace)
    return told(tmp_path_factory.mktemp("forms"), *traces)


@pytest.mark.parametrize("form", FORMS)
def test_a_run_is_its_turns_whatever_repeats_it(exported: Tables, form: Form) -> None:
    number = FORMS.index(form) + 1
    assert turns(exported, number) == EXPECTED_TURNS
    assert calls(exported, number) == EXPECTED_CALLS


def test_calls_that_stand_beside_each_other_are_one_turn(tmp_path: Path) -> None:
    trace = Trace(1)
    outer = trace.add("CHAIN", output_value=responses())
    trace.add("AGENT", outer, input_value=QUERY, output_value={"output": responses(), "tools": MENU})
    tables = told(tmp_path, trace)
    assert (turns(tables, 1), calls(tables, 1)) == (EXPECTED_TURNS, EXPECTED_CALLS)


def test_tool_spans_without_ids_are_the_calls_of_the_messages(tmp_path: Path) -> None:
    trace = Trace(1)
    agent = trace.add("AGENT", output_value={"messages": openai(), "tools": MENU})
    for _, name, arguments, _, failed in TURNS[0]:
        result = {"output_value": "Error: no"} if failed else {"output_value": "21"}
        trace.add("TOOL", agent, **{"tool.name": name, "input_value": arguments} | result)
    tables = told(tmp_path, trace)
    assert (turns(tables, 1), calls(tables, 1)) == (EXPECTED_TURNS, EXPECTED_CALLS)
    found = tables.sql("select call_id, latency_ms > 0 as ran from calls order by call_id")
    assert [tuple(row.values()) for row in found] == [("c1", True), ("c2", True), ("c3", None)]


def test_steps_give_way_to_the_model_spans_of_their_trace(tmp_path: Path) -> None:
    trace = Trace(1)
    agent = trace.add("AGENT", output_value={"messages": openai(), "tools": MENU})
    prefix = "llm.output_messages.0.message.tool_calls"
    for number, (key, name, arguments, *_) in enumerate(TURNS[0]):
        calls_of = {
            f"{prefix}.{number}.tool_call.id": key,
            f"{prefix}.{number}.tool_call.function.name": name,
            f"{prefix}.{number}.tool_call.function.arguments": json.dumps(arguments),
        }
        trace.add("LLM", agent, **{"llm.tools": [{"name": name} for name in MENU]} | calls_of)
    tables = told(tmp_path, trace)
    # The model spans do not tell of the third call, so what the run says of it stands.
    picks = [["get_weather", "launch_rocket"], ["get_weather"]]
    assert turns(tables, 1) == [(QUERY, 2, picked, False) for picked in picks]
    found = tables.sql("select call_id, ok from calls order by call_id")
    assert [tuple(row.values()) for row in found] == [("c1", True), ("c2", False), ("c3", False)]


def test_routers_and_proxies_in_a_run(tmp_path: Path) -> None:
    found = {"tools": [{"name": "get_weather", "similarity_score": 0.9}, {"name": "get_news", "similarity_score": 0.2}]}
    wanted, proxied = {"tool_description": "weather"}, {"tool_name": "get_weather", "parameters": {"city": "Paris"}}
    messages = [
        {"role": "user", "content": QUERY},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "find_tool", "input": wanted}]},
        {"role": "tool", "tool_call_id": "1", "content": json.dumps(found)},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "2", "name": "call_tool", "input": proxied}]},
        {"role": "tool", "tool_call_id": "2", "content": "21"},
        {"role": "assistant", "content": "done"},
    ]
    trace = Trace(1)
    outer = trace.add("CHAIN", output_value=messages)
    trace.add("AGENT", outer, output_value={"messages": messages, "tools": ["find_tool", "call_tool", "send_email"]})
    tables = told(tmp_path, trace)
    assert turns(tables, 1) == [("weather", 2, ["get_weather"], False), (QUERY, 1, [], True)]
    assert calls(tables, 1) == [("get_weather", ["city"], True, None, "known")]
