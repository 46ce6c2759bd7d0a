"""What the ranker's service gives: latency and rate of /v1/rank, /v1/recall and /v1/weights, and the memory it takes.

    python -m bench.serving [--skills 10000] [--turns 16000] [--seconds 10]

A library of so many skills, each with a history of its own, goes through the collector; a model is trained and
promoted; then ``pickwise serve`` runs on it, and requests go to its HTTP port, and for comparison straight to the
ranker's Unix socket. Latency: one request after the other. Rate: over eight connections, as fast as the answers come;
the processor time of a request is that of these.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import psutil
import uvloop

from bench.asking import sent
from bench.ingest import ingest
from bench.processes import rss_mib
from bench.simulated_agents import TWO_MODELS
from gateway.supervisor import free_port
from pickwise.settings import Settings
from ranker.train import train
from ranker.weights import refresh

#: Vectors of texts, kept between runs.
CACHE = Path(tempfile.gettempdir()) / "pickwise-bench"
CANDIDATES = 50
CONNECTIONS = 8
#: The ranker's process and that of the HTTP port, by the commands they are.
_PARTS = ("ranker", "collect")
#: Half of the turns ask for one of so many skills, the others for each of all in turn.
POPULAR = 300
_SYLLABLES = [a + b for a, b in zip("bcdfghjklmnprstvwxyz", "aeiouaeiouaeiouaeiou", strict=True)]


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as scratch:
        settings = Settings(data_dir=Path(scratch) / "data", flush_interval_s=0.2)
        skills = library(arguments.skills)
        result = learned(settings, skills, arguments.turns)
        print(f"{len(skills):,} skills, {arguments.turns:,} turns, model {result['decision']}", flush=True)
        with service(settings, Path(scratch) / "ranker.sock") as (port, pid):
            warmed(port, skills)
            print(f"the ranker's process: {ranker_mib(pid):,.0f} MiB\n", flush=True)
            print("| request | at | p50 ms | p99 ms | requests/s | processor ms: ranker | door | client |")
            print("|---|---|---|---|---|---|---|---|")
            for name, requests in workloads(port, skills).items():
                for place, address in (("HTTP port", port), ("Unix socket", Path(scratch) / "ranker.sock")):
                    print(
                        f"| {name} | {place} | {measured(name, address, requests, arguments.seconds, pid)} |",
                        flush=True,
                    )
            print(f"\nthe ranker's process afterwards: {ranker_mib(pid):,.0f} MiB")


def library(count: int) -> list[dict[str, Any]]:
    """Skills whose names are made of syllables, each in one of a hundred domains."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(_SYLLABLES, 3)) for _ in range(2_000)]
    return [
        {
            "skill_id": f"skill_{row}",
            "name": f"{words[row % len(words)]}_{words[(7 * row) % len(words)]}",
            "description": " ".join(rng.choice(words, 12)),
            "domain": f"domain {row % 100}",
        }
        for row in range(count)
    ]


def learned(settings: Settings, skills: Sequence[dict[str, Any]], turns: int) -> dict[str, Any]:
    """Send the turns, and train on them."""
    CACHE.mkdir(exist_ok=True)
    settings.data_dir.mkdir()
    (settings.data_dir / "embeddings").symlink_to(CACHE)
    ingest(settings, skills, simulated(skills, turns))
    refresh(settings.data_dir, settings, "default")
    return train(settings.data_dir, settings, project="default", seed=0)


def simulated(skills: Sequence[dict[str, Any]], turns: int) -> list[dict[str, Any]]:
    """Events of agents whose queries hold words of the skill that is meant; the scores are half noise."""
    rng, now, events = np.random.default_rng(1), time.time(), list[dict[str, Any]]()
    models = list(TWO_MODELS.shares)
    for turn in range(turns):
        wanted = turn // 2 % len(skills) if turn % 2 else int(rng.integers(min(POPULAR, len(skills))))
        others = rng.choice(len(skills), 9, replace=False)
        rows = np.array([wanted, *(row for row in others if row != wanted)])
        scores = rng.random(len(rows)) + 0.3 * (rows == wanted)
        shown = rows[np.argsort(-scores)]
        at = now - (turns - turn) * 30.0
        common = {"session_id": f"s{turn // 3}", "model": models[turn % len(models)]}
        pick = TWO_MODELS.pick(common["model"], shown == wanted, rng)
        picks = [] if pick is None else [skills[shown[pick]]["skill_id"]]
        events.append(
            {
                "type": "selection",
                "event_id": f"t{turn}",
                "time": int(at * 1e9),
                "query": query_for(skills[wanted], rng),
                "ranked": True,
                "candidates": [
                    {"skill_id": skills[row]["skill_id"], "dense": float(score)}
                    for row, score in zip(shown, np.sort(scores)[::-1], strict=True)
                ],
                "picks": picks,
                **common,
            }
        )
        if pick is not None:
            ok = TWO_MODELS.succeeds(bool(shown[pick] == wanted), rng)
            call = {"type": "call", "event_id": f"c{turn}", "time": int((at + 1) * 1e9), "selection_id": f"t{turn}"}
            failure = {} if ok else {"error_kind": "tool_error"}
            events.append(call | common | {"skill_id": picks[0], "ok": ok, "latency_ms": 80.0} | failure)
    return events


