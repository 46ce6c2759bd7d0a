"""Chains: what is a step, when a session succeeded, what is counted; all of it against slow counts too."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analytics import chains as module
from analytics import nightly
from analytics.chains import MAX_CHAINS, MAX_STEPS, MIN_SESSIONS, MIN_SUPPORT, chains, stored
from analytics.wilson import wilson
from pickwise.settings import Settings
from tests.analytics.conftest import NOON, Fact, House, at, entry, fact, read_events
from tests.collector.test_importers import TAU_ERRORS, events_of

Skills = tuple[str, ...]
#: One session: its calls that did not fail, in order, and whether it succeeded.
Session = tuple[Sequence[str], bool]


def slowly(sessions: Iterable[Session], min_support: float = MIN_SUPPORT) -> dict[Skills, tuple[float, ...]]:
    """What ``chains`` must find, from every stretch of every session: the six of ``MEASURES``."""
    good: Counter[Skills] = Counter()
    every: Counter[Skills] = Counter()
    successful = 0
    for calls, is_good in sessions:
        successful += is_good
        steps = [skill for i, skill in enumerate(calls) if i == 0 or calls[i - 1] != skill]
        stretches = {tuple(steps[i:j]) for i in range(len(steps)) for j in range(i + 1, min(i + 5, len(steps)) + 1)}
        for stretch in stretches:
            if len(set(stretch)) == len(stretch):
                every[stretch] += 1
                good[stretch] += is_good
    found: dict[Skills, tuple[float, ...]] = {}
    for chain, n in good.items():
        if len(chain) > 1 and n >= 3 and n / successful >= min_support:
            confidence = n / good[chain[:-1]]
            lift = n * successful / (good[chain[:-1]] * good[chain[-1:]])
            found[chain] = (n, n / successful, confidence, lift, n / every[chain], every[chain])
    return found


MEASURES = ("sessions", "support", "confidence", "lift", "success", "n")


def measured(found: dict[str, Any]) -> dict[Skills, tuple[float, ...]]:
    assert len(found["chains"]) < MAX_CHAINS  # none was cut off
    return {tuple(chain["skills"]): tuple(chain[name] for name in MEASURES) for chain in found["chains"]}


def session(name: str, *steps: str, good: bool | None = None, **fields: Any) -> list[dict[str, Any]]:
    """Calls a second apart: `skill`, `skill!` (failed) or `skill?` (not finished); perhaps a person's word on them."""
    start = sum(map(ord, name))
    events: list[dict[str, Any]] = [
        {"type": "call", "event_id": f"{name}-{i}", "session_id": name, "time": at(start + i)}
        | {"skill_id": step.rstrip("!?"), "ok": None if step.endswith("?") else not step.endswith("!")}
        | fields
        for i, step in enumerate(steps)
    ]
    return events if good is None else [*events, verdict(name, good)]


def verdict(name: str, good: bool, **fields: Any) -> dict[str, Any]:
    event = {"type": "feedback", "event_id": f"{name}-f", "session_id": name, "time": at(9_000), "source": "human"}
    return event | {"kind": "accepted" if good else "rejected"} | fields


def found_in(house: House, **options: Any) -> dict[Skills, tuple[float, ...]]:
    return measured(chains(house.connect(), **options))


