"""Recordings in which runs are told as one, through a real collector, read with SQL.

How the truth of each was counted, by a loop over the raw spans that knows nothing of the mapping (for the scenario of
all, see the README beside the recordings):

- haystack: the assistant messages in the output of `Agent.run`: 2 + 3 + 3 + 2 + 2 + 3 = 15, one in each file without a
  ToolCall. Ten ToolCalls, call_001 … call_010. Four results with `error=True`: book_hotel raised; convert_currency and
  the first calculator got a keyword that they don't have (the unreadable arguments were handed over as `__raw`);
  launch_rocket is "not found". The menu: the keys of `tool_call_counts` but launch_rocket, which only the model named.
- crewai: the assistant messages in the output of the AGENT span: the same 15, 6 and 10. `tool_failures` lists four:
  launch_rocket (`unknown_tool`), the first calculator (`invalid_input`: not JSON), and two with an ERROR span, of which
  convert_currency's says "3 validation errors". The eight other calls have TOOL spans, without ids.
- smolagents/toolcalling: `Step N` spans are the turns, 15. Eight TOOL spans that are not `final_answer`, and "Unknown
  tool launch_rocket" in the status of a step. Failed: book_hotel's span, and launch_rocket. The refused
  convert_currency is only "AgentToolCallError: Argument amount has type …": no tool is named, so it is no call, and its
  step one without a pick. The calculator took the unreadable arguments as a text and succeeded. Without a pick: 6 + 1.
- smolagents/code: the same steps. Eight TOOL spans; convert_currency ran and raised a TypeError for its keyword;
  launch_rocket is "not among the explicitly allowed tools". The code with the unreadable arguments did not parse, so
  nothing was called in that step. Without a pick: 6 + 1.
- smolagents/openai-http: 15 LLM spans with 11 tools, `final_answer` among them, which 6 of them called and nothing
  else. Ten other proposed calls. Failed: book_hotel's span, launch_rocket (not offered), and convert_currency, whose
  step says "AgentToolCallError" and holds no TOOL span. The calculator as above.

None of them tells a session; only haystack's messages and the LLM spans tell the model.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from analytics.tables import Tables
from collector.service import Collector
from pickwise.settings import Settings

HAYSTACK = "haystack-ai-3.4.1+openinference-0.1.46"
CREWAI = "crewai-1.15.30+openinference-1.1.21"
SMOLAGENTS = "smolagents-1.26.0+openinference-0.1.43"

ALL_FAILED = {
    "book_hotel": "exception",
    "calculator": "invalid_arguments",
    "convert_currency": "invalid_arguments",
    "launch_rocket": "not_found",
}
NO_CALCULATOR = {name: kind for name, kind in ALL_FAILED.items() if name != "calculator"}
#: Recording: selections, without a pick, calls, the failed ones with their kinds.
TRUTH: dict[str, tuple[int, int, int, dict[str, str]]] = {
    HAYSTACK: (15, 6, 10, ALL_FAILED | {"book_hotel": "tool_error"}),
    CREWAI: (15, 6, 10, ALL_FAILED),
    f"{SMOLAGENTS}/toolcalling": (15, 7, 9, {"book_hotel": "exception", "launch_rocket": "not_found"}),
    f"{SMOLAGENTS}/code": (15, 7, 9, NO_CALCULATOR),
    f"{SMOLAGENTS}/openai-http": (15, 6, 10, NO_CALCULATOR),
}
#: Sessions, agents, models, call ids, calls with a latency, calls with arguments by name.
TOLD: dict[str, tuple[Any, ...]] = {
    HAYSTACK: (0, ["travel_agent"], ["fake-model-1"], 10, 0, 10),
    CREWAI: (0, ["travel_agent"], [None], 10, 8, 9),
    f"{SMOLAGENTS}/toolcalling": (0, ["travel_agent"], [None], 0, 8, 7),
    f"{SMOLAGENTS}/code": (0, ["travel_agent"], [None], 0, 8, 8),
    f"{SMOLAGENTS}/openai-http": (0, ["travel_agent"], ["gpt-fake"], 10, 8, 9),
}
MENU = [
    "get_weather",
    "search_flights",
    "convert_currency",
    "book_hotel",
    "send_email",
    "query_database",
    "calculator",
    "list_calendar",
    "create_ticket",
    "translate_text",
]
COUNTS = """
select (select count(*) from selections) selections,
    (select count(*) from selections where n_picks = 0) without_pick,
    (select count(*) from selections where n_candidates <> 10) other_menus,
    (select count(*) from selections where query is null) without_query,
    (select count(*) from calls) calls,
    (select count(*) from calls where ok is null) unfinished,
    (select list(skill_id) from calls where name_class <> 'known') hallucinated,
    (select count(*) from calls where off_list) off_list
