"""Native events of searches and calls, as the OTLP spans of an agent that has a router and a proxy tool only.

The shape is LiveMCPBench's: ``route`` answers with YAML, ``execute-tool`` is given a server, a tool and its parameters,
and both results come as Python prints an MCP result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from pickwise.events import derive_event_id, parse_time

Event = dict[str, Any]
Message = dict[str, Any]
Attributes = dict[str, Any]

ROUTE, EXECUTE = "route", "execute-tool"
SECOND = 1_000_000_000
#: A step: the model thinks before the event's time, the tool runs from then on.
THOUGHT_NS, SEARCH_MS, CALL_MS = SECOND, 400.0, 1500.0
#: The benchmark keeps so much of a result.
RESULT_CHARS = 10_000
#: Messages of the conversation that a prompt goes on with.
QUOTED = 6
TIMEOUT_TEXT = "Tool call timed out."
DEFINITIONS = [
    {
        "type": "function",
        "function": {
            "name": ROUTE,
            "description": "Find servers and tools. The query must contain a <tool_assistant> tag.",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        },
    },
    {
        "type": "function",
        "function": {
            "name": EXECUTE,
            "description": "Execute a tool of a server.",
            "parameters": {
                "type": "object",
                "properties": {
                    "server_name": {"type": "string"},
                    "tool_name": {"type": "string"},
                    "params": {"type": "object"},
                },
                "required": ["server_name", "tool_name"],
            },
        },
    },
]


class Step:
    """One search or call, as the agent's model made it."""

    def __init__(self, event: Event, number: int, registry: Mapping[str, Event]) -> None:
        self.event = event
        self.start_ns = parse_time(event["time"]) or 0
        self.is_search = event["type"] == "selection"
        if self.is_search:
            self.call_id, self.name, self.duration_ms = f"route_{number}", ROUTE, SEARCH_MS
            self.arguments: Event = {"query": event["query"]}
            self.text, self.is_error = _found(event, registry), False
        else:
            self.call_id, self.name, self.duration_ms = event["call_id"], EXECUTE, CALL_MS
            server, _, tool = event["skill_id"].partition("/")
            values = {key: f"{key}-{number}" for key in event["args_keys"]}
            self.arguments = {"server_name": server, "tool_name": tool, "params": values}
            self.is_error = event.get("error_kind") == "tool_error"
            self.text = f"Error executing tool {tool}" if self.is_error else "done"
        self.is_timeout = event.get("error_kind") == "timeout"

    @property
    def result(self) -> str:
        """The result as the benchmark puts it into the conversation."""
        if self.is_timeout:
            return TIMEOUT_TEXT
        printed = f"meta=None content=[TextContent(type='text', text={self.text!r}, annotations=None)]"
        return f"{printed} isError={self.is_error}"[:RESULT_CHARS]


def _found(event: Event, registry: Mapping[str, Event]) -> str:
    """What the router says: the tools with their descriptions, or that the query had not its form."""
    tools = [_described(candidate["skill_id"], registry) for candidate in event["candidates"]]
    found: Event = {"success": True, "matched_tools": tools}
    if not tools:
        found = {"success": False, "error": "No tool_assistant tag found", "matched_servers": [], "matched_tools": []}
    text: str = yaml.dump(found, Dumper=yaml.CSafeDumper, default_flow_style=False, sort_keys=False, allow_unicode=True)
    return text


def _described(skill_id: str, registry: Mapping[str, Event]) -> Event:
    server, _, tool = skill_id.partition("/")
    entry = registry.get(skill_id, {})
    properties = entry.get("parameters_schema", {}).get("properties", {})
    return {
        "server_name": server,
        "tool_name": tool,
        "tool_description": entry.get("description", ""),
        "inputschema": {
            name: f"({told.get('type')}) {told.get('description', '')}" for name, told in properties.items()
        },
    }


class Dialect:
    """How one convention writes the spans of a step; ``with_runs``: whether its tool spans are exported."""

    def __init__(self, *, with_runs: bool) -> None:
        self.with_runs = with_runs

    def spans(self, events: list[Event], registry: Mapping[str, Event]) -> Iterator[Event]:
        """All spans of one session: a model span before each step, its tool's span, and the final answer."""
        steps = [Step(event, number, registry) for number, event in enumerate(events) if event["type"] != "feedback"]
        messages: list[Message] = [{"role": "user", "text": f"Task {events[0]['session_id']}"}]
        for number, step in enumerate(steps):
            asked: Message = {"role": "assistant", "call": step}
            turn = self.turn([messages[0], *messages[1:][-QUOTED:]], asked, events[0])
            yield self._span(events[0], ("model", number), step.start_ns - THOUGHT_NS, 500.0, turn)
            if self.with_runs:
                yield from self.runs(step, number)
            messages += [asked, {"role": "tool", "result": step}]
        answer: Message = {"role": "assistant", "text": "Done."}
        turn = self.turn([messages[0], *messages[1:][-QUOTED:]], answer, events[0])
        yield self._span(events[0], ("model", len(steps)), steps[-1].start_ns + 2 * SECOND, 500.0, turn)

    def turn(self, messages: list[Message], output: Message, event: Event) -> Attributes:
        raise NotImplementedError

    def runs(self, step: Step, number: int) -> Iterator[Event]:
        raise NotImplementedError

    def _span(
        self,
        event: Event,
        place: tuple[str, int],
        start_ns: int,
        duration_ms: float,
        attributes: Attributes,
        **fields: Any,
    ) -> Event:
        return {
            "traceId": event["trace_id"],
            "spanId": span_id(event, *place),
            "name": place[0],
            "kind": 1,
            "startTimeUnixNano": str(start_ns),
            "endTimeUnixNano": str(start_ns + int(duration_ms * 1_000_000)),
            "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
            **fields,
        }