def test_an_example_counted_by_hand(house: House) -> None:
    house.events(
        *session("1", "find", "read", "write"),
        *session("2", "find", "read", "write"),
        *session("3", "find", "read", "read", "write"),  # twice in a row is one step
        *session("4", "find", "read", "send"),
        *session("5", "write"),
        *session("6", "find", "read!", "write"),  # a failed call: the session failed too
        *session("7", "find", "read", "write", good=False),  # somebody said so
    )
    found = chains(house.connect(), min_support=0.5)
    # 1 to 5 succeeded, of seven.
    assert (found["judged"], found["successful"]) == (7, 5)
    # find → read: 4 of 5 (support); find is in 4 of 5, and read came next in all (confidence 1); read is in 4 of 5, so
    # that is 1.25 times what chance gives (lift); 7 has it too, and failed (success 4 of 5).
    # find → read → write: 3 of 5; find → read is in 4, write came next in 3; write is in 4 of 5: 0.75 ÷ 0.8.
    # read → write: the same. In 6 the read failed, so there is find → write only, and that is once: no chain.
    assert measured(found) == {
        ("find", "read"): (4, 0.8, 1.0, 1.25, 0.8, 5),
        ("find", "read", "write"): (3, 0.6, 0.75, pytest.approx(0.9375), 0.75, 4),
        ("read", "write"): (3, 0.6, 0.75, pytest.approx(0.9375), 0.75, 4),
    }
    first = found["chains"][0]
    assert (first["low"], first["high"]) == wilson(4, 5)
    assert first["time"].isoformat() == "2026-03-02T12:00:54+00:00"  # the last call of session 4
    assert [chain["skills"] for chain in found["chains"]] == [
        ["find", "read"],
        ["find", "read", "write"],
        ["read", "write"],
    ]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["a", "b", "a"], {("a", "b"), ("b", "a")}),  # no skill twice
        (["a", "x!", "b"], {("a", "b")}),  # what failed is no step
        (["a", "b?"], {("a", "b")}),  # not finished is not failed
        ([*"abcdef"], {tuple("abcdef"[i:j]) for i in range(6) for j in range(i + 2, min(i + 5, 6) + 1)}),
        (["a", "a", "a"], set()),
        (["a!", "b!"], set()),
    ],
)
def test_what_a_chain_is(house: House, steps: list[str], expected: set[Skills]) -> None:
    for i in range(MIN_SESSIONS):
        house.events(*session(f"s{i}", *steps, good=True))
    assert found_in(house).keys() == expected


def test_calls_of_one_turn_stand_in_its_order(house: House) -> None:
    """Imported dialogues have no times: turns are in their order, and what a turn calls in the order it names them."""
    for i in range(3):
        for turn, picks in ((2, ["c", "b"]), (1, ["a"])):
            shared = {"session_id": f"s{i}", "time": at(i)}
            chosen = {"event_id": f"{i}-{turn}", "turn": turn, "candidates": [{"skill_id": skill} for skill in "abc"]}
            house.events({"type": "selection", "picks": picks} | chosen | shared)
            for skill in picks:
                called = {"event_id": f"{i}-{skill}", "selection_id": f"{i}-{turn}", "skill_id": skill, "ok": True}
                house.events({"type": "call"} | called | shared)
    assert found_in(house).keys() == {("a", "c"), ("c", "b"), ("a", "c", "b")}


def test_the_calls_within_a_call_and_those_of_tests_are_left_out(house: House) -> None:
    for i in range(3):
        house.events(*session(f"s{i}", "a", "b"), *session(f"t{i}", "a", "c", environment="ci"))
        house.events(*session(f"s{i}-inner", "c", session_id=f"s{i}", parent_call_id="a"))
    assert found_in(house, excluded=["ci"]).keys() == {("a", "b")}
    assert found_in(house).keys() == {("a", "b"), ("a", "c")}


def test_the_window_cuts_sessions(house: House) -> None:
    start = sum(map(ord, "s0"))
    for i in range(3):
        house.events(*session(f"s{i}", "a", "b", "c"))
    assert found_in(house, end=NOON + timedelta(seconds=start + 5)).keys() == {("a", "b"), ("b", "c"), ("a", "b", "c")}
    # At this moment, session 0 has called c, and 2 has called a.
    assert found_in(house, end=NOON + timedelta(seconds=start + 3)) == {}


