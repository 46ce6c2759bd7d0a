"""From facts to frames: times, ids, redaction, and the hash that tells a repeat."""

from __future__ import annotations

import math
from copy import deepcopy
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector import call_arguments
from collector import rows as module
from collector.columns import Columns, to_frame
from collector.facts import CallFact, Facts, SelectionFact
from collector.lake import Lake
from collector.redact import Redactor
from collector.row_types import Receipt
from collector.rows import Ledger, RowMaker, to_rows
from collector.tables import TABLES
from pickwise.events import MAX_CANDIDATES, Candidate, Feedback, Intent, Route, Selection, Shadow, StageMs
from pickwise.settings import Settings
from tests.collector.frames_of import to_frames
from tests.collector.mapping.folding import recorded

RECEIVED = 1_800_000_000_000_000_000
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def frames(
    facts: Facts, *, received_at: int = RECEIVED, source: str = "r1", **settings: Any
) -> dict[str, pl.DataFrame]:
    redactor = Redactor(Settings.model_validate(settings), b"k" * 32)
    return to_frames("p", facts, received_at=received_at, source_request=source, redactor=redactor)


def rows(facts: Facts, table: str, **options: Any) -> list[dict[str, Any]]:
    return frames(facts, **options)[table].to_dicts()


def test_every_frame_has_its_tables_schema_and_can_be_stored(tmp_path: Path) -> None:
    facts = Facts(
        selections=[
            Selection(
                query="q",
                candidates=[Candidate(skill_id="a", score=1.5), Candidate(skill_id="b")],
                picks=[],
                intent=Intent(domain="d"),
                stage_ms=StageMs(total=3.0),
                shadow=Shadow(embedding_version="v2", skill_ids=["b"]),
            ),
            Selection(),
        ],
        calls=[CallFact(skill_id="a", arguments={"x": 1})],
        feedback=[Feedback(kind="rating", value=0.5)],
        routes=[Route(instance="i", state="degraded")],
    )
    made = frames(facts)
    assert set(made) == {"selections", "calls", "feedback", "routes"}
    lake = Lake(tmp_path)
    for table, frame in made.items():
        assert frame.schema == TABLES[table]
        lake.append(table, frame)
        assert lake.read(table).height == frame.height
    selection, bare = lake.read("selections").sort("time").to_dicts()
    assert selection["candidates"][0] | {"skill_id": "a", "score": 1.5} == selection["candidates"][0]
    assert selection["picks"] == []
    assert bare["picks"] is None
    assert bare["ranked"] is None
    assert selection["stage_ms"]["total"] == 3.0
    assert (selection["intent_domain"], selection["shadow_skill_ids"]) == ("d", ["b"])


def test_a_time_of_its_own_in_either_form() -> None:
    facts = Facts(
        calls=[
            CallFact(skill_id="a", time="2026-01-31T12:00:00Z"),
            CallFact(skill_id="a", time=1_769_860_800_000_000_000),
        ]
    )
    made = rows(facts, "calls")
    assert {row["time"] for row in made} == {datetime(2026, 1, 31, 12, tzinfo=UTC)}
    assert not any(row["time_is_receipt"] for row in made)
    assert {str(row["date"]) for row in made} == {"2026-01-31"}


def test_absent_times_are_receipt_in_order_and_flagged() -> None:
    made = rows(Facts(calls=[CallFact(skill_id=name, time=0) for name in "abc"]), "calls")
    assert [row["time"].microsecond for row in made] == [0, 1, 2]
    assert all(row["time_is_receipt"] for row in made)


