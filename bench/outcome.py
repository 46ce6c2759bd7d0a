"""What failing skills lose and mended ones win back, with simulated agents.

    python -m bench.outcome [--embedder use] [--turns 4000] [--seeds 0]

So many turns in which all is well, as many in which calls of every fifth skill fail nine times of ten, and as many
after they were mended. The turns show the retrieval's ten whatever happens, so only what was learned from outcomes
moves. At the end of each phase, and on the way back, held-out queries are ranked by the score before any model and by
the model, the latter also with the demotion of the nightly status rules; history recalls beside the retrieved ten.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from analytics.status_rules import DAY, SECOND, CallHistory, Case, Standing, decide
from bench.ingest import ingest
from bench.learning import CACHE, PROJECT, candidates_of, held_out_group, prefixes
from bench.library import SHARED, Library, load_library, simulate
from bench.simulated_agents import TWO_MODELS
from discovery.explore import demote
from discovery.weights import SkillWeights, Weights
from pickwise.events import Candidate
from pickwise.settings import Settings
from ranker import blend, training
from ranker.dataset import Group, score_before_model, split
from ranker.decay import Numbers
from ranker.features.base import Context
from ranker.log import facts_of, labels_by_turn, read_log
from ranker.ranks import order
from ranker.state import State
from ranker.train import known_curves
from ranker.vectors import load_vectors

FAILING_SHARE = 0.2
FAILS = 0.9
LIST_LENGTH = 8
RETRIEVAL, FORMULA, MODEL, DEMOTED = "retrieval (RRF)", "score before any model", "model", "model, with demotion"
Standings = Mapping[str, Standing]


@dataclass(frozen=True)
class Moment:
    """After so many turns of one seed: shares of held-out queries, by ranking.

    failing_first: of all queries, those with a failing skill at rank 1; own_first: of the queries whose right skill is
    a failing one, those with it at rank 1. degraded: failing skills that the status rules have degraded, as a share.
    """

    turns: int
    failing_first: dict[str, float]
    own_first: dict[str, float]
    degraded: float


def run(arguments: argparse.Namespace, seed: int) -> Iterator[Moment]:
    """One seed: simulate, collect, and look at every checkpoint."""
    total = 3 * arguments.turns
    with tempfile.TemporaryDirectory() as scratch:
        settings = Settings(data_dir=Path(scratch), flush_interval_s=0.2, embedder=arguments.embedder)
        CACHE.mkdir(exist_ok=True)
        (settings.data_dir / "embeddings").symlink_to(CACHE)
        vectors = load_vectors(settings.data_dir, settings)
        library = load_library("en", arguments.data, total, arguments.queries, vectors)
        failing = failing_skills(library, seed)
        events = simulate(library, total, TWO_MODELS, seed, time.time())
        _let_fail(events, {library.skill_ids[row] for row in failing}, arguments.turns, seed)
        ingest(settings, library.skills, events)
        log = read_log(settings.data_dir, settings, PROJECT)
        facts = facts_of(log, vectors)
        state = State(vectors.dimension)
        for groups, now in prefixes(facts, labels_by_turn(log, facts), state, checkpoints(arguments.turns)):
            yield _moment(library, failing, groups, state, now, _standings(events, now), seed)


def checkpoints(turns: int) -> list[int]:
    """The end of each phase, and the way back after an eighth, a quarter and a half of the last."""
    return [turns, 2 * turns, *(2 * turns + turns // part for part in (8, 4, 2)), 3 * turns]


def failing_skills(library: Library, seed: int) -> set[int]:
    """Rows of the skills that fail for a while."""
    count = round(FAILING_SHARE * len(library.skills))
    return set(np.random.default_rng(seed + 2_000).permutation(len(library.skills))[:count].tolist())


def _let_fail(events: Sequence[dict[str, Any]], failing: set[str], turns: int, seed: int) -> None:
    rng = np.random.default_rng(seed + 3_000)
    for event in events:
        if event["type"] != "call" or event["skill_id"] not in failing:
            continue
        if turns <= int(event["selection_id"].removeprefix("turn-")) < 2 * turns:
            event["ok"] = bool(rng.random() >= FAILS)
            event.pop("error_kind", None)
            event.update({} if event["ok"] else {"error_kind": "tool_error"})


def _standings(events: Sequence[dict[str, Any]], now: float) -> dict[str, Standing]:
    """The status of each called skill as the nights until ``now`` made it."""
    calls: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event["type"] == "call" and event["time"] < now * 1e9:
            calls.setdefault(event["skill_id"], []).append(event)
    found = {}
    for skill_id, own in calls.items():
        kinds = [event.get("error_kind") for event in own]
        history = CallHistory.of([event["time"] // 1_000 for event in own], [event["ok"] for event in own], kinds)
        standing, last = Standing(), int(now * SECOND)
        for at in range(int(history.times[0]) // DAY * DAY + DAY, last + DAY, DAY):
            change = decide(Case(min(at, last), history, standing))
            if change is not None:
                fraction = change.rollout_fraction
                standing = Standing(change.status, change.reason, fraction, at, change.evidence, recorded=True)
        found[skill_id] = standing
    return found


def _moment(
    library: Library,
    failing: set[int],
    groups: Sequence[Group],
    state: State,
    now: float,
    standings: Standings,
    seed: int,
) -> Moment:
    rows = [candidates_of(library, query, state, now) for query in library.held_out]
    asked = [held_out_group(library, query, own, state, now) for query, own in zip(library.held_out, rows, strict=True)]
    asked = [replace(group, before_model=score_before_model(Context(group.turn, state))) for group in asked]
    model = _model_scores(groups, asked, known_curves(state, now), seed)
    scored = {
        RETRIEVAL: [group.turn.scores["score"] for group in asked],
        FORMULA: [group.before_model for group in asked],
        MODEL: model,
    }
    first = {
        name: [int(own[order(scores)[0]]) for own, scores in zip(rows, lists, strict=True)]
        for name, lists in scored.items()
    }
    weights = _weights(standings)
    row_of = {skill_id: row for row, skill_id in enumerate(library.skill_ids)}
    first[DEMOTED] = [row_of[_first_shown(group, scores, weights)] for group, scores in zip(asked, model, strict=True)]
    own_queries = [query for query in library.held_out if library.right[query] & failing]
    ids = [library.skill_ids[row] for row in failing]
    degraded = sum(skill_id in standings and standings[skill_id].status == "degraded" for skill_id in ids)
    return Moment(
        len(groups),
        {name: float(np.mean([row in failing for row in rows])) for name, rows in first.items()},
        {
            name: float(np.mean([rows[query - library.logged] in library.right[query] for query in own_queries]))
            for name, rows in first.items()
        },
        degraded / len(ids),
    )


def _model_scores(
    groups: Sequence[Group], asked: Sequence[Group], known: Mapping[str, Sequence[float]], seed: int
) -> Sequence[Numbers]:
    train_groups, validation, _ = split(groups)
    try:
        found = training.train(train_groups, validation, known, seed)
    except training.TooLittle:
        return training.blended(blend.PRIOR, asked)
    return training.predict(found.booster, found.coefficients, asked)


def _weights(standings: Standings) -> Weights:
    skills = {
        skill_id: SkillWeights(status=standing.status, rollout_fraction=standing.rollout_fraction)
        for skill_id, standing in standings.items()
    }
    return Weights(version="now", skills=skills)


def _first_shown(group: Group, scores: Numbers, weights: Weights) -> str:
    """What the discovery layer shows first: degraded skills stand last for nine sessions of ten."""
    ranked = [Candidate(skill_id=group.turn.skill_ids[index]) for index in order(scores)]
    return demote(ranked, LIST_LENGTH, group.turn.selection_id, weights)[0].skill_id


def markdown(found: Sequence[Sequence[Moment]], turns: int) -> str:
    """Means over the seeds: failing skills at rank 1, and failing skills at rank 1 of their own queries."""
    lines = []
    for title, of in (
        ("of all held-out queries, a failing skill is first", "failing_first"),
        ("of the failing skills' own queries, it is first", "own_first"),
    ):
        names = list(getattr(found[0][0], of))
        lines += ["", f"| {title} | {' | '.join(names)} | degraded |", "|---" * (len(names) + 2) + "|"]
        for moments in zip(*found, strict=True):
            means = [float(np.mean([getattr(moment, of)[name] for moment in moments])) for name in names]
            degraded = np.mean([moment.degraded for moment in moments])
            cells = " | ".join(f"{mean:.1%}" for mean in means)
            lines.append(f"| {_phase(moments[0].turns, turns)} | {cells} | {degraded:.0%} |")
    return "\n".join(lines)


def _phase(done: int, turns: int) -> str:
    if done <= turns:
        return f"after {done:,} good turns"
    if done <= 2 * turns:
        return f"after {done - turns:,} turns of failing"
    return f"{done - 2 * turns:,} turns after the mend"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with the libraries")
    parser.add_argument("--embedder", default="use", help="use or minilm")
    parser.add_argument("--turns", type=int, default=4_000, help="turns of each of the three phases")
    parser.add_argument("--queries", type=int, default=2_000, help="held-out queries")
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0])
    given = parser.parse_args(argv)
    print(markdown([list(run(given, seed)) for seed in given.seeds], given.turns))


if __name__ == "__main__":
    main()