def test_a_session_without_an_id_is_its_trace(house: House) -> None:
    for i in range(3):
        house.events(*session(f"s{i}", "a", "b", session_id=None, trace_id=f"{i:032x}"))
        told = {"trace_id": f"{i:032x}", "session_id": None}
        house.events(verdict(f"s{i}", good=i > 0) | told)
    assert (chains(house.connect())["judged"], chains(house.connect())["successful"]) == (3, 2)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], True),
        ([{"kind": "rejected"}], False),
        ([{"kind": "rating", "value": 0.4}], False),
        ([{"kind": "rating", "value": 0.5}], True),
        ([{"kind": "rating", "value": 5}], True),
        # On a part of the session, or not on how it ended: says nothing.
        ([{"kind": "rejected", "call_id": "c"}], True),
        ([{"kind": "rejected", "selection_id": "s"}], True),
        ([{"kind": "reasked"}], True),
        ([{"kind": "rating", "value": None}], True),
        # People before judges, then the newest.
        ([{"kind": "rejected"}, {"kind": "accepted", "source": "judge", "time": at(9_999)}], False),
        ([{"kind": "rejected"}, {"kind": "accepted", "time": at(9_999)}], True),
        ([{"kind": "rejected", "source": "judge"}, {"kind": "accepted", "source": None}], True),
        ([{"kind": "rejected", "source": "judge"}], False),
    ],
)
def test_when_a_session_succeeded(house: House, verdicts: list[dict[str, Any]], expected: bool) -> None:
    house.events(*session("s", "a", "b"))
    house.events(*(verdict("s", True) | {"event_id": f"f{i}"} | said for i, said in enumerate(verdicts)))
    assert chains(house.connect())["successful"] == expected


def test_a_rating_is_held_against_the_highest_of_its_source(house: House) -> None:
    for i, value in enumerate([1, 2, 3, 5]):
        house.events(*session(f"s{i}", "a"), verdict(f"s{i}", True, kind="rating", value=value))
    assert chains(house.connect())["successful"] == 2  # 3 and 5 of 5


def test_a_session_that_nobody_judged_and_nothing_finished_in_is_left_out(house: House) -> None:
    house.events(*session("s", "a?", "b?"), *session("t", "a", "b?"))
    assert chains(house.connect())["judged"] == 1


def test_nothing_is_no_error(house: House) -> None:
    assert chains(house.connect()) == {
        "project": "default",
        "min_support": MIN_SUPPORT,
        "judged": 0,
        "successful": 0,
        "chains": [],
    }
    house.events(*session("s", "a!"))
    assert chains(house.connect())["judged"] == 1


def test_one_call_many_chains_and_long_sessions_are_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(3):
        house.events(*session(f"s{i}", "a", "b", "c"))
        house.events(*session(f"later {i}", "x", "y"))
    assert len(found_in(house)) == 4
    monkeypatch.setattr(module, "MAX_CALLS", 6)  # the newest three sessions
    assert found_in(house).keys() == {("x", "y")}
    monkeypatch.setattr(module, "MAX_CALLS", 100)
    monkeypatch.setattr(module, "MAX_SESSION_CALLS", 2)
    assert found_in(house).keys() == {("x", "y")}
    monkeypatch.setattr(module, "MAX_SESSION_CALLS", 3)
    monkeypatch.setattr(module, "MAX_CHAINS", 2)
    assert [c["skills"] for c in chains(house.connect())["chains"]] == [["a", "b", "c"], ["a", "b"]]


# --- Real sessions, counted slowly from the files themselves.


def dialogues(path: Path, failed: Callable[[dict[str, Any]], bool]) -> list[Session]:
    """The sessions of a file of dialogues that call anything."""
    sessions: list[Session] = []
    for line in path.read_text().splitlines():
        dialogue = json.loads(line)
        messages, worked, is_called = dialogue["messages"], [], False
        for i, message in enumerate(messages):
            names: list[str] = []
            proposed = [(call["id"], call["function"]["name"]) for call in message.get("tool_calls") or []]
            is_called = is_called or bool(proposed)
            for call_id, name in proposed:
                result = next(m for m in messages[i + 1 :] if m.get("tool_call_id") == call_id)
                if not failed(result):
                    names.append(name)
            order = [name for _, name in proposed]
            worked += sorted(names, key=order.index)
        if is_called:
            sessions.append((worked, dialogue["metadata"]["reward"] >= 0.5))
    return sessions


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("tau_gpt-4o_airline", TAU_ERRORS),
        ("tau2_qwen2.5-7b_airline_1trial", None),
        ("tau2_claude-sonnet-4-5_airline_1trial", None),
        ("tau2_sierra_gpt-4.1_airline_1trial", None),
        ("tau2_sierra_gpt-4.1_retail_1trial", None),
    ],
)
def test_dialogues_give_what_a_slow_count_gives(house: House, shared: Path, name: str, pattern: str | None) -> None:
    path = shared / f"data/messages/{name}.jsonl"
    house.events(*events_of(path, error_patterns=[pattern] if pattern else []))

    def failed(result: dict[str, Any]) -> bool:
        return bool(re.search(pattern, result["content"])) if pattern else bool(result.get("is_error"))

    sessions = dialogues(path, failed)
    found = chains(house.connect())
    assert (found["judged"], found["successful"]) == (len(sessions), sum(good for _, good in sessions))
    assert measured(found) == slowly(sessions)
    assert len(found["chains"]) > 1


