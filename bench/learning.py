"""What learning from picks is worth, with simulated agents whose position bias is known.

    python -m bench.learning --language en --embedder minilm --seeds 0,1,2
    python -m bench.learning --language zh --embedder use --seeds 0,1,2

Logged turns show the top ten of BM25 and dense retrieval fused by RRF, 5 % of them with a shuffled top five; agents of
two models pick with published position curves. The turns go through the collector as real events; history, training and
gate are the product's own. At every checkpoint the log so far is learned from, and held-out queries are ranked.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from bench.ingest import ingest
from bench.library import LIST_LENGTH, SHARED, Library, load_library, quality, queries_asked, simulate
from bench.simulated_agents import TWO_MODELS
from discovery.fusion import alpha_for, weighted
from discovery.history import History, UsageArm
from pickwise.settings import Settings
from ranker import blend, features, gate, logit, training
from ranker.dataset import Group, score_before_model, split
from ranker.decay import Numbers
from ranker.features.base import Context
from ranker.log import Fact, facts_of, labels_by_turn, read_log, replay
from ranker.ranks import order
from ranker.recall import recall_of
from ranker.state import State
from ranker.train import known_curves
from ranker.turns import Turn
from ranker.vectors import load_vectors

PROJECT = "default"
#: Skills that history recalls beside the retrieved ten.
RECALLED = 20
CHECKPOINTS = (200, 600, 1_000, 4_000, 8_000)
#: Vectors of the queries, kept between runs.
CACHE = Path(tempfile.gettempdir()) / "pickwise-bench"
RESAMPLES = 2_000

LOGGING, CENTROID, OURS, ORACLE = "RRF: the logging ranking", "centroid of past successful queries", "ours", "oracle"
ARM = "discovery layer with its usage arm, no model"

#: Scores of each group's candidates.
Scorer = Callable[[Sequence[Group]], Sequence[Numbers]]
#: (NDCG@5, R@5) of every held-out query, by ranking.
Quality = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Checkpoint:
    """After so many turns of one seed: how well each ranking does, and whether the gate would let ours through."""

    seed: int
    turns: int
    quality: Quality
    decision: str
    coefficients: Mapping[str, float]


def main() -> None:
    arguments = _arguments()
    found = []
    for seed in arguments.seeds:
        for checkpoint in run(arguments, seed):
            found.append(checkpoint)
            ours = checkpoint.quality[OURS][:, 0].mean()
            print(f"seed {seed}, {checkpoint.turns:,} turns: ours {ours:.3f}, {checkpoint.decision}", flush=True)
    print(markdown(found))


def run(arguments: argparse.Namespace, seed: int) -> Iterator[Checkpoint]:
    """One seed: simulate, collect, and learn at every checkpoint."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = Settings(data_dir=Path(scratch), flush_interval_s=0.2, embedder=arguments.embedder)
        CACHE.mkdir(exist_ok=True)
        (settings.data_dir / "embeddings").symlink_to(CACHE)
        vectors = load_vectors(settings.data_dir, settings)
        library = load_library(arguments.language, arguments.data, arguments.turns, arguments.queries, vectors)
        ingest(settings, library.skills, simulate(library, arguments.turns, TWO_MODELS, seed, time.time()))
        log = read_log(settings.data_dir, settings, PROJECT)
        facts = facts_of(log, vectors)
        state = State(vectors.dimension)
        for groups, now in prefixes(facts, labels_by_turn(log, facts), state, arguments.checkpoints):
            yield _checkpoint(library, groups, state, now, seed, settings)


def prefixes(
    facts: Sequence[Fact], labels: Mapping[str, Sequence[int]], state: State, checkpoints: Sequence[int]
) -> Iterator[tuple[list[Group], float]]:
    """The groups so far and the time, whenever so many turns have passed; the state is as of then."""
    groups: list[Group] = []
    ends = [fact.time for fact in facts if not isinstance(fact, Turn)]
    turns = replay(facts, state)
    for turn in turns:
        if len(groups) in checkpoints:
            yield groups, turn.time
        context = Context(turn, state)
        relevance = np.array(labels.get(turn.selection_id, [0] * len(turn.skill_ids)), dtype=np.int8)
        groups.append(Group(turn, features.compute(context), relevance, score_before_model(context)))
    if len(groups) in checkpoints:
        yield groups, max(ends) + 1


