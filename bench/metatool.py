"""What learning from picks is worth on MetaTool, with simulated agents whose position bias is known.

    python -m bench.metatool [--data FOLDER] [--turns 8000] [--queries 2000] [--seeds 0,1,2]

Logged turns show the top ten of BM25 and dense retrieval fused by RRF, 5 % of them with a shuffled top five; agents of
two models pick with published position curves. The turns go through the collector as real events; training, the gate
and serving are the product's own. Then held-out queries are ranked: by retrieval, by history, and by the models.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from numpy.typing import NDArray

from bench.ingest import ingest
from bench.simulated_agents import TWO_MODELS, Agents
from pickwise.embed import Vectors
from pickwise.settings import Settings
from pickwise.text import terms
from ranker import features, training
from ranker.dataset import Group, split
from ranker.decay import Numbers
from ranker.features.base import Context
from ranker.log import read_log
from ranker.ranks import order
from ranker.state import State
from ranker.train import groups_of, known_curves, train
from ranker.turns import Turn
from ranker.vectors import VectorCache, load_vectors, skill_text

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "ranking"
PROJECT = "default"
LIST_LENGTH = 10
SHUFFLED_SHARE = 0.05
RRF_K = 60
#: First logged turn: far enough back that all of them lie in the past, one every 60 s.
SECONDS_APART = 60.0

Scores = NDArray[np.float64]
#: Vectors of the queries, kept between runs.
CACHE = Path(tempfile.gettempdir()) / "pickwise-bench"
#: Scores of each group's candidates.
Scorer = Callable[[Sequence[Group]], Sequence[Numbers]]


@dataclass(frozen=True)
class Library:
    """Queries with the rows of their right skills, and every skill's retrieval scores for every query."""

    skills: list[dict[str, Any]]
    queries: list[str]
    right: list[set[int]]
    bm25: Scores
    dense: Scores
    rrf: Scores
    #: Vectors of the queries.
    vectors: Vectors

    @property
    def skill_ids(self) -> list[str]:
        return [skill["skill_id"] for skill in self.skills]


@dataclass(frozen=True)
class Run:
    """One seed: (NDCG@5, R@5) of every held-out query by ranking, and what training decided."""

    seed: int
    quality: dict[str, NDArray[np.float64]]
    result: dict[str, Any]
    regularisation: float
    curves: dict[str, Sequence[float]]


def load_library(folder: Path, count: int, vectors: VectorCache) -> Library:
    """The skills and ``count`` queries, the same ones for every seed."""
    skills = [json.loads(line) for line in (folder / "metatool_en_skills.jsonl").read_text().splitlines()]
    queries = [json.loads(line) for line in (folder / "metatool_en_queries.jsonl").read_text().splitlines()]
    chosen = [queries[index] for index in np.random.default_rng(0).permutation(len(queries))[:count]]
    row = {skill["skill_id"]: index for index, skill in enumerate(skills)}
    texts = [skill_text(skill["skill_id"], skill["name"], skill["description"]) for skill in skills]
    index = bm25s.BM25()
    index.index([terms(text) for text in texts], show_progress=False)
    asked = [query["query"] for query in chosen]
    bm25 = np.array([index.get_scores(terms(query)) if terms(query) else np.zeros(len(skills)) for query in asked])
    query_vectors = vectors.many(asked)
    dense = np.asarray(query_vectors @ vectors.many(texts).T, dtype=np.float64)
    rrf = 1 / (RRF_K + _ranks(bm25)) + 1 / (RRF_K + _ranks(dense))
    right = [{row[skill_id] for skill_id in query["relevant"]} for query in chosen]
    return Library(skills, asked, right, bm25.astype(np.float64), dense, rrf, query_vectors)