def test_a_repeat_is_known_whenever_and_however_it_comes() -> None:
    facts = Facts(calls=[CallFact(skill_id="b"), CallFact(skill_id="a", ok=True, event_id="e1")])
    again = Facts(calls=[CallFact(skill_id="a", ok=True, event_id="e1")])
    first = rows(facts, "calls")[1]
    second = rows(again, "calls", received_at=RECEIVED + 10**12, source="r2")[0]
    assert (first["event_id"], first["fact"]) == (second["event_id"], second["fact"])
    assert first["time"] != second["time"]
    changed = rows(Facts(calls=[CallFact(skill_id="a", ok=False, event_id="e1")]), "calls")[0]
    assert changed["fact"] != first["fact"]
    timed = rows(Facts(calls=[CallFact(skill_id="a", ok=True, event_id="e1", time=5_000)]), "calls")[0]
    assert timed["fact"] != first["fact"]


def test_ids_are_derived_from_the_span_and_the_place_in_it() -> None:
    def call(**fields: Any) -> CallFact:
        return CallFact(skill_id="a", trace_id=TRACE, span_id=SPAN, **fields)

    calls = [call(), call(), call(call_id="c"), call(call_id="c", phase="exec"), call(call_id="c", attempt=2)]
    ids = [row["event_id"] for row in rows(Facts(calls=calls), "calls")]
    assert len(set(ids)) == 5
    assert ids == [row["event_id"] for row in rows(Facts(calls=calls), "calls", source="later")]
    upper = upper_case(calls[0])
    assert rows(Facts(calls=[upper]), "calls")[0]["event_id"] == ids[0]


def upper_case(call: CallFact) -> CallFact:
    return CallFact(skill_id=call.skill_id, trace_id=TRACE.upper(), span_id=SPAN.upper())


def test_without_a_span_the_content_is_the_id() -> None:
    def event_id(**fields: Any) -> str:
        return str(rows(Facts(calls=[CallFact(skill_id="a", **fields)]), "calls")[0]["event_id"])

    assert event_id(ok=True) == event_id(ok=True)
    assert event_id(ok=True) != event_id(ok=False)
    assert event_id(time=1_000) != event_id(time=2_000)


@pytest.mark.parametrize("same", ['{"b": [1, 2],   "a": "x"}', '{"a":"x","b":[1,2]}', {"b": [1, 2], "a": "x"}])
def test_equal_arguments_have_an_equal_digest(same: Any) -> None:
    facts = Facts(
        calls=[CallFact(skill_id="t", arguments={"a": "x", "b": [1, 2]}), CallFact(skill_id="t", arguments=same)]
    )
    one, other = rows(facts, "calls")
    assert one["args_digest"] == other["args_digest"]
    assert one["args_keys"] == other["args_keys"] == ["a", "b"]
    assert '"x"' not in one["arguments"]


def test_a_digest_is_keyed_and_tells_arguments_apart() -> None:
    one, other, none = rows(
        Facts(calls=[CallFact(skill_id="t", arguments=value) for value in ({"a": 1}, {"a": 2}, None)]), "calls"
    )
    assert one["args_digest"] != other["args_digest"]
    assert none["args_digest"] is None
    foreign = Redactor(Settings(), b"other" * 8)
    facts = Facts(calls=[CallFact(skill_id="t", arguments={"a": 1})])
    keyed = to_frames("p", facts, received_at=RECEIVED, source_request="r", redactor=foreign)["calls"]
    assert keyed["args_digest"][0] != one["args_digest"]


def test_arguments_nested_beyond_reason_do_not_stop_a_request() -> None:
    deep: Any = "core"
    for _ in range(900):
        deep = {"k": deep}
    made = rows(
        Facts(calls=[CallFact(skill_id="a", arguments=deep, error_message="core"), CallFact(skill_id="b")]), "calls"
    )
    assert [row["skill_id"] for row in made] == ["a", "b"]


def test_given_argument_names_hold() -> None:
    made = rows(Facts(calls=[CallFact(skill_id="t", args_keys=["z"], arguments={"a": 1})]), "calls")
    assert made[0]["args_keys"] == ["z"]


