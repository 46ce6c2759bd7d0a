"""Who would be promoted: five planted curves, twenty seeds each, a naive, a debiased and an oracle ranking.

`python -m bench.gate_trials` prints the same trials as a table, see docs/bench-gate.md.
"""

from __future__ import annotations

import pytest

from bench.gate_trials import MATTERS, Judged, trial
from bench.simulated_agents import PUBLISHED_SHARES

SEEDS = 20


@pytest.fixture(scope="module", params=range(len(PUBLISHED_SHARES)), ids=[f"{s[0]}" for s in PUBLISHED_SHARES])
def trials(request: pytest.FixtureRequest) -> list[Judged]:
    return [judged for seed in range(SEEDS) for judged in trial(request.param, seed, picks=2_000, resamples=1_000)]


def test_the_better_one_is_promoted_and_the_worse_one_never(trials: list[Judged]) -> None:
    better = [judged for judged in trials if judged.true_delta >= MATTERS]
    assert len(better) >= 2 * SEEDS
    assert sum(judged.promoted for judged in better) >= 0.95 * len(better)
    assert [judged for judged in trials if judged.promoted and judged.true_delta < 0] == []


def test_the_raw_gate_promotes_the_naive_one_over_the_debiased(trials: list[Judged]) -> None:
    """Where agents look mostly at the first rank, an unweighted replay takes the order that was shown for the best."""
    confused = [judged for judged in trials if (judged.new, judged.old) == ("naive", "debiased")]
    if PUBLISHED_SHARES[confused[0].curve][0] < 0.4:  # agents that look almost everywhere mislead nobody
        assert all(judged.true_delta > -MATTERS for judged in confused)
        return
    assert all(judged.true_delta < -0.02 for judged in confused)
    assert sum(judged.raw_promoted for judged in confused) >= 0.8 * SEEDS
