"""Guards of the promotion gate: what a better average must not cost. Without data a guard is `not_evaluated`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import lightgbm as lgb
import numpy as np

from pickwise.settings import Settings
from ranker.dataset import Group
from ranker.decay import Numbers
from ranker.examination import SHUFFLED_DEPTH
from ranker.ranks import order, ranks

Outcome = Literal["passed", "tripped", "not_evaluated", "reported"]


@dataclass(frozen=True)
class Guard:
    name: str
    outcome: Outcome
    detail: str
    values: Mapping[str, Any]


def all_guards(
    groups: Sequence[Group],
    new: Sequence[Numbers],
    old: Sequence[Numbers],
    expected: Mapping[str, Sequence[str]],
    booster: lgb.Booster,
    settings: Settings,
) -> list[Guard]:
    """Every guard on one slice; ``expected``: labelled skills by selection id; limits are the settings `gate_…`."""
    return [
        golden_set(groups, new, old, expected, settings),
        item_position(groups, new, settings),
        concentration(groups, new, old, settings),
        never_shown(groups, new, old, settings),
        scoring_time(booster, groups, settings),
        flips(groups, new, old),
    ]


def golden_set(
    groups: Sequence[Group],
    new: Sequence[Numbers],
    old: Sequence[Numbers],
    expected: Mapping[str, Sequence[str]],
    settings: Settings,
) -> Guard:
    """NDCG@5 against labels must not drop."""
    pairs = []
    for group, new_scores, old_scores in zip(groups, new, old, strict=True):
        wanted = set(expected.get(group.turn.selection_id, ())) & set(group.turn.skill_ids)
        if wanted:
            right = np.array([skill_id in wanted for skill_id in group.turn.skill_ids])
            pairs.append((_ndcg(right, new_scores), _ndcg(right, old_scores)))
    if len(pairs) < settings.gate_golden_min:
        return Guard("golden_set", "not_evaluated", f"{len(pairs)} labelled turns", {"n": len(pairs)})
    new_mean, old_mean = np.mean(pairs, axis=0)
    values = {"n": len(pairs), "new": float(new_mean), "old": float(old_mean)}
    outcome: Outcome = "tripped" if old_mean - new_mean > settings.gate_golden_drop else "passed"
    return Guard("golden_set", outcome, f"NDCG@5 {old_mean:.3f} → {new_mean:.3f}", values)


def item_position(groups: Sequence[Group], new: Sequence[Numbers], settings: Settings) -> Guard:
    """On shuffled lists a ranking must not know where things stood (item-position weight, Li et al., KDD 2018)."""
    hits = impressions = 0
    for group, scores in zip(groups, new, strict=True):
        if group.turn.randomized and len(scores) >= SHUFFLED_DEPTH:
            hits += int((ranks(scores[:SHUFFLED_DEPTH]) == np.arange(1, SHUFFLED_DEPTH + 1)).sum())
            impressions += SHUFFLED_DEPTH
    if impressions < settings.gate_item_position_min:
        return Guard("item_position", "not_evaluated", f"{impressions} shuffled impressions", {"n": impressions})
    mean = SHUFFLED_DEPTH * hits / impressions
    low, high = 1 - settings.gate_item_position_off, 1 + settings.gate_item_position_off
    outcome: Outcome = "passed" if low <= mean <= high else "tripped"
    return Guard(
        "item_position", outcome, f"mean {mean:.3f}, allowed {low:.2f} to {high:.2f}", {"n": impressions, "mean": mean}
    )


def concentration(groups: Sequence[Group], new: Sequence[Numbers], old: Sequence[Numbers], settings: Settings) -> Guard:
    """Exposure must not pile up on few skills."""
    if not groups:
        return Guard("concentration", "not_evaluated", "no lists", {"n": 0})
    before, after = gini(_exposure(groups, old)), gini(_exposure(groups, new))
    outcome: Outcome = "tripped" if after - before > settings.gate_concentration_rise else "passed"
    values = {"n": len(groups), "new": after, "old": before}
    return Guard("concentration", outcome, f"Gini {before:.3f} → {after:.3f}", values)


def never_shown(groups: Sequence[Group], new: Sequence[Numbers], old: Sequence[Numbers], settings: Settings) -> Guard:
    """Skills must not vanish from the first ranks."""
    if not groups:
        return Guard("never_shown", "not_evaluated", "no lists", {"n": 0})
    before, after = (float((_exposure(groups, scores) == 0).mean()) for scores in (old, new))
    outcome: Outcome = "tripped" if after - before > settings.gate_never_shown_rise else "passed"
    values = {"n": len(groups), "new": after, "old": before}
    return Guard("never_shown", outcome, f"share of skills {before:.3f} → {after:.3f}", values)


def scoring_time(booster: lgb.Booster, groups: Sequence[Group], settings: Settings, repeats: int = 200) -> Guard:
    """Scoring 50 candidates must stay within its time: processor time, so that a busy machine blocks no model."""
    if not groups:
        return Guard("scoring_time", "not_evaluated", "no lists", {"n": 0})
    rows = np.resize(groups[-1].features, (50, groups[-1].features.shape[1]))
    booster.predict(rows, num_threads=1)  # the first call sets up
    spent = np.empty(repeats)
    for index in range(repeats):
        started = time.thread_time()
        booster.predict(rows, num_threads=1)
        spent[index] = (time.thread_time() - started) * 1e3
    p99 = float(np.quantile(spent, 0.99))
    outcome: Outcome = "tripped" if p99 > settings.gate_scoring_p99_ms else "passed"
    return Guard("scoring_time", outcome, f"p99 {p99:.2f} ms for 50 candidates", {"n": repeats, "p99_ms": p99})


def flips(groups: Sequence[Group], new: Sequence[Numbers], old: Sequence[Numbers]) -> Guard:
    """How often rank 1 changes: reported, not capped (a good model flipped 58 % in a measurement)."""
    if not groups:
        return Guard("top1_flips", "not_evaluated", "no lists", {"n": 0})
    share = float(np.mean([order(a)[0] != order(b)[0] for a, b in zip(new, old, strict=True)]))
    return Guard("top1_flips", "reported", f"{share:.1%} of lists", {"n": len(groups), "share": share})


def gini(exposure: Numbers) -> float:
    """Gini coefficient of non-negative amounts: 0 equal, towards 1 all on one."""
    total = float(exposure.sum())
    if not total:
        return 0.0
    ascending, n = np.sort(exposure), len(exposure)
    return float(2 * (np.arange(1, n + 1) @ ascending) / (n * total) - (n + 1) / n)


def _exposure(groups: Sequence[Group], scores: Sequence[Numbers]) -> Numbers:
    """Times that each offered skill stood in the first five ranks."""
    shown: dict[str, float] = {}
    for group, values in zip(groups, scores, strict=True):
        for rank, index in enumerate(order(values)):
            skill_id = group.turn.skill_ids[index]
            shown[skill_id] = shown.get(skill_id, 0.0) + float(rank < SHUFFLED_DEPTH)
    return np.array(list(shown.values()))


def _ndcg(right: np.ndarray, scores: Numbers, depth: int = 5) -> float:
    discounts = 1 / np.log2(2 + np.arange(depth))
    gained = right[order(scores)][:depth].astype(np.float64)
    return float(gained @ discounts[: len(gained)] / discounts[: min(int(right.sum()), depth)].sum())
