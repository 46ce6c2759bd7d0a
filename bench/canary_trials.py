"""What becomes of canaries that are as good as the model before, or worse: simulated traffic, as one table.

    python -m bench.canary_trials [--runs 400]

A tenth of the sessions; the old model's first candidate is accepted in 60 % of the selections, the canary's in the
share of the first column. Looked at after every twenty of its selections, 2,000 at most. The other rule takes a canary
back as soon as its value lies below the old one's interval.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np

from pickwise.settings import Settings
from ranker.canary import MIN_TAKEN_BACK, Live, Rate, not_worse, worse

OLD_RATE = 0.6
SHARES = (0.62, 0.6, 0.58, 0.55, 0.5, 0.45)
SELECTIONS = 2_000
LOOK_EVERY = 20

Rule = Callable[[Rate, Rate], bool]


def apart(new: Rate, old: Rate) -> bool:
    """The product's rule."""
    return bool(worse(Live(new, Rate(0, 0)), Live(old, Rate(0, 0))))


def value_below(new: Rate, old: Rate) -> bool:
    """The value alone, from as many selections on."""
    return new.n >= MIN_TAKEN_BACK and (new.value or 0.0) < old.interval[0]


def verdict(accepted: float, seed: int, taken_back: Rule = apart) -> tuple[str, int]:
    """What becomes of one canary, `taken back`, `full` or `open`, and after how many of its selections."""
    rng, settings = np.random.default_rng(seed), Settings()
    new = np.cumsum(rng.random(SELECTIONS) < accepted)
    old = np.cumsum(rng.random(9 * SELECTIONS) < OLD_RATE)
    for seen in range(LOOK_EVERY, SELECTIONS + 1, LOOK_EVERY):
        one, other = Rate(int(new[seen - 1]), seen), Rate(int(old[9 * seen - 1]), 9 * seen)
        if taken_back(one, other):
            return "taken back", seen
        if not_worse(Live(one, Rate(0, 0)), Live(other, Rate(0, 0)), settings):
            return "full", seen
    return "open", SELECTIONS


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.canary_trials", description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    runs = parser.parse_args(argv).runs
    print("| accepted, old 0.60 | taken back | made full | selections, median | taken back by the value alone |")
    print("|---|---|---|---|---|")
    for share in SHARES:
        ends = [verdict(share, seed) for seed in range(runs)]
        other = [verdict(share, seed, value_below)[0] for seed in range(runs)]
        names = [name for name, _ in ends]
        print(
            f"| {share:.2f} | {names.count('taken back') / runs:.1%} | {names.count('full') / runs:.1%} "
            f"| {np.median([seen for _, seen in ends]):.0f} | {other.count('taken back') / runs:.1%} |"
        )


if __name__ == "__main__":
    main()
