"""One skill's portrait: its entry, how it is offered, picked and called, and whom it is confused with."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import duckdb

from analytics.confusion import confusions
from analytics.tables import rows
from pickwise.events import DEFAULT_PROJECT

_WINDOW = "project = $project and (time >= $start or $start is null) and (time < $end or $end is null)"
_MEANT = "coalesce(registry_skill_id, skill_id) = $skill_id"
_TRIGGERS = 10
_CONFUSED = 10

_ENTRY = """
    select skill_id, name, kind, version, description, domain, is_active, source, valid_from, valid_to, entry
    from skills where project = $project and skill_id = $skill_id
    order by authoritative desc, valid_from desc limit 1
"""
_SHOWN = f"""
    select count(*) as impressions, count(*) filter (picked) as picks, count(*) filter (skipped) as skips,
        avg(rank) as mean_rank,
        count(*) filter (picked) / nullif(count(*), 0) as acceptance,
        wilson_low(count(*) filter (picked), count(*)) as acceptance_low,
        wilson_high(count(*) filter (picked), count(*)) as acceptance_high
    from candidates where {_WINDOW} and {_MEANT} and not closing
"""
_CALLED = f"""
    select count(*) as calls, count(ok) as finished, count(*) filter (not ok) as failed,
        count(*) filter (ok) / nullif(count(ok), 0) as success,
        wilson_low(count(*) filter (ok), count(ok)) as success_low,
        wilson_high(count(*) filter (ok), count(ok)) as success_high,
        avg(latency_ms) filter (latency_ms >= 0) as latency_mean_ms,
        quantile_cont(latency_ms, 0.99) filter (latency_ms >= 0) as latency_p99_ms,
        count(*) filter (latency_ms >= 0) as latency_n
    from calls where {_WINDOW} and {_MEANT}
"""
_KINDS = f"""
    select error_kind, count(*) as n from calls where {_WINDOW} and {_MEANT} and not ok
    group by 1 order by n desc, error_kind
"""
_TRIGGERED_BY = f"""
    with picked as (
        select project, event_id from candidates where {_WINDOW} and {_MEANT} and picked
    )
    select s.event_id, s.time, s.query, s.language
    from selections s semi join picked using (project, event_id)
    where s.query is not null
    order by s.time desc, s.event_id limit {_TRIGGERS}
"""
_STATUS = """
    select status, previous_status, reason, rollout_fraction, evidence, time as since
    from skill_status where project = $project and skill_id = $skill_id order by time desc limit 1
"""
_WEIGHTS = """
    select version, time, heat, heat_log, success, success_logit, n_effective, status, rollout_fraction
    from weights where project = $project and skill_id = $skill_id order by time desc limit 1
"""
_SERIES = f"""
    with shown as (
        select strftime(time, '%Y-%m-%d') as day, count(*) as impressions, count(*) filter (picked) as picks,
            count(*) filter (skipped) as skips
        from candidates where {_WINDOW} and {_MEANT} and not closing group by 1
    ),
    called as (
        select strftime(time, '%Y-%m-%d') as day, count(*) as calls, count(ok) as finished,
            count(*) filter (not ok) as failed,
            avg(latency_ms) filter (latency_ms >= 0) as latency_mean_ms,
            quantile_cont(latency_ms, 0.99) filter (latency_ms >= 0) as latency_p99_ms
        from calls where {_WINDOW} and {_MEANT} group by 1
    )
    select day, coalesce(impressions, 0) as impressions, coalesce(picks, 0) as picks, coalesce(skips, 0) as skips,
        coalesce(calls, 0) as calls, coalesce(finished, 0) as finished, coalesce(failed, 0) as failed,
        latency_mean_ms, latency_p99_ms
    from shown full join called using (day) order by day
"""


def skill(
    connection: duckdb.DuckDBPyConnection,
    project: str = DEFAULT_PROJECT,
    skill_id: str = "",
    start: datetime | None = None,
    end: datetime | None = None,
) -> dict[str, Any] | None:
    """The portrait over events with ``start`` <= time < ``end``; None where nothing knows the skill.

    ``entry`` (the registry's newest, None: not registered), ``impressions``, ``picks``, ``skips``, ``acceptance``,
    ``calls``, ``finished``, ``failed``, ``success`` (each rate with its 95 % interval, ``*_low`` and ``*_high``),
    ``error_kinds`` {kind: n}, ``latency_mean_ms`` and ``latency_p99_ms`` over ``latency_n`` calls, ``confused_with``
    (of the ``first`` times that it led a ranked selection with a pick, ``skill_id`` was picked instead ``n`` times;
    ``overlap`` of their descriptions), ``triggers`` (the newest queries that picked it), ``status``, ``weights`` (both
    newest, or None) and ``series`` (one row a day with events).
    """

    def ask(query: str) -> list[dict[str, Any]]:
        used = {name: value for name, value in parameters.items() if f"${name}" in query}
        return rows(connection.execute(query, used))

    parameters = {"project": project, "skill_id": skill_id, "start": start, "end": end}
    entry = _first(ask(_ENTRY))
    known = ask(f"select 1 from candidates where project = $project and {_MEANT} limit 1") or ask(
        f"select 1 from calls where project = $project and {_MEANT} limit 1"
    )
    if entry is None and not known:
        return None
    if entry is not None and entry["entry"]:
        entry["entry"] = json.loads(entry["entry"])
    return {
        "project": project,
        "skill_id": skill_id,
        "entry": entry,
        **ask(_SHOWN)[0],
        **ask(_CALLED)[0],
        "error_kinds": {row["error_kind"]: row["n"] for row in ask(_KINDS)},
        "confused_with": [
            {"skill_id": row["instead"], "n": row["n"], "first": row["first"], "overlap": row["overlap"]}
            for row in confusions(connection, project, skill_id=skill_id, start=start, end=end, limit=_CONFUSED)
        ],
        "triggers": ask(_TRIGGERED_BY),
        "status": _first(ask(_STATUS)),
        "weights": _first(ask(_WEIGHTS)),
        "series": ask(_SERIES),
    }


def _first(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    return found[0] if found else None
