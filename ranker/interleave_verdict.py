"""Which of two interleaved rankings agents pick from: a sign test over the logged selections."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from analytics.tables import Tables
from analytics.wilson import wilson
from pickwise.settings import Settings
from ranker.log import MAX_AHEAD_S, frame
from ranker.models import meta_of
from ranker.weights_store import Interleaving, WeightsError, WeightsStore

#: Picks by team of every interleaved selection of the two; a list that others drafted too is left out.
_VOTES = """
SELECT count(*) FILTER (picked AND team = $first) AS first, count(*) FILTER (picked AND team = $second) AS second
FROM candidates
WHERE project = $project AND epoch_us(time) >= $since AND epoch_us(time) <= $until
    AND (environment IS NULL OR NOT list_contains($excluded, environment))
GROUP BY event_id HAVING count(team) > 0 AND bool_and(team IS NULL OR team IN ($first, $second))
"""


@dataclass(frozen=True)
class Verdict:
    """Selections won by each of two model versions: more of its candidates were picked than of the other's.

    ``share`` is the first one's of all that were not tied, with a 95 % Wilson interval; ``p`` of the two-sided sign
    test. All three are None without a win. ``better`` is named when the interval leaves out a half.
    """

    first: str
    second: str
    first_wins: int
    second_wins: int
    ties: int
    share: float | None
    low: float | None
    high: float | None
    p: float | None
    better: str | None

    def told(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """The same for people."""
        counts = f"{self.first} won {self.first_wins:,}, {self.second} won {self.second_wins:,}, ties {self.ties:,}"
        if self.share is None:
            return [counts, "no verdict yet"]
        interval = (
            f"{self.first} won {self.share:.1%} of those not tied, 95 % interval {self.low:.1%} to {self.high:.1%}"
        )
        return [counts, f"{interval}, p = {self.p:.3g}", f"better: {self.better or 'not known yet'}"]


def judge(first: str, second: str, first_wins: int, second_wins: int, ties: int) -> Verdict:
    """The verdict on so many wins; ties count for neither (sign test)."""
    decided = first_wins + second_wins
    if not decided:
        return Verdict(first, second, 0, 0, ties, None, None, None, None, None)
    low, high = wilson(first_wins, decided)
    better = first if low > 0.5 else second if high < 0.5 else None
    p = float(binomtest(first_wins, decided).pvalue)
    return Verdict(first, second, first_wins, second_wins, ties, first_wins / decided, low, high, p, better)


def start(data_dir: Path, project: str, first: str, second: str) -> Interleaving:
    """Interleave two stored models from now on. Raises WeightsError naming the one that isn't there."""
    if first == second:
        raise WeightsError(f"second: expected another model than {first:.80}")
    for name, version in (("first", first), ("second", second)):
        if not version.isalnum() or meta_of(data_dir, project, version) is None:
            raise WeightsError(f"{name}: no model {version!r:.80} in project {project:.80}")
    begun = Interleaving(first=first, second=second, since=time.time())
    store = WeightsStore(data_dir)
    try:
        store.interleave(project, begun)
    finally:
        store.close()
    return begun


def read(data_dir: Path, settings: Settings, project: str, interleaving: Interleaving) -> Verdict:
    """The verdict on what was logged since the interleaving began."""
    given = {
        "project": project,
        "first": interleaving.first,
        "second": interleaving.second,
        "since": int(interleaving.since * 1e6),
        "until": int((time.time() + MAX_AHEAD_S) * 1e6),
        "excluded": settings.excluded_environments,
    }
    connection = Tables(data_dir).connect()
    try:
        votes = frame(connection, _VOTES, given)
    finally:
        connection.close()
    first, second = votes["first"], votes["second"]
    wins = int((first > second).sum()), int((second > first).sum())
    return judge(interleaving.first, interleaving.second, *wins, votes.height - sum(wins))