def simulate(library: Library, turns: int, agents: Agents, seed: int, until: float) -> list[dict[str, Any]]:
    """Events of so many turns, the last one just before ``until``: a selection each, and a call for its pick."""
    rng = np.random.default_rng(seed)
    models, skill_ids, events = list(agents.shares), library.skill_ids, []
    for turn in range(turns):
        shown = order(library.rrf[turn])[:LIST_LENGTH]
        shuffled = bool(rng.random() < SHUFFLED_SHARE)
        if shuffled:
            shown = np.concatenate([rng.permutation(shown[:5]), shown[5:]])
        model, at = models[turn % len(models)], until - (turns - turn) * SECONDS_APART
        right = np.array([int(row) in library.right[turn] for row in shown])
        pick = agents.pick(model, right, rng)
        common = {"session_id": f"session-{turn // 3}", "model": model}
        events.append(
            {
                "type": "selection",
                "event_id": f"turn-{turn}",
                "time": int(at * 1e9),
                "query": library.queries[turn],
                "ranked": True,
                "randomized": shuffled,
                "strategy": "hybrid",
                "candidates": [
                    {
                        "skill_id": skill_ids[row],
                        "bm25": float(library.bm25[turn, row]),
                        "dense": float(library.dense[turn, row]),
                        "score": float(library.rrf[turn, row]),
                    }
                    for row in shown
                ],
                "picks": [] if pick is None else [skill_ids[shown[pick]]],
                **common,
            }
        )
        if pick is not None:
            ok = agents.succeeds(bool(right[pick]), rng)
            events.append(
                {
                    "type": "call",
                    "event_id": f"call-{turn}",
                    "time": int((at + 1) * 1e9),
                    "selection_id": f"turn-{turn}",
                    "skill_id": skill_ids[shown[pick]],
                    "ok": ok,
                    "latency_ms": float(rng.lognormal(5, 0.5)),
                    **({} if ok else {"error_kind": "tool_error"}),
                    **common,
                }
            )
    return events


def main() -> None:
    arguments = _arguments()
    print(f"{arguments.turns:,} turns, {arguments.queries:,} held-out queries, seeds {arguments.seeds}", flush=True)
    runs = []
    for seed in arguments.seeds:
        started = time.monotonic()
        runs.append(run(arguments.data, arguments.turns, arguments.queries, seed))
        print(f"seed {seed}: {time.monotonic() - started:.0f} s", flush=True)
    print(markdown(runs))


