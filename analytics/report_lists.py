"""The lists that stand below the metrics of a decision: waits by stage, skills confused, weak questions, chains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from analytics.cluster_weakness import JUDGED_BY
from analytics.metrics.declarations import CALL_RELIABILITY, SELECTION_QUALITY
from analytics.plain import plain
from analytics.report import show

_STAGE_COLUMNS = ("stage", "p50", "p95", "p99", "n", "left out")
_CONFUSED_COLUMNS = ("stood first → picked instead", "times", "of", "share", "overlap of descriptions")
_CLUSTER_COLUMNS = ("queries about", *JUDGED_BY, "worse by")
_CHAIN_COLUMNS = ("skills", "sessions", "support", "confidence", "lift", "success", "95 % interval", "n", "feasible")


@dataclass(frozen=True)
class Listed:
    """A table; the first cell of a row is data of unknown origin, the others are numbers and words of ours."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def lists(found: dict[str, Any], decision: dict[str, Any]) -> Iterator[Listed]:
    """Those of a report that belong to one decision and have rows."""
    for m in filter(is_latency, decision["metrics"]):
        yield Listed(m["metric"], _STAGE_COLUMNS, [_stage(row) for row in m["rows"]])
    if decision["decision"] == SELECTION_QUALITY:
        if found["confused"]:
            yield Listed("Confused most", _CONFUSED_COLUMNS, [_confused(row) for row in found["confused"]])
        if found["weak_clusters"]:
            title = "Questions that go worse than the rest"
            yield Listed(title, _CLUSTER_COLUMNS, [_cluster(row) for row in found["weak_clusters"]])
    if decision["decision"] == CALL_RELIABILITY and found["chains"]:
        title = f"Chains of successful sessions, of all that was kept on {found['chains'][0]['computed_at'][:10]}"
        yield Listed(title, _CHAIN_COLUMNS, [_chain(row) for row in found["chains"]])


def is_latency(m: dict[str, Any]) -> bool:
    return bool(m["rows"]) and "p95" in m["rows"][0]


def interval(m: dict[str, Any]) -> str:
    """The 95 % interval of a value; empty where it has none."""
    return "" if m.get("low") is None else f"{show(m['low'], m['unit'])} to {show(m['high'], m['unit'])}"


def _stage(row: dict[str, Any]) -> list[str]:
    quantiles = [show(row[name], "ms") for name in ("p50", "p95", "p99")]
    return [row["stage"] or "–", *quantiles, f"{row['n']:,}", f"{row['left_out']:,}"]


def _confused(row: dict[str, Any]) -> list[str]:
    overlap = "–" if row["overlap"] is None else f"{row['overlap']:.2f}"
    counts = [f"{row['n']:,}", f"{row['first']:,}", show(row["n"] / row["first"], "fraction")]
    return [plain(f"{row['skill_id']} → {row['instead']}"), *counts, overlap]


def _cluster(row: dict[str, Any]) -> list[str]:
    values = (row["metrics"][name] for name in JUDGED_BY)
    told = [f"{show(m['value'], 'fraction')} (n = {m['n']:,})" if m["n"] else "–" for m in values]
    return [plain(row["cluster_name"] or row["cluster"]), *told, ", ".join(row["weak_by"])]


def _chain(row: dict[str, Any]) -> list[str]:
    shares = [show(row[name], "fraction") for name in ("support", "confidence")]
    success = [show(row["success"], "fraction"), interval(row | {"unit": "fraction"}), f"{row['n']:,}"]
    counted = [f"{row['sessions']:,}", *shares, f"{row['lift']:.2f}", *success]
    return [plain(" → ".join(row["skills"])), *counted, row["feasible"]]
