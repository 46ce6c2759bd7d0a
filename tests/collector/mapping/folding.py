"""The folding of facts that docs/architecture.md describes, by hand and small: what the recordings are checked with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from collector.facts import CallFact, Facts, SelectionFact
from collector.mapping import map_traces
from collector.mapping.conversation import from_json
from collector.otlp import parse_traces
from pickwise.events import Selection
from pickwise.settings import Settings

RECEIVED_AT = 1_795_990_000_000_000_000


class FoldedCall(msgspec.Struct):
    skill_id: str
    selection_id: str | None
    ok: bool | None
    error_kind: str | None
    hallucinated: bool | None
    facts: list[CallFact]


def recorded(folder: Path, settings: Settings | None = None) -> Facts:
    """All facts of a recording's trace requests."""
    facts = Facts()
    for path in sorted(folder.glob("*traces*")):
        parsed = parse_traces(path.read_bytes(), "json" if path.suffix == ".json" else "protobuf")
        assert parsed.rejected == 0
        for part in map_traces(parsed, RECEIVED_AT, settings or Settings()).values():
            facts.extend(part)
    return facts


def turns(facts: Facts) -> list[Selection]:
    """The selections that are turns: not what only adds to them."""
    return [fact for fact in facts.selections if not isinstance(fact, SelectionFact) or fact.role == "turn"]


def retold(facts: Facts) -> set[str | None]:
    """The runs and steps: their calls are those of turns, told again."""
    return {fact.event_id for fact in facts.selections} - {fact.event_id for fact in turns(facts)}


def fold(facts: Facts) -> list[FoldedCall]:
    selections = sorted(turns(facts), key=time_of)
    calls = [fact for fact in facts.calls if fact.selection_id not in retold(facts)]
    runs = {fact.span_id: fact for fact in calls if fact.role == "run"}
    named = defaultdict(set)
    for fact in calls:
        if fact.role == "propose" and fact.call_id:
            named[fact.selection_id].add(fact.call_id)
    groups: dict[Any, list[CallFact]] = defaultdict(list)
    loose: list[CallFact] = []
    for fact in sorted(calls, key=lambda f: (time_of(f), f.ordinal or 0)):
        if fact.role == "run" and top_run(fact, runs) is not fact and top_run(fact, runs).call_id:
            fact = msgspec.structs.replace(fact, call_id=top_run(fact, runs).call_id)
        selection = fact.selection_id or selection_of(fact, selections, named)
        if fact.call_id:
            groups[selection, fact.call_id].append(fact)
        elif fact.role == "run" and top_run(fact, runs) is not fact:
            loose.append(fact)
        else:
            groups[selection, ("", fact.event_id)].append(fact)
    pair_without_id(groups)
    for fact in loose:
        top = top_run(fact, runs)
        next(group for group in groups.values() if top in group).append(fact)
    by_id = {selection.event_id: selection for selection in selections}
    return [
        folded(key[0], group, by_id) for key, group in groups.items() if {f.role for f in group} & {"propose", "run"}
    ]


def top_run(fact: CallFact, runs: dict[str | None, CallFact]) -> CallFact:
    while fact.parent_span_id in runs:
        fact = runs[fact.parent_span_id]
    return fact


def selection_of(fact: CallFact, selections: list[Selection], named: dict[Any, set[str]]) -> str | None:
    trace = [s for s in selections if s.trace_id == fact.trace_id]
    # A prompt quotes what came before it.
    since = time_of(fact) - (1_000 if fact.role == "answer" else 0)
    before = [s for s in trace if time_of(s) <= since]
    ids = [s for s in before if fact.call_id in named[s.event_id]] or [
        s for s in reversed(trace) if fact.call_id in named[s.event_id]
    ]
    offering = [s for s in before if fact.skill_id in {c.skill_id for c in s.candidates}]
    found = ids or offering or before or trace
    return found[-1].event_id if found else None


def pair_without_id(groups: dict[Any, list[CallFact]]) -> None:
    """Runs without an id join proposals of their selection and skill that no run has: same arguments, then order."""
    for same_arguments in (True, False):
        for key in [k for k, g in groups.items() if isinstance(k[1], tuple) and g[0].role == "run"]:
            run = groups[key][0]
            for group in [g for other, g in groups.items() if other[0] == key[0]]:
                if any(fact.role == "run" for fact in group):
                    continue
                proposal = next((f for f in group if f.role == "propose"), None)
                if proposal is None or proposal.skill_id != run.skill_id:
                    continue
                if same_arguments and from_json(proposal.arguments) != from_json(run.arguments):
                    continue
                group.append(run)
                del groups[key]
                break


def folded(selection_id: str | None, group: list[CallFact], selections: dict[Any, Selection]) -> FoldedCall:
    skill_id = group[0].skill_id
    menu = {c.skill_id for c in selections[selection_id].candidates} if selection_id in selections else set()
    ran = any(fact.role == "run" for fact in group)
    kinds = [fact.error_kind for fact in group if fact.error_kind]
    ok: bool | None
    if any(fact.ok is False for fact in group):
        ok, kind = False, min(kinds, key=lambda k: (-len(k), k)) if kinds else "tool_error"
    elif not ran and menu and skill_id not in menu:
        ok, kind = False, "not_found"
    else:
        ok, kind = (True if any(fact.ok for fact in group) else None), None
    return FoldedCall(skill_id, selection_id, ok, kind, skill_id not in menu if menu else None, group)


def time_of(event: Any) -> int:
    return int(event.time)


def without_pick(facts: Facts, calls: Iterable[FoldedCall]) -> int:
    picked = {call.selection_id for call in calls}
    return sum(selection.event_id not in picked for selection in turns(facts))
