"""Real picks: 95 recorded sessions of LiveMCPBench, learned from on some and ranked on the others.

    python -m bench.replay_livemcp [--embedder use] [--folds 10]

Each recorded search showed three of 527 tools, in the order of the recording's own retrieval, whose scores are not
known. Sessions are dealt into folds; the product learns from all folds but one, as it would from a log, and ranks the
three tools of each search of that fold. Before: the order shown. After: the model, or the blend at its prior where
there is too little to train one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench.ingest import ingest
from bench.learning import CACHE, PROJECT, RESAMPLES
from pickwise.settings import Settings
from ranker import blend, features, training
from ranker.dataset import Group, score_before_model
from ranker.decay import Numbers
from ranker.features.base import Context
from ranker.log import Log, read_log, turns
from ranker.ranks import ranks
from ranker.state import State
from ranker.train import groups_of, known_curves
from ranker.turns import Turn
from ranker.vectors import VectorCache, load_vectors

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
SEED = 0
#: Newest share of the learned lists, which chooses the trees: the product's own share would hold too few picks here.
VALIDATION_SHARE = 0.25

SHOWN, FORMULA, LEARNED = "as shown", "score before any model", "learned"

#: Scores of one list's candidates.
Scorer = Callable[[Group], Numbers]


@dataclass(frozen=True)
class Pick:
    """One search whose list held a picked tool: the rank of the best picked one by each order."""

    session_id: str
    ranks: dict[str, int]


@dataclass(frozen=True)
class Replay:
    picks: list[Pick]
    #: What ranked each fold: the model, or why it was the prior.
    models: list[str]


def replay(registry: Path, events: Path, embedder: str, folds: int) -> Replay:
    """Collect the recordings as events, then learn and rank fold by fold."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = Settings(data_dir=Path(scratch), flush_interval_s=0.2, embedder=embedder)
        CACHE.mkdir(exist_ok=True)
        (settings.data_dir / "embeddings").symlink_to(CACHE)
        vectors = load_vectors(settings.data_dir, settings)
        ingest(settings, _lines(registry), [event for event in _lines(events) if event["type"] != "feedback"])
        log = read_log(settings.data_dir, settings, PROJECT)
        picks: list[Pick] = []
        models = []
        for learned, held_out in _folds(log, folds):
            scorer, state, model = _learn(learned, vectors)
            models.append(model)
            now = float(log.calls["ended"].max()) + 1  # type: ignore[arg-type]
            asked = [replace(turn, time=now) for turn in turns(held_out, vectors) if len(turn.picked)]
            picks += [_ranked(turn, state, scorer) for turn in asked]
    return Replay(picks, models)


def _folds(log: Log, folds: int) -> Iterator[tuple[Log, Log]]:
    """The log without some sessions, and those sessions' part of it."""
    sessions = np.array(sorted(set(log.selections["session_id"])))
    for held_out in np.array_split(np.random.default_rng(SEED).permutation(sessions), folds):
        yield _of(log, set(sessions) - set(held_out)), _of(log, set(held_out))


def _of(log: Log, sessions: set[str]) -> Log:
    selections = log.selections.filter(pl.col("session_id").is_in(sorted(sessions)))
    events = selections["event_id"].implode()
    return replace(
        log,
        selections=selections,
        candidates=log.candidates.filter(pl.col("event_id").is_in(events)),
        calls=log.calls.filter(pl.col("selection_id").is_in(events)),
    )


def _learn(log: Log, vectors: VectorCache) -> tuple[Scorer, State, str]:
    groups, state = groups_of(log, vectors, [])
    first = len(groups) - int(len(groups) * VALIDATION_SHARE)
    known = known_curves(state, groups[-1].turn.time)
    try:
        found = training.train(groups[:first], groups[first:], known, SEED)
    except training.TooLittle as reason:
        return lambda group: training.blended(blend.PRIOR, [group])[0], state, f"the prior: {reason}"
    return lambda group: training.predict(found.booster, found.coefficients, [group])[0], state, "a model"


def _ranked(turn: Turn, state: State, scorer: Scorer) -> Pick:
    context = Context(turn, state)
    unlabelled = np.zeros(len(turn.skill_ids), dtype=np.int8)
    group = Group(turn, features.compute(context), unlabelled, score_before_model(context))
    orders = {
        SHOWN: np.arange(1, len(turn.skill_ids) + 1),
        FORMULA: ranks(group.before_model),
        LEARNED: ranks(scorer(group)),
    }
    return Pick(turn.session_id, {name: int(order[turn.picked].min()) for name, order in orders.items()})


def markdown(found: Replay) -> str:
    reciprocal = {name: np.array([1 / pick.ranks[name] for pick in found.picks]) for name in found.picks[0].ranks}
    sessions = [pick.session_id for pick in found.picks]
    lines = [
        f"{len(found.picks)} searches with a pick from their list, {len(set(sessions))} sessions",
        "",
        "| order | mean reciprocal rank | difference, 95 % interval over sessions | median rank | picked is first |",
        "|---|---|---|---|---|",
    ]
    for name, values in reciprocal.items():
        at = np.array([pick.ranks[name] for pick in found.picks])
        difference = "" if name == SHOWN else difference_by_session(values - reciprocal[SHOWN], sessions)
        lines.append(f"| {name} | {values.mean():.3f} | {difference} | {np.median(at):g} | {np.mean(at == 1):.0%} |")
    ranked_by = ", ".join(f"{count} by {model}" for model, count in Counter(found.models).most_common())
    return "\n".join([*lines, "", f"folds: {ranked_by}"])


def difference_by_session(paired: Numbers, sessions: Sequence[str]) -> str:
    """Mean paired difference with its 95 % interval, sessions drawn with replacement."""
    of_session = [paired[np.array(sessions) == session] for session in sorted(set(sessions))]
    sums, counts = np.array([part.sum() for part in of_session]), np.array([len(part) for part in of_session])
    drawn = np.random.default_rng(SEED).integers(len(sums), size=(RESAMPLES, len(sums)))
    low, high = np.quantile(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1), [0.025, 0.975])
    return f"{paired.mean():+.3f} [{low:+.3f}, {high:+.3f}]"


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with the recordings")
    parser.add_argument("--embedder", default="use", help="use or minilm")
    parser.add_argument("--folds", type=int, default=10)
    given = parser.parse_args()
    name = "livemcpbench.jsonl"
    print(markdown(replay(given.data / "registry" / name, given.data / "events" / name, given.embedder, given.folds)))


if __name__ == "__main__":
    main()
