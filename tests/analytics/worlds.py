"""Random worlds: what agents might send of one project, in any order, more than once, in pieces, and with gaps."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import md5
from typing import Any

import polars as pl

from analytics.labels import Label, LabelStore
from analytics.settle import settle
from collector.control import Control
from collector.tables import TABLES
from tests.analytics.conftest import NOON, House, at, entry, fact, moment

Event = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A registry entry, from ``since`` to ``until`` (seconds after noon, None: always)."""

    skill_id: str
    name: str
    domain: str | None = None
    since: float | None = None
    until: float | None = None
    arguments: tuple[str, ...] | None = None


REGISTRY = (
    Entry("search_docs", "search_docs", "docs", arguments=("q", "limit")),
    Entry("send_mail", "send_mail", "mail", arguments=("to",)),
    Entry("files/read", "read", "docs"),
    Entry("book", "book"),
    Entry("late_skill", "late_skill", "mail", since=40_000),
    Entry("gone_skill", "gone_skill", "docs", until=30_000, arguments=("q",)),
)
OFFERED = [e.skill_id for e in REGISTRY]
#: Names that look like one of the registry's: another case and separator, two letters swapped.
LOOKALIKES = {"SearchDocs": "search_docs", "serach_docs": "search_docs"}
CALLED = [*OFFERED, "read", *LOOKALIKES, "teleport"]
QUERIES = ["find the contract", "find the contract ", "write to Ada", "读一下文件", "what else"]
KINDS = ["accepted", "rejected", "arguments_edited", "reasked", "wrong_skill", "label", "rating"]
ERRORS = ["timeout", "invalid_arguments", "not_found", "cancelled", "tool_error", None]
#: Three days around two midnights, seconds after noon.
_SPAN = (-60_000, 130_000)


@dataclass
class World:
    #: Every event once and whole.
    events: list[Event]
    #: The same as they arrive: late ones in the second batch, some again, some in two pieces.
    batches: list[list[Event]]
    #: Empty: the project declares nothing and learns from what is offered.
    registry: tuple[Entry, ...] = ()
    labels: dict[str, Label] = field(default_factory=dict)
    #: Of a query: its cluster, None where it is in none.
    clusters: dict[str, str | None] = field(default_factory=dict)
    similarities: list[dict[str, Any]] = field(default_factory=list)


