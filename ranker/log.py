"""Reads a project's log from the analytics tables and turns it into facts in the order of their own times."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl

from pickwise.scores import SCORES
from pickwise.settings import Settings
from pickwise.skills import Skill
from ranker.labels import Label, label, outcome_of
from ranker.state import State
from ranker.turns import Ended, Registered, Turn
from ranker.vectors import VectorCache

if TYPE_CHECKING:
    import duckdb

#: Facts dated further ahead of the clock than this are left out, and calls that would end later by a wrong duration:
#: one of them must not make all else look old.
MAX_AHEAD_S = 86_400.0

_ELIGIBLE = "(environment IS NULL OR NOT list_contains($excluded, environment)) AND epoch_us(time) <= $until"
_SELECTIONS = f"""
SELECT event_id, epoch_us(time) / 1e6 AS at, coalesce(query, '') AS query, language, coalesce(model, '') AS model,
       coalesce(session_id, trace_id, event_id) AS session_id, previous_skill_id, intent_domain, intent_action,
       intent_object, ranked, randomized
FROM selections WHERE project = $project AND {_ELIGIBLE} ORDER BY time, event_id
"""
_CANDIDATES = f"""
SELECT event_id, skill_id, rank, score, bm25, dense, rerank, picked
FROM candidates WHERE project = $project AND {_ELIGIBLE} ORDER BY time, event_id, rank
"""
_CALLS = f"""
SELECT call_key, selection_id, skill_id, coalesce(registry_skill_id, skill_id) AS known_as, ok, error_kind, latency_ms,
       epoch_us(time) / 1e6 + greatest(coalesce(latency_ms, 0), 0) / 1e3 AS ended
FROM calls WHERE project = $project AND ok IS NOT NULL AND {_ELIGIBLE} AND ended <= $until / 1e6
ORDER BY ended, call_key
"""
_SKILLS = """
SELECT skill_id, epoch_us(valid_from) / 1e6 AS valid_from, valid_to IS NULL AND is_active AS current, entry,
       registry_version
