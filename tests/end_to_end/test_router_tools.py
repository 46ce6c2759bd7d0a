"""283 real searches over 527 MCP tools, told as OTLP by an agent that has a router and a proxy tool only.

What the spans give must be what the native events of the same searches and calls give.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from analytics.metrics.declarations import METRICS
from analytics.query import metric
from analytics.tables import Tables
from collector.operations import ReplayRequest
from collector.service import Collector
from pickwise.settings import Settings
from tests.end_to_end.router_traces import DIALECTS, Event, sessions, with_latencies

#: The benchmark's client writes a time-out as an ordinary result.
ERROR_PATTERNS = [{"pattern": "^Tool call timed out", "error_kind": "timeout"}]
SPANS_A_REQUEST = 200
GROUPINGS = ("", "skill", "model", "strategy", "error_kind", "hour")

#: Rows by what they say, without the ids that each side makes for itself, and with what only tool spans tell.
QUERIES = {
    """
    select trace_id, session_id, agent, model, query, candidates, n_candidates, ranked, strategy, picks, listed_picks,
        closing, no_match, fallback, {timed} rank() over (partition by trace_id order by time) as place
    from selections order by trace_id, place
    """: "time, stage_ms,",
    """
    select c.call_id, c.trace_id, c.session_id, c.agent, c.model, c.skill_id, c.registry_skill_id, c.ok, c.error_kind,
        c.args_keys, c.name_class, c.off_list, c.unknown_arguments, c.attempts, c.depth, {timed}
        s.query as selection_query
    from calls c left join selections s on s.project = c.project and s.event_id = c.selection_id
    order by c.call_id
    """: "c.time, c.latency_ms,",
    """
    select c.trace_id, c.rank, c.skill_id, c.registry_skill_id, c.domain, c.picked, c.skipped, c.score, {timed} s.query
    from candidates c join selections s using (project, event_id) order by c.trace_id, s.query, c.rank
    """: "c.time,",
    "select event_id, kind, value, trace_id, session_id {timed} from feedback order by event_id": ", time",
}
EXPECTED = {
    "acceptance_rate": (186, 282),
    "zero_pick_rate": (97, 283),
    "top1_acceptance_rate": (127, 186),
    "skip_rate": (59, 186),
    "off_list_rate": (6, 186),
    "mismatch_rate": (61, 186),
    "failed_tool_rate": (118, 531),
    "hallucinated_tool_rate": (3, 531),
}


class Told:
    """What a collector made of some events and spans: rows, and every metric, alone and by its groupings."""

    def __init__(self, folder: Path) -> None:
        self.tables = Tables(folder)

    @cached_property
    def metrics(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        with self.tables.connect() as connection:
            return {
                (declared.name, grouping): sorted(
                    metric(connection, declared.name, by=(grouping,) if grouping else ())["rows"], key=str
                )
                for declared in METRICS
                for grouping in GROUPINGS
                if not grouping or grouping in declared.groupings
            }


@pytest.fixture(scope="module")
def events(shared: Path) -> list[Event]:
    return _lines(shared / "data/events/livemcpbench.jsonl")


@pytest.fixture(scope="module")
def registry(shared: Path) -> dict[str, Event]:
    return {entry["skill_id"]: entry for entry in _lines(shared / "data/registry/livemcpbench.jsonl")}


@pytest.fixture(scope="module")
def house(registry: dict[str, Event], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the registry in it, to be copied."""
    folder = tmp_path_factory.mktemp("registry")
    with _collecting(folder) as collector:
        parsed, _ = collector.submit_events(
            _ndjson([entry | {"type": "skill"} for entry in registry.values()]), "ndjson", ""
        )
        assert collector.submit_skills(parsed, "") == (527, [])
    return folder


@pytest.fixture(scope="module")
def native(events: list[Event], house: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Told]:
    """The native events, with and without the durations that spans have."""
    timed = {True: with_latencies(events), False: events}
    return {key: _told(house, tmp_path_factory.mktemp("native"), told, []) for key, told in timed.items()}