def random_world(chance: random.Random, most: int = 12) -> World:
    """Up to ``most`` selections, or none at all, with their calls, verdicts, routes, labels and clusters."""
    some = [0, most // 2, most]
    sizes = {"selection": chance.choice(some), "call": 2 * chance.choice(some), "feedback": chance.choice(some)}
    return world(chance, sizes | {"route": chance.choice([0, 30])}, chance.choice([(), REGISTRY, REGISTRY]))


def world(chance: random.Random, sizes: dict[str, int], registry: tuple[Entry, ...]) -> World:
    """So many events of each type; calls take one or two of them."""
    times = iter(chance.sample(range(*_SPAN), sum(sizes.values())))
    selections = [_selection(chance, f"e{i}", next(times)) for i in range(sizes["selection"])]
    calls = [event for i in range(sizes["call"]) for event in _call(chance, f"e{i}", next(times), selections)]
    feedback = [_feedback(chance, f"e{i}", next(times), selections, calls) for i in range(sizes["feedback"])]
    routes = [_route(chance, f"e{i}", 20_000 + 40 * i + chance.choice([0, 7, 403])) for i in range(sizes["route"])]
    events = [*selections, *calls, *feedback, *routes]
    return World(
        events=events,
        batches=_arrivals(chance, events),
        registry=registry,
        labels={query.strip(): _label(chance, query) for query in chance.sample(QUERIES, chance.randrange(4))},
        clusters={query: chance.choice(["c1", "c2", None]) for query in chance.sample(QUERIES, chance.randrange(6))},
        similarities=[row for event in selections for row in _similarities(chance, event)],
    )


def write_worlds(house: House, worlds: dict[str, World], *, settled: bool = False) -> House:
    """Write every world as a project of its own; ``settled``: what came first is settled before the rest comes."""
    for project, world in worlds.items():
        house.write(*(change for e in world.registry for change in _entries(e, project)))
        with closing(Control(house.folder)) as control:
            LabelStore(control).put(project, list(world.labels.values()))
        _derived(house, project, world)
    for number in range(2):
        if number and settled:
            settle(house.folder)
        house.write(*(fact(event, project) for project, world in worlds.items() for event in world.batches[number]))
    return house


def seconds_of(event: Event) -> float:
    """When it was, in seconds after noon; what names no time was received at noon."""
    return float(event.get("seconds", 0))


def _maybe(chance: random.Random, values: str, share: float = 0.7) -> str | None:
    return chance.choice(values) if chance.random() < share else None


def _common(chance: random.Random, kind: str, event_id: str, seconds: float) -> Event:
    event: Event = {"type": kind, "event_id": event_id, "seconds": seconds, "time": at(seconds)}
    event |= {"agent": _maybe(chance, "ab"), "model": _maybe(chance, "mn"), "release": _maybe(chance, "12")}
    return event | {"environment": chance.choice(["production", "test", None])}


def _scoped(chance: random.Random) -> Event:
    return {
        "trace_id": chance.choice(["a" * 32, "b" * 32, "c" * 32, None]),
        "session_id": chance.choice(["s1", "s2", None]),
    }


def _selection(chance: random.Random, event_id: str, seconds: float) -> Event:
    event = _common(chance, "selection", event_id, seconds) | _scoped(chance)
    if chance.random() < 0.1:
        event |= {"time": None, "seconds": 0}
    scored = chance.random() < 0.4
    listed = chance.choices([*OFFERED, "read"], k=chance.choice([0, 1, 3, 3, 5]))
    event["candidates"] = [{"skill_id": name} | ({"score": chance.random()} if scored else {}) for name in listed]
    if not listed and chance.random() < 0.5:
        del event["candidates"]
    if chance.random() < 0.8:
        likely = [*listed, *listed, *CALLED]
        event["picks"] = list(dict.fromkeys(chance.choices(likely, k=chance.choice([0, 0, 1, 1, 1, 2, 30]))))
    shadow = {"embedding_version": chance.choice("vw"), "skill_ids": chance.sample(OFFERED, chance.randrange(6))}
    stages = {stage: chance.choice([chance.uniform(-5, 300), None]) for stage in ("embed", "dense", "rerank", "total")}
    return event | {
        "ranked": chance.choice([True, True, False, None]),
        "strategy": chance.choice(["dense", "llm_direct", None]),
        "query": chance.choice([*QUERIES, None]),
        "language": _maybe(chance, "ez"),
        "weights_version": _maybe(chance, "xy"),
        "embedding_version": _maybe(chance, "uv"),
        "fallback": chance.choice([True, False, None]),
        "no_match": chance.choice([True, False, None, None]),
        "randomized": chance.choice([True, None, None]),
        "menu_tokens": chance.choice([chance.randrange(2000), None]),
        "stage_ms": chance.choice([stages, None]),
        "shadow": chance.choice([shadow, None]),
    }


def _call(chance: random.Random, event_id: str, seconds: float, selections: list[Event]) -> list[Event]:
    """One call: told by one event, or by two: of two attempts, or of two phases."""
    event = _common(chance, "call", event_id, seconds) | _scoped(chance)
    event["skill_id"] = chance.choice([*OFFERED, *CALLED])
    event["arguments"] = chance.choice([{"q": 1}, {"q": 1}, {"to": "x", "size": 2}, {}, None])
    event["parent_call_id"] = chance.choice(["outer", *[None] * 7])
    outcome: Event = {
        "ok": chance.choice([True, True, False, None]),
        "latency_ms": chance.choice([chance.uniform(-9, 900), None]),
    }
    if outcome["ok"] is False:
        outcome["error_kind"] = chance.choice(ERRORS)
    if not selections or chance.random() < 0.5:
        return [event | outcome | ({"selection_id": "nowhere"} if chance.random() < 0.1 else {})]
    event |= {"selection_id": chance.choice(selections)["event_id"], "call_id": f"k{event_id}"}
    second = {"event_id": f"{event_id}+", "seconds": seconds + 0.5, "time": at(seconds + 0.5)}
    told = chance.choice(["once", "attempts", "phases"])
    if told == "attempts":
        first = event | {"attempt": 1, "ok": False, "error_kind": chance.choice(ERRORS), "latency_ms": 3.0}
        return [first, event | second | outcome | {"attempt": 2}]
    if told == "phases":
        return [event | {"phase": "invoke"}, event | second | outcome | {"phase": "output"}]
    return [event | outcome]


def _feedback(
    chance: random.Random, event_id: str, seconds: float, selections: list[Event], calls: list[Event]
) -> Event:
    event = _common(chance, "feedback", event_id, seconds)
    event |= {
        "kind": chance.choice([*KINDS, "label", "label"]),
        "source": chance.choice(["human", "judge", "implicit", None]),
    }
    if event["kind"] == "label":
        event["expected"] = chance.choice([chance.sample(CALLED, chance.randrange(4)), None])
    of_calls = [call["call_id"] for call in calls if "call_id" in call]
    about = chance.choice(["selection", "call", "scope"])
    if about == "selection" and selections:
        return event | {"selection_id": chance.choice(selections)["event_id"]}
    if about == "call" and of_calls:
        return event | {"call_id": chance.choice(of_calls)}
    return event | _scoped(chance)


def _route(chance: random.Random, event_id: str, seconds: float) -> Event:
    event = _common(chance, "route", event_id, seconds) | {"instance": chance.choice("rs")}
    return event | {"state": chance.choice(["degraded", "probe", "probe", "recovered"])}


def _arrivals(chance: random.Random, events: list[Event]) -> list[list[Event]]:
    """Two batches: each event in one of them; some in both, or in one without what may be missing."""
    batches: list[list[Event]] = [[], []]
    for event in events:
        arrived = chance.choice(["once", "once", "late", "twice", "in pieces"])
        batches[arrived == "late"].append(event)
        if arrived == "twice":
            batches[chance.randrange(2)].append(event)
        if arrived == "in pieces":
            may_be_missing = ("agent", "model", "release", "query", "latency_ms", "menu_tokens", "language", "stage_ms")
            batches[1].append({name: value for name, value in event.items() if name not in may_be_missing})
    for batch in batches:
        chance.shuffle(batch)
    return batches


def _label(chance: random.Random, query: str) -> Label:
    expected = tuple(chance.sample(CALLED, chance.choice([1, 1, 3])))
    return Label(query=query, expected=expected, language=_maybe(chance, "la"))


def _similarities(chance: random.Random, event: Event) -> list[dict[str, Any]]:
    """How well none, one or two picks of a selection fit, as the nightly job would tell."""
    return [
        {
            "event_id": event["event_id"],
            "skill_id": pick,
            "previous_skill_id": chance.choice([pick, None, *OFFERED]),
            "similarity": chance.random(),
            "best_unpicked": chance.choice([chance.random(), None]),
            "embedding_version": chance.choice(["v1", "v1", "v1", "v1", "v2"]),
            "time": moment(seconds_of(event)),
        }
        for pick in chance.sample(OFFERED, chance.choice([0, 1, 2, 2, 2]))
    ]


def _entries(e: Entry, project: str) -> list[Any]:
    fields: dict[str, Any] = {"name": e.name, "domain": e.domain}
    if e.arguments is not None:
        fields["parameters_schema"] = {"type": "object", "properties": {name: {} for name in e.arguments}}
    since = () if e.since is None else (moment(e.since),)
    written = [entry(e.skill_id, *since, project=project, **fields)]
    if e.until is not None:
        written.append(entry(e.skill_id, moment(e.until), project=project, op="retire", seq=1))
    return written


def _derived(house: House, project: str, world: World) -> None:
    """What nightly jobs would have written."""
    common = {"project": project, "date": NOON.date(), "time": NOON, "computed_at": NOON}
    rows = {
        "query_clusters": [
            common | {"query_key": md5(query.encode()).hexdigest(), "cluster_id": cluster}
            for query, cluster in world.clusters.items()
        ],
        "clusters": [common | {"cluster_id": name, "name": f"about {name}"} for name in ("c1", "c2")],
        "pick_similarities": [common | row | {"date": row["time"].date(), "basis": "b"} for row in world.similarities],
    }
    for table, found in rows.items():
        if found:
            house.lake.append(table, pl.DataFrame(found, schema=TABLES[table], strict=False))
