"""What `pickwise train` found, as lines for people: before and after, the gate's guards, what the model looks at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: Features that are named; the rest is summed up.
_NAMED = 8
#: Shuffled lists from which their estimate is shown: with fewer its interval says nothing.
_SHUFFLED = 200
_RANKS = 5


def training_lines(training: Mapping[str, Any]) -> Iterator[str]:
    """Plain lines of a training's result, its decision first."""
    evidence = training.get("evidence") or {}
    yield f"{training['decision']} {training.get('version') or ''}".rstrip() + f": {training.get('reason') or ''}"
    groups = evidence.get("groups")
    if groups:
        against = evidence.get("compared_with")
        yield (
            f"  lists: {groups['train']:,} to train on, {groups['validation']:,} to choose by, {groups['test']:,} "
            f"later ones to judge on{f'; compared with {against}' if against else ''}"
        )
    yield from _before_after(evidence)
    guards = evidence.get("guards") or ()
    if guards:
        yield "  guards"
    for guard in guards:
        outcome = guard["outcome"].replace("_", " ")
        yield f"    {guard['name'].replace('_', ' '):<16}{outcome:<15}{guard['detail']}"
    yield from _importance(evidence.get("importance") or {})
    yield from _theta(evidence)


def _before_after(evidence: Mapping[str, Any]) -> Iterator[str]:
    quality, difference = evidence.get("ndcg_at_5"), evidence.get("difference")
    if not quality or not difference:
        return
    yield f"  {'':<44}{'before':>8}{'after':>8}  difference, 95 % interval"
    yield _row("NDCG@5 of later succeeded picks, debiased", quality["before"], quality["after"], None)
    picks = f"{difference['picks']:,} picks in {difference['sessions']:,} sessions"
    worth = f"worth {difference['effective_sample']:,.0f} equal ones"
    yield _row("DCG of them, what the gate decides by", None, None, difference) + f"; {picks}, {worth}"
    shuffled = evidence.get("off_policy") or {}
    if shuffled.get("lists", 0) >= _SHUFFLED:
        old, new = shuffled["old"]["dr"], shuffled["new"]["dr"]
        lists = f"; doubly robust, {shuffled['lists']:,} lists"
        yield _row("succeeded picks a shuffled list", old, new, shuffled["difference"]) + lists


def _row(name: str, before: float | None, after: float | None, difference: Mapping[str, Any] | None) -> str:
    values = "".join(f"{'' if value is None else f'{value:.3f}':>8}" for value in (before, after))
    if difference is None or difference["delta"] is None:
        return f"  {name:<44}{values}"
    return f"  {name:<44}{values}  {difference['delta']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}]"


def _importance(gains: Mapping[str, float]) -> Iterator[str]:
    total = sum(gains.values())
    if not total:
        return
    shares = {name: gain / total for name, gain in sorted(gains.items(), key=lambda item: -item[1])[:_NAMED]}
    shown = [f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005]
    rest = 1 - sum(share for share in shares.values() if share >= 0.005)
    yield "  what the model looks at: " + ", ".join(shown) + (f", others {rest:.0%}" if rest >= 0.005 else "")


def _theta(evidence: Mapping[str, Any]) -> Iterator[str]:
    """One line a calling model: θ at the first five ranks, and where it is known from."""
    theta = evidence.get("theta") or {}
    learned, known = theta.get("position_factors") or {}, theta.get("known") or {}
    examined = evidence.get("examination") or {}
    curves = {**learned, **known}
    if not curves and not examined:
        return
    yield f"  how far down they look: chance that a rank is looked at, against rank 1, for ranks 1 to {_RANKS}"
    for model in sorted({*curves, *examined}):
        told = examined.get(model) or {}
        bounds = list(zip(told.get("low") or (), told.get("high") or (), strict=True))
        curve = " ".join(
            f"{value:.2f}" + (f" [{bounds[rank][0]:.2f}, {bounds[rank][1]:.2f}]" if 0 < rank < len(bounds) else "")
            for rank, value in enumerate((curves.get(model) or ())[:_RANKS])
        )
        source = _source(model in known, told) if curve else f", {told.get('picks', 0):,} picks in shuffled lists"
        yield f"    {model or '(model not told)'}: {curve or 'not known yet'}{source}"


def _source(in_force: bool, told: Mapping[str, Any]) -> str:
    picks = told.get("picks", 0)
    if told.get("source") == "randomized":
        return f", from {picks:,} picks in shuffled lists"
    counted = f" ({picks:,} picks in shuffled lists are too few)" if told else ""
    return f", from position factors of {'the served' if in_force else 'this'} model{counted}"
