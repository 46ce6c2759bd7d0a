"""Three metrics by chdb, over the Parquet files that stdin names by table; runs in an environment that has chdb."""

from __future__ import annotations

import json
import sys
import time

import chdb  # type: ignore[import-not-found]

_SKILL = "coalesce(registry_skill_id, skill_id)"


def main() -> None:
    files = json.load(sys.stdin)
    calls, candidates = (_source(files[table]) for table in ("calls", "candidates"))
    asked = {
        "failed_tool_rate by skill and hour": f"""
            select {_SKILL} as skill, toStartOfHour(time) as hour, countIf(not ok), count()
            from {calls} where project = 'default' and ok is not null group by skill, hour
        """,
        "acceptance_rate by skill and hour": f"""
            select {_SKILL} as skill, toStartOfHour(time) as hour, countIf(picked), count()
            from {candidates} where project = 'default' and not closing group by skill, hour
        """,
        "p50, p95, p99 of calls": f"""
            select quantilesExactInclusive(0.5, 0.95, 0.99)(latency_ms) from {calls} where latency_ms >= 0
        """,
    }
    for name, query in asked.items():
        began = time.perf_counter()
        chdb.query(f"{query} settings max_threads = 2", "Arrow")
        print(f"| chdb: {name} | {time.perf_counter() - began:.2f} |")


def _source(paths: list[str]) -> str:
    """A glob that means these files alone."""
    folder, _, _ = paths[0].rpartition("/")
    names = ",".join(path.rpartition("/")[2] for path in paths)
    return f"file('{folder}/{{{names}}}', Parquet)" if len(paths) > 1 else f"file('{paths[0]}', Parquet)"


if __name__ == "__main__":
    main()
