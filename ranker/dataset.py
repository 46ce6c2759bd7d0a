"""Featurised turns: what training and the gate work on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ranker import features, formula
from ranker.decay import Numbers
from ranker.examination import clip_rank
from ranker.features.base import Context
from ranker.halves import can_share, in_another_process
from ranker.labels import Label
from ranker.log import Fact, replay
from ranker.state import State
from ranker.turns import Turn

#: Succeeded picks that the test slice should hold, and the least and largest share of the groups that it may take.
TEST_PICKS = 1_000
TEST_SHARES = (0.25, 0.45)
VALIDATION_SHARE = 0.15
#: From so many turns on, some seconds of work, another process is worth starting.
SHARED_TURNS = 5_000

#: Features, and score before any model.
_Computed = tuple[features.Matrix, Numbers]
#: Which share of the turns, out of how many.
_WHOLE, _EVEN, _ODD = (0, 1), (0, 2), (1, 2)
#: Called now and then with a line that says how far things are.
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Group:
    """One ranked selection with its features as of its time.

    features: (candidates, len(features.NAMES)); labels: 0, 1, 2 by candidate in the order shown; before_model: the
    score before any model.
    """

    turn: Turn
    features: features.Matrix
    labels: NDArray[np.int8]
    before_model: Numbers

    @property
    def succeeded(self) -> NDArray[np.intp]:
        """Indices of the succeeded picks."""
        return np.asarray((self.labels == 2).nonzero()[0])

    @property
    def has_contrast(self) -> bool:
        return len(self.labels) > 1 and bool(self.labels.min() < self.labels.max())


def featurise(
    facts: Sequence[Fact],
    labels: Mapping[str, Sequence[Label]],
    state: State,
    progress: Progress | None = None,
) -> list[Group]:
    """Feed all facts to the state and featurise every ranked turn that has candidates, oldest first.

    Of a long log a second process computes every other turn. It feeds all facts too, the smaller part of the work.
    """
    if sum(isinstance(fact, Turn) for fact in facts) < SHARED_TURNS or not can_share():
        computed = list(_computed(facts, state, progress, _WHOLE))
        return [_group(turn, labels, found) for turn, found in computed if found is not None]
    with in_another_process(lambda: [found for _, found in _computed(facts, state, None, _ODD) if found]) as theirs:
        own = list(_computed(facts, state, progress, _EVEN))
        others = iter(theirs())
    return [_group(turn, labels, found or next(others)) for turn, found in own]


def _computed(
    facts: Sequence[Fact], state: State, progress: Progress | None, share: tuple[int, int]
) -> Iterator[tuple[Turn, _Computed | None]]:
    """Each ranked turn with what is computed of it, None where that is not in this process' ``share``."""
    part, parts = share
    total = sum(isinstance(fact, Turn) for fact in facts)
    ranked = 0
    for index, turn in enumerate(replay(facts, state)):
        if progress and index % 500 == 0:
            progress(f"features: {index:,} of {total:,} turns")
        if not turn.ranked or not turn.skill_ids:
            continue
        ranked += 1
        if ranked % parts != part:
            yield turn, None
            continue
        context = Context(turn, state)
        yield turn, (features.compute(context), score_before_model(context))


def _group(turn: Turn, labels: Mapping[str, Sequence[Label]], computed: _Computed) -> Group:
    matrix, before_model = computed
    relevance = np.array(labels.get(turn.selection_id, [0] * len(turn.skill_ids)), dtype=np.int8)
    return Group(turn, matrix, relevance, before_model)


def score_before_model(context: Context) -> Numbers:
    success = context.success
    terms = formula.terms(context.turn.scores, context.heat.heat, success.success, success.prior)
    return np.asarray(np.sum(list(terms.values()), axis=0))


def positions(groups: Sequence[Group], min_groups: int = 50) -> tuple[NDArray[np.int32], list[tuple[str, int]]]:
    """LightGBM position codes of all rows, one a (calling model, rank), and what each code means.

    Calling models with fewer than ``min_groups`` groups share the codes of the unnamed model.
    """
    seen: dict[str, int] = {}
    for group in groups:
        seen[group.turn.model] = seen.get(group.turn.model, 0) + 1
    codes: dict[tuple[str, int], int] = {}
    #: By calling model and length: lists of one length have the same codes.
    by_length: dict[tuple[str, int], NDArray[np.int32]] = {}
    found = [np.zeros(0, dtype=np.int32)]
    for group in groups:
        model = group.turn.model if seen[group.turn.model] >= min_groups else ""
        key = (model, len(group.labels))
        if key not in by_length:
            ranks = range(1, len(group.labels) + 1)
            of_ranks = [codes.setdefault((model, clip_rank(rank)), len(codes)) for rank in ranks]
            by_length[key] = np.array(of_ranks, dtype=np.int32)
        found.append(by_length[key])
    return np.concatenate(found), list(codes)


def split(groups: Sequence[Group]) -> tuple[list[Group], list[Group], list[Group]]:
    """Train, validation and test slices in the order of time.

    The test slice, the newest, reaches back until it holds ``TEST_PICKS`` succeeded picks, within its bounds: weighted
    by 1/θ they are worth about half their number, and the gate needs an effective 200.
    """
    picks = np.cumsum([len(group.succeeded) for group in reversed(groups)])
    wanted = int(np.searchsorted(picks, TEST_PICKS)) + 1
    low, high = (int(len(groups) * share) for share in TEST_SHARES)
    second = len(groups) - min(max(wanted, low), high)
    first = second - int(len(groups) * VALIDATION_SHARE)
    return list(groups[:first]), list(groups[first:second]), list(groups[second:])
