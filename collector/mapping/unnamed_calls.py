"""Calls without ids, as Gemini's and those told in a prompt: what is called stands for the id.

A result answers a call by its tool and its place among those of the turn before. The turn that proposed the call and
the one that quotes its result are different spans, so both give it the same id, made of what both know: the tool, the
arguments as redaction leaves them (names, types and lengths, so that no value can be guessed from it), and the place
among equal calls of the turn.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import msgspec

from collector.mapping.conversation import Message, ModelTurn, Said, ToolCall, ToolResult, from_json
from collector.redact import described, is_described

_PREFIX = "unnamed-"


def with_call_ids(turn: ModelTurn) -> ModelTurn:
    """The turn with ids for the calls that it proposes and those whose results it quotes, where they have none."""
    calls = _named(turn.calls)
    messages = _quoting(turn.messages)
    if calls is turn.calls and messages is turn.messages:
        return turn
    return ModelTurn(messages=messages, tools=turn.tools, calls=calls)


def _named(calls: list[ToolCall]) -> list[ToolCall]:
    if not calls or any(call.call_id for call in calls):
        return calls
    seen: Counter[str] = Counter()
    named = []
    for call in calls:
        what = _what(call)
        named.append(msgspec.structs.replace(call, call_id=f"{_PREFIX}{what}-{seen[what]}"))
        seen[what] += 1
    return named


def _what(call: ToolCall) -> str:
    arguments = from_json(call.arguments)
    shape = {key: _shape(value) for key, value in arguments.items()} if isinstance(arguments, dict) else None
    return hashlib.sha256(msgspec.json.encode([call.name, shape], order="sorted")).hexdigest()[:16]


def _shape(value: object) -> str:
    """As redaction leaves it; archived requests have it so already."""
    return str(value) if is_described(value) else described(value)


def _quoting(messages: Sequence[Said]) -> Sequence[Said]:
    """The messages with ids in the model's last one and in the results after it; the same ones where they need none."""
    last = next((place for place in reversed(range(len(messages))) if messages[place].role == "assistant"), None)
    if last is None or last + 1 == len(messages):
        return messages
    said = messages[last]
    results = [result for message in messages[last + 1 :] for result in message.results]
    if not results or not said.calls:
        return messages
    if any(result.call_id for result in results) or any(call.call_id for call in said.calls):
        return messages
    calls = _named([*said.calls])
    answered = iter(_answering(results, calls))
    after = [
        Message(role=message.role, text=message.text, results=[next(answered) for _ in message.results])
        for message in messages[last + 1 :]
    ]
    return [*messages[:last], Message(role=said.role, text=said.text, calls=calls), *after]


def _answering(results: list[ToolResult], calls: list[ToolCall]) -> list[ToolResult]:
    """The results with the ids of their calls: of their tool, in order; those that name none by their place alone."""
    if not any(result.name for result in results):
        if len(results) != len(calls):
            return results
        pairs = zip(results, calls, strict=True)
        return [msgspec.structs.replace(result, call_id=call.call_id, name=call.name) for result, call in pairs]
    waiting = list(calls)
    answered = []
    for result in results:
        call = next((call for call in waiting if call.name == result.name), None)
        if call is not None:
            waiting.remove(call)
        answered.append(msgspec.structs.replace(result, call_id=call.call_id if call else None))
    return answered
