"""Implicit feedback: what users say by asking again, and agents by calling again with other arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import duckdb
import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.fetch import fetch
from collector.tables import TABLES
from pickwise.embed import Embedder, EmbedderUnavailable, Vectors, load_embedder
from pickwise.events import derive_event_id
from pickwise.text import terms

REASKED_WITHIN = timedelta(seconds=120)
#: A session is looked at this far back from the day's start, so that midnight splits no pair.
LOOKBACK = timedelta(days=1)
#: Measured on MetaTool and ACEBench queries that need different tools: 99.9 % of their pairs are below 0.60 with the
#: default embedder, while rewordings of one request lie between 0.54 and 0.92.
SIMILAR_COSINE = 0.6
#: The same for shared terms ÷ all terms, where no embedder is installed: 99.9 % of the pairs are below 0.30.
SIMILAR_JACCARD = 0.35

#: A query of which only a keyed hash was kept: it has no words to compare.
_HASHED = re.compile(r"^hash:[0-9a-f]{32}$")

# Of sessions in which something followed soon enough.
_SELECTIONS = f"""
WITH turns AS (
    SELECT event_id, time, session_id, trace_id, turn, query, ranked, closing, n_picks, agent, model, environment,
           release
    FROM selections
    WHERE project = $project AND time >= $since AND time < $end AND session_id IS NOT NULL
),
followed AS (
    SELECT session_id, time, lag(time) OVER (PARTITION BY session_id ORDER BY time, event_id) AS previous FROM turns
)
FROM turns SEMI JOIN (
    FROM followed WHERE time >= $start AND time <= previous + INTERVAL {REASKED_WITHIN.seconds} SECONDS
) USING (session_id)
"""
# Of sessions that called the skill with other argument names too.
_CALLS = """
WITH told AS (
    SELECT call_key, event_id, selection_id, call_id, time, session_id, trace_id, skill_id, latency_ms, ok, args_keys,
           ordinal, agent, model, environment, release
    FROM calls
    WHERE project = $project AND time >= $since AND time < $end AND session_id IS NOT NULL AND args_keys IS NOT NULL
)
FROM told SEMI JOIN (
    SELECT session_id, skill_id FROM told GROUP BY ALL
    HAVING max(time) >= $start AND min(hash(args_keys)) <> max(hash(args_keys)) -- lists take long to compare
) USING (session_id, skill_id)
"""
_KNOWN = """
SELECT event_id FROM feedback WHERE project = $project AND source = 'implicit' AND time >= $start AND time < $end
"""

Similar = Callable[[Sequence[tuple[str, str]]], NDArray[np.bool_]]
Row = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """One piece of implicit feedback: its kind, what it is about, and the later event that tells it."""

    kind: str
    about: Row
    told_by: Row


def derive(
    connection: duckdb.DuckDBPyConnection,
    project: str,
    start: datetime,
    end: datetime,
    now: datetime,
    similar: Similar | None = None,
) -> pl.DataFrame:
    """Feedback told by events in [start, end) that the table lacks, as rows of ``feedback``."""
    window = {"project": project, "start": start, "end": end}
    selections = fetch(connection, _SELECTIONS, since=start - LOOKBACK, **window)
    calls = fetch(connection, _CALLS, since=start - LOOKBACK, **window)
    verdicts = [*reasked(selections, similar or similarity()), *arguments_edited(calls)]
    known = set(fetch(connection, _KNOWN, **window)["event_id"])
    rows = [_feedback(project, verdict, now) for verdict in verdicts if start <= verdict.told_by["time"] < end]
    return pl.DataFrame([row for row in rows if row["event_id"] not in known], schema=TABLES["feedback"])


def reasked(selections: pl.DataFrame, similar: Similar) -> list[Verdict]:
    """Users' turns that the next one, within 120 s, says again; about the last selection with a pick of the turn.

    ``selections``: columns of the table of that name, with a session. A query that was not kept is left out.
    """
    pairs = [
        (turn, following[0])
        for turns in _user_turns(selections)
        for turn, following in pairwise(turns)
        if following[0]["time"] - turn[-1]["time"] <= REASKED_WITHIN
        and _has_words(turn[0]["query"])
        and _has_words(following[0]["query"])
    ]
    if not pairs:
        return []
    alike = similar([(turn[0]["query"], again["query"]) for turn, again in pairs])
    return [
        Verdict("reasked", _decision(turn), again) for (turn, again), same in zip(pairs, alike, strict=True) if same
    ]


def arguments_edited(calls: pl.DataFrame) -> list[Verdict]:
    """Calls that succeeded and whose skill the session then called again with other argument names.

    ``calls``: columns of the table of that name, with session and argument names. Calls of one selection run side by
    side: none of them corrects another.
    """
    ordered = calls.sort("session_id", "skill_id", "time", "ordinal", "call_key").iter_rows(named=True)
    found: list[Verdict] = []
    for _, group in groupby(ordered, key=itemgetter("session_id", "skill_id")):
        for earlier, later in pairwise(group):
            if earlier["ok"] is True and _follows(earlier, later) and _names(earlier) != _names(later):
                found.append(Verdict("arguments_edited", earlier, later))
    return found


def similarity(embedder: str = "use") -> Similar:
    """Whether the two queries of each pair ask the same: by embeddings, or by terms where no embedder is installed.

    It embeds each text once.
    """
    known: dict[str, Vectors] = {}

    def similar(pairs: Sequence[tuple[str, str]]) -> NDArray[np.bool_]:
        try:
            model = load_embedder(embedder)
        except EmbedderUnavailable:
            return np.array([_jaccard(first, second) >= SIMILAR_JACCARD for first, second in pairs], dtype=np.bool_)
        return _cosines(model, pairs, known) >= SIMILAR_COSINE

    return similar


def _user_turns(selections: pl.DataFrame) -> Iterator[list[list[Row]]]:
    """Per session, its users' turns in order, each with its selections.

    One user's turn may need many decisions: those of one trace belong together, unless a model was asked something
    new in it (the query of an unranked selection is the user's; a ranked one's may be the agent's own search).
    """
    ordered = selections.sort("session_id", "time", "event_id").iter_rows(named=True)
    for _, session in groupby(ordered, key=itemgetter("session_id")):
        turns: list[list[Row]] = []
        for row in session:
            if turns and _same_turn(turns[-1], row):
                turns[-1].append(row)
            else:
                turns.append([row])
        yield turns


def _same_turn(turn: list[Row], row: Row) -> bool:
    if row["trace_id"] is None or row["trace_id"] != turn[-1]["trace_id"]:
        return row["turn"] is not None and row["turn"] == turn[-1]["turn"] and row["query"] == turn[0]["query"]
    if row["ranked"]:
        return True
    asked = [earlier["query"] for earlier in turn if not earlier["ranked"] and earlier["query"] is not None]
    return not asked or row["query"] is None or row["query"] == asked[-1]


def _decision(turn: list[Row]) -> Row:
    """The selection that the user's dissatisfaction is about."""
    with_pick = [row for row in turn if row["n_picks"] and not row["closing"]]
    return (with_pick or turn)[-1]


def _follows(earlier: Row, later: Row) -> bool:
    if earlier["selection_id"] is not None and earlier["selection_id"] == later["selection_id"]:
        return False
    end = earlier["time"] + timedelta(milliseconds=max(earlier["latency_ms"] or 0.0, 0.0))
    return bool(later["time"] >= end)


def _names(call: Row) -> frozenset[str]:
    return frozenset(call["args_keys"])


def _has_words(query: str | None) -> bool:
    return query is not None and not _HASHED.match(query) and bool(terms(query))


def _jaccard(first: str, second: str) -> float:
    left, right = set(terms(first)), set(terms(second))
    return len(left & right) / len(left | right) if left | right else 0.0


def _cosines(model: Embedder, pairs: Sequence[tuple[str, str]], known: dict[str, Vectors]) -> NDArray[np.float32]:
    new = sorted({text for pair in pairs for text in pair}.difference(known))
    known.update(zip(new, model.embed(new), strict=True))
    return np.array([known[first] @ known[second] for first, second in pairs], dtype=np.float32)


def _feedback(project: str, verdict: Verdict, now: datetime) -> Row:
    about, told_by = verdict.about, verdict.told_by
    is_call = verdict.kind == "arguments_edited"
    event_id = derive_event_id(
        "implicit", verdict.kind, project, *(row["call_key" if is_call else "event_id"] for row in (about, told_by))
    )
    shared = ("session_id", "trace_id", "agent", "model", "environment", "release")
    return {name: about[name] for name in shared} | {
        "project": project,
        "date": told_by["time"].date(),
        "event_id": event_id,
        "time": told_by["time"],
        "time_is_receipt": False,
        "received_at": now,
        "fact": event_id,
        "kind": verdict.kind,
        "selection_id": about["selection_id"] if is_call else about["event_id"],
        "call_id": about["call_id"] if is_call else None,
        "source": "implicit",
    }
