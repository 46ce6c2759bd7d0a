"""Calls without ids: the turn that proposes one and the turn that quotes its result name it alike."""

from __future__ import annotations

import json
from typing import Any

from collector.facts import CallFact
from tests.collector.mapping.spans import mapped

ASKED = {"role": "user", "parts": [{"type": "text", "content": "hi"}]}


def call(name: str, /, call_id: str | None = None, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "name": name, "arguments": arguments, "id": call_id}


def result(text: str, name: str | None = None) -> dict[str, Any]:
    return {"type": "tool_call_response", "response": text, "name": name}


def proposed(*calls: dict[str, Any]) -> list[CallFact]:
    answer = [{"role": "assistant", "parts": [*calls]}]
    return turn([ASKED], answer, "propose")


def quoted(calls: list[dict[str, Any]], results: list[dict[str, Any]]) -> list[CallFact]:
    sent = [ASKED, {"role": "assistant", "parts": calls}, {"role": "user", "parts": results}]
    return turn(sent, [{"role": "assistant", "parts": [{"type": "text", "content": "bye"}]}], "answer")


def turn(sent: list[Any], returned: list[Any], role: str) -> list[CallFact]:
    facts = mapped(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(sent),
            "gen_ai.output.messages": json.dumps(returned),
        }
    )
    return [fact for fact in facts.calls if fact.role == role]


def test_results_answer_calls_by_their_place() -> None:
    calls = [call("get", city="Rome"), call("get", city="Oslo"), call("get", city="Bern")]
    made, answers = proposed(*calls), quoted(calls, [result("1"), result('{"error": "down"}'), result("3")])
    assert [fact.call_id for fact in made] == [fact.call_id for fact in answers]
    assert len({fact.call_id for fact in made}) == 3
    assert [(fact.skill_id, fact.ok) for fact in answers] == [("get", True), ("get", False), ("get", True)]


def test_results_that_name_their_tool_answer_its_calls() -> None:
    calls = [call("get", city="Rome"), call("put", text="x")]
    get, put = proposed(*calls)
    answers = quoted(calls, [result("done", "put"), result("what?", "other"), result("sunny", "get")])
    assert [fact.call_id for fact in answers] == [put.call_id, get.call_id]


def test_results_that_cannot_be_told_apart_answer_nothing() -> None:
    assert quoted([call("get"), call("put")], [result("1")]) == []


def test_ids_that_are_there_stay() -> None:
    assert [fact.call_id for fact in proposed(call("get", "a"), call("put"))] == ["a", None]


def test_no_value_can_be_guessed_from_an_id() -> None:
    (one,), (other,), (archived,) = (
        proposed(call("get", pin="1234")),
        proposed(call("get", pin="9876")),
        proposed(call("get", pin="string(4)")),
    )
    assert one.call_id == other.call_id == archived.call_id
    assert one.call_id != proposed(call("get", pin="12345"))[0].call_id
