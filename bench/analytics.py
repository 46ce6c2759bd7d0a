"""What the tables, metrics and jobs cost with a month of data; Polars and chdb beside them.

    python -m bench.analytics --selections 1000000 --folder DIR [--chdb DIR2]

Writes a day, settles it, and so on, as in production; a folder that has some days already gets the rest. ``--days``
stops earlier. Then everything is measured once in this process, the nightly job in processes of its own: the first
night, which has the whole month to do, and the next one, after one more day. ``--chdb``: a folder for an environment
with chdb, which is made where it is not there yet.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import polars as pl

from analytics import frames, nightly
from analytics.confusion import confusions
from analytics.metrics.declarations import METRICS
from analytics.query import metric
from analytics.report import report
from analytics.segments import SegmentStore
from analytics.settle import settle
from analytics.tables import Tables
from bench.month import Month
from bench.rivals import make_environment
from collector.lake import Lake
from pickwise.settings import Settings

T = TypeVar("T")

#: Of the overview: over all time, and since the beginning of an hour, as its windows have it.
_SERIES = ("acceptance_rate", "failed_tool_rate", "hallucinated_tool_rate", "fallback_rate")
_CHDB = "chdb"
_NIGHTS = ("first", "next")
_QUANTILES = (0.5, 0.95, 0.99)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--selections", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=30, help="days of the month to write")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--chdb", type=Path)
    parser.add_argument("--night", choices=_NIGHTS, help="run one night alone; for this program itself")
    arguments = parser.parse_args()
    if arguments.night:
        if arguments.night == "next":
            build(Month(arguments.selections), arguments.folder, arguments.days + 1)
        night(arguments.folder, arguments.night)
        return
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.folder or Path(made)
        build(Month(arguments.selections), folder, arguments.days)
        print("| | s |\n|---|---|")
        measure(folder)
        rivals(folder, arguments.chdb)
        _nights_alone(folder, arguments.selections, arguments.days)
        _size(folder)


def build(month: Month, folder: Path, days: int) -> None:
    """The days that are not there yet, each settled when it is written."""
    lake = Lake(folder)
    first = lake.transaction_version("calls", "wal")
    for day in range(max(first, 0), days):
        began = time.perf_counter()
        month.write_day(lake, day)
        written = time.perf_counter()
        settle(folder)
        spent = f"written in {written - began:.0f} s, settled in {time.perf_counter() - written:.0f} s"
        print(f"day {day + 1}: {spent}, peak {_peak_mib():,.0f} MiB", file=sys.stderr, flush=True)
    settle(folder)


def measure(folder: Path) -> None:
    connection = _timed("connect to the tables", lambda: Tables(folder).connect())
    kept = frames.kept(connection)
    start = (kept["first"] + 0.7 * (kept["last"] - kept["first"])).replace(minute=0, second=0, microsecond=0)
    end = kept["last"].replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    for times in ("first", "again"):
        _timed(f"overview, all time, {times}", lambda: _overview(connection, None, None))
        _timed(f"overview, newest 30 %, {times}", lambda: _overview(connection, start, end))
    slowest = _slowest(connection, start, end)
    print(f"| slowest query of the overview: {slowest[1]} | {slowest[0]:.2f} |")
    for declared in METRICS:
        by = [name for name in ("skill", "hour") if name in declared.groupings]
        if by:
            _timed(
                f"{declared.name} by {' and '.join(by)}, from rows",
                lambda declared=declared, by=by: metric(connection, declared.name, by=by, from_rows=True),  # type: ignore[misc]
            )
    _timed("pairs of skills confused, from rows", lambda: confusions(connection))
    _timed("p50, p95, p99 of all stages, from rows", lambda: metric(connection, "stage_latency_ms", from_rows=True))
    _timed("p50, p95, p99 of all stages, from rollups", lambda: metric(connection, "stage_latency_ms"))


def rivals(folder: Path, chdb: Path | None) -> None:
    """Three metrics over the same rows: by Polars, by chdb, and from our rows."""
    calls, candidates = (_segment_files(folder, table) for table in ("calls", "candidates"))
    hour = pl.col("time").dt.truncate("1h")
    quantiles = [pl.col("latency_ms").quantile(q, "linear").alias(f"p{q}") for q in _QUANTILES]
    by_polars: dict[str, pl.LazyFrame] = {
        "failed_tool_rate by skill and hour": pl.scan_parquet(calls)
        .filter(pl.col("project") == "default", pl.col("ok").is_not_null())
        .group_by(pl.coalesce("registry_skill_id", "skill_id"), hour)
        .agg((~pl.col("ok")).sum(), pl.len().alias("n")),
        "acceptance_rate by skill and hour": pl.scan_parquet(candidates)
        .filter(pl.col("project") == "default", ~pl.col("closing"))
        .group_by(pl.coalesce("registry_skill_id", "skill_id"), hour)
        .agg(pl.col("picked").sum(), pl.len().alias("n")),
        "p50, p95, p99 of calls": pl.scan_parquet(calls).filter(pl.col("latency_ms") >= 0).select(quantiles),
    }
    for name, frame in by_polars.items():
        _timed(f"Polars: {name}", lambda frame=frame: frame.collect(engine="streaming"))  # type: ignore[misc]
    if chdb is not None:
        python = make_environment(chdb, _CHDB)
        script = Path(__file__).with_name("analytics_chdb.py")
        files = json.dumps({"calls": list(map(str, calls)), "candidates": list(map(str, candidates))})
        found = subprocess.run([str(python), str(script)], input=files, check=True, capture_output=True, text=True)
        print(found.stdout, end="")


def night(folder: Path, name: str) -> None:
    """The night after the last day that was written."""
    (last,) = Tables(folder).connect().execute("select max(time)::date from calls").fetchall()[0]
    now = datetime(last.year, last.month, last.day, tzinfo=UTC) + timedelta(days=1, hours=2, minutes=30)
    began = time.perf_counter()
    done = nightly.run(folder, Settings(data_dir=folder), now=now)["projects"]["default"]
    print(f"| nightly job, {name} night, {len(done['days'])} days to do | {time.perf_counter() - began:.1f} |")
    print(f"| its peak of memory, MiB | {_peak_mib():,.0f} |", flush=True)


def _nights_alone(folder: Path, selections: int, days: int) -> None:
    """Each in a process of its own, over a copy: what it writes changes what is read."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        copy = shutil.copytree(folder, Path(made) / "copy", copy_function=_link)
        own = [sys.executable, "-m", "bench.analytics", "--folder", str(copy)]
        own += ["--selections", str(selections), "--days", str(days), "--night"]
        sys.stdout.flush()
        for name in _NIGHTS:
            subprocess.run([*own, name], check=True)