FROM skills WHERE project = $project AND authoritative ORDER BY valid_from, skill_id
"""
#: Expected skills as the list names them; what it lacks no order can find.
_LABELS = """
SELECT event_id, list(c.skill_id ORDER BY c.rank) AS expected
FROM judgements j JOIN candidates c USING (project, event_id)
WHERE project = $project AND NOT j.from_judge AND list_contains(j.ranks, c.rank)
GROUP BY event_id ORDER BY event_id
"""


Fact = Turn | Ended | Registered


@dataclass(frozen=True)
class Log:
    """One project's facts as frames; times are Unix seconds. Only environments that learning uses.

    selections: event_id, at, query, language, model, session_id, previous_skill_id, intent_*, ranked, randomized.
    candidates: event_id, skill_id, rank, the scores, picked; in the order of selections, then rank.
    calls: call_key, selection_id, skill_id, known_as, ok, error_kind, latency_ms, ended; finished ones.
    skills: skill_id, valid_from, current, entry, registry_version. labels: event_id, expected.
    """

    selections: pl.DataFrame
    candidates: pl.DataFrame
    calls: pl.DataFrame
    skills: pl.DataFrame
    labels: pl.DataFrame

    @property
    def size(self) -> tuple[int, int, int, int]:
        """Impressions, picks, finished calls and registry states: what a new event changes."""
        picks = int(self.candidates["picked"].sum())
        return self.candidates.height, picks, self.calls.height, self.skills.height


def read_log(data_dir: Path, settings: Settings, project: str, until: float | None = None) -> Log:
    """The log of a project as of ``until`` (Unix seconds; now where absent)."""
    from analytics.tables import Tables  # with all that folds tables, which who is given a log can do without

    connection = Tables(data_dir).connect()
    try:
        return read_connection(connection, settings, project, until)
    finally:
        connection.close()


def read_connection(
    connection: duckdb.DuckDBPyConnection, settings: Settings, project: str, until: float | None = None
) -> Log:
    until_s = time.time() + MAX_AHEAD_S if until is None else until
    eligible = {"project": project, "excluded": settings.excluded_environments, "until": int(until_s * 1e6)}
    return Log(
        selections=frame(connection, _SELECTIONS, eligible),
        candidates=frame(connection, _CANDIDATES, eligible),
        calls=frame(connection, _CALLS, eligible),
        skills=frame(connection, _SKILLS, {"project": project}),
        labels=frame(connection, _LABELS, {"project": project}),
    )


def frame(connection: duckdb.DuckDBPyConnection, query: str, parameters: Mapping[str, Any]) -> pl.DataFrame:
    found = pl.from_arrow(connection.sql(query, params=dict(parameters)).to_arrow_table())
    assert isinstance(found, pl.DataFrame)
    return found


def turns(log: Log, vectors: VectorCache | None) -> list[Turn]:
    """Every selection as a turn, oldest first; without ``vectors`` their vectors are empty."""
    selections, candidates = log.selections, log.candidates
    embedded = vectors.many(selections["query"].to_list()) if vectors else np.zeros((selections.height, 0), np.float32)
    skills = candidates["skill_id"].to_list()
    picked = candidates["picked"].fill_null(False).to_numpy()
    scores = {name: candidates[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in SCORES}
    spans = _spans(candidates["event_id"].to_list())
    found = []
    for row, vector in zip(selections.iter_rows(named=True), embedded, strict=True):
        start, end = spans.get(row["event_id"], (0, 0))
        found.append(
            Turn(
                selection_id=row["event_id"],
                time=row["at"],
                query=row["query"],
                vector=vector,
                skill_ids=skills[start:end],
                scores={name: values[start:end] for name, values in scores.items()},
                model=row["model"],
                session_id=row["session_id"],
                language=row["language"],
                previous_skill_id=row["previous_skill_id"],
                intent_domain=row["intent_domain"],
                intent_action=row["intent_action"],
                intent_object=row["intent_object"],
                ranked=bool(row["ranked"]),
                randomized=bool(row["randomized"]),
                picked=picked[start:end].nonzero()[0],
            )
        )
    return found


def ends(log: Log, all_turns: Sequence[Turn]) -> list[Ended]:
    """Every finished call, by its end; the first success of a skill in a turn carries the turn."""
    by_id = {turn.selection_id: turn for turn in all_turns}
    remembered: set[tuple[str, str]] = set()
    found = []
    for row in log.calls.iter_rows(named=True):
        turn = by_id.get(row["selection_id"])
        key = (row["selection_id"], row["known_as"])
        first = turn is not None and bool(row["ok"]) and key not in remembered
        if first:
            remembered.add(key)
        found.append(
            Ended(
                # An end before its own turn is a clock that differs.
                time=max(row["ended"], turn.time) if turn else row["ended"],
                skill_id=row["known_as"],
                ok=row["ok"],
                error_kind=row["error_kind"],
                latency_ms=row["latency_ms"],
                turn=turn if first else None,
            )
        )
    return found


def entries(log: Log, vectors: VectorCache | None) -> list[Registered]:
    """Every state of every registry entry, by the time from which it holds."""
    skills = [msgspec.json.decode(entry, type=Skill, strict=False) for entry in log.skills["entry"].to_list()]
    texts = [skill.text for skill in skills]
    embedded = vectors.many(texts) if vectors else np.zeros((len(texts), 0), dtype=np.float32)
    return [
        Registered(
            time=float(valid_from),
            skill_id=skill.skill_id,
            name=skill.display_name,
            description=skill.description or "",
            domain=skill.domain or "",
            actions=frozenset(capability.action.casefold() for capability in skill.capabilities),
            objects=frozenset(item.object.casefold() for item in skill.capabilities if item.object),
            vector=vector,
        )
        for skill, valid_from, vector in zip(skills, log.skills["valid_from"].to_list(), embedded, strict=True)
    ]


_ORDER: dict[type[Fact], int] = {Registered: 0, Turn: 1, Ended: 2}


def ordered(facts: Sequence[Fact]) -> list[Fact]:
    """By time; at one time registry entries before turns before ends."""
    return sorted(facts, key=lambda fact: (fact.time, _ORDER[type(fact)]))


def replay(facts: Sequence[Fact], state: State) -> Iterator[Turn]:
    """Feed all facts in order; each turn is yielded while the state knows only what lies strictly before it."""
    for _, group in groupby(ordered(facts), key=lambda fact: fact.time):
        together = list(group)
        yield from (fact for fact in together if isinstance(fact, Turn))
        for fact in together:
            state.feed(fact)


def feed(facts: Sequence[Fact], state: State) -> State:
    for fact in ordered(facts):
        state.feed(fact)
    return state


def facts_of(log: Log, vectors: VectorCache | None) -> list[Fact]:
    """All facts of a log, unordered."""
    all_turns = turns(log, vectors)
    return [*all_turns, *ends(log, all_turns), *entries(log, vectors)]


def labels_by_turn(log: Log, facts: Sequence[Fact]) -> dict[str, list[Label]]:
    """Relevance of each candidate of each turn with a listed pick, in the order shown."""
    calls: dict[tuple[str, str], list[tuple[bool | None, str | None]]] = {}
    for row in log.calls.select("selection_id", "skill_id", "ok", "error_kind").iter_rows():
        calls.setdefault((row[0], row[1]), []).append((row[2], row[3]))
    found = {}
    for turn in facts:
        if not isinstance(turn, Turn) or not len(turn.picked):
            continue
        labels: list[Label] = [0] * len(turn.skill_ids)
        for index in turn.picked:
            outcome = outcome_of(calls.get((turn.selection_id, turn.skill_ids[index]), ()))
            labels[index] = label(True, outcome)
        found[turn.selection_id] = labels
    return found


def _spans(keys: Sequence[str]) -> dict[str, tuple[int, int]]:
    """First and past-the-last row of each run of equal keys."""
    spans, start = {}, 0
    for key, group in groupby(keys):
        end = start + sum(1 for _ in group)
        spans[key] = (start, end)
        start = end
    return spans
