"""Log events of coding agents on the command line: Claude Code, Codex and Qwen Code.

A prompt of the user is a selection whose menu is not told; a tool's result is a call of the newest prompt before it, of
its trace where the agent exports spans too, else of its session. Which step of the model proposed a call is not told,
so all calls of a prompt are picks of one selection.
"""

from __future__ import annotations

from typing import Any, TypeVar

from collector.facts import CallFact, Facts, SelectionFact
from collector.mapping import attributes as names
from collector.mapping.conversation import as_text, from_json, text_or_none
from collector.mapping.facts_of import STRATEGY, Origin, cut_call_id, cut_skill_id, selection_id
from collector.mapping.failures import classify
from collector.mapping.rules import LogRule
from collector.spans import Attributes, LogRecord
from pickwise.events import Event, derive_event_id, finite
from pickwise.settings import Settings

_PROMPTS = frozenset({"claude_code.user_prompt", "codex.user_prompt", "qwen-code.user_prompt"})
_RESULTS = frozenset({"claude_code.tool_result", "codex.tool_result", "qwen-code.tool_call"})
_REQUEST = "claude_code.api_request"
#: Where Claude Code's requests of the conversation itself come from; others are for a title, a summary, a subagent.
_CONVERSATION = ("sdk", "repl_main_thread")
_HIDDEN = ("<REDACTED>", "[REDACTED]")
#: What Claude Code calls every tool of an MCP server, and where Codex says its own tools are.
_SOME_MCP_TOOL, _OWN_TOOLS = "mcp_tool", "functions"
_LONGEST_MS = 1e12

_EventT = TypeVar("_EventT", bound=Event)


def _prompt(record: LogRecord, _settings: Settings) -> Facts | None:
    if _event(record) not in _PROMPTS:
        return None
    fact = _selection(record)
    fact.query = told_words(record.attributes.get(names.CLI_PROMPT))
    return Facts(selections=[fact])


def _request(record: LogRecord, _settings: Settings) -> Facts | None:
    """Claude Code's request to the model, which tells what the prompt's event does not: the model."""
    if _event(record) != _REQUEST:
        return None
    if not str(record.attributes.get(names.CLAUDE_SOURCE)).startswith(_CONVERSATION):
        return Facts()
    fact = _selection(record)
    fact.role = "run"
    return Facts(selections=[fact])


def _result(record: LogRecord, _settings: Settings) -> Facts | None:
    if _event(record) not in _RESULTS:
        return None
    attributes = record.attributes
    skill_id = _skill(attributes)
    if skill_id is None:
        return Facts()
    fact = _given(record, CallFact(role="run", skill_id=cut_skill_id(skill_id)))
    fact.call_id = cut_call_id(text_or_none(_first(attributes, names.CLI_CALL_IDS)))
    fact.arguments = from_json(_first(attributes, names.CLI_ARGUMENTS))
    told = fact.call_id or f"{record.time_ns} {as_text(fact.arguments)}"
    fact.event_id = derive_event_id("result", record.trace_id or fact.session_id, skill_id, told)
    fact.latency_ms = _duration(attributes.get(names.CLI_DURATION))
    if record.time_ns and fact.latency_ms:
        fact.time = max(record.time_ns - int(fact.latency_ms * 1e6), 1)
    fact.ok = str(attributes.get(names.CLI_SUCCESS)).lower() == "true"
    if not fact.ok:
        kind, text = str(attributes.get(names.CLI_ERROR_TYPE) or ""), as_text(_first(attributes, names.CLI_ERRORS))
        fact.error_kind, fact.error_message = classify(kind, text) or "tool_error", text or kind or None
    return Facts(calls=[fact])


def told_words(value: Any) -> str | None:
    """The words of the user; None where they are not to be told."""
    words = text_or_none(value)
    return None if words in _HIDDEN else words


def _selection(record: LogRecord) -> SelectionFact:
    """The selection that a prompt is. Where spans are exported too, the interaction's has these ids and is the same."""
    fact = _given(record, SelectionFact(candidates=[], strategy=STRATEGY, ranked=False))
    if record.trace_id and record.span_id:
        fact.span_id = record.span_id
        fact.event_id = selection_id(record.trace_id, record.span_id)
    else:
        prompt = _first(record.attributes, names.CLI_PROMPT_IDS) or record.time_ns
        fact.event_id = derive_event_id("prompt", fact.session_id, prompt)
    return fact


def _given(record: LogRecord, event: _EventT) -> _EventT:
    """The event with what every event of the record shares; not the span, which is that around the calls."""
    attributes, resource = record.attributes, record.resource
    event.time = record.time_ns or None
    event.trace_id = record.trace_id
    return Origin(
        session_id=text_or_none(_first(attributes, names.CLI_SESSIONS)),
        agent=text_or_none(resource.get(names.SERVICE_NAME)),
        model=text_or_none(attributes.get(names.CLI_MODEL)),
        environment=text_or_none(_first(resource, names.CLI_ENVIRONMENTS)),
        release=text_or_none(resource.get(names.SERVICE_VERSION)),
    ).given(event)


def _event(record: LogRecord) -> str:
    """The event's name. Claude Code has the whole of it in the body; Codex's field names a place in its source."""
    name = str(record.attributes.get(names.EVENT_NAME) or record.event_name)
    return str(record.body) if isinstance(record.body, str) and record.body.endswith(f".{name}") else name


def _skill(attributes: Attributes) -> str | None:
    """The tool as the model knows it: of an MCP server ``mcp__SERVER__TOOL``."""
    tool = text_or_none(_first(attributes, names.CLI_TOOLS))
    if tool == _SOME_MCP_TOOL:
        told = from_json(attributes.get(names.CLI_PARAMETERS))
        server, name = (told.get("mcp_server_name"), told.get("mcp_tool_name")) if isinstance(told, dict) else ("", "")
        return f"mcp__{server}__{name}" if server and name else tool
    namespace = text_or_none(attributes.get(names.CLI_NAMESPACE))
    return f"{namespace}__{tool}" if tool and namespace not in (None, _OWN_TOOLS) else tool


def _first(attributes: Attributes, keys: tuple[str, ...]) -> Any:
    return next((attributes[key] for key in keys if attributes.get(key) not in (None, "")), None)


def _duration(value: Any) -> float | None:
    """Milliseconds, as a number or its digits."""
    try:
        milliseconds = finite(float(value))
    except (TypeError, ValueError):
        return None
    return milliseconds if milliseconds is not None and 0 <= milliseconds < _LONGEST_MS else None


LOG_RULES: tuple[LogRule, ...] = (_prompt, _request, _result)
