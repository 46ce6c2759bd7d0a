"""Dialogues in OpenAI's message format, as native events.

Each assistant message is one selection over the dialogue's tools, each tool call a call with the result that follows.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import msgspec

from collector.mapping import failures
from collector.mapping.conversation import from_json
from pickwise.events import MAX_CANDIDATES, EventError, derive_event_id, parse_time, plain_reason
from pickwise.settings import Settings

_SOURCE = "openai-messages"
_REWARD = "reward"


class Function(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    arguments: Any = None


class ToolCall(msgspec.Struct):
    function: Function
    id: str | None = None


class ToolFunction(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]


class Tool(msgspec.Struct):
    function: ToolFunction


class Message(msgspec.Struct):
    role: str
    content: Any = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    is_error: bool | None = None
    timestamp: str | None = None

    @property
    def text(self) -> str:
        """The content, or the text parts of one that comes in parts."""
        if isinstance(self.content, list):
            parts = [part.get("text") for part in self.content if isinstance(part, dict)]
            return "\n".join(part for part in parts if isinstance(part, str))
        return self.content if isinstance(self.content, str) else ""


class Dialogue(msgspec.Struct):
    messages: list[Message]
    id: str | None = None
    session_id: str | None = None
    model: str | None = None
    agent: str | None = None
    tools: list[Tool] = []
    metadata: dict[str, Any] = {}


class _Call(msgspec.Struct):
    """A proposed call with the place of its message, its place in it, and its result once that is met."""

    message: int
    ordinal: int
    proposed: ToolCall
    result: Message | None = None


def dialogue_events(raw: Any, settings: Settings) -> list[dict[str, Any]]:
    """The native events of one dialogue, in its order. Raises EventError naming the field and what was expected."""
    try:
        dialogue = msgspec.convert(raw, Dialogue)
    except msgspec.ValidationError as error:
        raise EventError(plain_reason(str(error))) from error
    return _Reader(dialogue, raw, settings).events()


class _Reader:
    """Walks one dialogue."""

    def __init__(self, dialogue: Dialogue, raw: Any, settings: Settings) -> None:
        self._dialogue = dialogue
        self._settings = settings
        content = hashlib.blake2b(msgspec.json.encode(raw), digest_size=16).hexdigest() if not dialogue.id else ""
        self._key = (dialogue.session_id, dialogue.id or content)
        self._session = dialogue.session_id or dialogue.id
        names = list(dict.fromkeys(tool.function.name for tool in dialogue.tools))
        self._menu = [{"skill_id": name} for name in names[:MAX_CANDIDATES]]

    def events(self) -> list[dict[str, Any]]:
        calls = self._calls_with_results()
        events: list[dict[str, Any]] = []
        query: str | None = None
        turn = 0
        for index, message in enumerate(self._dialogue.messages):
            if message.role == "user":
                query, turn = message.text or query, index
            elif message.role == "assistant":
                common = self._common(turn)
                events.append(self._selection(index, message, query, common))
                events += [self._call(call, common) for call in calls if call.message == index]
        return events + self._reward()

    def _calls_with_results(self) -> list[_Call]:
        calls: list[_Call] = []
        for index, message in enumerate(self._dialogue.messages):
            if message.role == "assistant":
                calls += [_Call(index, ordinal, call) for ordinal, call in enumerate(message.tool_calls or [])]
            elif message.role == "tool":
                answered = _answered(calls, message.tool_call_id)
                if answered is not None:
                    answered.result = message
        return calls

    def _common(self, turn: int) -> dict[str, Any]:
        """What all events of one user turn share; the turn is a trace of its own."""
        common = {
            "trace_id": derive_event_id(_SOURCE, *self._key, turn),
            "session_id": self._session,
            "agent": self._dialogue.agent,
            "model": self._dialogue.model,
        }
        return {name: value for name, value in common.items() if value is not None}

    def _selection(self, index: int, message: Message, query: str | None, common: dict[str, Any]) -> dict[str, Any]:
        event = {
            "type": "selection",
            "event_id": self._selection_id(index),
            "turn": index,
            "query": query,
            "candidates": self._menu,
            "ranked": False,
            "strategy": "llm_direct",
            "picks": list(dict.fromkeys(call.function.name for call in message.tool_calls or [])),
            "time": _time(message),
        }
        return common | {name: value for name, value in event.items() if value is not None}

    def _call(self, call: _Call, common: dict[str, Any]) -> dict[str, Any]:
        proposed, result = call.proposed, call.result
        asked = self._dialogue.messages[call.message]
        name = proposed.function.name
        event: dict[str, Any] = {
            "type": "call",
            "event_id": derive_event_id(_SOURCE, *self._key, call.message, "call", call.ordinal),
            "selection_id": self._selection_id(call.message),
            "call_id": self._call_id(call),
            "skill_id": name,
            "arguments": from_json(proposed.function.arguments),
            "time": _time(asked),
            "latency_ms": _latency_ms(asked, result),
        }
        if result is not None:
            event |= self._outcome(name, result)
        return common | {key: value for key, value in event.items() if value is not None}

    def _outcome(self, name: str, result: Message) -> dict[str, Any]:
        failure = failures.of_text(result.text, name, self._settings)
        if failure is None and result.is_error:
            failure = failures.Failure(failures.classify("", result.text) or "tool_error", result.text)
        if failure is None:
            return {"ok": True}
        return {"ok": False, "error_kind": failure.kind, "error_message": failure.message}

    def _call_id(self, call: _Call) -> str:
        """The call's own id, made unique where its message uses it twice."""
        own = call.proposed.id or f"call-{call.ordinal}"
        siblings = self._dialogue.messages[call.message].tool_calls or []
        earlier = sum(1 for sibling in siblings[: call.ordinal] if sibling.id == call.proposed.id)
        return f"{own[:100]}#{earlier}" if earlier and call.proposed.id else own[:128]

    def _reward(self) -> list[dict[str, Any]]:
        """How the benchmark judged the dialogue, where it says so."""
        reward = self._dialogue.metadata.get(_REWARD)
        if self._session is None or not isinstance(reward, int | float):
            return []
        return [
            {
                "type": "feedback",
                "event_id": derive_event_id(_SOURCE, *self._key, _REWARD),
                "session_id": self._session,
                "kind": "rating",
                "value": reward,
                "source": "judge",
                "annotator": _REWARD,
            }
            | self._last_time()
        ]

    def _last_time(self) -> dict[str, Any]:
        times = [time for message in self._dialogue.messages if (time := _time(message))]
        return {"time": times[-1]} if times else {}

    def _selection_id(self, index: int) -> str:
        return derive_event_id(_SOURCE, *self._key, index, "selection")


def _answered(calls: list[_Call], call_id: str | None) -> _Call | None:
    """The call that a result belongs to: the nearest earlier one with its id, of one message the first unanswered.

    A result without an id belongs to the first unanswered call of the nearest message that made one.
    """
    alike = [call for call in calls if call_id is None or call.proposed.id == call_id]
    if not alike:
        return None
    nearest = [call for call in alike if call.message == alike[-1].message]
    return next((call for call in nearest if call.result is None), None)


def _time(message: Message) -> int | None:
    return parse_time(message.timestamp)


def _latency_ms(asked: Message, result: Message | None) -> float | None:
    start, end = _time(asked), _time(result) if result else None
    return (end - start) / 1e6 if start and end and end >= start else None
