"""Lists held against labels: recall, MRR and NDCG with their intervals, and the queries that fell since last time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb
import msgspec
import polars as pl

from analytics.bootstrap import bootstrap_mean
from analytics.labels import Evaluation, Label, LabelStore, Result, Source, query_key
from analytics.tables import rows

#: What stands for a query where only its keyed hash is kept.
_HASHED = re.compile(r"hash:[0-9a-f]{32}")
#: A smaller fall is a matter of floating point.
_FELL = 1e-9

#: The label of each query: the imported one, else the newest that feedback told. Those of judges are left out.
_LABELS = """
select query, expected, language, cluster
from labels
where project = $project and query is not null and source is distinct from 'judge'
qualify row_number() over (
    partition by query order by source is not distinct from 'import' desc, time desc, expected
) = 1
order by query
"""
_LOGGED = """
select query, expected, ranks, language, label_cluster as cluster
from judgements
where project = $project and not from_judge
qualify row_number() over (partition by query order by time desc, event_id) = 1
order by query
"""
_VALUES = """
select query_key, language, cluster, unnest([
    struct_pack(metric := 'recall_at_k', k := 1, value := recall_at(ranks, 1)),
    struct_pack(metric := 'recall_at_k', k := 3, value := recall_at(ranks, 3)),
    struct_pack(metric := 'recall_at_k', k := 5, value := recall_at(ranks, 5)),
    struct_pack(metric := 'recall_at_k', k := 10, value := recall_at(ranks, 10)),
    struct_pack(metric := 'mrr', k := null, value := reciprocal_rank(ranks)),
    struct_pack(metric := 'ndcg_at_10', k := null, value := ndcg_at(ranks, 10))
], recursive := true)
from evaluated
"""
_MEASURE = """
select {keys} metric, k, avg(value) as value, count(*) as n, list(value) as parts
from query_values {where} group by {keys} metric, k order by {keys} metric = 'ndcg_at_10', metric = 'mrr', k
"""
_NDCG = "select query_key, value from query_values where metric = 'ndcg_at_10'"

_EVALUATED = {"query_key": pl.String(), "language": pl.String(), "cluster": pl.String(), "ranks": pl.List(pl.Int64())}


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One query with what it should find, and the rank of each of those in its list; None: not in it."""

    query: str
    expected: tuple[str, ...]
    ranks: tuple[int | None, ...]
    language: str | None = None
    cluster: str | None = None


def labels_of(connection: duckdb.DuckDBPyConnection, project: str) -> list[Label]:
    """The label of every query of a project that has one, imported or told by feedback."""
    return msgspec.convert(rows(connection.execute(_LABELS, {"project": project})), list[Label])


def is_searchable(label: Label) -> bool:
    """Whether its query is known, and not only a hash of it."""
    return not _HASHED.fullmatch(label.query)


def logged(connection: duckdb.DuckDBPyConnection, project: str) -> list[Judged]:
    """What the newest ranked selection of every labelled query listed."""
    return msgspec.convert(rows(connection.execute(_LOGGED, {"project": project})), list[Judged])


class Registry:
    """The active skills of a project, to tell what a label means by a name."""

    def __init__(self, entries: Iterable[Mapping[str, Any]]) -> None:
        self._ids: set[str] = set()
        bearers: dict[str, list[str]] = {}
        for entry in entries:
            self._ids.add(entry["skill_id"])
            bearers.setdefault(entry.get("name") or entry["skill_id"], []).append(entry["skill_id"])
        self._named = {name: ids[0] for name, ids in bearers.items() if len(ids) == 1 and "/" not in name}

    def resolve(self, called: str) -> str:
        """The skill that the string means: the one of that id, else the only one of that name, else itself."""
        return called if called in self._ids else self._named.get(called, called)

    def unknown(self, labels: Iterable[Label]) -> list[str]:
        """Expected skills that no active entry is meant by, in their order."""
        called = dict.fromkeys(skill for label in labels for skill in label.expected)
        return [skill for skill in called if self.resolve(skill) not in self._ids]

    def judge(self, label: Label, listed: Sequence[str]) -> Judged:
        """The label against one list of skill ids, best first."""
        expected = tuple(sorted({self.resolve(skill) for skill in label.expected}))
        rank = {skill_id: position for position, skill_id in reversed(list(enumerate(listed, start=1)))}
        return Judged(
            query=label.query,
            expected=expected,
            ranks=tuple(rank.get(skill_id) for skill_id in expected),
            language=label.language,
            cluster=label.cluster,
        )


