"""What a policy would have earned on another's log: four estimators, as the mean reward of a round.

All arrays have shape (rounds,). ``weight`` is π(a|x) ÷ π₀(a|x) of the logged action a under the judged policy π and the
logging policy π₀; ``reward`` what was observed; ``predicted`` a reward model's q̂(x, a) of the logged action, and
``expected`` its Σₐ π(a|x)·q̂(x, a). None of them knows what a reward is; NaN for no round.
"""

from __future__ import annotations

from ranker.decay import Numbers


def direct_method(expected: Numbers) -> float:
    """The reward model alone: as good as the model, no variance of weights (Dudík, Langford & Li, ICML 2011)."""
    return _mean(expected)


def ips(weight: Numbers, reward: Numbers) -> float:
    """Inverse propensity scoring: unbiased where π₀ > 0 (Horvitz & Thompson 1952; Dudík et al. 2011)."""
    return _mean(weight * reward)


def snips(weight: Numbers, reward: Numbers) -> float:
    """IPS divided by the mean weight, so that it moves with the rewards (Swaminathan & Joachims, NeurIPS 2015)."""
    total = float(weight.sum())
    return float(weight @ reward) / total if total else float("nan")


def doubly_robust(weight: Numbers, reward: Numbers, predicted: Numbers, expected: Numbers) -> float:
    """The model, corrected by weighted errors: right where either model or π₀ is (Dudík et al., ICML 2011)."""
    return _mean(doubly_robust_rounds(weight, reward, predicted, expected))


def doubly_robust_rounds(weight: Numbers, reward: Numbers, predicted: Numbers, expected: Numbers) -> Numbers:
    """The terms that ``doubly_robust`` averages, one a round, for paired differences."""
    return expected + weight * (reward - predicted)


def _mean(values: Numbers) -> float:
    return float(values.mean()) if len(values) else float("nan")