@pytest.mark.parametrize("with_runs", [True, False], ids=["tool-spans", "quoted-only"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_router_traces_give_what_native_events_give(
    events: list[Event],
    registry: dict[str, Event],
    house: Path,
    native: dict[bool, Told],
    tmp_path: Path,
    dialect: str,
    with_runs: bool,
) -> None:
    writer = DIALECTS[dialect](with_runs=with_runs)
    spans = [span for session in sessions(events) for span in writer.spans(session, registry)]
    random.Random(7).shuffle(spans)
    feedback = [event for event in events if event["type"] == "feedback"]
    traced, expected = _told(house, tmp_path, feedback, spans), native[with_runs]

    found = {name: traced.metrics[name, ""][0] for name in EXPECTED}
    assert {name: (round(row["value"] * row["n"], 6), row["n"]) for name, row in found.items()} == EXPECTED
    # Times and durations are what only a tool's span tells.
    for query, timed in QUERIES.items():
        columns = query.format(timed=timed if with_runs else "")
        assert traced.tables.sql(columns) == expected.tables.sql(columns)
    compared = [key for key in expected.metrics if with_runs or key[1] != "hour"]
    assert len(compared) > len(METRICS)
    assert {key: traced.metrics[key] for key in compared} == {key: expected.metrics[key] for key in compared}


def _told(house: Path, folder: Path, events: list[Event], spans: list[Event]) -> Told:
    """What a collector makes of the native events and the spans, the latter in many requests."""
    shutil.copytree(house, folder, dirs_exist_ok=True)
    with _collecting(folder) as collector:
        waiting = [collector.submit_events(_ndjson(events), "ndjson", "")[1]]
        for start in range(0, len(spans), SPANS_A_REQUEST):
            body = {"resourceSpans": [{"scopeSpans": [{"spans": spans[start : start + SPANS_A_REQUEST]}]}]}
            parsed, future = collector.submit_traces(json.dumps(body).encode(), "json", "")
            assert parsed.rejected == 0
            waiting.append(future)
        for future in waiting:
            assert future is not None
            future.result(30)
    return Told(folder)


@contextmanager
def _collecting(folder: Path) -> Iterator[Collector]:
    collector = Collector(Settings(data_dir=folder, error_patterns=ERROR_PATTERNS))
    collector.start()
    try:
        yield collector
        assert collector.refresh(60)
    finally:
        collector.stop()


def _ndjson(events: list[Event]) -> bytes:
    return b"\n".join(json.dumps(event).encode() for event in events)


def _lines(path: Path) -> list[Event]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_a_search_loads_is_ranked_where_the_model_is_offered_it(tmp_path: Path) -> None:
    """LangGraph BigTool's way: the model sees what was found as tools of their own, and calls one of them."""
    retrieve, read, send = ({"name": name} for name in ("retrieve_tools", "read", "send"))
    asked = {"type": "tool_call", "id": "1", "name": "retrieve_tools", "arguments": {"query": "mail"}}
    found = {"type": "tool_call_response", "id": "1", "response": "Available tools: ['send', 'read']"}
    picked = {"type": "tool_call", "id": "2", "name": "read", "arguments": {}}
    user = {"role": "user", "parts": [{"type": "text", "content": "Any mail?"}]}
    turns = [
        ([retrieve], [user], [asked]),
        ([retrieve, read, send], [user, _message("assistant", asked), _message("tool", found)], [picked]),
    ]
    spans = [
        {
            "traceId": "1" * 32,
            "spanId": f"{number + 1:016x}",
            "name": "chat",
            "startTimeUnixNano": str(1_800_000_000_000_000_000 + number * 1_000_000_000),
            "endTimeUnixNano": str(1_800_000_000_500_000_000 + number * 1_000_000_000),
            "attributes": [
                {"key": key, "value": {"stringValue": value if isinstance(value, str) else json.dumps(value)}}
                for key, value in (
                    ("gen_ai.operation.name", "chat"),
                    ("gen_ai.tool.definitions", tools),
                    ("gen_ai.input.messages", sent),
                    ("gen_ai.output.messages", [_message("assistant", *returned)]),
                )
            ],
        }
        for number, (tools, sent, returned) in enumerate(turns)
    ]
    with _collecting(tmp_path) as collector:
        body = {"resourceSpans": [{"scopeSpans": [{"spans": spans[::-1]}]}]}
        _, future = collector.submit_traces(json.dumps(body).encode(), "json", "")
        assert future is not None
    tables = Tables(tmp_path)
    rows = tables.sql("select query, ranked, strategy, picks, candidates from selections")
    assert [(row["query"], row["ranked"], row["strategy"], row["picks"]) for row in rows] == [
        ("Any mail?", True, "dense", ["read"])
    ]
    assert [candidate["skill_id"] for candidate in rows[0]["candidates"]] == ["send", "read"]
    assert [row["skill_id"] for row in tables.sql("select skill_id from calls")] == ["read"]


def _message(role: str, *parts: Event) -> Event:
    return {"role": role, "parts": list(parts)}


def test_a_replay_reads_through_them_although_their_values_are_taken_out(
    events: list[Event], registry: dict[str, Event], tmp_path: Path
) -> None:
    """Spans of one shape are trusted after a while; those of routers and proxies have the shape of any tool's."""
    session = sessions(events)[0]
    ordinary = [_tool_span(number) for number in range(20)]
    spans = [*DIALECTS["genai"](with_runs=True).spans(session, registry)]
    with _collecting(tmp_path) as collector:
        for part in (ordinary, spans):
            body = {"resourceSpans": [{"scopeSpans": [{"spans": part}]}]}
            _, future = collector.submit_traces(json.dumps(body).encode(), "json", "")
            assert future is not None
    before = _rows_of(tmp_path)
    assert len(before) == 20 + len(session) - 1
    with _collecting(tmp_path) as collector:
        report = collector.replay(ReplayRequest()).result(60)
    assert (report.requests, report.problems) == (2, [])
    assert _rows_of(tmp_path) == before


def _tool_span(number: int) -> Event:
    """A tool's span of the same shape as those of the router and the proxy."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.conversation.id": "other",
        "gen_ai.tool.name": "get_time",
        "gen_ai.tool.call.id": f"call-{number}",
        "gen_ai.tool.call.arguments": json.dumps({"zone": f"zone {number}"}),
        "gen_ai.tool.call.result": "noon",
    }
    return {
        "traceId": "2" * 32,
        "spanId": f"{number + 1:016x}",
        "name": "tool",
        "startTimeUnixNano": str(1_754_000_000_000_000_000 + number),
        "endTimeUnixNano": str(1_754_000_000_000_100_000 + number),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }


def _rows_of(folder: Path) -> list[dict[str, Any]]:
    tables = Tables(folder)
    selections = tables.sql("select event_id, query, candidates, picks, stage_ms from selections order by event_id")
    columns = "call_key, event_id, selection_id, skill_id, args_keys, args_digest, ok, error_kind"
    return [*selections, *tables.sql(f"select {columns} from calls order by call_key")]
