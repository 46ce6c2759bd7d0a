"""The way in beside Phoenix's and MLflow's, all three alike, as one table.

    python -m bench.rivals [--folder FOLDER] [--spans 100000] [--seconds 10]

Sets the rivals up in environments of their own below the folder (minutes, once). Each server then gets the same
requests of 490 spans from the same client over one connection (MLflow on SQLite refuses concurrent writers): a few to
warm up, then for so many seconds at most, and up to a minute to make them visible. Last, the same once more with a
kill -9 right after the last answer, a restart, and a count.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pyarrow.parquet as pq

from bench.load import Sent, post
from bench.processes import cpu_s, rss_mib
from bench.traces import SPANS_A_TURN, renewed, requests
from collector.lake import Lake
from gateway.supervisor import free_port

_TURNS = 70
#: Spans of a request, and those of them that tell of a selection or a call: the rest leaves no row with us.
_SPANS = _TURNS * SPANS_A_TURN
_MAPPED = _TURNS * 4
#: Requests that each is sent, and has made visible, before anything is measured.
_WARM_UP = 4
#: A server that shows nothing new for so long shows no more, seconds.
_PATIENCE_S = 20.0
_LONGEST_S = 60.0


@dataclass
class Server:
    """One server: how it is started on a port and a folder, and how many of the spans it shows, as a share of all."""

    name: str
    command: Callable[[int, Path], list[str]]
    visible: Callable[[int, Path], float]
    environment: Callable[[int, Path], dict[str, str]] = lambda _port, _folder: {}
    headers: dict[str, str] = field(default_factory=dict)
    ready: str = "/"


@dataclass
class Outcome:
    acknowledged: float
    visible: float
    cpu_s_per_1000: float
    memory_mib: float
    lost: float = 0.0
    kept: float = 0.0


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.rivals", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "pickwise-rivals")
    parser.add_argument("--spans", type=int, default=100_000, help="spans that each is sent at most")
    parser.add_argument("--seconds", type=float, default=10.0, help="longest time to send")
    given = parser.parse_args(argv)
    bodies = renewed(requests(1, _TURNS)[0], _WARM_UP + max(1, given.spans // _SPANS))
    rows = []
    for server in (_pickwise(), _phoenix(given.folder), _mlflow(given.folder)):
        print(f"{server.name} …", file=sys.stderr)
        outcome = _measure(server, bodies, given.seconds)
        outcome.lost, outcome.kept = _killed(server, bodies, given.seconds)
        rows.append(_row(server, outcome))
    count = len(bodies) - _WARM_UP
    print(f"{count} requests of {_SPANS} spans at most, {given.seconds:g} s of sending, one machine, one run\n")
    print("| | acknowledged/s | visible/s | CPU s per 1,000 spans | memory, MiB | lost of acknowledged after kill -9 |")
    print("|---|---|---|---|---|---|")
    print("\n".join(rows))


def _row(server: Server, outcome: Outcome) -> str:
    return (
        f"| {server.name} | {outcome.acknowledged:,.0f} | {outcome.visible:,.0f} | {outcome.cpu_s_per_1000:.2f} "
        f"| {outcome.memory_mib:,.0f} | {outcome.lost:,.0f} of {outcome.lost + outcome.kept:,.0f} |"
    )


def _measure(server: Server, bodies: Sequence[bytes], seconds: float) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        running = _Running(server, Path(folder))
        try:
            warm = running.send(bodies[:_WARM_UP], seconds).acknowledged * _SPANS
            before, _ = running.wait_visible(warm, time.perf_counter())
            cpu = cpu_s(running.process.pid)
            began = time.perf_counter()
            sent = running.send(bodies[_WARM_UP:], seconds)
            seen, took = running.wait_visible(warm + sent.acknowledged * _SPANS, began)
            seen -= before
            return Outcome(
                sent.acknowledged * _SPANS / sent.seconds,
                seen / took,
                (cpu_s(running.process.pid) - cpu) / max(seen, 1) * 1_000,
                running.memory_mib,
            )
        finally:
            running.end(signal.SIGTERM)


def _killed(server: Server, bodies: Sequence[bytes], seconds: float) -> tuple[float, float]:
    """Acknowledged spans that are gone, and those that are there, after a kill -9 and a restart."""
    with tempfile.TemporaryDirectory() as folder:
        running = _Running(server, Path(folder))
        sent = running.send(bodies, seconds)
        running.end(signal.SIGKILL)
        again = _Running(server, Path(folder))
        try:
            acknowledged = sent.acknowledged * _SPANS
            seen, _ = again.wait_visible(acknowledged, time.perf_counter())
            return acknowledged - seen, seen
        finally:
            again.end(signal.SIGTERM)


class _Running:
    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder, self.port = server, folder, free_port("127.0.0.1")
        environment = os.environ | server.environment(self.port, folder)
        with (folder / "output.log").open("ab") as log:
            self.process = subprocess.Popen(
                server.command(self.port, folder), stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self.memory_mib = 0.0
        self._wait_ready()
        self._watching = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def send(self, bodies: Sequence[bytes], seconds: float) -> Sent:
        return post(self.port, bodies, connections=1, seconds=seconds, headers=self.server.headers)

    def wait_visible(self, expected: int, began: float) -> tuple[float, float]:
        """Spans that became visible, and the seconds from ``began`` to the last of them."""
        seen, last = 0.0, began
        while time.perf_counter() - last < _PATIENCE_S and time.perf_counter() - began < _LONGEST_S:
            found = self.server.visible(self.port, self.folder) * _SPANS
            if found > seen:
                seen, last = found, time.perf_counter()
            if seen >= expected:
                break
            time.sleep(0.2)
        return seen, max(last - began, 1e-9)

    def end(self, number: signal.Signals) -> None:
        self._watching.set()
        os.killpg(self.process.pid, number)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}{self.server.ready}", timeout=5).status_code < 500:
                    return
            except httpx.TransportError:
                time.sleep(0.2)
        raise RuntimeError(f"{self.server.name} did not start: {(self.folder / 'output.log').read_text()[-2000:]}")

    def _watch(self) -> None:
        while not self._watching.wait(0.25):
            self.memory_mib = max(self.memory_mib, rss_mib(self.process.pid))


def _pickwise() -> Server:
    def command(port: int, folder: Path) -> list[str]:
        own = [sys.executable, "-m", "pickwise.cli", "collect", "--no-grpc"]
        return [*own, "--data-dir", str(folder / "data"), "--http-port", str(port)]

    def visible(port: int, folder: Path) -> float:
        httpx.post(f"http://127.0.0.1:{port}/v1/refresh", timeout=120)
        lake = Lake(folder / "data")
        spans: set[str] = set()
        for table in ("selections", "calls"):
            for path in lake.files(table):
                rows = pq.read_table(path, columns=["span_id", "role"]).to_pydict()
                # Agent spans leave a fact too, which only fills in what their model calls do not say.
                told = zip(rows["span_id"], rows["role"], strict=True)
                spans.update(span for span, role in told if table == "calls" or role is None)
        return len(spans) / _MAPPED

    return Server("Pickwise", command, visible, ready="/readyz")


def _phoenix(folder: Path) -> Server:
    python = make_environment(folder / "phoenix", "arize-phoenix==20.26.*")

    def environment(port: int, data: Path) -> dict[str, str]:
        return {
            "PHOENIX_WORKING_DIR": str(data),
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(free_port("127.0.0.1")),
            "PHOENIX_HOST": "127.0.0.1",
        }

    def visible(_port: int, data: Path) -> float:
        return _count(data / "phoenix.db", "select count(*) from spans")

    return Server("Phoenix 20.26", lambda _p, _f: [str(python.with_name("phoenix")), "serve"], visible, environment)


def _mlflow(folder: Path) -> Server:
    python = make_environment(folder / "mlflow", "mlflow==3.17.*")

    def command(port: int, data: Path) -> list[str]:
        store = [
            "--backend-store-uri",
            f"sqlite:///{data}/mlflow.db",
            "--default-artifact-root",
            str(data / "artifacts"),
        ]
        return [str(python.with_name("mlflow")), "server", "--port", str(port), "--workers", "1", *store]

    def visible(_port: int, data: Path) -> float:
        return _count(data / "mlflow.db", "select count(*) from spans")

    return Server("MLflow 3.17", command, visible, headers={"x-mlflow-experiment-id": "0"}, ready="/health")


def _count(database: Path, query: str) -> float:
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30) as connection:
            return float(connection.execute(query).fetchone()[0]) / _SPANS
    except sqlite3.OperationalError:
        return 0.0


def make_environment(folder: Path, requirement: str) -> Path:
    """The Python of an environment with the requirement, made where it is not there yet."""
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"installing {requirement} …", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", requirement], check=True)
        (folder / "ready").touch()
    return python


if __name__ == "__main__":
    main()
