"""How like its query each pick is, for `contamination_rate`: a pick that repeats the session's previous skill although
its description has little to do with what was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import polars as pl

from analytics.fetch import fetch
from analytics.text_vectors import TextVectors
from collector.lake import Lake
from collector.tables import TABLES
from pickwise.embed import Vectors

#: Distinct queries whose picks a night compares; the rest waits for the next one.
MAX_QUERIES = 5_000
#: A session is looked at this far back from the day's start for what it used before.
LOOKBACK = timedelta(days=1)

# Every pick of the window, under the name that the registry gives it, and what stands beside it. ``basis`` tells
# whether any of that changed since it was compared. The order of queries is that of their hashes: where a night has
# room for some, they are a fair sample.
_PICKS = """
WITH turns AS (
    SELECT event_id, time, session_id, query, picks, previous_skill_id FROM selections
    WHERE project = $project AND time >= $since AND time < $until
),
shown AS (
    SELECT event_id, skill_id, coalesce(registry_skill_id, skill_id) AS known_as, picked FROM candidates
    WHERE project = $project AND time >= $since AND time < $until
),
picked AS (
    SELECT t.event_id, t.time, t.session_id, p.pick, p.place,
        coalesce(min(s.known_as), any_value(p.pick)) AS skill_id
    FROM turns t, LATERAL (SELECT unnest(t.picks) AS pick, generate_subscripts(t.picks, 1) AS place) p
    LEFT JOIN shown s ON s.event_id = t.event_id AND s.picked AND p.pick IN (s.skill_id, s.known_as)
    GROUP BY ALL
),
last_picks AS (
    SELECT session_id, time, arg_max(skill_id, (event_id, place)) AS skill_id
    FROM picked WHERE session_id IS NOT NULL GROUP BY ALL
),
before AS (
    SELECT t.event_id, l.skill_id
    FROM (FROM turns WHERE session_id IS NOT NULL) t
    ASOF JOIN last_picks l ON l.session_id = t.session_id AND t.time > l.time
),
others AS (
    SELECT event_id, list(DISTINCT known_as ORDER BY known_as) AS unpicked FROM shown WHERE NOT picked GROUP BY event_id
),
told AS (
    SELECT DISTINCT p.event_id, p.skill_id, t.time, t.query, md5(t.query) AS query_key,
        coalesce(t.previous_skill_id, b.skill_id) AS previous_skill_id, coalesce(o.unpicked, []) AS unpicked
    FROM picked p
    JOIN turns t USING (event_id)
    LEFT JOIN before b USING (event_id)
    LEFT JOIN others o USING (event_id)
    WHERE t.time >= $start AND trim(t.query) <> '' AND NOT regexp_full_match(t.query, 'hash:[0-9a-f]{32}')
),
based AS (
    SELECT *, md5(concat_ws(chr(31), query, skill_id, previous_skill_id, unpicked::VARCHAR)) AS basis FROM told
)
SELECT b.* FROM based b
ANTI JOIN (
    FROM pick_similarities WHERE project = $project AND embedding_version = $version
) s ON s.event_id = b.event_id AND s.skill_id = b.skill_id AND s.basis = b.basis
WHERE EXISTS (
    FROM skills k
    WHERE k.project = $project AND k.authoritative AND k.skill_id = b.skill_id AND trim(k.description) <> ''
        AND k.valid_from <= b.time AND (k.valid_to IS NULL OR b.time < k.valid_to)
)
QUALIFY dense_rank() OVER (ORDER BY b.query_key) <= $room
ORDER BY b.query_key, b.event_id, b.skill_id
"""
_DESCRIPTIONS = """
SELECT skill_id, valid_from, valid_to, description FROM skills
WHERE project = $project AND authoritative AND trim(description) <> ''
ORDER BY skill_id, valid_from
"""
_TONIGHT = """
SELECT count(DISTINCT s.query) AS n
FROM pick_similarities p JOIN selections s USING (project, event_id)
WHERE project = $project AND p.computed_at >= $midnight
"""
_KEPT = """
SELECT event_id FROM selections SEMI JOIN compared USING (event_id) WHERE project = $project AND n_picks > 0
"""


def compare(
    connection: duckdb.DuckDBPyConnection, project: str, days: Sequence[date], now: datetime, vectors: TextVectors
) -> tuple[pl.DataFrame, list[date]]:
    """Rows of ``pick_similarities`` for picks of these days that have none yet, newest day first.

    Also the days of which these are all. A pick without a query or a description is left out.
    """
    midnight = datetime(now.year, now.month, now.day, tzinfo=now.tzinfo)
    (tonight,) = fetch(connection, _TONIGHT, project=project, midnight=midnight)["n"]
    left = max(MAX_QUERIES - tonight, 0)
    described = _Descriptions(fetch(connection, _DESCRIPTIONS, project=project))
    meanings = vectors.of(described.texts)
    rows: list[dict[str, Any]] = []
    done = []
    for day in sorted(days, reverse=True):
        start = datetime(day.year, day.month, day.day, tzinfo=now.tzinfo)
        window = {"since": start - LOOKBACK, "start": start, "until": min(start + timedelta(days=1), now)}
        asked = {"project": project, "version": vectors.version, "room": left + 1}
        picks = fetch(connection, _PICKS, **asked, **window).to_dicts()
        queries = list(dict.fromkeys(pick["query"] for pick in picks))
        taken = set(queries[:left])
        left -= len(taken)
        cosines = dict(zip(sorted(taken), vectors.of(sorted(taken)) @ meanings.T, strict=True))
        rows += [_compared(pick, described, cosines[pick["query"]]) for pick in picks if pick["query"] in taken]
        if len(taken) < len(queries):
            break
        done.append(day)
    stamps = {"project": project, "computed_at": now, "embedding_version": vectors.version}
    return pl.DataFrame([stamps | row for row in rows], schema=TABLES["pick_similarities"]), done


def tidy(connection: duckdb.DuckDBPyConnection, lake: Lake, project: str) -> None:
    """Drop the rows of selections that are gone, and those that newer ones stand for.

    Raises DeltaError when another process changed the same files; the next night finds the same.
    """
    of_project = pl.col("project") == project
    key = ["event_id", "skill_id"]
    rows = lake.select("pick_similarities", of_project, [*key, "computed_at"])
    connection.register("compared", rows.select(pl.col("event_id").unique()).to_arrow())
    kept = fetch(connection, _KEPT, project=project)["event_id"]
    connection.unregister("compared")
    standing = rows.filter(pl.col("event_id").is_in(kept.implode())).group_by(key).agg(pl.col("computed_at").max())
    if standing.height < rows.height:
        mark = pl.struct(*key, "computed_at")
        lake.replace("pick_similarities", of_project & ~mark.is_in(standing.select(mark).to_series().implode()))


class _Descriptions:
    """The description of each skill over time, by its place among all of them."""

    def __init__(self, history: pl.DataFrame) -> None:
        self.texts = history["description"].unique(maintain_order=True).to_list()
        places = {text: place for place, text in enumerate(self.texts)}
        self._history: dict[str, list[tuple[datetime, datetime | None, int]]] = {}
        for row in history.iter_rows(named=True):
            state = row["valid_from"], row["valid_to"], places[row["description"]]
            self._history.setdefault(row["skill_id"], []).append(state)

    def at(self, skill_ids: Sequence[str], time: datetime) -> list[int]:
        """Of the skills that had one then."""
        found = (self._at(skill_id, time) for skill_id in skill_ids)
        return [place for place in found if place is not None]

    def _at(self, skill_id: str, time: datetime) -> int | None:
        for valid_from, valid_to, place in reversed(self._history.get(skill_id, [])):
            if valid_from <= time and (valid_to is None or time < valid_to):
                return place
        return None


def _compared(pick: dict[str, Any], described: _Descriptions, cosines: Vectors) -> dict[str, Any]:
    """``cosines``: of the pick's query to each description."""
    (own,) = cosines[described.at([pick["skill_id"]], pick["time"])]
    others = cosines[described.at(pick["unpicked"], pick["time"])]
    names = ("time", "event_id", "skill_id", "previous_skill_id", "basis")
    return {name: pick[name] for name in names} | {
        "date": pick["time"].date(),
        "similarity": float(own),
        "best_unpicked": float(np.max(others)) if len(others) else None,
    }