def query_for(skill: dict[str, Any], rng: np.random.Generator) -> str:
    return "please " + " ".join(rng.choice(skill["description"].split(), 3, replace=False))


@contextmanager
def service(settings: Settings, socket: Path) -> Iterator[tuple[int, int]]:
    """``pickwise serve`` without jobs while the block lasts: its HTTP port and process."""
    port = free_port("127.0.0.1")
    command = [sys.executable, "-m", "pickwise.cli", "serve", "--data-dir", str(settings.data_dir)]
    options = ["--http-port", str(port), "--no-grpc", "--no-jobs", "--no-dashboard"]
    process = subprocess.Popen(
        [*command, *options], env=os.environ | {"PICKWISE_RANKER_SOCKET": str(socket)}, stdout=subprocess.DEVNULL
    )
    try:
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(30)


def warmed(port: int, skills: Sequence[dict[str, Any]]) -> None:
    """Wait until the service ranks by the model and recalls."""
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 600
    asked = {"query": "warm", "candidates": [{"skill_id": skills[0]["skill_id"]}]}
    for path, is_warm in (("rank", "model_version"), ("recall", "skills")):
        while True:
            try:
                answer = httpx.post(f"{url}/v1/{path}", json=asked, timeout=20)
                if answer.status_code == 200 and answer.json()[is_warm]:
                    break
            except httpx.TransportError:
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(f"/v1/{path} did not come up")
            time.sleep(0.5)


def ranker_mib(pid: int) -> float:
    """Resident memory of the ranker's process below that of ``serve``."""
    return rss_mib(_part(pid, "ranker").pid)


def part_cpu_s(pid: int, part: str) -> float:
    times = _part(pid, part).cpu_times()
    return float(times.user + times.system)


def _part(pid: int, name: str) -> psutil.Process:
    return next(child for child in psutil.Process(pid).children() if name in child.cmdline())


def workloads(port: int, skills: Sequence[dict[str, Any]]) -> dict[str, list[bytes]]:
    rng = np.random.default_rng(2)
    etag = httpx.get(f"http://127.0.0.1:{port}/v1/weights").headers["etag"]
    known = [query_for(skills[row], rng) for row in rng.integers(len(skills), size=200)]
    new = [
        f"{query_for(skills[row], rng)} number {turn}" for turn, row in enumerate(rng.integers(len(skills), size=4_000))
    ]

    def ranked(query: str) -> dict[str, Any]:
        rows = rng.choice(len(skills), CANDIDATES, replace=False)
        scores = rng.random((CANDIDATES, 3)).round(4).tolist()
        listed = [
            {"skill_id": skills[row]["skill_id"], "score": score, "bm25": bm25, "dense": dense}
            for row, (score, bm25, dense) in zip(rows, scores, strict=True)
        ]
        return {"query": query, "model": "gpt-4o", "candidates": listed}

    return {
        f"rank {CANDIDATES} candidates": [_post("/v1/rank", ranked(query)) for query in known],
        f"rank {CANDIDATES}, new queries": [_post("/v1/rank", ranked(query)) for query in new],
        "recall 50": [_post("/v1/recall", {"query": query, "k": 50}) for query in known],
        "recall 50, new queries": [_post("/v1/recall", {"query": f"{query} again", "k": 50}) for query in new],
        "weights, 304": [f"GET /v1/weights HTTP/1.1\r\nHost: x\r\nIf-None-Match: {etag}\r\n\r\n".encode()],
    }


def _post(path: str, body: dict[str, Any]) -> bytes:
    content = msgspec.json.encode(body)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def measured(name: str, address: int | Path, requests: Sequence[bytes], seconds: float, pid: int) -> str:
    """The figures of a row. New queries are new once: each of the four measurements has a quarter of them."""
    count = None
    alone = busy = requests
    if "new" in name:
        count = len(requests) // 4
        quarters = [requests[start : start + count] for start in range(0, len(requests), count)]
        alone, busy = quarters[2:] if isinstance(address, Path) else quarters[:2]
    else:
        uvloop.run(sent(address, requests, 1, seconds, len(requests)))  # so that all queries are embedded
    p50, p99 = np.quantile(uvloop.run(sent(address, alone, 1, seconds, count)), [0.5, 0.99]) * 1000
    started, spent, own = time.perf_counter(), [part_cpu_s(pid, part) for part in _PARTS], time.process_time()
    answered = len(uvloop.run(sent(address, busy, CONNECTIONS, seconds, count)))
    rate = answered / (time.perf_counter() - started)
    client = 1000 * (time.process_time() - own) / answered
    ranker, door = (
        1000 * (part_cpu_s(pid, part) - before) / answered for part, before in zip(_PARTS, spent, strict=True)
    )
    return f"{p50:.1f} | {p99:.1f} | {rate:,.0f} | {ranker:.2f} | {door:.2f} | {client:.2f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skills", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=16_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each load lasts")
    return parser.parse_args()


if __name__ == "__main__":
    main()
