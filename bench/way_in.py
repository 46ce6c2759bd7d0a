"""What the way in costs, each figure beside a yardstick of the same run.

python -m bench.way_in door         acknowledged spans/s against an endpoint that only parses the same bodies
python -m bench.way_in background   mapping, redaction and commit against a loop that parses and walks the bodies
python -m bench.way_in visible      receipt to visible at half of the rate that the collector keeps up with
python -m bench.way_in soak         memory over ten minutes of steady load (--minutes)
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import httpx
import pyarrow.parquet as pq
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.load import post
from bench.processes import cpu_s, rss_mib
from bench.traces import SPANS_A_TURN, renewed, requests
from collector.flusher import Flusher
from collector.lake import Lake
from collector.service import Collector
from gateway.supervisor import free_port
from pickwise.settings import Settings

#: The SDK's exporter sends 512 spans a request at most.
_TURNS = 70
_SPANS = _TURNS * SPANS_A_TURN
_WARM_UP = 12


def door(count: int) -> None:
    bodies = _bodies(count + _WARM_UP)
    warm_up, bodies = bodies[:_WARM_UP], bodies[_WARM_UP:]
    with _bare() as bare, _collector() as (ours, process, _):
        for port in (bare, ours):
            post(port, warm_up)
        _refresh(ours)
        rows = []
        for name, port in (("parses only", bare), ("Pickwise", ours), ("parses only", bare)):
            sent = post(port, bodies)
            assert sent.acknowledged == len(bodies), f"{sent.refused} requests were refused"
            rows.append((name, len(bodies) * _SPANS / sent.seconds, _percentile(sent.latencies_s, 50) * 1e3))
        print(
            f"{len(bodies)} requests of {_SPANS} spans, {len(bodies[0]):,} bytes each, four connections, one worker\n"
        )
        print("| | acknowledged spans/s | p50 of a request, ms |\n|---|---|---|")
        for name, rate, latency in rows:
            print(f"| {name} | {rate:,.0f} | {latency:.1f} |")
        yardstick = (rows[0][1] + rows[2][1]) / 2
        print(f"\nacknowledged and synced ÷ parsed only: {rows[1][1] / yardstick:.2f}")
        print(f"RSS {rss_mib(process.pid):,.0f} MiB")


def background(count: int, processes: int) -> None:
    bodies = _bodies(count + _WARM_UP)
    warm_up, bodies = bodies[:_WARM_UP], bodies[_WARM_UP:]
    spans = len(bodies) * _SPANS
    yardstick = _cpu_and_wall(lambda: [_walk(ExportTraceServiceRequest.FromString(body)) for body in bodies])
    with tempfile.TemporaryDirectory() as folder:
        collector = Collector(Settings(data_dir=Path(folder), queue_bytes=2**30), processes=processes)
        # The flusher works in our thread, to be measured alone.
        with mock.patch.object(Flusher, "start"):
            collector.start()
        _submit_all(collector, warm_up)
        _submit_all(collector, bodies, drain=False)
        ours = _cpu_and_wall(collector.flusher.drain)
        collector.stop()
    print(f"{spans:,} spans, {processes} processes\n\n| | spans/s | CPU µs a span |\n|---|---|---|")
    for name, (cpu, wall) in (("parse and walk into dicts", yardstick), ("map, redact, commit, sync", ours)):
        print(f"| {name} | {spans / wall:,.0f} | {cpu / spans * 1e6:.1f} |")
    print(f"\nbackground ÷ parse and walk: {yardstick[1] / ours[1]:.2f} (by CPU time {yardstick[0] / ours[0]:.2f})")


def _submit_all(collector: Collector, bodies: list[bytes], *, drain: bool = True) -> None:
    for future in [collector.submit_traces(body, "protobuf", "")[1] for body in bodies]:
        assert future is not None
        future.result()
    if drain:
        collector.flusher.drain()


def visible(count: int, seconds: float) -> None:
    bodies = _bodies(count)
    with _collector() as (port, process, folder):
        began = time.perf_counter()
        sent = post(port, bodies)
        _refresh(port)
        most = sent.acknowledged / (time.perf_counter() - began)
        since = time.time_ns()
        steady = post(port, _bodies(int(most / 2 * seconds), seed=1), rate=most / 2, seconds=seconds * 2)
        _refresh(port)
        lags = sorted(_lags(folder, since))
        print(
            f"kept up with {most * _SPANS:,.0f} spans/s; sent {steady.acknowledged / steady.seconds * _SPANS:,.0f}/s\n"
        )
        print("| receipt to visible | s |\n|---|---|")
        for percent in (50, 95, 99):
            print(f"| p{percent} | {_percentile(lags, percent):.2f} |")
        print(f"\n{len(lags):,} rows; RSS {rss_mib(process.pid):,.0f} MiB")


def soak(minutes: float, rate: float) -> None:
    with _collector() as (port, process, folder):
        bodies = _bodies(50)
        samples: list[float] = []
        began = time.monotonic()
        number = 0
        while time.monotonic() - began < minutes * 60:
            batch = renewed(bodies[number % len(bodies)], 64)
            number += 1
            sent = post(port, batch, rate=rate / _SPANS, seconds=600)
            assert sent.refused == 0, f"{sent.refused} requests were refused"
            samples.append(rss_mib(process.pid))
        _refresh(port)
        third = max(1, len(samples) // 3)
        print(f"{number * 64 * _SPANS:,} spans in {minutes:g} minutes, {rate:,.0f}/s\n")
        print("| RSS, MiB | first third | last third | most |\n|---|---|---|---|")
        first, last = statistics.mean(samples[:third]), statistics.mean(samples[-third:])
        print(f"| collector | {first:,.0f} | {last:,.0f} | {max(samples):,.0f} |")
        files = sum(len(Lake(folder).files(table)) for table in ("selections", "calls"))
        print(f"\n{files} live files in the two big tables")


def _walk(request: ExportTraceServiceRequest) -> int:
    """Every attribute into a dict, the plainest way."""
    count = 0
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                found = {
                    pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "") for pair in span.attributes
                }
                count += len(found)
    return count


def _bodies(count: int, seed: int = 0) -> list[bytes]:
    return renewed(requests(1, _TURNS, seed=seed)[0], count)


def _cpu_and_wall(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds that the work took of the processors, with those of our processes, and of the clock."""
    cpu, wall = cpu_s(os.getpid()), time.perf_counter()
    work()
    return cpu_s(os.getpid()) - cpu, time.perf_counter() - wall


