"""One selection replayed."""

from __future__ import annotations

from analytics import replay
from tests.analytics.conftest import House, at


def test_a_selection_with_all_that_became_of_it(house: House) -> None:
    base = {"trace_id": "a" * 32, "time": at(0)}
    house.events(
        base
        | {"type": "selection", "event_id": "s1", "query": "weather", "stage_ms": {"embed": 4.0}}
        | {"candidates": [{"skill_id": "a", "score": 0.9}, {"skill_id": "b", "score": 0.5, "bm25": 2.0}]},
        base | {"type": "selection", "event_id": "s2", "time": at(100)},
        base | {"type": "call", "event_id": "i", "call_id": "k", "skill_id": "b", "time": at(1), "phase": "invoke"},
        base
        | {"type": "call", "event_id": "o", "call_id": "k", "skill_id": "b", "time": at(2), "phase": "output"}
        | {"ok": False, "error_kind": "timeout", "latency_ms": 30.0},
        {"type": "feedback", "event_id": "f", "time": at(5), "kind": "rejected", "selection_id": "s1"},
    )
    found = replay.selection(house.connect(), "default", "s1")
    assert found is not None
    assert (found["query"], found["picks"], found["stage_ms"]["embed"]) == ("weather", ["b"], 4.0)
    shown = [(c["rank"], c["skill_id"], c["score"], c["picked"], c["skipped"]) for c in found["candidates"]]
    assert shown == [(1, "a", 0.9, False, True), (2, "b", 0.5, True, False)]
    (call,) = found["calls"]
    assert (call["ok"], call["error_kind"], call["latency_ms"]) == (False, "timeout", 30.0)
    assert [(p["phase"], p["ok"]) for p in call["phases"]] == [("invoke", None), ("output", False)]
    assert [f["kind"] for f in found["feedback"]] == ["rejected"]


def test_an_unknown_selection_is_none(house: House) -> None:
    house.events({"type": "selection", "event_id": "s1", "time": at(0)})
    assert replay.selection(house.connect(), "default", "s9") is None
    assert replay.selection(house.connect(), "other", "s1") is None
