"""One selection replayed: what was offered, what was picked, and what became of it."""

from __future__ import annotations

from typing import Any

import duckdb

from analytics.tables import rows
from pickwise.events import DEFAULT_PROJECT

_SELECTION = "select * exclude (candidates) from selections where project = $project and event_id = $event_id"
_CANDIDATES = """
    select rank, skill_id, registry_skill_id, domain, score, bm25, dense, rerank, source, propensity, team, picked,
        skipped
    from candidates where project = $project and event_id = $event_id order by rank
"""
_CALLS = """
    select call_key, event_id, call_id, skill_id, registry_skill_id, name_class, off_list, unknown_arguments,
        started_at, latency_ms, ok, error_kind, error_message, attempts, retryable, arguments, args_keys, depth,
        parent_call_id, phases
    from calls where project = $project and selection_id = $event_id
    order by started_at, ordinal nulls last, call_key
"""
_FEEDBACK = """
    select event_id, time, kind, value, value_text, expected, source, annotator
    from feedback where project = $project and target_selection_id = $event_id order by time, event_id
"""


def selection(
    connection: duckdb.DuckDBPyConnection, project: str = DEFAULT_PROJECT, event_id: str = ""
) -> dict[str, Any] | None:
    """The selection's own columns, with ``candidates`` (rank, scores, picked, skipped), ``calls`` (with their phases)
    and ``feedback``; None where there is no such selection.
    """
    parameters = {"project": project, "event_id": event_id}
    found = rows(connection.execute(_SELECTION, parameters))
    if not found:
        return None
    return found[0] | {
        "candidates": rows(connection.execute(_CANDIDATES, parameters)),
        "calls": rows(connection.execute(_CALLS, parameters)),
        "feedback": rows(connection.execute(_FEEDBACK, parameters)),
    }