def _lags(folder: Path, since_ns: int) -> Iterator[float]:
    """Seconds from receipt to the commit that shows a row, of every row received since."""
    for table in ("selections", "calls"):
        log = Path(folder) / "lake" / table / "_delta_log"
        for entry in sorted(log.glob("*.json")):
            actions = [json.loads(line) for line in entry.read_text().splitlines()]
            at = next(action["commitInfo"]["timestamp"] for action in actions if "commitInfo" in action) / 1e3
            for action in actions:
                path = log.parent / action["add"]["path"] if "add" in action else None
                if path is None or not action["add"]["dataChange"] or not path.exists():
                    continue
                for received in pq.read_table(path, columns=["received_at"])["received_at"].to_pylist():
                    if received.timestamp() * 1e9 >= since_ns:
                        yield at - received.timestamp()


def _percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _refresh(port: int) -> None:
    while httpx.post(f"http://127.0.0.1:{port}/v1/refresh", timeout=300).status_code == 503:
        time.sleep(0.2)


@contextmanager
def _bare() -> Iterator[int]:
    port = free_port("127.0.0.1")
    process = subprocess.Popen([sys.executable, "-m", "bench.bare_endpoint", str(port)])
    try:
        _wait(port, "/")
        yield port
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _collector() -> Iterator[tuple[int, subprocess.Popen[bytes], Path]]:
    port = free_port("127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        own = [sys.executable, "-m", "pickwise.cli", "collect", "--no-grpc"]
        process = subprocess.Popen(
            [*own, "--data-dir", folder, "--http-port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _wait(port, "/readyz")
            yield port, process, Path(folder)
        finally:
            process.terminate()
            process.wait()


def _wait(port: int, path: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"http://127.0.0.1:{port}{path}").status_code < 500:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError(f"nothing answers on port {port}")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.way_in", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["door", "background", "visible", "soak"])
    parser.add_argument("--requests", type=int, default=200, help="of 490 spans each")
    parser.add_argument("--processes", type=int, default=2, help="that map (background)")
    parser.add_argument("--seconds", type=float, default=30, help="of steady load (visible)")
    parser.add_argument("--minutes", type=float, default=10, help="of steady load (soak)")
    parser.add_argument("--rate", type=float, default=3_000, help="spans a second (soak)")
    given = parser.parse_args(argv)
    match given.what:
        case "door":
            door(given.requests)
        case "background":
            background(given.requests, given.processes)
        case "visible":
            visible(given.requests, given.seconds)
        case "soak":
            soak(given.minutes, given.rate)


if __name__ == "__main__":
    main()
