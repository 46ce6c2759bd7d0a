"""kill -9 in every phase of the collector, many times, and a count of what is left.

    python -m bench.crash [--rounds 100] [--seed 0]

Each round starts a collector on the same folder as a process of its own, sends it events and spans, and has it killed
by SIGKILL at one of the points below, before or after the step; what was not acknowledged is sent again in the next
round, as an exporter does. After the last round everything is committed and counted: every acknowledged event must be
there, and none twice.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from bench.life import live
from bench.traces import renewed, requests
from collector.lake import Lake
from collector.mapping import map_traces
from collector.otlp import parse_traces
from pickwise.settings import Settings

_TURNS = 2
#: Batches of native events, and trace requests, that a round sends at most.
_BATCHES, _EVENTS = 24, 5
_ROUND_TIMEOUT_S = 120.0


class Point(NamedTuple):
    """A place to die: ``target`` is `module:attribute.path`.

    ``partly``: half of a write is on the disk by then; ``often``: a life comes by many times; ``processes``: how many
    map for the collector, for each batch.
    """

    phase: str
    target: str
    partly: bool = False
    often: bool = False
    processes: int = 0


#: Every step between the socket and the deleted log segment.
POINTS = (
    Point("append", "collector.wal:_write_all", often=True),
    Point("append, half written", "collector.wal:_write_all", partly=True, often=True),
    Point("sync", "os:fdatasync", often=True),
    Point("acknowledge", "collector.wal:Wal._commit_group", often=True),
    Point("new log segment", "collector.wal:Wal._open_segment"),
    Point("read", "collector.wal:Wal.read", often=True),
    Point("decode", "collector.record_mapper:decode_parts", often=True),
    Point("map and redact", "collector.rows:RowMaker.rows", often=True),
    Point("mapping in another process", "collector.mapping_pool:_Process.map", processes=1),
    Point("drop repeats", "collector.batches:BatchMaker._drop_repeats", often=True),
    Point("commit of a table", "collector.flusher:Flusher._append", often=True),
    Point("write of the table's files", "collector.lake:Lake._add", often=True),
    Point("sync of the table", "collector.lake:Lake.sync", often=True),
    Point("archive", "collector.archive:_put", often=True),
    Point("log deletion", "collector.wal:Wal.release", often=True),
    Point("deletion of a segment", "collector.wal:Wal._drop"),
    Point("merge of the archive", "collector.archive:Archive._merge"),
    Point("compaction", "collector.lake:Lake.compact"),
    Point("merge of small files", "deltalake.table:TableOptimizer.compact"),
    Point("vacuum", "deltalake:DeltaTable.vacuum"),
    Point("checkpoint", "deltalake:DeltaTable.create_checkpoint"),
    Point("log cleanup", "deltalake:DeltaTable.cleanup_metadata"),
)


@dataclass
class Report:
    """What the rounds came to. ``hit`` counts the kills by phase; ``lost`` and ``doubled`` must be empty."""

    rounds: int = 0
    acknowledged: int = 0
    sent: int = 0
    hit: Counter[str] = field(default_factory=Counter)
    not_reached: Counter[str] = field(default_factory=Counter)
    lost: set[str] = field(default_factory=set)
    doubled: set[str] = field(default_factory=set)
    strangers: set[str] = field(default_factory=set)


@dataclass
class _Traffic:
    """What is sent: batches by name, with the ids of the rows that each must leave."""

    seed: int
    made: int = 0
    waiting: list[tuple[str, str, bytes, list[str]]] = field(default_factory=list)

    def refill(self) -> None:
        while len(self.waiting) < _BATCHES:
            self.waiting.append(self._traces() if self.made % 4 == 0 else self._events())
            self.made += 1

    def _events(self) -> tuple[str, str, bytes, list[str]]:
        ids = [f"{self.made}-{i}" for i in range(_EVENTS)]
        events = [{"type": "call", "event_id": i, "call_id": i, "skill_id": "s", "ok": True} for i in ids]
        return f"events {self.made}", "events", json.dumps(events).encode(), ids

    def _traces(self) -> tuple[str, str, bytes, list[str]]:
        body = renewed(requests(1, _TURNS, seed=self.seed)[0], self.made + 1)[-1]
        (facts,) = map_traces(parse_traces(body, "protobuf"), 1, Settings()).values()
        events = [*facts.selections, *facts.calls]
        return f"traces {self.made}", "traces", body, [str(event.event_id) for event in events]


def run(folder: Path, rounds: int, seed: int = 0, points: Sequence[Point] = POINTS) -> Report:
    """Kill a collector on ``folder`` ``rounds`` times, the points in turn, then count."""
    rng = random.Random(seed)
    traffic = _Traffic(seed)
    report = Report()
    expected: dict[str, list[str]] = {}
    acknowledged: set[str] = set()
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["bench.life"])
    for number in range(rounds):
        point = points[number % len(points)]
        traffic.refill()
        expected |= {name: ids for name, _, _, ids in traffic.waiting}
        done, signalled = _round(context, folder, point, rng, traffic)
        acknowledged |= done
        traffic.waiting = [item for item in traffic.waiting if item[0] not in done]
        (report.hit if signalled else report.not_reached)[point.phase] += 1
        report.rounds += 1
    _drained(context, folder, traffic)
    acknowledged |= {name for name, _, _, _ in traffic.waiting}
    report.acknowledged, report.sent = len(acknowledged), len(expected)
    _count(folder, expected, acknowledged, report)
    return report


def _round(context: Any, folder: Path, point: Point, rng: random.Random, traffic: _Traffic) -> tuple[set[str], bool]:
    """One life of a collector: the names that it acknowledged, and whether it died where it should."""
    ours, theirs = context.Pipe()
    where = {
        "target": point.target,
        "partly": point.partly,
        "processes": point.processes,
        "after": rng.random() < 0.5,
        "skip": rng.randrange(3) if point.often else 0,
    }
    batches = [(name, kind, body) for name, kind, body, _ in traffic.waiting]
    process = context.Process(target=live, args=(folder, where, batches, theirs))
    process.start()
    theirs.close()
    done = set(_acknowledgements(ours))
    process.join(_ROUND_TIMEOUT_S)
    if process.is_alive():
        process.kill()
        raise RuntimeError(f"{point.phase}: the collector neither died nor ended")
    if process.exitcode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"{point.phase}: the collector ended with {process.exitcode}")
    return done, process.exitcode == -signal.SIGKILL


def _drained(context: Any, folder: Path, traffic: _Traffic) -> None:
    """A last life without a kill, that is sent what is still unacknowledged and commits everything."""
    ours, theirs = context.Pipe()
    batches = [(name, kind, body) for name, kind, body, _ in traffic.waiting]
    process = context.Process(target=live, args=(folder, None, batches, theirs))
    process.start()
    theirs.close()
    done = set(_acknowledgements(ours))
    process.join(_ROUND_TIMEOUT_S)
    if process.exitcode != 0 or len(done) != len(batches):
        raise RuntimeError(f"the last life ended with {process.exitcode}, {len(done)} of {len(batches)} acknowledged")


def _acknowledgements(connection: Connection) -> Iterator[str]:
    try:
        while True:
            yield connection.recv()
    except (EOFError, ConnectionResetError):
        return


def _count(folder: Path, expected: dict[str, list[str]], acknowledged: set[str], report: Report) -> None:
    """What the tables hold, from their files, without the product's own folding."""
    lake = Lake(folder)
    files = [file for table in ("calls", "selections") for file in lake.files(table)]
    query = "select event_id, count(*) from read_parquet($files, union_by_name = true) group by 1"
    stored: dict[str, int] = dict(duckdb.connect().execute(query, {"files": files}).fetchall())
    report.lost = {i for name in acknowledged for i in expected[name] if i not in stored}
    report.doubled = {i for i, count in stored.items() if count > 1}
    report.strangers = stored.keys() - {i for ids in expected.values() for i in ids}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        report = run(Path(folder) / "data", given.rounds, given.seed)
    if given.json:
        print(json.dumps(vars(report), default=sorted))
        return
    print(f"{report.rounds} rounds, {sum(report.hit.values())} kills; {report.acknowledged} requests acknowledged")
    print(f"lost: {len(report.lost)}, counted twice: {len(report.doubled)}, never sent: {len(report.strangers)}\n")
    print("| phase | killed there | not reached |")
    print("|---|---|---|")
    for point in POINTS:
        print(f"| {point.phase} | {report.hit[point.phase]} | {report.not_reached[point.phase]} |")
    if report.lost or report.doubled or report.strangers:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