def test_non_finite_numbers_become_null() -> None:
    facts = Facts(
        selections=[Selection(candidates=[Candidate(skill_id="a", score=math.nan)], stage_ms=StageMs(embed=math.inf))],
        calls=[CallFact(skill_id="a", latency_ms=math.inf)],
        feedback=[Feedback(kind="rating", value=math.nan)],
    )
    made = frames(facts)
    assert made["selections"]["candidates"][0][0]["score"] is None
    assert made["selections"]["stage_ms"][0]["embed"] is None
    assert made["calls"]["latency_ms"][0] is None
    assert made["feedback"]["value"][0] is None


@pytest.mark.parametrize(("value", "number", "text"), [(True, 1.0, None), (3, 3.0, None), ("good", None, "good")])
def test_feedback_values(value: Any, number: float | None, text: str | None) -> None:
    (row,) = rows(Facts(feedback=[Feedback(kind="rating", value=value)]), "feedback")
    assert (row["value"], row["value_text"]) == (number, text)


def test_what_is_cut_is_flagged() -> None:
    menu = [Candidate(skill_id=f"s{i}") for i in range(MAX_CANDIDATES)]
    short, long, full = rows(
        Facts(selections=[Selection(query="q"), Selection(query="q" * 9_000), Selection(candidates=menu)]), "selections"
    )
    assert [row["truncated"] for row in (short, long, full)] == [False, True, True]
    assert len(long["query"]) == 8_192


def test_no_argument_value_of_a_recording_is_kept(shared: Path) -> None:
    made = frames(recorded(shared / "otlp/pydantic-ai-2.68.0/v5"))["calls"]
    kept = str(made.to_dicts())
    for value in ("长longarg", "6*7", "'abc'", "上海"):
        assert value not in kept
    proposed, run = (made.filter(role=role, call_id="call_008").to_dicts()[0] for role in ("propose", "run"))
    assert proposed["args_digest"] == run["args_digest"]  # though the run wraps the broken JSON


MENUS = st.lists(
    st.builds(Candidate, skill_id=st.text("ab", min_size=1, max_size=2), score=st.none() | st.floats()), max_size=3
)


def told(menus: list[list[Candidate]]) -> Facts:
    """Selections of these menus, some without a span, of which one is known beforehand."""
    return Facts(
        selections=[
            SelectionFact(candidates=menu, trace_id=TRACE if place % 2 else None, span_id=SPAN, query=f"q{place}")
            for place, menu in enumerate(menus)
        ]
    )


def made_of(facts: Facts) -> list[dict[str, Any]]:
    """Rows of selections; the menu of the first is known beforehand."""
    ledger = Ledger()
    ledger.known = {id(event): {"candidates": [{"skill_id": "known"}]} for event in facts.selections[:1]}
    redactor = Redactor(Settings(), b"k" * 32)
    found = to_rows("p", facts, received_at=RECEIVED, source_request="r", redactor=redactor, ledger=ledger)
    return found.get("selections", [])


@settings(deadline=None)
@given(st.lists(MENUS, min_size=1, max_size=3), st.lists(st.integers(0, 2), max_size=6))
def test_a_menu_that_many_share_is_as_good_as_their_own(menus: list[list[Candidate]], places: list[int]) -> None:
    offered = [menus[place % len(menus)] for place in places]
    shared, own = made_of(told(offered)), made_of(told([deepcopy(menu) for menu in offered]))
    assert shared == own
    assert to_frame("selections", shared).equals(to_frame("selections", own))
    assert to_frame("selections", shared)["candidates"].to_list() == [
        [dict.fromkeys(Candidate.__struct_fields__) | found for found in row["candidates"]] for row in shared
    ]


def test_invented_menus_do_not_fill_the_memory() -> None:
    made = made_of(told([[Candidate(skill_id=f"s{number}")] for number in range(1_000)]))
    assert made[-1]["candidates"][0]["skill_id"] == "s999"
    assert len(module._menus._made) <= module._MENUS


_OF_RECEIPT = {"fact", "time", "received_at", "source_request", "mapping_version"}
EVENTS = st.one_of(
    st.builds(Selection, candidates=MENUS, stage_ms=st.none() | st.builds(StageMs, embed=st.floats())),
    st.builds(CallFact, skill_id=st.just("t"), arguments=st.none() | st.dictionaries(st.text(), st.integers())),
    st.builds(Feedback, kind=st.just("rating"), value=st.floats() | st.text() | st.booleans()),
    st.builds(Route, instance=st.just("i"), state=st.just("probe"), p99_ms=st.floats()),
)