def _link(source: str, target: str) -> None:
    """Parquet files never change; all else is copied."""
    if source.endswith(".parquet"):
        Path(target).hardlink_to(source)
    else:
        shutil.copy2(source, target)


def _overview(connection: duckdb.DuckDBPyConnection, start: datetime | None, end: datetime | None) -> None:
    for _, ask in _asked(connection, start, end):
        ask()
    report(connection, start=start, end=end, with_lists=False)


def _asked(
    connection: duckdb.DuckDBPyConnection, start: datetime | None, end: datetime | None
) -> Sequence[tuple[str, Callable[[], object]]]:
    """What the page asks beside its report."""

    def ask(name: str, by: list[str]) -> Callable[[], object]:
        return lambda: metric(connection, name, start=start, end=end, by=by)

    lists: list[tuple[str, Callable[[], object]]] = [
        ("what is kept", lambda: frames.kept(connection)),
        ("list of skills", lambda: frames.skills(connection, start=start)),
        ("degraded spells", lambda: frames.degraded_spells(connection, start=start)),
        ("status changes", lambda: frames.status_changes(connection)),
        ("failed_tool_rate by error_kind", ask("failed_tool_rate", ["error_kind"])),
        ("hallucinated_tool_rate by skill", ask("hallucinated_tool_rate", ["skill"])),
    ]
    return lists + [(f"{name} by day", ask(name, ["day"])) for name in _SERIES]


def _slowest(connection: duckdb.DuckDBPyConnection, start: datetime, end: datetime) -> tuple[float, str]:
    asked = [*_asked(connection, start, end)]
    asked += [(m.name, lambda m=m: metric(connection, m.name, start=start, end=end)) for m in METRICS]  # type: ignore[misc]
    return max((_seconds(ask)[0], name) for name, ask in asked)


def _seconds(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def _timed(label: str, work: Callable[[], T]) -> T:
    seconds, found = _seconds(work)
    print(f"| {label} | {seconds:.2f} |", flush=True)
    return found


def _segment_files(folder: Path, table: str) -> list[Path]:
    store = SegmentStore(folder)
    return [store.path(segment.files[table]) for segment in store.manifest().segments]


def _size(folder: Path) -> None:
    counts: dict[str, Any] = frames.kept(Tables(folder).connect())
    files = [*SegmentStore(folder).root.glob("*.parquet")]
    size, of_rollups = (
        sum(path.stat().st_size for path in found) / 2**20
        for found in (files, [path for path in files if path.name.startswith("rollups-")])
    )
    segments = len(SegmentStore(folder).manifest().segments)
    print(f"\n{counts['selections']:,} selections, {counts['calls']:,} calls, {segments} segments, {size:,.0f} MiB")
    print(f"of which {of_rollups:,.0f} MiB of rollups; peak of memory {_peak_mib():,.0f} MiB")


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
