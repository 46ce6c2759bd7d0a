"""Learning from the same stream of turns, beside Ratel's adaptive usage ranking.

    python -m bench.ratel_side_by_side [--language en] [--embedder minilm] [--turns 8000] [--seed 0]

Ratel (`ratel-ai` on PyPI) is set up in an environment of its own, once. It is given the same skills, the same turns and
the vectors of the same embedder, over an endpoint on this machine, and is asked the same held-out queries. Of each turn
it learns the query and the tool whose call succeeded: its own guide advises to leave out turns that should not be
learned from, and failures it could not tell apart. Both sides are asked at the same checkpoints; all three of Ratel's
methods are run, and the best of them is compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from bench import learning
from bench.library import SHARED, Library, load_library, quality, simulate
from bench.rivals import make_environment
from bench.simulated_agents import TWO_MODELS
from pickwise.settings import Settings
from ranker.decay import Numbers
from ranker.vectors import VectorCache, load_vectors

REQUIREMENT = "ratel-ai==0.12.*"
METHODS = ("bm25", "semantic", "hybrid")
OURS = "ours"
RESAMPLES = 2_000

#: (queries, 2): NDCG@5 and R@5 of each held-out query, by ranking, by number of turns.
Found = dict[int, dict[str, Numbers]]


def compare(arguments: argparse.Namespace) -> Found:
    """Both sides at all checkpoints; Ratel also before any turn."""
    with tempfile.TemporaryDirectory() as scratch:
        learning.CACHE.mkdir(exist_ok=True)
        (Path(scratch) / "embeddings").symlink_to(learning.CACHE)
        vectors = load_vectors(Path(scratch), Settings(data_dir=Path(scratch), embedder=arguments.embedder))
        library = load_library(arguments.language, arguments.data, arguments.turns, arguments.queries, vectors)
        events = simulate(library, arguments.turns, TWO_MODELS, arguments.seed, until=0.0)
        python = make_environment(arguments.folder / "ratel", REQUIREMENT)
        with embeddings_endpoint(vectors) as url:
            answer = _ask_ratel(python, Path(scratch), _task(library, events, arguments.checkpoints, url))
    found: Found = {0: {}, **{turns: {} for turns in arguments.checkpoints}}
    for method, by_turns in answer.items():
        for turns, lists in by_turns.items():
            found[int(turns)][f"Ratel, {method}"] = _quality(library, lists)
    for checkpoint in learning.run(arguments, arguments.seed):
        found[checkpoint.turns][OURS] = checkpoint.quality[learning.OURS]
        found[checkpoint.turns]["retrieval alone (RRF)"] = checkpoint.quality[learning.LOGGING]
    return found


def _task(library: Library, events: Sequence[dict[str, Any]], checkpoints: Sequence[int], url: str) -> dict[str, Any]:
    succeeded: dict[str, list[str]] = {}
    for event in events:
        if event["type"] == "call" and event["ok"]:
            succeeded.setdefault(event["selection_id"], []).append(event["skill_id"])
    selections = [event for event in events if event["type"] == "selection"]
    return {
        "tools": [
            {"id": skill["skill_id"], "name": skill["name"], "description": skill["description"]}
            for skill in library.skills
        ],
        "turns": [{"query": one["query"], "invoked": succeeded.get(one["event_id"], [])} for one in selections],
        "checkpoints": [0, *checkpoints],
        "held_out": [library.queries[query] for query in library.held_out],
        "methods": METHODS,
        "url": url,
        "model": "same-as-ours",
    }


def _ask_ratel(python: Path, folder: Path, task: dict[str, Any]) -> dict[str, dict[str, list[list[str]]]]:
    asked, answered = folder / "task.json", folder / "answer.json"
    asked.write_text(json.dumps(task))
    script = Path(__file__).with_name("ratel_side.py")
    subprocess.run([str(python), str(script), str(asked), str(answered)], check=True)
    found: dict[str, dict[str, list[list[str]]]] = json.loads(answered.read_text())
    return found


def _quality(library: Library, lists: Sequence[Sequence[str]]) -> Numbers:
    row = {skill_id: index for index, skill_id in enumerate(library.skill_ids)}
    found = []
    for query, listed in zip(library.held_out, lists, strict=True):
        scores = np.full(len(library.skills), -np.inf)
        scores[[row[skill_id] for skill_id in listed]] = -np.arange(len(listed), dtype=np.float64)
        found.append(quality(scores, library.right[query]))
    return np.array(found)


@contextmanager
def embeddings_endpoint(vectors: VectorCache) -> Iterator[str]:
    """An OpenAI-compatible embeddings endpoint on a loopback port; yields its base address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        #: One write an answer: head and body apart wait 40 ms for each other.
        wbufsize = 1 << 20
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
            texts = [asked] if isinstance(asked, str) else asked
            data = [
                {"object": "embedding", "index": index, "embedding": vector.tolist()}
                for index, vector in enumerate(vectors.many(texts))
            ]
            body = json.dumps({"object": "list", "model": "same-as-ours", "data": data}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing of single requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def markdown(found: Found) -> str:
    """NDCG@5 / R@5 by turns, and our lead over the best of Ratel's methods there, with its 95 % interval."""
    names = [*(f"Ratel, {method}" for method in METHODS), "retrieval alone (RRF)", OURS]
    lines = [
        "NDCG@5 / R@5:",
        "",
        f"| turns | {' | '.join(names)} | ours leads Ratel's best by (NDCG@5) |",
        "|---" * (len(names) + 2) + "|",
    ]
    for turns, rankings in sorted(found.items()):
        cells = [f"{m[0]:.3f} / {m[1]:.3f}" if (m := _means(rankings, name)) is not None else "" for name in names]
        lines.append(f"| {turns:,} | {' | '.join(cells)} | {_lead(rankings) if OURS in rankings else ''} |")
    return "\n".join(lines)


def _means(rankings: dict[str, Numbers], name: str) -> Numbers | None:
    return rankings[name].mean(axis=0) if name in rankings else None


def _lead(rankings: dict[str, Numbers]) -> str:
    best = max((f"Ratel, {method}" for method in METHODS), key=lambda name: float(rankings[name][:, 0].mean()))
    paired = rankings[OURS][:, 0] - rankings[best][:, 0]
    drawn = np.random.default_rng(0).integers(len(paired), size=(RESAMPLES, len(paired)))
    low, high = np.quantile(paired[drawn].mean(axis=1), [0.025, 0.975])
    return f"{paired.mean():+.3f} [{low:+.3f}, {high:+.3f}]"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "pickwise-rivals")
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with the libraries")
    parser.add_argument("--language", choices=("en", "zh"), default="en")
    parser.add_argument("--embedder", default="minilm", help="use or minilm")
    parser.add_argument("--turns", type=int, default=8_000)
    parser.add_argument("--queries", type=int, default=2_000, help="held-out queries, zh at most 300")
    parser.add_argument("--checkpoints", type=_numbers, default=list(learning.CHECKPOINTS))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    given.checkpoints = [turns for turns in given.checkpoints if turns <= given.turns]
    print(markdown(compare(given)))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
