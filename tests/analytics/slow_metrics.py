"""Every metric once more, from the events themselves: plain loops, and Polars to add up. Nothing of the fold's SQL."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import polars as pl
from scipy.stats import binomtest

from tests.analytics.conftest import moment
from tests.analytics.worlds import LOOKALIKES, Entry, Event, World, seconds_of

#: One unit of a metric's denominator: its groups, ``seconds``, and ``hit`` or ``value``.
Observation = dict[str, Any]

_OF_EVENTS = ("agent", "model", "environment", "release")
_OF_SELECTIONS = ("strategy", "weights_version", "embedding_version", "language")
_CORRECTIONS = ("arguments_edited", "reasked", "wrong_skill", "rejected")
_CALLER_FAULTS = ("invalid_arguments", "not_found", "cancelled")
_ALIVE = 300.0
_NOW = datetime.now(UTC)


@dataclass
class Candidate:
    name: str
    rank: int
    picked: bool = False
    skipped: bool = False


@dataclass
class Selection:
    """A decision turn as the contract's section 2 and 4 define it."""

    event: Event
    seconds: float
    candidates: list[Candidate]
    ranked: bool
    picks: list[str] = field(default_factory=list)
    closing: bool = False

    @property
    def id(self) -> str:
        return str(self.event["event_id"])

    def names(self) -> list[str]:
        return [item["skill_id"] for item in self.event.get("candidates") or []]


@dataclass
class Call:
    """The events of one call, in the order of time; the last tells how it ended."""

    events: list[Event]
    selection_id: str | None = None
    selection: Selection | None = None

    def told(self, name: str) -> Any:
        return next((event[name] for event in self.events if event.get(name) is not None), None)

    @property
    def seconds(self) -> float:
        return seconds_of(self.events[0])

    @property
    def skill_id(self) -> str:
        return str(self.events[0]["skill_id"])

    @property
    def ok(self) -> bool | None:
        found: bool | None = self.events[-1].get("ok")
        return found

    @property
    def error_kind(self) -> str | None:
        return None if self.ok is not False else self.events[-1].get("error_kind") or "other"

    @property
    def latency(self) -> float | None:
        return max((e["latency_ms"] for e in self.events if e.get("latency_ms") is not None), default=None)

    def of_both(self, name: str) -> Any:
        """What the call tells, else its selection."""
        own = self.told(name)
        return own if own is not None or self.selection is None else self.selection.event.get(name)