def run(folder: Path, turns: int, queries: int, seed: int) -> Run:
    """One seed: simulate, collect, train and promote, then rank the held-out queries in every way."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = Settings(data_dir=Path(scratch), flush_interval_s=0.2)
        CACHE.mkdir(exist_ok=True)
        (settings.data_dir / "embeddings").symlink_to(CACHE)
        vectors = load_vectors(settings.data_dir, settings)
        library = load_library(folder, turns + queries, vectors)
        now = time.time()
        ingest(settings, library.skills, simulate(library, turns, TWO_MODELS, seed, now))
        result = train(settings.data_dir, settings, project=PROJECT, seed=seed)
        groups, state = groups_of(read_log(settings.data_dir, settings, PROJECT), vectors, [])
    known = known_curves(state, now)
    train_groups, validation, _ = split(groups)
    ours = training.train(train_groups, validation, known, seed)
    usable = [group for group in train_groups if group.has_contrast]
    naive, _ = training.fit(usable, 0.0, seed, naive=True)
    held_out = range(turns, turns + queries)
    lists = {"union": [candidates(library, query, state) for query in held_out]}
    lists["retrieved"] = [order(library.rrf[query])[:LIST_LENGTH] for query in held_out]
    asked = {
        name: [_group(library, query, rows, state, now) for query, rows in zip(held_out, chosen, strict=True)]
        for name, chosen in lists.items()
    }
    scored = {
        "BM25": library.bm25[turns:],
        "dense (USE)": library.dense[turns:],
        "RRF: the logging ranking": library.rrf[turns:],
        "centroid of past successful queries": _spread(library, lists["union"], _centroid(asked["union"])),
        "naive LambdaRank on skips": _spread(library, lists["union"], _model(naive, ours.trees)(asked["union"])),
        "ours, retrieved ten only": _spread(
            library, lists["retrieved"], _model(ours.booster, ours.trees)(asked["retrieved"])
        ),
        "ours": _spread(library, lists["union"], _model(ours.booster, ours.trees)(asked["union"])),
    }
    quality = {
        name: np.array(
            [_quality(order(scores), library.right[query]) for query, scores in zip(held_out, rows, strict=True)]
        )
        for name, rows in scored.items()
    }
    return Run(seed, quality, result, ours.regularisation, dict(ours.curves))


def candidates(library: Library, query: int, state: State) -> NDArray[np.intp]:
    """Rows of the retrieved ten and of the ten that history recalls."""
    row = {skill_id: index for index, skill_id in enumerate(library.skill_ids)}
    recalled = state.history.recall(library.vectors[query], LIST_LENGTH)
    by_history = [row[state.skills[known].skill_id] for known, _ in recalled]
    return np.array(list(dict.fromkeys([*order(library.rrf[query])[:LIST_LENGTH].tolist(), *by_history])))


def markdown(runs: Sequence[Run]) -> str:
    """The table of all runs: means over seeds, standard errors over queries."""
    lines = ["", "| ranking | NDCG@5 | standard error | R@5 |", "|---|---|---|---|"]
    for name in runs[0].quality:
        stacked = np.stack([run.quality[name] for run in runs])
        error = stacked[..., 0].mean(axis=0).std(ddof=1) / np.sqrt(stacked.shape[1])
        lines.append(f"| {name} | {stacked[..., 0].mean():.3f} | {error:.3f} | {stacked[..., 1].mean():.3f} |")
    lines.append("")
    for run in runs:
        curves = {model: [round(theta, 2) for theta in curve] for model, curve in run.curves.items()}
        difference = run.result["evidence"].get("difference", {})
        lines.append(
            f"seed {run.seed}: {run.result['decision']}, Δ {difference.get('delta')} "
            f"[{difference.get('low')}, {difference.get('high')}], regularisation {run.regularisation}, "
            f"position factors {curves}"
        )
    return "\n".join(lines)


def _group(library: Library, query: int, rows: NDArray[np.intp], state: State, now: float) -> Group:
    absent = np.full(len(rows), np.nan)
    turn = Turn(
        selection_id=f"held-out-{query}",
        time=now,
        query=library.queries[query],
        vector=library.vectors[query],
        skill_ids=[library.skill_ids[row] for row in rows],
        scores={
            "bm25": library.bm25[query, rows],
            "dense": library.dense[query, rows],
            "score": library.rrf[query, rows],
            "rerank": absent,
        },
    )
    return Group(turn, features.compute(Context(turn, state)), np.zeros(len(rows), dtype=np.int8), absent)


def _model(booster: Any, trees: int) -> Scorer:
    return lambda groups: training.predict(booster, groups, trees)


def _centroid(groups: Sequence[Group]) -> list[Numbers]:
    column = features.NAMES.index("history_centroid")
    return [np.nan_to_num(group.features[:, column].astype(np.float64), nan=-1.0) for group in groups]


def _spread(library: Library, lists: Sequence[NDArray[np.intp]], scores: Sequence[Numbers]) -> Scores:
    """Scores of lists as rows over all skills; what was not on a list comes last."""
    spread = np.full((len(lists), len(library.skills)), -np.inf)
    for index, (rows, values) in enumerate(zip(lists, scores, strict=True)):
        spread[index, rows] = values
    return spread


def _quality(ranking: NDArray[np.intp], right: set[int]) -> tuple[float, float]:
    """NDCG@5 and R@5 of one query."""
    hits = np.array([float(int(row) in right) for row in ranking[:5]])
    discounts = 1 / np.log2(2 + np.arange(5))
    return float(hits @ discounts / discounts[: min(len(right), 5)].sum()), float(hits.sum() / len(right))


def _ranks(scores: Scores) -> NDArray[np.intp]:
    return (-scores).argsort(axis=1, kind="stable").argsort(axis=1, kind="stable") + 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with metatool_en_*.jsonl")
    parser.add_argument("--turns", type=int, default=8_000)
    parser.add_argument("--queries", type=int, default=2_000, help="held-out queries")
    parser.add_argument(
        "--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0], help="comma-separated"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