class GenAI(Dialect):
    """OpenTelemetry's conventions, with the MCP client's span inside the tool's, which tells no arguments."""

    def turn(self, messages: list[Message], output: Message, event: Event) -> Attributes:
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": event["model"],
            "gen_ai.agent.name": event["agent"],
            "gen_ai.conversation.id": event["session_id"],
            "gen_ai.tool.definitions": json.dumps(DEFINITIONS),
            "gen_ai.input.messages": json.dumps([self._message(message) for message in messages]),
            "gen_ai.output.messages": json.dumps([self._message(output)]),
        }

    def _message(self, message: Message) -> Message:
        if "text" in message:
            parts: list[Event] = [{"type": "text", "content": message["text"]}]
        elif "call" in message:
            step = message["call"]
            parts = [{"type": "tool_call", "id": step.call_id, "name": step.name, "arguments": step.arguments}]
        else:
            step = message["result"]
            parts = [{"type": "tool_call_response", "id": step.call_id, "response": step.result}]
        return {"role": message["role"], "parts": parts}

    def runs(self, step: Step, number: int) -> Iterator[Event]:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.conversation.id": step.event["session_id"],
            "gen_ai.tool.name": step.name,
            "gen_ai.tool.call.id": step.call_id,
            "gen_ai.tool.call.arguments": json.dumps(step.arguments),
        }
        failed: Event = {}
        if step.is_timeout:
            attributes["error.type"] = "TimeoutError"
            failed = {"status": {"code": 2, "message": TIMEOUT_TEXT}}
        else:
            content = [{"type": "text", "text": step.text}]
            attributes["gen_ai.tool.call.result"] = json.dumps({"content": content, "isError": step.is_error})
        yield self._span(step.event, ("tool", number), step.start_ns, step.duration_ms, attributes, **failed)
        inner = {"mcp.method.name": "tools/call", "gen_ai.tool.name": step.name}
        parent = {"parentSpanId": span_id(step.event, "tool", number)}
        yield self._span(
            step.event, ("mcp", number), step.start_ns + 1_000_000, step.duration_ms - 2, inner, **failed, **parent
        )


class OpenInference(Dialect):
    """OpenInference's conventions; its tool spans don't know the call's id."""

    def turn(self, messages: list[Message], output: Message, event: Event) -> Attributes:
        attributes = {
            "openinference.span.kind": "LLM",
            "llm.model_name": event["model"],
            "agent.name": event["agent"],
            "session.id": event["session_id"],
        }
        for number, definition in enumerate(DEFINITIONS):
            attributes[f"llm.tools.{number}.tool.json_schema"] = json.dumps(definition)
        for number, message in enumerate(messages):
            attributes |= self._message(f"llm.input_messages.{number}.message", message)
        return attributes | self._message("llm.output_messages.0.message", output)

    def _message(self, prefix: str, message: Message) -> Attributes:
        told = {f"{prefix}.role": message["role"]}
        if "text" in message:
            return told | {f"{prefix}.content": message["text"]}
        if "call" in message:
            step, call = message["call"], f"{prefix}.tool_calls.0.tool_call"
            return told | {
                f"{call}.id": step.call_id,
                f"{call}.function.name": step.name,
                f"{call}.function.arguments": json.dumps(step.arguments),
            }
        step = message["result"]
        return told | {f"{prefix}.tool_call_id": step.call_id, f"{prefix}.content": step.result}

    def runs(self, step: Step, number: int) -> Iterator[Event]:
        attributes = {
            "openinference.span.kind": "TOOL",
            "session.id": step.event["session_id"],
            "tool.name": step.name,
            "input.value": json.dumps(step.arguments),
            "output.value": step.result,
        }
        failed: Event = {"status": {"code": 2, "message": step.text}} if step.is_error else {}
        yield self._span(step.event, ("tool", number), step.start_ns, step.duration_ms, attributes, **failed)


DIALECTS: dict[str, Callable[..., Dialect]] = {"genai": GenAI, "openinference": OpenInference}


def span_id(event: Event, kind: str, number: int) -> str:
    return derive_event_id(event["trace_id"], kind, number)[:16]


def sessions(events: list[Event]) -> list[list[Event]]:
    """The events by session, in their order."""
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(event["session_id"], []).append(event)
    return list(found.values())


def with_latencies(events: list[Event]) -> list[Event]:
    """The native events with the durations that the spans of the same steps have."""
    return [
        event
        | ({"stage_ms": {"total": SEARCH_MS}} if event["type"] == "selection" else {})
        | ({"latency_ms": CALL_MS} if event["type"] == "call" else {})
        for event in events
    ]
