"""Small worlds of facts that contradict, repeat and miss each other in every way."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.analytics.conftest import Fact, at, entry, fact, moment

SKILLS = st.sampled_from(["a", "b", "srv/a", "A"])
TRACES = st.sampled_from(["a" * 32, "b" * 32])
SECONDS = st.integers(0, 6)
SPANS = st.sampled_from(["1" * 16, "2" * 16, "3" * 16])
MAYBE_TEXT = st.none() | st.sampled_from(["x", "yy", "zz"])


@st.composite
def selection_facts(draw: st.DrawFn) -> tuple[str, Fact]:
    role = draw(st.sampled_from([None, None, None, "run", "retrieval", "step", "search"]))
    scores = draw(st.sampled_from([{}, {"dense": 0.5}, {"rerank": 2.0}]))
    event: dict[str, Any] = {
        "type": "selection",
        "event_id": draw(st.sampled_from(["s1", "s2", "s3", "s4"])),
        "time": draw(st.none() | SECONDS.map(at)),
        "trace_id": draw(st.none() | TRACES),
        "span_id": draw(st.none() | SPANS),
        "agent": draw(MAYBE_TEXT),
        "ranked": draw(st.sampled_from([None, False])),
        "session_id": draw(MAYBE_TEXT),
        "query": draw(MAYBE_TEXT),
        "strategy": draw(st.none() | st.sampled_from(["dense", "llm_direct", "rerank"])),
        "picks": draw(st.none() | st.lists(SKILLS, max_size=2)),
        "candidates": [{"skill_id": s} | scores for s in draw(st.lists(SKILLS, max_size=3))],
        "stage_ms": draw(st.none() | st.just({"embed": 1.0}) | st.just({"total": 5.0})),
    }
    extent: dict[str, Any] = {
        "ended_at": draw(st.none() | SECONDS.map(moment)),
        "parent_span_id": draw(st.none() | SPANS),
    }
    return fact(event, role=role, **extent)


@st.composite
def call_facts(draw: st.DrawFn) -> tuple[str, Fact]:
    role = draw(st.sampled_from(["run", "run", "propose", "answer"]))
    event: dict[str, Any] = {
        "type": "call",
        "event_id": draw(st.none() | st.sampled_from(["c1", "c2", "c3"])),
        "time": draw(SECONDS.map(at)),
        "skill_id": draw(SKILLS),
        "trace_id": draw(st.none() | TRACES),
        "span_id": draw(st.none() | SPANS),
        "session_id": draw(MAYBE_TEXT),
        "call_id": draw(st.none() | st.sampled_from(["k1", "k2"])),
        "selection_id": draw(st.none() | st.sampled_from(["s1", "s2", "s3", "gone"])),
        "phase": draw(st.none() | st.sampled_from(["invoke", "exec", "output"])),
        "ok": draw(st.none() | st.booleans()),
        "error_kind": draw(st.none() | st.sampled_from(["timeout", "tool_error"])),
        "attempt": draw(st.none() | st.integers(0, 2)),
        "arguments": draw(st.none() | st.just({"q": 1}) | st.just({"q": 2, "r": 3})),
    }
    parent = draw(st.none() | SPANS)
    return fact(event, role=role, ordinal=draw(st.none() | st.integers(0, 2)), parent_span_id=parent)


@st.composite
def other_facts(draw: st.DrawFn) -> tuple[str, Fact]:
    if draw(st.booleans()):
        return entry(
            draw(SKILLS),
            moment(draw(SECONDS)),
            seq=draw(st.integers(0, 2)),
            op=draw(st.sampled_from(["upsert", "retire"])),
            source=draw(st.sampled_from(["observed", "observed", "declared"])),
            name=draw(st.none() | st.sampled_from(["a", "n"])),
        )
    verdict: dict[str, Any] = {
        "type": "feedback",
        "event_id": draw(st.sampled_from(["f1", "f2"])),
        "time": draw(SECONDS.map(at)),
        "kind": draw(st.sampled_from(["rejected", "label"])),
        "expected": draw(st.none() | st.lists(SKILLS, max_size=1)),
        "call_id": draw(st.none() | st.just("k1")),
        "trace_id": draw(st.none() | TRACES),
    }
    return fact(verdict)


# Folding many small worlds at once costs little more than folding one: each is a project of its own.
WORLD = st.lists(selection_facts() | call_facts() | call_facts() | other_facts(), min_size=1, max_size=10)
WORLDS = st.lists(WORLD, min_size=4, max_size=12)


def in_projects(worlds: list[list[tuple[str, Fact]]]) -> list[tuple[str, Fact]]:
    """The facts of all worlds, each world a project."""
    return [(table, row | {"project": f"p{i}"}) for i, world in enumerate(worlds) for table, row in world]