def livemcp_sessions(path: Path) -> list[Session]:
    calls: dict[str, list[dict[str, Any]]] = defaultdict(list)
    rated: dict[str, float] = {}
    for event in read_events(path):
        if event["type"] == "call":
            calls[event["session_id"]].append(dict(event))
        elif event["type"] == "feedback":
            rated[event["session_id"]] = event["value"]
    return [
        (
            [call["skill_id"] for call in sorted(made, key=lambda call: str(call["time"])) if call["ok"]],
            rated[name] >= 0.5,
        )
        for name, made in calls.items()
    ]


@pytest.mark.parametrize("min_support", [MIN_SUPPORT, 0.0])
def test_livemcpbench_gives_what_a_slow_count_gives(livemcp: House, shared: Path, min_support: float) -> None:
    sessions = livemcp_sessions(shared / "data/events/livemcpbench.jsonl")
    found = chains(livemcp.connect(), min_support=min_support)
    assert (found["judged"], found["successful"]) == (len(sessions), sum(good for _, good in sessions))
    assert measured(found) == slowly(sessions, min_support)
    assert found["chains"]


DOCUMENTED = {
    "tau-bench, airline, gpt-4o": ("tau_gpt-4o_airline", TAU_ERRORS),
    "tau2-bench, retail, gpt-4.1": ("tau2_sierra_gpt-4.1_retail_1trial", None),
    "LiveMCPBench": ("livemcpbench", None),
}


@pytest.mark.parametrize("heading", DOCUMENTED)
def test_the_page_shows_what_is_found(house: House, livemcp: House, shared: Path, heading: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "chains.md").read_text()
    (section,) = [part for part in page.split("\n### ") if part.startswith(heading)]
    shown = re.findall(
        r"^\| `(.+)` \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| (\d+) \|$", section, re.M
    )
    name, pattern = DOCUMENTED[heading]
    if name == "livemcpbench":
        found = chains(livemcp.connect(), min_support=0.04)
    else:
        path = shared / f"data/messages/{name}.jsonl"
        house.events(*events_of(path, error_patterns=[pattern] if pattern else []))
        found = chains(house.connect())
    assert f"{found['successful']} of {found['judged']} sessions" in section
    formats = ("{:d}", "{:.3f}", "{:.3f}", "{:.2f}", "{:.3f}", "{:d}")
    told = [
        (" → ".join(c["skills"]), *(form.format(c[name]) for form, name in zip(formats, MEASURES, strict=True)))
        for c in found["chains"]
    ]
    assert shown
    assert shown == told[: len(shown)]


# --- Random sessions.


def random_project(chance: random.Random) -> tuple[list[dict[str, Any]], list[Session]]:
    skills, habit = "abcdefgh"[: chance.randint(1, 8)], chance.choice([0.0, 0.5, 0.9])
    events: list[dict[str, Any]] = []
    sessions: list[Session] = []
    for i in range(chance.randint(0, 40)):
        # Some projects have habits: what follows in the alphabet comes next.
        picks = [chance.randrange(len(skills))]
        for _ in range(chance.randint(0, 11)):
            picks.append((picks[-1] + 1) % len(skills) if chance.random() < habit else chance.randrange(len(skills)))
        steps = [skills[pick] + chance.choice(["", "", "", "", "", "", "!", "?"]) for pick in picks]
        good = chance.choice([None, True, False])
        events += session(f"s{i}", *steps, good=good)
        finished = [not step.endswith("!") for step in steps if not step.endswith("?")]
        if good is not None or finished:
            worked = [step.rstrip("?") for step in steps if not step.endswith("!")]
            sessions.append((worked, all(finished) if good is None else good))
    chance.shuffle(events)
    return events, sessions


