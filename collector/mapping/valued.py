"""Dialects that say of a span what kind it is, and tell all else in one input and one output: Langfuse and MLflow.

What those values look like is up to what was traced: most often the request to a model's provider and its response.
"""

from __future__ import annotations

from typing import Any

import msgspec

from collector.facts import Facts
from collector.mapping import attributes as names
from collector.mapping.agent_runs import context_of_run
from collector.mapping.conversation import ModelTurn, from_json, text_or_none
from collector.mapping.facts_of import Origin, ToolRun, run_fact, turn_facts
from collector.mapping.langchain import settle, tool_message
from collector.mapping.message_forms import ChatMessage
from collector.mapping.messages_in_values import conversations, definitions, menu, query_in
from collector.mapping.origin import origin_of
from collector.mapping.rules import Rule, marked
from collector.spans import Attributes, Span
from pickwise.settings import Settings

_MODELS = frozenset({"generation", "llm", "chat_model"})
_AGENTS = frozenset({"agent", "chain"})


class _Names(msgspec.Struct, frozen=True):
    """Where a dialect has the kind of a span, its input, its output, its model, and its menu apart from the input."""

    kind: str
    given: str
    returned: str
    model: str
    tools: str | None = None


_DIALECTS = (
    _Names(names.LF_KIND, names.LF_INPUT, names.LF_OUTPUT, names.LF_MODEL),
    _Names(names.ML_KIND, names.ML_INPUTS, names.ML_OUTPUTS, names.ML_MODEL, names.ML_TOOLS),
)


@marked(*(dialect.kind for dialect in _DIALECTS))
def _valued_span(span: Span, settings: Settings) -> Facts | None:
    attributes = span.attributes
    dialect = next((dialect for dialect in _DIALECTS if dialect.kind in attributes), None)
    if dialect is None:
        return None
    kind = (_text(attributes, dialect.kind) or "").lower()
    origin = origin_of(span)
    origin.model = origin.model or _text(attributes, dialect.model)
    if kind == "tool":
        return _run(span, origin, dialect, settings)
    if kind in _MODELS:
        return turn_facts(span, origin, _turn(attributes, dialect), settings)
    if kind not in _AGENTS and span.parent_span_id is not None:
        return None
    if kind == "agent":
        origin.agent = origin.agent or span.name or None
    return context_of_run(span, origin, _query(attributes.get(dialect.given)), [], settings)


def _turn(attributes: Attributes, dialect: _Names) -> ModelTurn:
    given, returned = attributes.get(dialect.given), attributes.get(dialect.returned)
    apart = definitions(attributes.get(dialect.tools)) if dialect.tools else []
    messages = _messages(given)
    query = None if messages else query_in(given)
    return ModelTurn(
        messages=messages or ([ChatMessage(role="user", text=query)] if query else []),
        tools=apart or menu(from_json(given)),
        calls=[call for message in _messages(returned) for call in message.calls],
    )


def _messages(value: Any) -> list[ChatMessage]:
    """The messages of the first conversation in a value; of several answers of a model, the first."""
    found = conversations(value)
    return found[0].messages if found else []


def _query(value: Any) -> str | None:
    asked = [message.text for message in _messages(value) if message.role == "user" and message.text]
    return asked[-1] if asked else query_in(value)


def _run(span: Span, origin: Origin, dialect: _Names, settings: Settings) -> Facts:
    returned = span.attributes.get(dialect.returned)
    quoted = tool_message(from_json(returned))
    run = ToolRun(
        skill_id=span.name,
        call_id=quoted.call_id if quoted else None,
        arguments=span.attributes.get(dialect.given),
        result=quoted.text if quoted else returned,
    )
    fact = run_fact(span, origin, run, settings)
    settle(fact, span, quoted, settings)
    return Facts(calls=[fact])


def _text(attributes: Attributes, name: str) -> str | None:
    """A text, which MLflow writes as JSON."""
    return text_or_none(from_json(attributes.get(name)))


RULES: tuple[Rule, ...] = (_valued_span,)
