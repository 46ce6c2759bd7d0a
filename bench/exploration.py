"""Whether a skill that failed and was mended finds its way back, with exploration and without.

    python -m bench.exploration [--seeds 20]

Planted: the one skill that does the job matches its queries only as the 12th of a list of eight, and its last 40 calls
failed, so the nightly rules degraded it; then it is mended. Ranking, demotion, slot and shuffle are the discovery
layer's own, heat and success the ranker's, the status rules the nightly job's; the agents are simulated. A turn is
eligible when recall holds the skill among its 50.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from analytics.status_rules import DAY, SECOND, CallHistory, Case, Standing, decide
from bench.simulated_agents import TWO_MODELS, planted_theta
from discovery.explore import demote, fill_slot, shuffle_top
from discovery.rerank import rerank_locally
from discovery.weights import SkillWeights, Weights
from pickwise.events import Candidate
from pickwise.scores import SCORES
from ranker.examination import MAX_RANK, PositionFactors
from ranker.state import State
from ranker.turns import Ended, Registered, Turn
from ranker.weights_document import SHUFFLE_FRACTION

LIST_LENGTH = 8
LIBRARY = 60
POOL = 50
MENDED = "mended"
#: Its place among the matches of its queries, from 0, among so many that match nearly alike.
MATCHES_AT, NEAR = 11, 16
FAILED_CALLS = 40
TURNS_A_DAY = 50
#: Turns before the mend, and those that are watched after it.
BEFORE, WATCHED = 200, 1_000
#: The promise: so many eligible turns at most.
PROMISED = 200
START_S = 20_000 * DAY / SECOND


@dataclass(frozen=True)
class Course:
    """What became of the mended skill; eligible turns, None: not within those watched.

    shown: lists that held it; recovered: until the rules said so; in_list: until it stood in a list by its own rank
    after that.
    """

    shown: int
    recovered: int | None
    in_list: int | None


@dataclass
class _World:
    """The service's side as of ``now`` (Unix seconds): counters, the skill's calls and standing, and the weights."""

    names: Sequence[str]
    new: Sequence[str]
    now: float = START_S
    calls: list[tuple[int, bool]] = field(default_factory=list)
    standing: Standing = field(default_factory=Standing)

    def __post_init__(self) -> None:
        curves = {model: planted_theta(shares, MAX_RANK).tolist() for model, shares in TWO_MODELS.shares.items()}
        self.state = State(0, [PositionFactors(0.0, curves)])
        nothing = np.zeros(0, dtype=np.float32)
        for name in self.names:
            self.state.feed(Registered(-np.inf, name, name, "", "", frozenset(), frozenset(), nothing))

    def is_active(self) -> bool:
        return self.standing.status == "active"

    def called(self, skill_id: str, ok: bool) -> None:
        self.now += 1
        self.state.feed(Ended(self.now, skill_id, ok, None if ok else "tool_error", None))
        if skill_id == MENDED:
            self.calls.append((int(self.now * SECOND), ok))

    def weights(self) -> Weights:
        ids = [known.skill_id for known in self.state.skills[1:]]
        rows = self.state.rows(ids)
        heat, success = (
            self.state.heat.at(rows, self.now, self.state.examination),
            self.state.success.at(rows, self.now),
        )
        skills = {
            skill_id: SkillWeights(
                heat=float(heat.heat[index]),
                success=float(success.success[index]),
                success_logit=float(success.success_logit[index]),
                n_effective=float(success.n_effective[index]),
            )
            for index, skill_id in enumerate(ids)
        }
        for skill_id in self.new:
            skills[skill_id].status, skills[skill_id].rollout_fraction = "observation", 0.2
        skills[MENDED].status, skills[MENDED].rollout_fraction = self.standing.status, self.standing.rollout_fraction
        return Weights(version="now", skills=skills)

    def night(self) -> None:
        """The nightly rules, for the skill that is watched."""
        at = int(self.now * SECOND) + 1
        times, ok = [time for time, _ in self.calls], [ok for _, ok in self.calls]
        history = CallHistory.of(times, ok, [None if one else "tool_error" for one in ok])
        change = decide(Case(at, history, self.standing))
        if change is not None:
            fraction = change.rollout_fraction
            self.standing = Standing(change.status, change.reason, fraction, at, change.evidence, recorded=True)


def run(seed: int, explores: bool, new: int = 0, watched: int = WATCHED) -> Course:
    """One seed's course; ``new`` skills of another job, among the near matches, want the slot too."""
    rng = np.random.default_rng(seed)
    names = [f"skill-{number}" for number in range(LIBRARY)]
    names[MATCHES_AT] = MENDED
    world = _World(names, names[NEAR - new : NEAR])
    for turn in range(BEFORE):
        _turn(world, names, turn, False, rng)
    for _ in range(FAILED_CALLS):
        world.called(MENDED, False)
    world.night()
    if world.is_active():
        raise RuntimeError(f"{FAILED_CALLS} failed calls left the skill active, expected degraded")
    eligible = shown = 0
    recovered: int | None = None
    for turn in range(BEFORE, BEFORE + watched):
        recalled, own, listed = _turn(world, names, turn, explores, rng)
        eligible, shown = eligible + (MENDED in recalled), shown + (MENDED in listed)
        if recovered is None and world.is_active():
            recovered = eligible
        if recovered is not None and MENDED in own:
            return Course(shown, recovered, eligible)
    return Course(shown, recovered, None)