def test_random_sessions_give_what_a_slow_count_gives(house: House) -> None:
    chance = random.Random(8)
    projects = {f"p{i}": random_project(chance) for i in range(60)}
    facts: list[tuple[str, Fact]] = [fact(e, project) for project, (events, _) in projects.items() for e in events]
    house.write(*facts)
    connection = house.connect()
    seen: Counter[int] = Counter()
    for project, (_, sessions) in projects.items():
        support = chance.choice([0.0, 0.05, 0.2, 0.5])
        found = chains(connection, project, min_support=support)
        expected = slowly(sessions, support)
        assert (found["judged"], found["successful"]) == (len(sessions), sum(good for _, good in sessions)), project
        if len(expected) <= MAX_CHAINS:
            told = {tuple(c["skills"]): tuple(c[name] for name in MEASURES) for c in found["chains"]}
            assert told == expected, project
            seen.update(map(len, told))
        assert all(0 < c["support"] <= 1 and 0 < c["confidence"] <= 1 for c in found["chains"])
        assert all(c["low"] <= c["success"] <= c["high"] and c["sessions"] <= c["n"] for c in found["chains"])
    assert seen.keys() >= {2, 3, MAX_STEPS}


# --- Every night.


def night(house: House, days: float = 1, **options: Any) -> int:
    result = nightly.run(house.folder, Settings(data_dir=house.folder), now=NOON + timedelta(days=days), **options)
    (found,) = result["projects"].values()
    return int(found["chains"])


def test_a_night_keeps_chains_and_again_changes_nothing(house: House) -> None:
    for i in range(4):
        house.events(*session(f"s{i}", "a", "b"), *session(f"t{i}", "a", "b", environment="staging"))
    assert night(house) == 1
    versions = house.lake.versions()
    assert night(house) == 1
    assert night(house, days=2) == 1
    assert house.lake.versions()["chains"] == versions["chains"]
    (row,) = stored(house.connect())
    found = chains(house.connect(), excluded=["staging"])["chains"][0]
    assert {name: row[name] for name in found} == found
    assert (row["sessions"], row["computed_at"]) == (4, NOON + timedelta(days=1))
    assert night(house, days=1, date=NOON.date()) == 0  # a single day says nothing of chains, and takes none away
    assert house.lake.versions()["chains"] == versions["chains"]


def test_a_night_replaces_what_no_longer_holds(house: House) -> None:
    house.write(entry("a"), entry("b"))
    for i in range(4):
        house.events(*session(f"s{i}", "a", "b"))
    night(house)
    assert stored(house.connect())[0]["feasible"] == "unknown"
    house.write(entry("b", NOON + timedelta(days=1), seq=1, op="retire"))
    night(house, days=2)
    (row,) = stored(house.connect())
    assert (row["feasible"], row["checks"][0]["reason"]) == ("no", "b is retired")
    house.lake.replace("calls", pl.col("session_id").is_in(["s0", "s1"]))
    assert night(house, days=3) == 0
    assert house.rows("from chains") == []


def test_a_skill_that_the_night_flags_makes_its_chains_infeasible_at_once(house: House) -> None:
    house.write(entry("a"), entry("b"))
    house.events(*(call for i in range(20) for call in session(f"bad{i}", "b!", "b!")))
    house.events(*(call for i in range(3) for call in session(f"s{i}", "a", "b")))
    night(house, days=0.5)
    (row,) = stored(house.connect())
    assert [c["reason"] for c in row["checks"] if c["verdict"] == "no"] == ["b is degraded (failing)"]
    versions = house.lake.versions()
    night(house, days=0.5)
    assert house.lake.versions()["chains"] == versions["chains"]
