"""Skill libraries with queries whose right skills are known, and simulated turns over them.

`en`: MetaTool, 199 tools. `zh`: ACEBench, 1,929 tools and 967 Chinese queries, which are asked again and again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from numpy.typing import NDArray

from bench.simulated_agents import Agents
from pickwise.embed import Vectors
from pickwise.skills import Skill
from pickwise.text import terms
from ranker.decay import Numbers
from ranker.ranks import order
from ranker.vectors import VectorCache

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "ranking"
FILES = {"en": "metatool_en", "zh": "acebench_zh"}
#: Of the zh queries so many are held out at most: the rest must do for all logged turns.
ZH_HELD_OUT = 300
LIST_LENGTH = 10
SHUFFLED_SHARE = 0.05
RRF_K = 60
#: One logged turn every 60 s.
SECONDS_APART = 60.0

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Library:
    """Queries with the rows of their right skills, and every skill's retrieval scores for every query.

    The first ``logged`` queries may be asked in the log, the others are held out.
    """

    skills: list[dict[str, Any]]
    queries: list[str]
    right: list[set[int]]
    logged: int
    bm25: Scores
    dense: Scores
    rrf: Scores
    #: Vectors of the queries.
    vectors: Vectors

    @property
    def skill_ids(self) -> list[str]:
        return [skill["skill_id"] for skill in self.skills]

    @property
    def held_out(self) -> range:
        return range(self.logged, len(self.queries))


def load_library(language: str, folder: Path, turns: int, held_out: int, vectors: VectorCache) -> Library:
    """The skills and queries, the same ones for every seed."""
    skills, queries = (_lines(folder / f"{FILES[language]}_{kind}.jsonl") for kind in ("skills", "queries"))
    queries = [query for query in queries if query["relevant"]]
    chosen = [queries[index] for index in np.random.default_rng(0).permutation(len(queries))]
    kept = min(held_out, ZH_HELD_OUT if language == "zh" else held_out, len(chosen) // 2)
    logged = min(turns, len(chosen) - kept)
    chosen = chosen[: logged + kept]
    row = {skill["skill_id"]: index for index, skill in enumerate(skills)}
    texts = [Skill(**{key: skill[key] for key in ("skill_id", "name", "description")}).text for skill in skills]
    index = bm25s.BM25()
    index.index([terms(text) for text in texts], show_progress=False)
    asked = [query["query"] for query in chosen]
    bm25 = np.array([index.get_scores(terms(query)) if terms(query) else np.zeros(len(skills)) for query in asked])
    query_vectors = vectors.many(asked)
    dense = np.asarray(query_vectors @ vectors.many(texts).T, dtype=np.float64)
    rrf = 1 / (RRF_K + _ranks(bm25)) + 1 / (RRF_K + _ranks(dense))
    right = [{row[skill_id] for skill_id in query["relevant"]} for query in chosen]
    return Library(skills, asked, right, logged, bm25.astype(np.float64), dense, rrf, query_vectors)


def queries_asked(library: Library, turns: int, seed: int) -> list[int]:
    """The query of each turn, all of them once, and then again in random order; turn n has the event id `turn-n`."""
    first = range(min(turns, library.logged))
    return [*first, *np.random.default_rng(seed).integers(library.logged, size=turns - len(first)).tolist()]


def simulate(library: Library, turns: int, agents: Agents, seed: int, until: float) -> list[dict[str, Any]]:
    """Events of so many turns, the last one just before ``until``: a selection each, and a call for its pick."""
    rng = np.random.default_rng(seed)
    models, skill_ids, events = list(agents.shares), library.skill_ids, []
    for turn, query in enumerate(queries_asked(library, turns, seed)):
        shown = order(library.rrf[query])[:LIST_LENGTH]
        shuffled = bool(rng.random() < SHUFFLED_SHARE)
        if shuffled:
            shown = np.concatenate([rng.permutation(shown[:5]), shown[5:]])
        model, at = models[turn % len(models)], until - (turns - turn) * SECONDS_APART
        right = np.array([int(row) in library.right[query] for row in shown])
        pick = agents.pick(model, right, rng)
        common = {"session_id": f"session-{turn // 3}", "model": model}
        events.append(
            {
                "type": "selection",
                "event_id": f"turn-{turn}",
                "time": int(at * 1e9),
                "query": library.queries[query],
                "ranked": True,
                "randomized": shuffled,
                "strategy": "hybrid",
                "candidates": [
                    {
                        "skill_id": skill_ids[row],
                        "bm25": float(library.bm25[query, row]),
                        "dense": float(library.dense[query, row]),
                        "score": float(library.rrf[query, row]),
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


def quality(scores: Numbers, right: set[int]) -> tuple[float, float]:
    """NDCG@5 and R@5 of one query's ranking of all skills."""
    hits = np.array([float(int(row) in right) for row in order(scores)[:5]])
    discounts = 1 / np.log2(2 + np.arange(5))
    return float(hits @ discounts / discounts[: min(len(right), 5)].sum()), float(hits.sum() / len(right))


def _ranks(scores: Scores) -> NDArray[np.intp]:
    return (-scores).argsort(axis=1, kind="stable").argsort(axis=1, kind="stable") + 1


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
