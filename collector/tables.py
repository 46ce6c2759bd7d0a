"""Schemas of the Delta tables, as they lie on disk.

``selections``, ``calls``, ``feedback``, ``routes`` and ``skills`` hold facts, append-only; `analytics` folds them
into the tables that users see. The rest are written by jobs. Every table is partitioned by project and date.
"""

from __future__ import annotations

import polars as pl
from polars.datatypes import DataType, DataTypeClass

TIME = pl.Datetime("us", "UTC")
TEXT = pl.String
REAL = pl.Float64
FLAG = pl.Boolean
WHOLE = pl.Int64

CANDIDATE = pl.Struct(
    {
        "skill_id": TEXT,
        "score": REAL,
        "bm25": REAL,
        "dense": REAL,
        "rerank": REAL,
        "source": TEXT,
        "propensity": REAL,
        "team": TEXT,
    }
)
STAGES = ("intent", "embed", "sparse", "dense", "merge", "rerank", "llm_select", "total")

#: Columns of every fact table. ``time`` is event time; ``time_is_receipt`` flags events that carried none.
#: ``fact`` is a hash of the content; ``source_request`` names the log record, for replay, and says which were imported.
_FACT: dict[str, DataType | DataTypeClass] = {
    "project": TEXT,
    "date": pl.Date,
    "event_id": TEXT,
    "time": TIME,
    "time_is_receipt": FLAG,
    "received_at": TIME,
    "trace_id": TEXT,
    "span_id": TEXT,
    "session_id": TEXT,
    "agent": TEXT,
    "model": TEXT,
    "environment": TEXT,
    "release": TEXT,
    "fact": TEXT,
    "source_request": TEXT,
    "mapping_version": TEXT,
}

_ROUTE: dict[str, DataType | DataTypeClass] = {
    "instance": TEXT,
    "state": TEXT,
    "reason": TEXT,
    "p99_ms": REAL,
    "error_rate": REAL,
}

_SKILL: dict[str, DataType | DataTypeClass] = {
    "project": TEXT,
    "date": pl.Date,
    "skill_id": TEXT,
    "time": TIME,
    "received_at": TIME,
    "seq": WHOLE,
    "op": TEXT,
    "source": TEXT,
    "name": TEXT,
    "kind": TEXT,
    "version": TEXT,
    "description": TEXT,
    "domain": TEXT,
    "is_active": FLAG,
    "entry": TEXT,
    "registry_version": TEXT,
    "fact": TEXT,
    "source_request": TEXT,
}

FACT_TABLES: dict[str, pl.Schema] = {
    "selections": pl.Schema(
        _FACT
        | {
            "role": TEXT,
            # Of runs and retrievals alone.
            "ended_at": TIME,
            "parent_span_id": TEXT,
            "turn": WHOLE,
            "query": TEXT,
            "truncated": FLAG,
            "language": TEXT,
            "intent_domain": TEXT,
            "intent_action": TEXT,
            "intent_object": TEXT,
            "candidates": pl.List(CANDIDATE),
            "ranked": FLAG,
            "randomized": FLAG,
            "picks": pl.List(TEXT),
            "no_match": FLAG,
            "strategy": TEXT,
            "fallback": FLAG,
            "fallback_reason": TEXT,
            "stage_ms": pl.Struct(dict.fromkeys(STAGES, REAL)),
            "registry_version": TEXT,
            "embedding_version": TEXT,
            "weights_version": TEXT,
            "model_version": TEXT,
            "menu_tokens": WHOLE,
            "shadow_embedding_version": TEXT,
            "shadow_skill_ids": pl.List(TEXT),
            "previous_skill_id": TEXT,
            "context_digest": TEXT,
        }
    ),
    "calls": pl.Schema(
        _FACT
        | {
            "role": TEXT,
            "ordinal": WHOLE,
            "parent_span_id": TEXT,
            "call_id": TEXT,
            "selection_id": TEXT,
            "skill_id": TEXT,
            "phase": TEXT,
            "ok": FLAG,
            "latency_ms": REAL,
            "error_kind": TEXT,
            "error_message": TEXT,
            "attempt": WHOLE,
            "retryable": FLAG,
            "arguments": TEXT,
            "args_keys": pl.List(TEXT),
            "args_digest": TEXT,
            "depth": WHOLE,
            "parent_call_id": TEXT,
        }
    ),
    "feedback": pl.Schema(
        _FACT
        | {
            "kind": TEXT,
            "selection_id": TEXT,
            "call_id": TEXT,
            "value": REAL,
            "value_text": TEXT,
            "expected": pl.List(TEXT),
            "source": TEXT,
            "annotator": TEXT,
        }
    ),
    "routes": pl.Schema(_FACT | _ROUTE),
    # A change log of the registry: ``op`` is `upsert` or `retire`, ``source`` is `declared` or `observed`;
    # ``entry`` is the whole entry as JSON; ``seq`` orders writes with the same ``time`` (= valid_from).
    "skills": pl.Schema(_SKILL),
}

