"""What the archive keeps of a request gives the same rows again, and better ones under a better mapping."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from collector import mapping
from collector.archived import ArchivedRequest
from collector.archivist import Archivist
from collector.decode import decode_facts
from collector.facts import CallFact, Facts
from collector.item_shapes import ItemShapes, Kind, kind_of
from collector.projects import project_of
from collector.read_attributes import layout_of
from collector.redact import Redactor
from collector.row_types import Row
from collector.rows import Ledger, to_rows
from collector.segment import Header, Record
from collector.spans import Span
from pickwise.settings import Settings
from tests.collector.spans_of import chat_span, record, span, tool_span
from tests.end_to_end.recordings import names, requests_of

SETTINGS = Settings()


def redactor(settings: Settings = SETTINGS) -> Redactor:
    return Redactor(settings, b"k" * 32)


def through_the_archive(
    given: Record, settings: Settings = SETTINGS, archivist: Archivist | None = None
) -> tuple[list[Row], ArchivedRequest | None, Archivist]:
    """The rows of a record as they come first, the request as the archive holds it, and who made it."""
    ledger = Ledger()
    first: list[Row] = []
    by_project, seen = decode_facts(given, settings)
    for project, facts in by_project.items():
        rows = to_rows(
            project,
            facts,
            received_at=given.header.received_at,
            source_request="r",
            redactor=redactor(settings),
            ledger=ledger,
        )
        first += [row for table in rows.values() for row in table]
    archivist = archivist or Archivist(settings, redactor(settings))
    request = archivist.archived(given, seen, ledger.made)
    if request is not None:
        request = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=ArchivedRequest)
    return first, request, archivist


def rows_again(request: ArchivedRequest, archivist: Archivist) -> list[Row]:
    ledger = Ledger()
    facts, lost = archivist.facts(request, ledger)
    found: list[Row] = []
    for project in facts:
        rows = archivist.rows(request, project, facts[project], ledger, "r")
        found += [row for table in rows.values() for row in table]
    receipt = {"source_request": "r", "mapping_version": mapping.MAPPING_VERSION}
    for project, tables in lost.items():
        receipt["project"] = project
        found += [row | receipt | {"received_at": request.received_at // 1000} for t in tables.values() for row in t]
    return found


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["project"], row["event_id"], row["fact"]))


def calls_of(rows: list[Row]) -> list[Row]:
    return [row for row in rows if "skill_id" in row]


def the_call(given: Span, settings: Settings = SETTINGS) -> tuple[Row, ArchivedRequest, Archivist]:
    first, request, archivist = through_the_archive(record(given), settings)
    assert request is not None
    assert ordered(rows_again(request, archivist)) == ordered(first)
    (call,) = calls_of(first)
    return call, request, archivist


def recorded(shared: Path) -> list[tuple[str, Record]]:
    found = []
    requests = ((name, request) for name in names(shared) for request in requests_of(shared, name))
    for seq, (name, request) in enumerate(requests, start=1):
        kind: Literal["logs", "traces"] = "logs" if request.signal == "logs" else "traces"
        received_at = 1_790_000_000_000_000_000 + seq
        header = Header(seq=seq, kind=kind, project="", received_at=received_at, encoding=request.encoding)
        found.append((name, Record(header, request.body, len(request.body))))
    return found


def test_every_recorded_request_gives_the_very_same_rows_again(shared: Path) -> None:
    archivist = Archivist(SETTINGS, redactor())
    rows = requests = 0
    for name, given in recorded(shared):
        first, request, _ = through_the_archive(given, archivist=archivist)
        if request is None:
            assert not first, name
            continue
        assert ordered(rows_again(request, archivist)) == ordered(first), name
        rows += len(first)
        requests += 1
    assert rows > 1_000
    assert requests > 150


@pytest.mark.parametrize("settings", [{"store_queries": "hash"}, {"allow_arguments": ["city"]}], ids=str)
def test_the_same_under_other_settings_of_redaction(shared: Path, settings: dict[str, Any]) -> None:
    changed = Settings(**settings)
    for name, given in recorded(shared)[::9]:
        first, request, archivist = through_the_archive(given, changed)
        if request is not None:
            assert ordered(rows_again(request, archivist)) == ordered(first), name


def test_a_failure_read_in_a_result_outlives_the_result() -> None:
    patterns = Settings(error_patterns=[{"pattern": "^Sorry", "error_kind": "rate_limited"}])
    call, request, _ = the_call(tool_span(result="Sorry, come back later, Mr Planted"), patterns)
    assert (call["ok"], call["error_kind"]) == (False, "rate_limited")
    kept = request.items[0].span
    assert kept is not None
    assert kept.attributes["gen_ai.tool.call.result"] == "string(34)"
    # The pattern is gone, and so is the result: what it had said then still holds.
    again = rows_again(request, Archivist(SETTINGS, redactor()))
    assert [(row["ok"], row["error_kind"]) for row in calls_of(again)] == [(False, "rate_limited")]


def test_an_mcp_result_with_is_error_fails_again() -> None:
    call, _, _ = the_call(tool_span(result=json.dumps({"isError": True, "content": [{"type": "text", "text": "no"}]})))
    assert call["ok"] is False


def test_argument_values_are_gone_and_what_was_made_of_them_stays() -> None:
    call, request, _ = the_call(tool_span(arguments=json.dumps({"city": "Planted", "n": 3}), id="c"))
    assert call["args_digest"]
    assert call["args_keys"] == ["city", "n"]
    kept = request.items[0].span
    assert kept is not None
    assert kept.attributes["gen_ai.tool.call.arguments"] == '{"city":"string(7)","n":"number"}'


@pytest.mark.parametrize("arguments", ["{}", "[]", '""', "null", "plain", '{"a": {}}'])
def test_arguments_that_hide_nothing_come_out_the_same(arguments: str) -> None:
    call, request, archivist = the_call(tool_span(arguments=arguments, id="c"))
    (again,) = calls_of(rows_again(request, archivist))
    assert again == call


def test_a_mended_mapping_is_used_where_the_redacted_span_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = tool_span(status=(2, "quota used up"), arguments='{"q": "secret words"}')
    call, request, archivist = the_call(failed)
    assert call["error_kind"] == "tool_error"
    real = mapping.map_span

    def mended(given: Span, settings: Settings) -> Facts | None:
        facts = real(given, settings)
        for found in facts.calls if facts else []:
            found.skill_id = f"server/{found.skill_id}"
            if "quota" in given.status_message:
                found.error_kind = "rate_limited"
        return facts

    monkeypatch.setattr(mapping, "map_span", mended)
    (again,) = calls_of(rows_again(request, archivist))
    assert (again["skill_id"], again["error_kind"]) == ("server/search", "rate_limited")
    for column in ("arguments", "args_keys", "args_digest", "error_message", "event_id", "ok", "call_id"):
        assert again[column] == call[column]
    assert again["fact"] != call["fact"]


def test_an_event_that_only_the_mended_mapping_sees_claims_nothing_it_cannot_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = span("my_tool_run", {"openinference.span.kind": "AGENT", "input.value": '{"city": "Planted"}'})
    first, request, archivist = through_the_archive(record(given))
    assert not calls_of(first)
    assert request is not None

    def mended(found: Span, _settings: Settings) -> Facts | None:
        return Facts(
            calls=[
                CallFact(event_id="new", skill_id="tool", arguments=found.attributes["input.value"], time=1),
                CallFact(event_id="nonsense", skill_id="string(12)", time=1),
            ]
        )

    monkeypatch.setattr(mapping, "map_span", mended)
    (again,) = calls_of(rows_again(request, archivist))
    assert (again["event_id"], again["args_keys"], again["args_digest"]) == ("new", ["city"], None)
    assert again["arguments"] == '{"city":"string(7)"}'


def test_events_that_hang_on_a_removed_text_are_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    real = mapping.map_span

    def by_result(given: Span, settings: Settings) -> Facts | None:
        facts = real(given, settings)
        for found in facts.calls if facts else []:
            found.event_id = f"id of {given.attributes['gen_ai.tool.call.result']}"
        return facts

    monkeypatch.setattr(mapping, "map_span", by_result)
    given = record(tool_span(result="x" * 20))
    first, request, archivist = through_the_archive(given)
    assert request is not None
    assert {found.state for found in request.items[0].carried} == {"lost", "spurious"}
    assert ordered(rows_again(request, archivist)) == ordered(first)


def test_what_no_mapper_could_know_is_not_kept() -> None:
    http = span("POST", {"http.response.status_code": 500, "error.type": "500", "url.full": "https://x/?token=t"})
    first, request, _ = through_the_archive(record(http))
    assert (first, request) == ([], None)
    _, both, _ = through_the_archive(record(http, chat_span(number=2)))
    assert both is not None
    assert [item.span.name for item in both.items if item.span] == ["chat m"]


def test_an_unknown_span_with_attributes_of_a_mapper_is_kept_for_a_later_mapping() -> None:
    unknown = span("step", {"gen_ai.operation.name": "plan", "gen_ai.tool.name": "search"})
    first, request, _ = through_the_archive(record(unknown))
    assert not first
    assert request is not None
    assert request.items[0].span is not None
    assert request.items[0].span.attributes == unknown.attributes


def test_the_project_is_that_of_the_request_then_of_the_resource() -> None:
    named = span(resource={"pickwise.project": "mine"})
    assert [project_of(named, "theirs"), project_of(named, ""), project_of(span(), "")] == ["theirs", "mine", "default"]
    assert project_of(span(resource={"pickwise.project": "../no"}), "") == "default"
    given = record(tool_span(resource={"pickwise.project": "mine"}), project="")
    first, request, archivist = through_the_archive(given)
    assert request is not None
    assert [row["project"] for row in rows_again(request, archivist)] == [row["project"] for row in first] == ["mine"]


def test_what_was_offered_is_told_again_with_its_secrets_masked() -> None:
    offered = [{"type": "function", "name": "search", "description": "ask bob@example.com", "parameters": {}}]
    given = chat_span()
    given.attributes["gen_ai.tool.definitions"] = json.dumps(offered)
    _, request, archivist = through_the_archive(record(given))
    assert request is not None
    facts, _ = archivist.facts(request, Ledger())
    assert [(skill.skill_id, skill.description) for skill in facts["p"].offered_skills] == [("search", "ask [email]")]


def test_familiar_spans_are_trusted_and_still_come_out_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    archivist = Archivist(SETTINGS, redactor())
    mapped = 0
    real = archivist._mapped

    def counted(*given: Any) -> Any:
        nonlocal mapped
        mapped += 1
        return real(*given)

    monkeypatch.setattr(archivist, "_mapped", counted)
    kept = []
    for number in range(1, 101):
        query = f"mail planted{number}@example.com about card 4111 1111 1111 1111"
        spans = [chat_span(number, query), tool_span(number + 1_000, arguments=json.dumps({"q": query}))]
        first, request, _ = through_the_archive(record(*spans, seq=number), archivist=archivist)
        assert request is not None
        kept.append((first, request))
    assert mapped < 30
    for first, request in kept:
        assert ordered(rows_again(request, archivist)) == ordered(first)


def kind(given: Span, facts: Facts | None = None) -> Kind | None:
    return kind_of(given, layout_of(given.attributes), facts)


def test_a_kind_is_trusted_until_a_surprise() -> None:
    shape = ItemShapes().of(("a kind",))
    assert [shape.needs_look() for _ in range(8)] == [True] * 8
    assert 2 <= sum(shape.needs_look() for _ in range(800)) <= 4
    shape.is_trusted = False
    assert all(shape.needs_look() for _ in range(20))


def test_failures_are_of_one_kind_if_they_failed_alike() -> None:
    def failed(**call: Any) -> Facts:
        return Facts(calls=[CallFact(skill_id="s", ok=False, **call)])

    given = tool_span()
    kinds = {kind(given), kind(chat_span()), kind(given, failed()), kind(given, failed(error_kind="timeout"))}
    assert len(kinds) == 4
    assert None not in kinds
    assert kind(given, failed()) == kind(given, failed(latency_ms=7.0))
    assert kind(msgspec.structs.replace(given, status_message="no rooms"), failed()) not in kinds
    assert kind(given, failed(role="answer")) is None
    assert kind(given, Facts(is_routed=True)) is None
    assert kind(msgspec.structs.replace(given, status_message="x" * 1_000), failed()) is None


_RUNS = st.fixed_dictionaries(
    {
        "status": st.sampled_from([(0, ""), (2, ""), (2, "it timed out"), (2, "no rooms for bob@example.com")]),
        "result": st.sampled_from(
            [
                "done",
                "Error: no rooms left",
                "Error: it timed out",
                '{"isError": true, "content": []}',
                '{"error": "x"}',
            ]
        ),
    },
    optional={
        "arguments": st.sampled_from(['{"q": "timed out"}', '{"q": 1}', "no json"]),
        "error.type": st.sampled_from(["TimeoutError", "ToolError"]),
    },
)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(st.lists(_RUNS, min_size=1, max_size=3), st.lists(st.integers(0, 2), min_size=40, max_size=60))
def test_familiar_failures_come_out_the_same(runs: list[dict[str, Any]], order: list[int]) -> None:
    archivist = Archivist(SETTINGS, redactor())
    for number, which in enumerate(order, 1):
        told = dict(runs[which % len(runs)])
        error_type = told.pop("error.type", None)
        given_span = tool_span(number, trace=number, **told)
        if error_type is not None:
            given_span.attributes["error.type"] = error_type
        first, request, _ = through_the_archive(record(given_span, seq=number), archivist=archivist)
        assert request is not None
        assert ordered(rows_again(request, archivist)) == ordered(first)


def test_familiar_failures_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    archivist = Archivist(SETTINGS, redactor())
    looks = 0
    real = archivist._looked_at

    def counted(*given: Any) -> Any:
        nonlocal looks
        looks += 1
        return real(*given)

    monkeypatch.setattr(archivist, "_looked_at", counted)
    for number in range(1, 101):
        given_span = tool_span(number, result='{"isError": true, "content": []}')
        _, request, _ = through_the_archive(record(given_span, seq=number), archivist=archivist)
        assert request is not None
        (row,) = calls_of(rows_again(request, archivist))
        assert row["ok"] is False
    assert looks < 12


def test_a_label_that_was_masked_is_never_trusted() -> None:
    archivist = Archivist(SETTINGS, redactor())
    for number in range(1, 40):
        session = "13812345678" if number == 39 else f"session-{number}"
        given = record(chat_span(number, session=session), seq=number)
        first, request, _ = through_the_archive(given, archivist=archivist)
        assert request is not None
        assert ordered(rows_again(request, archivist)) == ordered(first)
    assert request is not None
    assert "13812345678" not in str(request.items[0].span)