def _checkpoint(
    library: Library, groups: Sequence[Group], state: State, now: float, seed: int, settings: Settings
) -> Checkpoint:
    known = known_curves(state, now)
    retrieved = [order(library.rrf[query])[:LIST_LENGTH] for query in library.held_out]
    union = [candidates_of(library, query, state, now) for query in library.held_out]
    asked = [
        held_out_group(library, query, rows, state, now) for query, rows in zip(library.held_out, union, strict=True)
    ]
    within = [
        held_out_group(library, query, rows, state, now)
        for query, rows in zip(library.held_out, retrieved, strict=True)
    ]
    scorers, coefficients, decision = _learned(library, groups, known, seed, settings)
    scored = {
        "BM25": library.bm25[library.logged :],
        "dense": library.dense[library.logged :],
        LOGGING: library.rrf[library.logged :],
        CENTROID: _spread(library, union, _centroid(asked)),
        ARM: _usage(library, state, now, settings.embedder),
        **{name: _spread(library, union, scorer(asked)) for name, scorer in scorers.items()},
        "ours, retrieved ten only": _spread(library, retrieved, scorers[OURS](within)),
    }
    found = {
        name: np.array(
            [quality(scores, library.right[query]) for query, scores in zip(library.held_out, rows, strict=True)]
        )
        for name, rows in scored.items()
    }
    return Checkpoint(seed, len(groups), found, decision, coefficients)


def _learned(
    library: Library, groups: Sequence[Group], known: Mapping[str, Sequence[float]], seed: int, settings: Settings
) -> tuple[dict[str, Scorer], Mapping[str, float], str]:
    """Every learned ranking; where there is too little to train, ours is the blend at its prior."""
    train_groups, validation, test = split(groups)
    blank = [_without_history(group) for group in train_groups], [_without_history(group) for group in validation]
    prior: Scorer = lambda asked: training.blended(blend.PRIOR, asked)  # noqa: E731
    try:
        ours = training.train(train_groups, validation, known, seed)
        without = training.train(*blank, known, seed)
    except training.TooLittle as reason:
        return {OURS: prior}, blend.named(blend.PRIOR), f"too little: {reason}"
    usable = [group for group in train_groups if group.has_contrast]
    parameters = training.LEAST_REGULARISED
    naive = training.fit(usable, None, parameters, seed, naive=True)
    debiased = training.fit(usable, None, parameters, seed)
    queries = queries_asked(library, len(groups), seed)
    labelled = [_oracle(library, group, queries) for group in train_groups]
    right = [group for group in labelled if group.has_contrast]
    line = _fit_right(right)
    oracle = training.fit(right, training.blended(line, right), parameters, seed, naive=True)
    weight = training.weight_from_curves({**ours.curves, **known})
    new = training.predict(ours.booster, ours.coefficients, test)
    old = [group.before_model for group in test]
    verdict = gate.judge(test, new, old, weight, {}, ours.booster, settings, seed)
    scorers: dict[str, Scorer] = {
        "naive LambdaRank on skips": _model(naive, None),
        "LambdaRank with position factors": _model(debiased, None),
        "ours without history": lambda asked: training.predict(
            without.booster, without.coefficients, [_without_history(group) for group in asked]
        ),
        OURS: _model(ours.booster, ours.coefficients),
        ORACLE: _model(oracle, line),
    }
    return scorers, blend.named(ours.coefficients), f"{verdict.decision}: {verdict.reason}"


def _fit_right(groups: Sequence[Group]) -> Numbers:
    """The blend of lists that are labelled with what is right: every place counts alike."""
    lists = [(group, int(index)) for group in groups for index in group.succeeded]
    inputs = [blend.inputs(group.features) for group, _ in lists]
    return logit.fit(inputs, [index for _, index in lists], [1.0] * len(lists), blend.NORMAL_PRIOR)[0]


def _without_history(group: Group) -> Group:
    matrix = group.features.copy()
    for column, name in enumerate(features.NAMES):
        if name.startswith("history_"):
            matrix[:, column] = 0.0 if name in ("history_support", "history_debiased", "history_words") else np.nan
    return replace(group, features=matrix)


def _oracle(library: Library, group: Group, queries: Sequence[int]) -> Group:
    """The same list, labelled with what is right."""
    right = {
        library.skill_ids[row] for row in library.right[queries[int(group.turn.selection_id.removeprefix("turn-"))]]
    }
    return replace(group, labels=np.array([2 * (skill in right) for skill in group.turn.skill_ids], dtype=np.int8))


def candidates_of(library: Library, query: int, state: State, now: float) -> NDArray[np.intp]:
    """Rows of the retrieved ten and of those that history recalls."""
    rows = state.history.rows
    near = state.history.profile(library.vectors[query], rows, state.descriptions[rows], now)
    row_of = {skill_id: row for row, skill_id in enumerate(library.skill_ids)}
    recalled = [row_of[state.skills[rows[index]].skill_id] for index in np.argsort(-near, kind="stable")[:RECALLED]]
    return np.array(list(dict.fromkeys([*order(library.rrf[query])[:LIST_LENGTH].tolist(), *recalled])))