@settings(deadline=None)
@given(EVENTS, st.none() | st.just("e"), st.none() | st.just(7_000))
def test_a_fact_hashes_all_columns_in_the_order_of_their_names(event: Any, event_id: str, time: int) -> None:
    event.event_id, event.time = event_id, time
    named = f"{event.type_name}s".replace("feedbacks", "feedback")
    facts = Facts()
    getattr(facts, named).append(event)
    redactor = Redactor(Settings(), b"k" * 32)
    (row,) = to_rows("p", facts, received_at=RECEIVED, source_request="r", redactor=redactor)[named]
    columns = {name: value for name, value in row.items() if name not in _OF_RECEIPT}
    said = msgspec.json.encode([event.type_name, time, columns], order="sorted")
    assert row["fact"] == blake2b(said, digest_size=16).hexdigest()
    assert row.keys() == TABLES[named].keys() - {"date"}
    if event_id:
        assert list(columns) == sorted(columns)


@settings(deadline=None)
@given(st.lists(st.builds(Candidate, skill_id=st.text("ab", min_size=1), score=st.none() | st.floats()), max_size=3))
def test_a_fact_hashes_what_a_search_found_as_what_a_turn_was_offered(found: list[Candidate]) -> None:
    facts = Facts(
        selections=[SelectionFact(candidates=found, event_id="e", role=role) for role in ("turn", "retrieval")]
    )
    for row in made_of(facts):
        columns = {name: value for name, value in row.items() if name not in _OF_RECEIPT}
        said = msgspec.json.encode(["selection", None, columns], order="sorted")
        assert row["fact"] == blake2b(said, digest_size=16).hexdigest()


_JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=4)


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.text(), _JSON), min_size=1, max_size=3), st.sampled_from([[], ["a", "t:b"]]))
def test_calls_of_one_request_are_told_as_they_are_alone(arguments: list[Any], allowed: list[str]) -> None:
    calls = [CallFact(skill_id="t", event_id="e", arguments=value) for value in arguments * 2]
    together = rows(Facts(calls=calls), "calls", allow_arguments=allowed)
    alone = [rows(Facts(calls=[call]), "calls", allow_arguments=allowed)[0] for call in calls]
    names = ("args_digest", "args_keys", "arguments", "fact")
    assert [[row[name] for name in names] for row in together] == [[row[name] for name in names] for row in alone]


@given(st.lists(st.dictionaries(st.text("ab"), st.text("a")), max_size=4), st.sampled_from([[], ["a"]]))
def test_what_is_taken_out_of_the_same_arguments_counts_each_time(arguments: list[Any], allowed: list[str]) -> None:
    redactor = Redactor(Settings(allow_arguments=allowed), b"k" * 32)
    calls = [CallFact(skill_id="t", arguments=value) for value in arguments * 2]
    to_rows("p", Facts(calls=calls), received_at=RECEIVED, source_request="r", redactor=redactor)
    assert redactor.counts["argument"] == 2 * sum(name not in allowed for value in arguments for name in value)


def test_invented_arguments_do_not_fill_the_memory() -> None:
    maker = RowMaker("p", RECEIVED, "r", Redactor(Settings(), b"k" * 32), Ledger())
    long = "x" * call_arguments._KEPT_BYTES
    maker.rows(Facts(calls=[CallFact(skill_id="t", arguments={"a": f"{long}{number}"}) for number in range(10)]))
    assert not maker._arguments._kept
    many = [CallFact(skill_id="t", arguments={"a": number}) for number in range(2 * call_arguments._KEPT + 1)]
    maker.rows(Facts(calls=many))
    assert 0 < len(maker._arguments._kept) <= call_arguments._KEPT


