"""Whole agent runs that a span tells as one: their turns, calls and results.

Frameworks repeat a run on every span around it. So a turn takes its id from its trace, the words of the user and what
the model did up to then, not from the span that tells of it: repeats fold into one.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from collector.facts import CallFact, Facts, SelectionFact
from collector.mapping import failures
from collector.mapping.conversation import (
    Message,
    ModelTurn,
    ToolCall,
    ToolDefinition,
    ToolResult,
    as_text,
    from_json,
)
from collector.mapping.facts_of import Origin, context_facts, selection_id, step_facts
from collector.mapping.message_forms import ChatMessage
from collector.spans import Span
from pickwise.events import derive_event_id
from pickwise.settings import Settings

#: Sets apart what a run tells of in an order: stored times are cut to it.
_MICROSECOND = 1_000
#: Enough of a message to tell it from another.
_SAID_CHARS = 500


class AgentRun(msgspec.Struct, kw_only=True):
    """What followed the words of a user. ``fresh``: place of the first message that the span itself adds."""

    query: str | None
    messages: list[ChatMessage]
    tools: list[ToolDefinition] = []
    fresh: int = 0
    agent: str | None = None

    @property
    def turns(self) -> list[int]:
        """Places of the model's messages."""
        return [place for place, message in enumerate(self.messages) if message.role == "assistant"]


def run_after_query(messages: list[ChatMessage], *, query: str | None = None, fresh: int = 0) -> AgentRun:
    """The run that follows the last words of the user in a conversation; ``query`` where it holds none."""
    asked = [place for place, message in enumerate(messages) if message.role == "user" and message.text]
    if not asked:
        return AgentRun(query=query, messages=messages, fresh=fresh)
    start = asked[-1] + 1
    return AgentRun(query=messages[asked[-1]].text, messages=messages[start:], fresh=max(fresh - start, 0))


def run_facts(span: Span, origin: Origin, runs: list[AgentRun], settings: Settings) -> Facts:
    """The turns that the runs of a span tell, with their calls and what came of them."""
    facts = Facts()
    place = 0
    for run in runs:
        teller = _Teller(span, msgspec.structs.replace(origin, agent=origin.agent or run.agent), run, settings, place)
        facts.extend(teller.facts())
        place = teller.place
    return facts


def context_of_run(
    span: Span, origin: Origin, query: str | None, tools: list[ToolDefinition], settings: Settings
) -> Facts:
    """What a whole run knows for the turns of its trace; nothing where it knows nothing."""
    if not (query or tools or origin.session_id or origin.agent):
        return Facts()
    messages = [Message(role="user", text=query)]
    facts = context_facts(span, origin, ModelTurn(messages=messages, tools=tools, calls=[]), settings)
    for fact in facts.selections:
        fact.event_id = derive_event_id(span.trace_id, span.span_id, "selection", "run")
    return facts