_JOB: dict[str, DataType | DataTypeClass] = {"project": TEXT, "date": pl.Date, "time": TIME}

JOB_TABLES: dict[str, pl.Schema] = {
    # One row a skill and day; written by the nightly job, the newest ``computed_at`` counts.
    "portraits": pl.Schema(
        _JOB
        | {
            "computed_at": TIME,
            "skill_id": TEXT,
            "impressions": WHOLE,
            "picks": WHOLE,
            "skips": WHOLE,
            "calls": WHOLE,
            "finished": WHOLE,
            "failed": WHOLE,
            "error_kinds": TEXT,
            "latency_mean_ms": REAL,
            "latency_p99_ms": REAL,
            "confused_with": TEXT,
        }
    ),
    # One row a distinct query: its hash (MD5), when it was first asked, and its cluster (null: it says nothing). The
    # newest ``computed_at`` counts, here and in the next two.
    "query_clusters": pl.Schema(
        _JOB | {"computed_at": TIME, "query_key": TEXT, "cluster_id": TEXT, "embedding_version": TEXT}
    ),
    # ``centroid``: the mean of its queries' vectors, comparable within its ``embedding_version`` only; ``queries``: of
    # how many.
    "clusters": pl.Schema(
        _JOB
        | {
            "computed_at": TIME,
            "cluster_id": TEXT,
            "name": TEXT,
            "embedding_version": TEXT,
            "queries": WHOLE,
            "centroid": pl.List(pl.Float32),
        }
    ),
    # One row a pick whose query and description are known: their similarity, and that of the best candidate that was
    # not picked. ``basis`` is a hash of what it was computed from.
    "pick_similarities": pl.Schema(
        _JOB
        | {
            "computed_at": TIME,
            "event_id": TEXT,
            "skill_id": TEXT,
            "previous_skill_id": TEXT,
            "similarity": REAL,
            "best_unpicked": REAL,
            "embedding_version": TEXT,
            "basis": TEXT,
        }
    ),
    # What successful sessions run one after the other, as it stood when it last changed; ``checks`` is JSON.
    "chains": pl.Schema(
        _JOB
        | {
            "computed_at": TIME,
            "skills": pl.List(TEXT),
            "sessions": WHOLE,
            "support": REAL,
            "confidence": REAL,
            "lift": REAL,
            "success": REAL,
            "n": WHOLE,
            "low": REAL,
            "high": REAL,
            "feasible": TEXT,
            "checks": TEXT,
        }
    ),
    # Every change of a skill's status, with its evidence (JSON).
    "skill_status": pl.Schema(
        _JOB
        | {
            "skill_id": TEXT,
            "status": TEXT,
            "previous_status": TEXT,
            "reason": TEXT,
            "rollout_fraction": REAL,
            "evidence": TEXT,
        }
    ),
    # Every change of state of an alert.
    "alerts": pl.Schema(
        _JOB
        | {
            "alert_id": TEXT,
            "rule": TEXT,
            "grp": TEXT,
            "state": TEXT,
            "severity": TEXT,
            "metric": TEXT,
            "value": REAL,
            "n": WHOLE,
            "window_from": TIME,
            "window_to": TIME,
            "started_at": TIME,
            "message": TEXT,
        }
    ),
    # One row a skill of each weights version.
    "weights": pl.Schema(
        _JOB
        | {
            "version": TEXT,
            "skill_id": TEXT,
            "heat": REAL,
            "heat_log": REAL,
            "success": REAL,
            "success_logit": REAL,
            "n_effective": REAL,
            "status": TEXT,
            "rollout_fraction": REAL,
        }
    ),
    # One row a training run: its decision and the evidence (JSON).
    "models": pl.Schema(
        _JOB
        | {
            "version": TEXT,
            "decision": TEXT,
            "reason": TEXT,
            "sha256": TEXT,
            "features": pl.List(TEXT),
            "evidence": TEXT,
        }
    ),
}

TABLES: dict[str, pl.Schema] = FACT_TABLES | JOB_TABLES
#: Raised when a column changes its meaning; added columns merge by themselves.
SCHEMA_VERSION = 1

_IMPORTED = "import/"


def source_request(seq: int, imported: bool) -> str:
    """The name of a log record in the rows that it brought; it tells imported rows from received ones."""
    return f"{_IMPORTED if imported else ''}{seq:020d}"


def is_imported() -> pl.Expr:
    """The rows of a fact table that came by `pickwise import`."""
    return pl.col("source_request").str.starts_with(_IMPORTED).fill_null(False)
