from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.simulated_agents import PUBLISHED_SHARES, TWO_MODELS, Agents, planted_theta
from ranker import blend, features
from ranker.blend_fit import asked_anew, fit_blend
from ranker.dataset import Group
from ranker.examination import USUAL_LOG_THETA
from tests.ranker.test_training import planted


def test_position_factors_are_the_planted_curves() -> None:
    five = Agents({f"m{place}": shares for place, shares in enumerate(PUBLISHED_SHARES)})
    groups = [group for group in planted(12_000, 1, five) if group.has_contrast]
    _, curves = fit_blend(groups, {})
    for model, shares in five.shares.items():
        errors = np.abs(np.array(curves[model]) - planted_theta(shares, 8))
        assert errors.mean() < 0.15, model


def test_few_picks_leave_position_factors_as_usual_and_what_is_known_holds() -> None:
    few = [group for group in planted(60, 4) if group.has_contrast]
    usual = np.exp(USUAL_LOG_THETA)
    known = planted_theta(TWO_MODELS.shares["flat"], 8)
    _, curves = fit_blend(few, {"": known.tolist()})
    assert curves[""] == pytest.approx(known, rel=0.3)
    _, curves = fit_blend(few, {})
    assert np.abs(np.log(np.array(curves[""][:5]) / usual)).max() < 1.0


def asked(groups: list[Group], query: str) -> list[Group]:
    return [replace(group, turn=replace(group.turn, query=query)) for group in groups]


def test_a_query_teaches_until_it_succeeded() -> None:
    groups = planted(40, 6)
    failed = next(place for place, group in enumerate(groups) if not len(group.succeeded))
    again = asked(groups[failed:], "rain tomorrow?")
    first = next(place for place, group in enumerate(again) if len(group.succeeded))
    assert asked_anew(again) == [place <= first for place in range(len(again))]
    assert all(asked_anew(asked(groups, "")))  # not told: it can't be told whether it is the same


def test_what_is_asked_again_and_again_weighs_like_one_pick() -> None:
    """Lists that follow `semantic`, and one query, asked 300 times, whose picks follow `bm25` alone."""
    groups = [
        replace(group, turn=replace(group.turn, query=f"query {place}")) for place, group in enumerate(planted(600, 8))
    ]
    contrary = []
    for group in planted(300, 9):
        matrix, labels = group.features.copy(), np.zeros(8, dtype=np.int8)
        matrix[:, features.NAMES.index("semantic")] *= -1
        matrix[:, features.NAMES.index("bm25")] = np.arange(8)
        labels[7] = 2
        contrary.append(replace(group, features=matrix, labels=labels))
    alone, _ = fit_blend(groups, {})
    repeated, _ = fit_blend([*groups, *asked(contrary, "the same")], {})
    different, _ = fit_blend([*groups, *contrary], {})
    bm25 = [term.feature for term in blend.TERMS].index("bm25")
    assert 10 * (repeated[bm25] - alone[bm25]) < different[bm25] - alone[bm25]