"""


def requests_of(shared: Path, name: str) -> list[bytes]:
    found = [path.read_bytes() for path in sorted((shared / "otlp" / name).glob("*-traces.bin"))]
    assert found
    return found


def spans_alone(requests: Iterable[bytes]) -> list[bytes]:
    """Each span in a request of its own."""
    alone: list[bytes] = []
    for body in requests:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    request = ExportTraceServiceRequest()
                    outer = request.resource_spans.add(resource=resource.resource)
                    outer.scope_spans.add(scope=scope.scope).spans.add().CopyFrom(span)
                    alone.append(request.SerializeToString())
    return alone


def collect(folder: Path, requests: Iterable[bytes], settings: Settings | None = None) -> Tables:
    collector = Collector(settings or Settings(data_dir=folder, flush_interval_s=0.05))
    collector.start()
    try:
        for body in requests:
            _, logged = collector.submit_traces(body, "protobuf", "default")
            assert logged is not None
        assert collector.refresh(60)
    finally:
        collector.stop()
    return Tables(folder)


class Recording(NamedTuple):
    """The tables of a recording whose requests came as they were sent."""

    name: str
    requests: list[bytes]
    tables: Tables


@pytest.fixture(scope="module", params=TRUTH)
def recording(request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    requests = requests_of(shared, request.param)
    return Recording(request.param, requests, collect(tmp_path_factory.mktemp("orderly"), requests))


def rows(tables: Tables) -> list[list[dict[str, Any]]]:
    """All that the recording says: without when and by which request it came, and digests keyed by the folder."""
    drop = {"selections": "received_at, source_request", "calls": "received_at, args_digest"}
    return [
        tables.sql(f"select * exclude ({drop[table]}) from {table} order by {key}")
        for table, key in (("selections", "event_id"), ("calls", "call_key"))
    ]


def test_a_recording_tells_its_own_truth(recording: Recording) -> None:
    selections, without_pick, calls, failed = TRUTH[recording.name]
    (counts,) = recording.tables.sql(COUNTS)
    assert counts == {
        "selections": selections,
        "without_pick": without_pick,
        "other_menus": 0,
        "without_query": 0,
        "calls": calls,
        "unfinished": 0,
        "hallucinated": ["launch_rocket"],
        "off_list": 1,
    }
    found = recording.tables.sql("select skill_id, error_kind from calls where not ok order by skill_id")
    assert [(row["skill_id"], row["error_kind"]) for row in found] == sorted(failed.items())


def test_what_only_some_recordings_tell(recording: Recording) -> None:
    (row,) = recording.tables.sql(
        "select (select count(distinct session_id) from selections) sessions,"
        " (select list(distinct agent) from selections) agents, (select list(distinct model) from selections) models,"
        " (select count(call_id) from calls) ids, (select count(latency_ms) from calls) latencies,"
        " (select count(args_keys) from calls) with_arguments"
    )
    assert tuple(row.values()) == TOLD[recording.name]


def test_the_first_selection_is_the_users_question_with_its_menu(recording: Recording) -> None:
    first = recording.tables.sql("select * from selections order by time limit 1")[0]
    assert first["query"] == "What is the weather in Paris and how much is 100 USD in EUR?"
    assert [candidate["skill_id"] for candidate in first["candidates"]] == MENU
    assert (first["ranked"], sorted(first["picks"])) == (False, ["convert_currency", "get_weather"])


def test_the_last_words_of_a_run_close_it(recording: Recording) -> None:
    assert recording.tables.sql("select count(*) n from selections where closing") == [{"n": 6}]


def test_order_splits_and_repetition_change_nothing(recording: Recording, tmp_path: Path) -> None:
    """Each span alone, in any order, and then all of them again."""
    split = spans_alone(recording.requests)
    random.Random(recording.name).shuffle(split)
    assert rows(collect(tmp_path, [*split, *recording.requests[::-1]])) == rows(recording.tables)