def _turn(
    world: _World, names: Sequence[str], turn: int, explores: bool, rng: np.random.Generator
) -> tuple[list[str], list[str], list[str]]:
    """One turn, and the night where it ends a day. Returns what was recalled, what stood by its own rank, the list."""
    session, weights = f"session-{turn // 3}", world.weights()
    recalled = rerank_locally(_recall(names, rng), weights).candidates
    own = demote(recalled, LIST_LENGTH, session, weights)
    listed, shuffled = own, False
    if explores:
        listed = fill_slot(own, recalled, weights, rng)
        shuffled = bool(rng.random() < SHUFFLE_FRACTION)
        listed = shuffle_top(listed, rng) if shuffled else listed
    _answer(world, f"turn-{turn}", session, [candidate.skill_id for candidate in listed], shuffled, rng)
    world.now += DAY / SECOND / TURNS_A_DAY
    if (turn + 1) % TURNS_A_DAY == 0:
        world.night()
    found = ([candidate.skill_id for candidate in candidates] for candidates in (recalled, own, listed))
    return next(found), next(found), next(found)


def _recall(names: Sequence[str], rng: np.random.Generator) -> list[Candidate]:
    """The best fifty: some near equals and a tail."""
    scores = np.concatenate([np.linspace(0.9, 0.85, NEAR), np.linspace(0.8, 0.3, LIBRARY - NEAR)])
    scores += rng.normal(0, 0.002, LIBRARY)
    best = np.argsort(-scores, kind="stable")[:POOL]
    return [Candidate(skill_id=names[index], score=float(scores[index])) for index in best]


def _answer(
    world: _World, selection_id: str, session: str, ids: list[str], shuffled: bool, rng: np.random.Generator
) -> None:
    """The agent looks, picks and calls; the service learns of it."""
    model = list(TWO_MODELS.shares)[int(rng.integers(len(TWO_MODELS.shares)))]
    right = np.array([skill_id == MENDED for skill_id in ids])
    pick = TWO_MODELS.pick(model, right, rng)
    turn = Turn(
        selection_id=selection_id,
        time=world.now,
        query="",
        vector=np.zeros(0, dtype=np.float32),
        skill_ids=ids,
        scores=dict.fromkeys(SCORES, np.full(len(ids), np.nan)),
        model=model,
        session_id=session,
        randomized=shuffled,
        picked=np.array([] if pick is None else [pick], dtype=np.intp),
    )
    world.state.feed(turn)
    if pick is not None:
        world.called(ids[pick], TWO_MODELS.succeeds(bool(right[pick]), rng))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--watched", type=int, default=WATCHED, help="turns after the mend")
    given = parser.parse_args(argv)
    print(f"{given.seeds} seeds; turns are eligible ones, medians over those that got there\n")
    print(
        "| exploration | new skills beside it | lists that held it | recovered | within 200 turns | median turns |",
        end="",
    )
    print(" by its own rank again | median turns |")
    print("|---|---|---|---|---|---|---|---|")
    for explores, new in ((False, 0), (True, 0), (True, 1), (True, 3)):
        found = [run(seed, explores, new, given.watched) for seed in range(given.seeds)]
        print(_row(explores, new, found), flush=True)


def _row(explores: bool, new: int, found: Sequence[Course]) -> str:
    recovered = [course.recovered for course in found if course.recovered is not None]
    in_list = [course.in_list for course in found if course.in_list is not None]
    within = sum(turns <= PROMISED for turns in recovered)
    cells = ["on" if explores else "off", new, f"{np.median([course.shown for course in found]):.0f}"]
    cells += [len(recovered), within, _median(recovered), len(in_list), _median(in_list)]
    return "| " + " | ".join(map(str, cells)) + " |"


def _median(turns: Sequence[int]) -> str:
    return f"{np.median(turns):.0f}" if turns else ""


if __name__ == "__main__":
    main()