class _Teller:
    """Walks one run. ``place``: how many turns its span has told so far."""

    def __init__(self, span: Span, origin: Origin, run: AgentRun, settings: Settings, place: int) -> None:
        self.place = place
        self._span, self._origin, self._run, self._settings = span, origin, run, settings
        self._keys = _turn_keys(span.trace_id, run)
        #: The key of the turn that made each call so far.
        self._made: dict[str, str] = {}

    def facts(self) -> Facts:
        facts = Facts()
        before = 0
        for turn in self._keys:
            if turn >= self._run.fresh:
                facts.extend(self._turn(turn, before))
                self.place += 1
            self._note(turn)
            before = turn
        facts.extend(self._unfollowed_results(before))
        facts.calls += self._nameless_answers()
        return facts

    def _note(self, turn: int) -> None:
        """Remember who made the calls. Routers' and proxies' are made elsewhere than in the turn that names them."""
        routes = self._settings.tool_routes
        for call in self._run.messages[turn].calls:
            if call.call_id and routes.of(call.name) is None:
                self._made[call.call_id] = self._keys[turn]

    def _turn(self, turn: int, before: int) -> Facts:
        """The facts of one turn, as a model span of its own would tell them, with the results its prompt quotes."""
        message = self._run.messages[turn]
        own = msgspec.structs.replace(self._span, span_id=self._keys[turn], start_ns=self._time(turn))
        told = msgspec.structs.replace(self._origin, model=message.model or self._origin.model)
        asked = ModelTurn(messages=self._prompt(before, turn), tools=self._run.tools, calls=message.calls)
        facts = step_facts(own, told, asked, self._settings)
        for selection in facts.selections:
            if isinstance(selection, SelectionFact) and selection.role == "turn":
                selection.role = "step"
        return self._of_span(facts)

    def _unfollowed_results(self, last: int) -> Facts:
        """The results after the model's last message, where the span adds them."""
        end = len(self._run.messages)
        if end <= max(last + 1 if self._keys else 0, self._run.fresh):
            return Facts()
        key = derive_event_id(self._keys.get(last, self._span.span_id), "end")
        own = msgspec.structs.replace(self._span, span_id=key, start_ns=self._span.end_ns or self._span.start_ns)
        asked = ModelTurn(messages=self._prompt(last, end), tools=[], calls=[])
        return self._of_span(step_facts(own, self._origin, asked, self._settings))

    def _prompt(self, before: int, turn: int) -> list[Message]:
        """What the model was told since its last message. What came before, the turn before tells."""
        return [Message(role="user", text=self._run.query), *self._run.messages[before:turn]]

    def _of_span(self, facts: Facts) -> Facts:
        """The facts with the span that tells of them; answers with the turn that made their call."""
        for selection in facts.selections:
            selection.span_id = self._span.span_id
        for fact in facts.calls:
            fact.span_id = self._span.span_id
            key = self._made.get(fact.call_id or "") if fact.role == "answer" else None
            if key is not None:
                fact.selection_id = selection_id(self._span.trace_id, key)
        return facts

    def _time(self, turn: int) -> int:
        """Unix ns. A run tells the order of its turns, not their times: they are a microsecond apart.

        Its last words end it, after all that ran in it.
        """
        if not self._span.start_ns:
            return 0
        time = self._span.start_ns + self.place * _MICROSECOND
        ends = turn == len(self._run.messages) - 1 and not self._run.messages[turn].calls
        return max(time, self._span.end_ns) if ends else time

    def _nameless_answers(self) -> Iterator[CallFact]:
        """Results of calls that have no id: they answer the calls of their turn by name, else in order."""
        waiting: list[tuple[str, int, ToolCall]] = []
        for place, message in enumerate(self._run.messages):
            if place in self._keys:
                waiting = [(self._keys[place], n, call) for n, call in enumerate(message.calls) if call.call_id is None]
            for result in (result for result in message.results if result.call_id is None):
                meant = next((told for told in waiting if result.name in (None, told[2].name)), None)
                if meant is None:
                    continue
                waiting.remove(meant)
                if place >= self._run.fresh:
                    yield self._nameless_answer(*meant, result)

    def _nameless_answer(self, key: str, ordinal: int, call: ToolCall, result: ToolResult) -> CallFact:
        failure = failures.of_quoted(result.text, result.error, call.name, self._settings)
        fact = CallFact(
            role="answer",
            event_id=derive_event_id(self._span.trace_id, key, "call", "result", ordinal),
            time=self._span.end_ns or self._span.start_ns or None,
            trace_id=self._span.trace_id,
            span_id=self._span.span_id,
            ordinal=ordinal,
            selection_id=selection_id(self._span.trace_id, key),
            skill_id=call.name,
            ok=failure is None,
            error_kind=failure.kind if failure else None,
            error_message=failure.message if failure else None,
        )
        return self._origin.given(fact)


def _turn_keys(trace_id: str, run: AgentRun) -> dict[int, str]:
    """What stands for a span id in the ids of each turn's facts, by its place."""
    keys: dict[int, str] = {}
    key = derive_event_id(trace_id, "run", (run.query or "").strip())
    for place in run.turns:
        key = derive_event_id(key, "turn", _signature(run.messages[place]))
        keys[place] = key
    return keys


def _signature(message: ChatMessage) -> str:
    """What the model did in a message, or, where it did nothing, what it said."""
    if not message.calls:
        return (message.text or "")[:_SAID_CHARS].strip()
    return "\x1e".join(f"{call.name}\x1d{call.call_id or as_text(from_json(call.arguments))}" for call in message.calls)