def held_out_group(library: Library, query: int, rows: NDArray[np.intp], state: State, now: float) -> Group:
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


def _usage(library: Library, state: State, now: float, embedder: str) -> Numbers:
    """What the discovery layer makes of both retrieval arms and the recall artefact, before there is a model."""
    recall = recall_of(state, library.skill_ids, PROJECT, "", embedder, now)
    history = History(recall.skill_ids, recall.support, recall.vectors, "", embedder)
    arm = UsageArm(history, library.skill_ids)
    found = []
    for query in library.held_out:
        bm25, dense = library.bm25[query], library.dense[query]
        retrieved = weighted(bm25, dense, alpha_for(library.queries[query], 1.0))
        found.append(arm.blend(retrieved, dense, library.vectors[query])[0])
    return np.array(found)


def _model(booster: lgb.Booster, coefficients: Numbers | None) -> Scorer:
    return lambda groups: training.predict(booster, coefficients, groups)


def _centroid(groups: Sequence[Group]) -> list[Numbers]:
    column = features.NAMES.index("history_centroid")
    return [np.nan_to_num(group.features[:, column].astype(np.float64), nan=-1.0) for group in groups]


def _spread(library: Library, lists: Sequence[NDArray[np.intp]], scores: Sequence[Numbers]) -> Numbers:
    """Scores of lists as rows over all skills; what was not on a list comes last."""
    spread = np.full((len(lists), len(library.skills)), -np.inf)
    for index, (rows, values) in enumerate(zip(lists, scores, strict=True)):
        spread[index, rows] = values
    return spread


def markdown(found: Sequence[Checkpoint]) -> str:
    """All rankings after the most turns, and the main ones at every checkpoint; intervals over queries and seeds."""
    last = max(checkpoint.turns for checkpoint in found)
    final = [checkpoint for checkpoint in found if checkpoint.turns == last]
    lines = [
        "",
        f"After {last:,} turns, {len(final)} seeds:",
        "",
        "| ranking | NDCG@5 | ours leads by | R@5 |",
        "|---|---|---|---|",
    ]
    for name in final[0].quality:
        values = np.concatenate([checkpoint.quality[name] for checkpoint in final])
        lead = "" if name == OURS else _lead(final, OURS, name)
        lines.append(f"| {name} | {values[:, 0].mean():.3f} | {lead} | {values[:, 1].mean():.3f} |")
    lines += [
        "",
        "| turns | logging | centroid | usage arm | ours | over logging | over centroid | gate |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for turns in sorted({checkpoint.turns for checkpoint in found}):
        at = [checkpoint for checkpoint in found if checkpoint.turns == turns]
        means = [
            np.mean([checkpoint.quality[name][:, 0].mean() for checkpoint in at])
            for name in (LOGGING, CENTROID, ARM, OURS)
        ]
        promoted = sum(checkpoint.decision.startswith("promoted") for checkpoint in at)
        leads = f"{_lead(at, OURS, LOGGING)} | {_lead(at, OURS, CENTROID)}"
        lines.append(
            f"| {turns:,} | "
            + " | ".join(f"{mean:.3f}" for mean in means)
            + f" | {leads} | {promoted} of {len(at)} promoted |"
        )
    lines += [
        "",
        "coefficients of the blend, first seed: " + ", ".join(f"{k} {v:.2f}" for k, v in final[0].coefficients.items()),
    ]
    return "\n".join(lines)


def _lead(found: Sequence[Checkpoint], new: str, old: str) -> str:
    """Mean paired difference of NDCG@5 with its 95 % bootstrap interval over queries, seeds averaged."""
    paired = np.mean([checkpoint.quality[new][:, 0] - checkpoint.quality[old][:, 0] for checkpoint in found], axis=0)
    rng = np.random.default_rng(0)
    draws = [paired[rng.integers(len(paired), size=len(paired))].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(draws, [0.025, 0.975])
    return f"{paired.mean():+.3f} [{low:+.3f}, {high:+.3f}]"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with the libraries")
    parser.add_argument("--language", choices=("en", "zh"), default="en")
    parser.add_argument("--embedder", default="use", help="use or minilm")
    parser.add_argument("--turns", type=int, default=8_000)
    parser.add_argument("--queries", type=int, default=2_000, help="held-out queries, zh at most 300")
    parser.add_argument("--checkpoints", type=_numbers, default=CHECKPOINTS, help="comma-separated numbers of turns")
    parser.add_argument("--seeds", type=_numbers, default=[0], help="comma-separated")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