TABLE_OF: dict[type, str] = {
    Selection: "selections",
    SelectionFact: "selections",
    CallFact: "calls",
    Feedback: "feedback",
    Route: "routes",
}


def facts_of(events: list[Any]) -> Facts:
    facts = Facts()
    for event in events:
        getattr(facts, TABLE_OF[type(event)]).append(event)
    return facts


@pytest.mark.parametrize("kind", [SelectionFact, CallFact, Feedback, Route])
def test_every_column_holds_the_field_of_its_name(kind: Any) -> None:
    given: dict[str, Any] = {name: f"the {name}" for name in kind.__struct_fields__}
    given |= {"time": 7_000, "ended_at": 9_000, "candidates": [], "stage_ms": None, "intent": None, "shadow": None}
    given |= {"latency_ms": 1.5, "value": 2.5, "p99_ms": 3.5, "error_rate": 4.5, "arguments": None}
    event = kind(**{name: value for name, value in given.items() if name in kind.__struct_fields__})
    redactor, ledger = Redactor(Settings(), b"k" * 32), Ledger()
    RowMaker("p", RECEIVED, "r", redactor, ledger).rows(facts_of([event]))
    row = ledger.made[id(event)]
    other = {"time", "ended_at", "candidates", "stage_ms", "arguments"}
    same = [name for name in kind.__struct_fields__ if name in row and name not in other]
    assert len(same) >= 13
    assert {name: row[name] for name in same} == {name: getattr(event, name) for name in same}
    assert (row["project"], row["time"], row["time_is_receipt"]) == ("p", 7, False)
    assert "source_request" not in row
    assert dict(row.items()).keys() == TABLES[TABLE_OF[kind]].keys() - {"date", *Receipt._fields}


@settings(deadline=None)
@given(st.lists(st.tuples(st.lists(EVENTS, max_size=4), st.integers(1, 3)), max_size=3))
def test_rows_of_many_requests_become_the_frame_that_they_are_as_dicts(requests: list[tuple[list[Any], int]]) -> None:
    redactor = Redactor(Settings(), b"k" * 32)
    columns = {table: Columns(table) for table in TABLE_OF.values()}
    told: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLE_OF.values()}
    for events, number in requests:
        facts = facts_of(events)
        received_at, name = RECEIVED + number, f"r{number}"
        maker = RowMaker("p", received_at, name, redactor, Ledger())
        for table, made in maker.rows(facts).items():
            columns[table].add(made, maker.receipt)
        rows_of = to_rows("p", facts, received_at=received_at, source_request=name, redactor=redactor)
        for table, dicts in rows_of.items():
            told[table] += dicts
    for table, found in columns.items():
        frame = found.frame()
        assert frame.equals(to_frame(table, told[table]))
        assert frame.schema == TABLES[table]
        halves = [found.part(slice(1)).frame(), found.part(slice(1, None)).frame()]
        assert pl.concat(halves).equals(frame)


@given(st.lists(st.integers(1, 2**63 - 1), max_size=5))
def test_the_date_is_that_of_the_time(times: list[int]) -> None:
    facts = Facts(feedback=[Feedback(kind="rating", time=time) for time in times])
    for frame in frames(facts).values():
        assert frame["date"].equals(frame["time"].dt.date().alias("date"))


def test_a_row_archived_before_there_was_a_column() -> None:
    row = made_of(told([[], []]))[0]
    older = {name: value for name, value in row.items() if name not in ("turn", "candidates")}
    frame = to_frame("selections", [row, older])
    assert frame["candidates"].to_list()[1] is None
    assert frame.height == 2
    assert to_frame("selections", []).schema == TABLES["selections"]


def test_a_row_that_fits_no_column_is_refused() -> None:
    good, bad = made_of(told([[Candidate(skill_id="a")]] * 2))
    for wrong in ({"candidates": [{"skill_id": 5}]}, {"turn": 2**70}):
        with pytest.raises((TypeError, OverflowError, ValueError)):
            to_frame("selections", [good, bad | wrong])