def evaluate(
    connection: duckdb.DuckDBPyConnection,
    store: LabelStore,
    project: str,
    source: Source,
    judged: Sequence[Judged],
    what: Mapping[str, Any],
) -> dict[str, Any]:
    """Measure, compare with the last evaluation of the same source, and remember this one.

    ``what`` says what was evaluated. Nothing is remembered where nothing was judged.
    """
    by_key = {query_key(one.query): one for one in judged}
    evaluated = [(key, one.language, one.cluster, list(one.ranks)) for key, one in by_key.items()]
    frame = pl.DataFrame(evaluated, schema=_EVALUATED, orient="row")
    connection.register("evaluated", frame.to_arrow())
    connection.execute(f"create or replace temp table query_values as {_VALUES}")
    connection.unregister("evaluated")
    ndcg = dict(connection.execute(_NDCG).fetchall())
    results = {
        key: Result(expected=one.expected, ranks=_found(one), ndcg_at_10=ndcg[key]) for key, one in by_key.items()
    }
    now = Evaluation(evaluated_at=time.time(), what=dict(what), metrics=_measure(connection), results=results)
    last = store.last(project, source)
    if results:
        store.keep(project, source, now)
    return {
        "project": project,
        "source": source,
        "evaluated_at": _iso(now.evaluated_at),
        "what": now.what,
        "n": len(results),
        "metrics": now.metrics,
        "by_language": _measure(connection, "language"),
        "by_cluster": _measure(connection, "cluster"),
        "previous": None if last is None else _compared(last, now),
        "fell": [] if last is None else _fell(last, now, by_key),
    }


def _found(judged: Judged) -> tuple[int, ...]:
    return tuple(sorted(rank for rank in judged.ranks if rank is not None))


def _measure(connection: duckdb.DuckDBPyConnection, group: str | None = None) -> list[dict[str, Any]]:
    """A row a metric (recall: and k), of each group where one is asked for; queries without a group are left out."""
    keys, where = (f"{group}, ", f"where {group} is not null") if group else ("", "")
    found = rows(connection.execute(_MEASURE.format(keys=keys, where=where)))
    for row in found:
        parts = row.pop("parts")
        row["low"], row["high"] = bootstrap_mean(parts, [1] * len(parts))
    return found


def _shared(last: Evaluation, now: Evaluation) -> list[str]:
    """Queries in both of which the same was expected."""
    before = last.results
    return [key for key, new in now.results.items() if key in before and before[key].expected == new.expected]


def _compared(last: Evaluation, now: Evaluation) -> dict[str, Any]:
    """The last evaluation, and how the queries that both have moved in NDCG@10."""
    moves = [now.results[key].ndcg_at_10 - last.results[key].ndcg_at_10 for key in _shared(last, now)]
    low, high = bootstrap_mean(moves, [1] * len(moves))
    return {
        "evaluated_at": _iso(last.evaluated_at),
        "what": last.what,
        "metrics": last.metrics,
        "n_shared": len(moves),
        "n_fell": sum(move < -_FELL for move in moves),
        "n_rose": sum(move > _FELL for move in moves),
        "ndcg_at_10_change": sum(moves) / len(moves) if moves else None,
        "low": low,
        "high": high,
    }


def _fell(last: Evaluation, now: Evaluation, judged: Mapping[str, Judged]) -> list[dict[str, Any]]:
    """Queries whose NDCG@10 is lower than last time, the deepest fall first."""
    fallen = [
        {
            "query": judged[key].query,
            "expected": list(now.results[key].expected),
            "ranks_before": list(last.results[key].ranks),
            "ranks": list(now.results[key].ranks),
            "ndcg_at_10_before": last.results[key].ndcg_at_10,
            "ndcg_at_10": now.results[key].ndcg_at_10,
        }
        for key in _shared(last, now)
        if now.results[key].ndcg_at_10 < last.results[key].ndcg_at_10 - _FELL
    ]
    return sorted(fallen, key=lambda row: (row["ndcg_at_10"] - row["ndcg_at_10_before"], row["query"]))


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