class Slow:
    """The metrics of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.selections = [self._selection(event) for event in world.events if event["type"] == "selection"]
        self._by_id = {selection.id: selection for selection in self.selections}
        self._known_since: dict[str, float] = {}
        for selection in self.selections:
            for name in selection.names():
                self._known_since[name] = min(self._known_since.get(name, math.inf), selection.seconds)
        self.calls = self._calls()
        for selection in self.selections:
            self._pick(selection)
        self.feedback = [(event, self._target(event)) for event in world.events if event["type"] == "feedback"]

    # -- what things are ----------------------------------------------------------------------------------------------

    def entry(self, called: str, seconds: float) -> tuple[Entry, str] | None:
        """The entry that a name means at a time, and whether it is active or retired."""
        if not self._world.registry:
            since = self._known_since.get(called, math.inf)
            return (Entry(called, called), "active") if since <= seconds else None
        for e in self._world.registry:
            if called in (e.skill_id, e.name) and (e.since is None or e.since <= seconds):
                return e, "active" if e.until is None or seconds < e.until else "retired"
        return None

    def meant(self, called: str, seconds: float) -> str:
        found = self.entry(called, seconds)
        return found[0].skill_id if found else called

    def domain(self, called: str, seconds: float) -> str | None:
        found = self.entry(called, seconds)
        return found[0].domain if found else None

    def name_class(self, call: Call) -> str | None:
        found = self.entry(call.skill_id, call.seconds)
        declared = bool(self._world.registry)
        if found and found[1] == "active":
            return "known"
        if not declared and call.selection and call.skill_id in call.selection.names():
            return "known"
        if found:
            return "retired"
        if not declared and call.seconds < min(self._known_since.values(), default=math.inf):
            return None
        alike = self.entry(LOOKALIKES.get(call.skill_id, ""), call.seconds)
        return "near_miss" if alike and alike[1] == "active" else "unknown"

    def _selection(self, event: Event) -> Selection:
        listed = [item["skill_id"] for item in event.get("candidates") or []]
        seconds = seconds_of(event)
        ranked = event["ranked"]
        if ranked is None:
            scored = any("score" in item for item in event.get("candidates") or [])
            ranked = scored or event["strategy"] == "dense"
        candidates = [Candidate(name, i) for i, name in enumerate(listed, 1) if listed.index(name) == i - 1]
        return Selection(event, seconds, candidates, ranked)

    def _calls(self) -> list[Call]:
        told: dict[Any, list[Event]] = defaultdict(list)
        for event in self._world.events:
            if event["type"] == "call":
                told[event.get("call_id") or event["event_id"]].append(event)
        calls = [Call(sorted(events, key=seconds_of)) for events in told.values()]
        for call in calls:
            call.selection_id = call.told("selection_id")
            if call.selection_id is None:
                call.selection = self._newest_before(call)
                call.selection_id = call.selection.id if call.selection else None
            else:
                call.selection = self._by_id.get(call.selection_id)
        return calls

    def _newest_before(self, call: Call) -> Selection | None:
        """Of its trace one that offered its skill, then of its session; then any of its trace, then of its session."""
        names = {call.skill_id, self.meant(call.skill_id, call.seconds)}
        for offered in (True, False):
            for scope in ("trace_id", "session_id"):
                found = [
                    s
                    for s in self.selections
                    if call.told(scope) is not None
                    and s.event[scope] == call.told(scope)
                    and s.seconds <= call.seconds
                    and (not offered or names & self._both(s.names(), s.seconds))
                ]
                if found:
                    return max(found, key=lambda s: (s.seconds, s.id))
        return None

    def _both(self, names: Iterable[str], seconds: float) -> set[str]:
        """Names, and the ids of what they mean."""
        return {form for name in names for form in (name, self.meant(name, seconds))}

    def _pick(self, selection: Selection) -> None:
        calls = [c for c in self.calls if c.selection_id == selection.id and c.told("parent_call_id") is None]
        called = list(dict.fromkeys(c.skill_id for c in calls))
        selection.picks = selection.event.get("picks", called)
        of_trace = [c.seconds for c in self.calls if c.told("trace_id") == selection.event["trace_id"] is not None]
        is_after = min(of_trace, default=math.inf) < selection.seconds
        selection.closing = not selection.ranked and not selection.picks and is_after
        names = self._both(selection.picks, selection.seconds)
        for candidate in selection.candidates:
            candidate.picked = bool(names & self._both([candidate.name], selection.seconds))
        lowest = max((c.rank for c in selection.candidates if c.picked), default=0)
        for candidate in selection.candidates:
            candidate.skipped = selection.ranked and not candidate.picked and candidate.rank < lowest

    def listed_picks(self, s: Selection) -> list[str]:
        offered = self._both(s.names(), s.seconds)
        return [pick for pick in s.picks if offered & self._both([pick], s.seconds)]

    def _target(self, event: Event) -> str | None:
        """The selection that a verdict is about."""
        if event.get("selection_id"):
            return str(event["selection_id"])
        if event.get("call_id"):
            return next(c.selection_id for c in self.calls if c.told("call_id") == event["call_id"])
        for scope in ("trace_id", "session_id"):
            found = [
                s
                for s in self.selections
                if event.get(scope) is not None
                and s.event[scope] == event[scope]
                and s.seconds <= seconds_of(event)
                and s.picks
            ]
            if found:
                return max(found, key=lambda s: (s.seconds, s.id)).id
        return None

    @cached_property
    def clusters(self) -> dict[str, str]:
        """Of each selection whose query is in a cluster that at least three asked for."""
        found = {s.id: self._world.clusters.get(s.event["query"]) for s in self.selections}
        sizes = Counter(found.values())
        return {event_id: name for event_id, name in found.items() if name is not None and sizes[name] >= 3}

    # -- what is observed of them --------------------------------------------------------------------------------------

    def of_selection(self, s: Selection, **more: Any) -> Observation:
        groups = {name: s.event.get(name) for name in (*_OF_EVENTS, *_OF_SELECTIONS)}
        return groups | {"seconds": s.seconds, "cluster": self.clusters.get(s.id)} | more

    def of_call(self, call: Call, *, as_called: bool = False, **more: Any) -> Observation:
        groups = {name: call.of_both(name) for name in _OF_EVENTS}
        groups |= {name: call.selection.event.get(name) if call.selection else None for name in _OF_SELECTIONS}
        skill = call.skill_id if as_called else self.meant(call.skill_id, call.seconds)
        groups |= {"skill": skill, "domain": self.domain(call.skill_id, call.seconds), "error_kind": call.error_kind}
        cluster = self.clusters.get(call.selection_id or "")
        return groups | {"seconds": call.seconds, "cluster": cluster} | more

    def decisions(self) -> list[Selection]:
        return [s for s in self.selections if not s.closing]

    def decided(self) -> list[Selection]:
        """Ranked selections with a pick."""
        return [s for s in self.selections if s.ranked and s.picks]

    def impression(self, s: Selection, c: Candidate, hit: bool) -> Observation:
        skill, domain = self.meant(c.name, s.seconds), self.domain(c.name, s.seconds)
        return self.of_selection(s, skill=skill, domain=domain, hit=hit)

    def at_the_top(self, s: Selection, hit: bool) -> Observation:
        if not s.candidates:
            return self.of_selection(s, skill=None, domain=None, hit=hit)
        return self.impression(s, s.candidates[0], hit)

    def by_pick(self, s: Selection, hit: Callable[[str], bool]) -> list[Observation]:
        picked = {(self.meant(p, s.seconds), self.domain(p, s.seconds)) for p in s.picks}
        return [self.of_selection(s, skill=skill, domain=domain, hit=hit(skill)) for skill, domain in picked]

    def skipped(self, s: Selection) -> bool:
        return bool(s.candidates) and s.candidates[0].skipped

    def off_list(self, s: Selection) -> bool:
        return len(self.listed_picks(s)) < len(s.picks)

    def corrected(self, s: Selection, judge: bool) -> bool:
        verdicts = [e for e, target in self.feedback if target == s.id and (judge or e["source"] != "judge")]
        if any(e["kind"] in _CORRECTIONS or (e["kind"] == "label" and e["expected"] == []) for e in verdicts):
            return True
        expected, _ = self.label(s, judge)
        return bool(expected) and not {self.meant(p, s.seconds) for p in s.picks} & set(expected)

    def label(self, s: Selection, judge: bool) -> tuple[list[str], str | None]:
        """The skills that the label of a selection expects, and its language: its own, its query's, a judge's."""
        own: dict[bool, list[tuple[float, list[str]]]] = {True: [], False: []}
        for event, target in self.feedback:
            if target == s.id and event["kind"] == "label" and event["expected"]:
                own[event["source"] == "judge"].append((seconds_of(event), event["expected"]))
        imported = self._world.labels.get((s.event["query"] or "").strip())
        names: Sequence[str] = ()
        if own[False]:
            names = max(own[False])[1]
        elif imported:
            names = imported.expected
        elif own[True] and judge:
            names = max(own[True])[1]
        language = s.event["language"] or (imported.language if imported else None)
        return sorted({self.meant(name, s.seconds) for name in names}), language

    def judged(self, judge: bool) -> Iterable[tuple[Observation, list[str], dict[str, int]]]:
        """Ranked selections with a label: what it expects, and the rank of each skill of the list."""
        for s in self.selections:
            expected, language = self.label(s, judge)
            if s.ranked and expected:
                ranks = {self.meant(c.name, s.seconds): c.rank for c in reversed(s.candidates)}
                yield self.of_selection(s, language=language), expected, ranks

    def spells(self) -> list[Observation]:
        """Degraded spells of each instance: ``seconds``, ``ended``."""
        found: list[Observation] = []
        now = (_NOW - moment(0)).total_seconds()
        for instance in "rs":
            heard = [e for e in self._world.events if e["type"] == "route" and e["instance"] == instance]
            heard.sort(key=seconds_of)
            spell: Observation | None = None
            mode = None
            for event, until in zip(heard, [*map(seconds_of, heard[1:]), now], strict=False):
                seconds = seconds_of(event)
                mode = mode if event["state"] == "probe" else event["state"]
                if mode != "degraded":
                    spell = None
                    continue
                if spell is None or seconds > spell["heard"] + _ALIVE:
                    spell = {"seconds": seconds} | dict.fromkeys(_OF_EVENTS)
                    found.append(spell)
                spell |= {name: spell[name] or event[name] for name in _OF_EVENTS}
                spell |= {"heard": seconds, "ended": min(until, seconds + _ALIVE)}
        return found


@dataclass(frozen=True)
class Asked:
    """What a metric is asked: the window in seconds after noon, whether by skill, with judges or without."""

    start: float | None = None
    end: float | None = None
    by_skill: bool = False
    judge: bool = False

    def holds(self, seconds: float) -> bool:
        return (self.start is None or seconds >= self.start) and (self.end is None or seconds < self.end)


def _acceptance(slow: Slow, asked: Asked) -> list[Observation]:
    if asked.by_skill:
        return [slow.impression(s, c, c.picked) for s in slow.decisions() for c in s.candidates]
    return [slow.of_selection(s, hit=bool(slow.listed_picks(s))) for s in slow.decisions() if s.candidates]


def _top1(slow: Slow, _: Asked) -> list[Observation]:
    ranked = [s for s in slow.selections if s.ranked and slow.listed_picks(s)]
    return [slow.at_the_top(s, s.candidates[0].picked) for s in ranked]


def _off_list(slow: Slow, asked: Asked) -> list[Observation]:
    if not asked.by_skill:
        return [slow.of_selection(s, hit=slow.off_list(s)) for s in slow.decided()]
    return [
        row
        for s in slow.decided()
        for row in slow.by_pick(s, lambda skill, s=s: skill not in slow._both(s.names(), s.seconds))  # type: ignore[misc]
    ]


def _corrected(slow: Slow, asked: Asked) -> list[Observation]:
    rows = []
    for s in slow.decided():
        hit = slow.corrected(s, asked.judge)
        rows += slow.by_pick(s, lambda _, hit=hit: hit) if asked.by_skill else [slow.of_selection(s, hit=hit)]  # type: ignore[misc]
    return rows


def _mismatch(slow: Slow, asked: Asked) -> list[Observation]:
    return [
        slow.at_the_top(s, slow.skipped(s) or slow.off_list(s) or slow.corrected(s, asked.judge))
        for s in slow.decided()
    ]


def _contamination(slow: Slow, asked: Asked) -> list[Observation]:
    rows = [row | {"seconds": (row["time"] - moment(0)).total_seconds()} for row in slow._world.similarities]
    newest = max((row["seconds"] for row in rows if asked.holds(row["seconds"])), default=0.0)
    by_version = defaultdict(list)
    for row in rows:
        if row["skill_id"] != row["previous_skill_id"] and newest - 28 * 86_400 < row["seconds"] <= newest:
            by_version[row["embedding_version"]].append(row["similarity"])
    found = []
    for row in rows:
        others = by_version[row["embedding_version"]]
        if len(others) >= 200:
            tenth = pl.Series(others).quantile(0.1, "linear") or 0.0
            worse = row["best_unpicked"] is not None and row["similarity"] < row["best_unpicked"]
            hit = row["skill_id"] == row["previous_skill_id"] and row["similarity"] < tenth and worse
            s = slow._by_id[row["event_id"]]
            groups = {"skill": row["skill_id"], "domain": slow.domain(row["skill_id"], s.seconds)}
            found.append(slow.of_selection(s, **groups, hit=hit))
    return found


def _failed(slow: Slow, _: Asked) -> list[Observation]:
    return [slow.of_call(c, hit=not c.ok) for c in slow.calls if c.ok is not None]


def _caller_faults(slow: Slow, _: Asked) -> list[Observation]:
    rows = []
    for call in slow.calls:
        if call.ok is not None:
            hit = call.error_kind in _CALLER_FAULTS
            rows.append(slow.of_call(call, hit=hit) | ({} if hit else {"error_kind": None}))
    return rows


def _class_is(*classes: str) -> Callable[[Slow, Asked], list[Observation]]:
    def observe(slow: Slow, _: Asked) -> list[Observation]:
        found = [(call, slow.name_class(call)) for call in slow.calls]
        return [slow.of_call(c, as_called=True, hit=name in classes) for c, name in found if name is not None]

    return observe


def _unknown_arguments(slow: Slow, _: Asked) -> list[Observation]:
    rows = []
    for call in slow.calls:
        found, said = slow.entry(call.skill_id, call.seconds), call.told("arguments")
        if found and found[0].arguments is not None and said is not None:
            rows.append(slow.of_call(call, hit=bool(set(said) - set(found[0].arguments))))
    return rows


def _loops(slow: Slow, asked: Asked) -> list[Observation]:
    sessions: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(slow.calls, key=lambda c: c.seconds):
        session = call.of_both("session_id")
        if session is not None and asked.holds(call.seconds):
            sessions[session].append(call)
    rows = []
    for calls in sessions.values():
        said = [(slow.meant(c.skill_id, c.seconds), c.told("arguments")) for c in calls]
        hit = any(a == b == c and a[1] is not None for a, b, c in zip(said, said[1:], said[2:], strict=False))
        groups = {name: next((c.of_both(name) for c in calls if c.of_both(name)), None) for name in _OF_EVENTS}
        rows.append(groups | {"seconds": calls[0].seconds, "hit": hit})
    return rows


def _repairs(slow: Slow, _: Asked) -> list[Observation]:
    rows = []
    for call in slow.calls:
        if not any(e.get("error_kind") == "invalid_arguments" for e in call.events):
            continue
        skill, session = slow.meant(call.skill_id, call.seconds), call.of_both("session_id")
        later = any(
            other.ok and other.seconds > call.seconds and slow.meant(other.skill_id, other.seconds) == skill
            for other in slow.calls
            if session is not None and other.of_both("session_id") == session
        )
        rows.append(slow.of_call(call, hit=bool(call.ok) or later))
    return rows


def _latencies(slow: Slow, asked: Asked) -> list[Observation]:
    rows = [slow.of_call(c, stage="call", value=c.latency) for c in slow.calls]
    if not asked.by_skill:
        for s in slow.selections:
            stages = s.event["stage_ms"] or {}
            rows += [slow.of_selection(s, stage=stage, value=value) for stage, value in stages.items()]
    return rows


def _degraded(slow: Slow, asked: Asked) -> list[Observation]:
    rows = []
    for spell in slow.spells():
        since = max(spell["seconds"], spell["seconds"] if asked.start is None else asked.start)
        until = min(spell["ended"], spell["ended"] if asked.end is None else asked.end)
        if until > since:
            rows.append(spell | {"seconds": since, "value": until - since})
    return rows


def _half_failures(slow: Slow, _: Asked) -> list[Observation]:
    return [
        spell | {"seconds": min(spell["seconds"] + 90, spell["ended"]), "value": spell["ended"] - spell["seconds"] > 90}
        for spell in slow.spells()
    ]


def _recall(slow: Slow, asked: Asked) -> list[Observation]:
    rows = []
    for groups, expected, ranks in slow.judged(asked.judge):
        for k in (1, 3, 5, 10):
            found = [float(ranks.get(skill, math.inf) <= k) for skill in expected]
            if asked.by_skill:
                rows += [groups | {"k": k, "skill": e, "value": v} for e, v in zip(expected, found, strict=True)]
            else:
                rows.append(groups | {"k": k, "value": sum(found) / len(found)})
    return rows


def _reciprocal(slow: Slow, asked: Asked) -> list[Observation]:
    return [
        groups | {"value": 1 / min(ranks.get(skill, math.inf) for skill in expected)}
        for groups, expected, ranks in slow.judged(asked.judge)
    ]


def _gain(slow: Slow, asked: Asked) -> list[Observation]:
    rows = []
    for groups, expected, ranks in slow.judged(asked.judge):
        gained = sum(1 / math.log2(ranks[skill] + 1) for skill in expected if ranks.get(skill, 11) <= 10)
        best = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(expected), 10) + 1))
        rows.append(groups | {"value": gained / best})
    return rows


def _drift(slow: Slow, _: Asked) -> list[Observation]:
    rows = []
    for s in slow.selections:
        shadow = s.event["shadow"]
        if shadow is not None and s.candidates and not s.event["randomized"]:
            shown, other = [c.name for c in s.candidates], shadow["skill_ids"]
            common = len(set(shown[:10]) & set(other[:10])) / min(10, max(len(shown), len(other)))
            version = shadow["embedding_version"]
            pair = {"shadow_embedding_version": version, "value": common, "rbo": biased_overlap(shown, other)}
            rows.append(slow.of_selection(s, **pair))
    return rows


def biased_overlap(first: Sequence[str], second: Sequence[str], p: float = 0.9) -> float:
    """Webber, Moffat & Zobel 2010, equation 32, term by term."""
    short, long = sorted((first, second), key=len)
    s, n = len(short), len(long)
    if s == 0:
        return 0.0
    common = [len(set(short[:depth]) & set(long[:depth])) for depth in range(n + 1)]
    total = sum(common[d] / d * p**d for d in range(1, n + 1))
    total += sum(common[s] * (d - s) / (s * d) * p**d for d in range(s + 1, n + 1))
    return (1 - p) / p * total + ((common[n] - common[s]) / n + common[s] / s) * p**n


OBSERVERS: dict[str, Callable[[Slow, Asked], list[Observation]]] = {
    "acceptance_rate": _acceptance,
    "top1_acceptance_rate": _top1,
    "mismatch_rate": _mismatch,
    "skip_rate": lambda slow, _: [slow.at_the_top(s, slow.skipped(s)) for s in slow.decided()],
    "off_list_rate": _off_list,
    "corrected_rate": _corrected,
    "contamination_rate": _contamination,
    "picks_per_selection": lambda slow, _: [slow.of_selection(s, value=len(s.picks)) for s in slow.decisions()],
    "zero_pick_rate": lambda slow, _: [slow.of_selection(s, hit=not s.picks) for s in slow.decisions()],
    "over_pick_rate": lambda slow, _: [slow.of_selection(s, hit=len(s.picks) > 6) for s in slow.decisions()],
    "recall_at_k": _recall,
    "mrr": _reciprocal,
    "ndcg_at_10": _gain,
    "failed_tool_rate": _failed,
    "caller_fault_rate": _caller_faults,
    "repair_rate": _repairs,
    "loop_rate": _loops,
    "hallucinated_tool_rate": _class_is("unknown", "near_miss"),
    "near_miss_rate": _class_is("near_miss"),
    "retired_call_rate": _class_is("retired"),
    "unknown_argument_rate": _unknown_arguments,
    "stage_latency_ms": _latencies,
    "fallback_rate": lambda slow, _: [
        slow.of_selection(s, hit=bool(s.event["fallback"])) for s in slow.selections if s.ranked
    ],
    "degraded_seconds": _degraded,
    "half_failure": _half_failures,
    "no_match_rate": lambda slow, _: [
        slow.of_selection(s, hit=bool(s.event["no_match"]))
        for s in slow.selections
        if s.ranked or s.event["no_match"] is not None
    ],
    "menu_tokens": lambda slow, _: [slow.of_selection(s, value=s.event["menu_tokens"]) for s in slow.selections],
    "embedding_drift": _drift,
}


def slow_rows(slow: Slow, name: str, kind: str, keys: Sequence[str], asked: Asked) -> list[dict[str, Any]]:
    """The rows of a metric by these groups: ``value``, ``n`` and what else its kind has."""
    rows = [_timed(row) for row in OBSERVERS[name](slow, asked) if asked.holds(row["seconds"])]
    if not rows:
        return []
    frame = pl.DataFrame(rows, infer_schema_length=None).with_columns(
        pl.lit(None).alias(key) for key in keys if key not in rows[0]
    )
    groups = frame.group_by(keys) if keys else frame.group_by(pl.lit(0).alias("all"))
    found = groups.agg(_SUMS[kind]).to_dicts()
    return _FINISH[kind](found, keys) if kind in _FINISH else found


def _timed(row: Observation) -> Observation:
    time = moment(row["seconds"])
    return row | {"rbo": None, "hour": time.strftime("%Y-%m-%dT%H:00:00Z"), "day": time.strftime("%Y-%m-%d")} | row


def _rates(rows: list[dict[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    if "error_kind" in keys:  # a part of the numerator: its denominator is that of the other groups
        shared = [key for key in keys if key != "error_kind"]
        whole: Counter[Any] = Counter()
        for row in rows:
            whole[tuple(row[key] for key in shared)] += row["n"]
        rows = [row | {"n": whole[tuple(row[key] for key in shared)]} for row in rows if row["error_kind"]]
    found = []
    for row in rows:
        interval = binomtest(row["k"], row["n"]).proportion_ci(method="wilson")
        found.append(row | {"value": row["k"] / row["n"], "low": interval.low, "high": interval.high})
    return found


def _quantiles(rows: list[dict[str, Any]], _: Sequence[str]) -> list[dict[str, Any]]:
    # A stage that nothing timed is no row; calls are.
    return [row | {"value": row["p50"]} for row in rows if row["told"] or row.get("stage", "call") == "call"]


_USABLE = pl.col("value").cast(pl.Float64).filter(pl.col("value").cast(pl.Float64) >= 0)
_MEANS = (pl.col("value", "rbo").mean(), pl.len().alias("n"))
_SUMS: dict[str, Sequence[pl.Expr]] = {
    "rate": (pl.col("hit").sum().alias("k"), pl.len().alias("n")),
    "mean": _MEANS,
    "bootstrap": _MEANS,
    "overlap": _MEANS,
    "sum": (pl.col("value").sum(), pl.len().alias("n")),
    "quantiles": (
        *(_USABLE.quantile(q, "linear").alias(f"p{round(100 * q)}") for q in (0.5, 0.95, 0.99)),
        _USABLE.len().alias("n"),
        pl.col("value").count().alias("told"),
        (pl.len() - _USABLE.len()).alias("left_out"),
    ),
}
_FINISH: dict[str, Callable[[list[dict[str, Any]], Sequence[str]], list[dict[str, Any]]]] = {
    "rate": _rates,
    "quantiles": _quantiles,
}
