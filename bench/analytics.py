"""What the tables and metrics cost with a month of data: settling, reading, single metrics; Polars beside them.

python -m bench.analytics --selections 1000000      in a folder of its own; --folder DIR keeps it and uses it again
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import polars as pl

from analytics.query import metric
from analytics.segments import SegmentStore
from analytics.settle import settle
from analytics.tables import Tables
from bench.month import Month
from collector.lake import Lake

T = TypeVar("T")

_ASKED = (
    ("acceptance_rate", ()),
    ("acceptance_rate", ("skill", "hour")),
    ("mismatch_rate", ("hour",)),
    ("failed_tool_rate", ("skill", "hour")),
    ("hallucinated_tool_rate", ("skill", "hour")),
    ("stage_latency_ms", ()),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--selections", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.folder or Path(made)
        if not (folder / "lake").exists():
            _timed("write the facts", lambda: Month(arguments.selections).write(folder))
        measure(folder)


def measure(folder: Path) -> None:
    print("| | s |\n|---|---|")
    _timed("settle (once; later only what came since)", lambda: settle(folder))
    connection = _timed("read: connect to the tables", lambda: Tables(folder).connect())
    for name, by in _ASKED:
        label = f"{name} by {' and '.join(by)}" if by else name
        _timed(label, lambda name=name, by=by: metric(connection, name, by=by))  # type: ignore[misc]
    lake = Lake(folder)
    _timed("Polars: failed calls by skill and hour, from the facts", lambda: _failed(lake))
    _timed("Polars: impressions and picks by skill and hour, from the segments", lambda: _accepted(folder))
    _timed("Polars: p50, p95, p99 of calls, from the facts", lambda: _latency(lake))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (selections,) = connection.execute("select count(*) from selections").fetchone() or (0,)
    segments = SegmentStore(folder).manifest().segments
    size = sum(path.stat().st_size for path in SegmentStore(folder).root.glob("*.parquet")) / 2**20
    print(f"\n{selections:,} selections in {len(segments)} segments of {size:,.0f} MiB; peak of memory {peak:,.0f} MiB")


def _timed(label: str, work: Callable[[], T]) -> T:
    began = time.perf_counter()
    found = work()
    print(f"| {label} | {time.perf_counter() - began:.2f} |", flush=True)
    return found


def _failed(lake: Lake) -> pl.DataFrame:
    return (
        pl.scan_parquet(lake.files("calls"))
        .group_by("skill_id", pl.col("time").dt.truncate("1h"))
        .agg((~pl.col("ok")).sum(), pl.col("ok").count().alias("n"))
        .collect()
    )


def _accepted(folder: Path) -> pl.DataFrame:
    store = SegmentStore(folder)
    return (
        pl.scan_parquet([store.path(segment.files["candidates"]) for segment in store.manifest().segments])
        .group_by("skill_id", pl.col("time").dt.truncate("1h"))
        .agg(pl.col("picked").sum(), pl.len())
        .collect()
    )


def _latency(lake: Lake) -> pl.DataFrame:
    quantiles = [pl.col("latency_ms").quantile(q).alias(f"p{q}") for q in (0.5, 0.95, 0.99)]
    return pl.scan_parquet(lake.files("calls")).select(quantiles).collect()


if __name__ == "__main__":
    main()
