"""Every metric, declared once: what it means, which way is good, and what it may be grouped by.

Its SQL, ``NAME.sql``, yields observations: one row a unit of the denominator, with ``project``, ``time``, the columns
it may be grouped by, and ``hit`` (a rate) or ``value`` (a mean, sum or quantile); one of kind ``bootstrap``, a mean
with a bootstrap interval, also ``unit``, by which observations belong together. After the line ``-- by skill`` comes
the query that is used when skills or domains are asked for, where their unit is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["rate", "mean", "sum", "quantiles", "bootstrap", "overlap"]
Good = Literal["up", "down"]
Unit = Literal["fraction", "picks", "ms", "s", "tokens", "spells"]

#: The four decisions that the metrics are for, in the order of the report.
SELECTION_QUALITY = "selection quality"
CALL_RELIABILITY = "call reliability"
NAMES_AND_REGISTRY = "hallucination and registry"
DISCOVERY_HEALTH = "discovery health"
DECISIONS: dict[str, str] = {
    SELECTION_QUALITY: "Does the list offer what the agent needs, in the right order?",
    CALL_RELIABILITY: "Do the skills work when they are called?",
    NAMES_AND_REGISTRY: "Do agents call skills that exist, the way they are described?",
    DISCOVERY_HEALTH: "Is the discovery layer fast and on its main path?",
}

#: Groupings that every event carries.
_COMMON = ("agent", "model", "environment", "release", "hour", "day")
#: Groupings of selections, and of calls through their selection.
_RANKING = ("strategy", "weights_version", "embedding_version", "language", "cluster")
_SKILL = ("skill", "domain")
GROUPINGS = (*_SKILL, *_COMMON, *_RANKING, "error_kind", "stage", "k", "shadow_embedding_version")
#: Groupings that the rows of a metric which has them always bear.
INHERENT = ("stage", "k")
#: A finding needs so many observations; below, chance decides.
MIN_N = 20


@dataclass(frozen=True)
class Metric:
    name: str
    kind: Kind
    unit: Unit
    meaning: str
    good: Good
    decision: str
    groupings: tuple[str, ...]
    #: Whose skill a grouping by ``skill`` or ``domain`` means; empty where there is none.
    skill: str = ""
    #: Worth a look beyond this value, in the bad direction.
    warn: float | None = None
    #: Wrong beyond this value, in the bad direction.
    bad: float | None = None
    #: The depth that the report judges, of a metric at several.
    headline_k: int | None = None
    #: Which quantiles a metric of kind ``quantiles`` reports.
    quantiles: tuple[float, ...] = ()
    #: Groupings that its rows always bear, beside those of ``INHERENT``.
    always_by: tuple[str, ...] = ()
    #: Which of its observations the sums of hours hold: all that fall in them; of sessions those that lie in the window
    #: as a whole (by ``time`` and ``last_time``); none, where they depend on the window.
    adds_up: Literal["rows", "sessions", ""] = "rows"
    #: Whether an observation also depends on rows of other times.
    looks_beyond: bool = False

    def against(self, row: Mapping[str, Any]) -> int:
        """How many of the ``n`` observations of a rate speak against it."""
        value, n = row["value"], row["n"]
        return round(n * (value if self.good == "down" else 1 - value)) if n else 0


METRICS: tuple[Metric, ...] = (
    Metric(
        name="acceptance_rate",
        kind="rate",
        unit="fraction",
        meaning="Selections with at least one pick among their candidates ÷ selections with at least one candidate."
        " By skill: its listed picks ÷ its impressions. Final answers are left out.",
        good="up",
        decision=SELECTION_QUALITY,
        groupings=(*_SKILL, *_COMMON, *_RANKING),
        skill="the candidate's",
        warn=0.6,
        bad=0.4,
    ),
    Metric(
        name="top1_acceptance_rate",
        kind="rate",
        unit="fraction",
        meaning="Ranked selections whose rank-1 candidate was picked ÷ ranked selections with a listed pick.",
        good="up",
        decision=SELECTION_QUALITY,
        groupings=(*_SKILL, *_COMMON, *_RANKING),
        skill="the candidate's at rank 1",
        warn=0.7,
        bad=0.5,
    ),
    Metric(
        name="mismatch_rate",
        kind="rate",
        unit="fraction",
        meaning="Ranked selections with a pick where rank 1 was skipped, a pick was off the list, or feedback or a"
        " label disagrees (its parts are skip_rate, off_list_rate and corrected_rate) ÷ ranked selections with a pick.",
        good="down",
        decision=SELECTION_QUALITY,
        groupings=(*_SKILL, *_COMMON, *_RANKING),
        skill="the candidate's at rank 1",
        warn=0.35,
        bad=0.5,
    ),
    Metric(
        name="skip_rate",
        kind="rate",
        unit="fraction",
        meaning="Ranked selections with a pick whose rank 1 was passed over for a lower one ÷ ranked selections with a"
        " pick.",
        good="down",
        decision=SELECTION_QUALITY,
        groupings=(*_SKILL, *_COMMON, *_RANKING),
        skill="the candidate's at rank 1",
        warn=0.35,
        bad=0.5,
    ),
    Metric(
        name="off_list_rate",
        kind="rate",
        unit="fraction",
        meaning="Ranked selections with a pick that was not among the candidates ÷ ranked selections with a pick."
        " By skill: selections that picked it off the list ÷ those that picked it.",
        good="down",
        decision=SELECTION_QUALITY,
        groupings=(*_SKILL, *_COMMON, *_RANKING),
        skill="the picked",
        warn=0.05,
        bad=0.15,
    ),
    Metric(
        name="corrected_rate",
        kind="rate",
        unit="fraction",
        meaning="Ranked selections with a pick where feedback says arguments_edited, reasked, wrong_skill or rejected,"
        " or a label, of the selection or of its query, names other skills ÷ ranked selections with a pick. Verdicts of"
        " judges are left out unless asked.",
        good="down",
        decision=SELECTION_QUALITY,
        groupings=(*_SKILL, *_COMMON, *_RANKING),
        skill="the picked",
        warn=0.1,
        bad=0.25,
    ),
    Metric(
        name="contamination_rate",
        kind="rate",
        unit="fraction",
        meaning="Picks that repeat the session's previous skill though its description is less like the query than in 9"
        " of 10 other picks (28 days, at least 200 of them, else null), and less than that of the best candidate not"
        " picked ÷ picks. Of the picks that the nightly job has compared.",
        good="down",
        decision=SELECTION_QUALITY,
        groupings=(*_SKILL, *_COMMON, *_RANKING),
        skill="the picked",
        warn=0.02,
        bad=0.1,
        adds_up="",
    ),
    Metric(
        name="picks_per_selection",
        kind="mean",
        unit="picks",
        meaning="Mean number of picks of a selection. Final answers are left out.",
        good="down",
        decision=SELECTION_QUALITY,
        groupings=(*_COMMON, *_RANKING),
    ),
    Metric(
        name="zero_pick_rate",
        kind="rate",
        unit="fraction",
        meaning="Selections without a pick ÷ selections. Final answers are left out.",
        good="down",
        decision=SELECTION_QUALITY,
        groupings=(*_COMMON, *_RANKING),
        warn=0.4,
        bad=0.6,
    ),
    Metric(
        name="over_pick_rate",
        kind="rate",
        unit="fraction",
        meaning="Selections with more than 6 picks ÷ selections. Final answers are left out.",
        good="down",
        decision=SELECTION_QUALITY,
        groupings=(*_COMMON, *_RANKING),
        warn=0.02,
        bad=0.1,
    ),
    Metric(
        name="recall_at_k",
        kind="bootstrap",
        unit="fraction",
        meaning="Against labels: the share of a query's expected skills that are among the first k (1, 3, 5, 10) of its"
        " list; the mean over ranked selections that a label speaks of. By skill: lists that have it among the first k"
        " ÷ lists that should.",
        good="up",
        decision=SELECTION_QUALITY,
        groupings=("k", "skill", *_COMMON, *_RANKING),
        skill="the expected",
        warn=0.8,
        bad=0.6,
        headline_k=5,
    ),
    Metric(
        name="mrr",
        kind="bootstrap",
        unit="fraction",
        meaning="Against labels: 1 ÷ the rank of the first expected skill, 0 where the list has none; the mean over"
        " ranked selections that a label speaks of.",
        good="up",
        decision=SELECTION_QUALITY,
        groupings=(*_COMMON, *_RANKING),
        warn=0.7,
        bad=0.5,
    ),
    Metric(
        name="ndcg_at_10",
        kind="bootstrap",
        unit="fraction",
        meaning="Against labels: Σ 1 ÷ log₂(rank + 1) over the expected skills among the first 10, divided by the same"
        " of the best possible order; the mean over ranked selections that a label speaks of.",
        good="up",
        decision=SELECTION_QUALITY,
        groupings=(*_COMMON, *_RANKING),
        warn=0.7,
        bad=0.5,
    ),
    Metric(
        name="failed_tool_rate",
        kind="rate",
        unit="fraction",
        meaning="Failed calls ÷ finished calls. By error_kind: failures of that kind ÷ all finished calls.",
        good="down",
        decision=CALL_RELIABILITY,
        groupings=(*_SKILL, *_COMMON, *_RANKING, "error_kind"),
        skill="the called",
        warn=0.1,
        bad=0.25,
    ),
    Metric(
        name="caller_fault_rate",
        kind="rate",
        unit="fraction",
        meaning="Calls failed by the caller's fault (invalid_arguments, not_found, cancelled) ÷ finished calls. By"
        " error_kind: those of that kind ÷ all finished calls.",
        good="down",
        decision=CALL_RELIABILITY,
        groupings=(*_SKILL, *_COMMON, *_RANKING, "error_kind"),
        skill="the called",
        warn=0.05,
        bad=0.15,
    ),
    Metric(
        name="repair_rate",
        kind="rate",
        unit="fraction",
        meaning="Calls failed for invalid_arguments whose skill succeeds on a later attempt, in the same call or later"
        " in the session ÷ calls failed for invalid_arguments.",
        good="up",
        decision=CALL_RELIABILITY,
        groupings=(*_SKILL, *_COMMON, *_RANKING),
        skill="the called",
        warn=0.5,
        bad=0.25,
        looks_beyond=True,
    ),
    Metric(
        name="loop_rate",
        kind="rate",
        unit="fraction",
        meaning="Sessions that call one skill with the same arguments at least 3 times in a row ÷ sessions with calls."
        " A session belongs to its first call in the window.",
        good="down",
        decision=CALL_RELIABILITY,
        groupings=_COMMON,
        warn=0.05,
        bad=0.15,
        adds_up="sessions",
    ),
    Metric(
        name="hallucinated_tool_rate",
        kind="rate",
        unit="fraction",
        meaning="Calls of a name that the registry did not know at their time (unknown or near_miss) ÷ calls whose name"
        " could be judged.",
        good="down",
        decision=NAMES_AND_REGISTRY,
        groupings=(*_SKILL, *_COMMON, *_RANKING),
        skill="the called, as called",
        warn=0.01,
        bad=0.05,
    ),
    Metric(
        name="near_miss_rate",
        kind="rate",
        unit="fraction",
        meaning="Calls of a name that all but equals a known one ÷ calls whose name could be judged.",
        good="down",
        decision=NAMES_AND_REGISTRY,
        groupings=(*_SKILL, *_COMMON, *_RANKING),
        skill="the called, as called",
        warn=0.005,
        bad=0.02,
    ),
    Metric(
        name="retired_call_rate",
        kind="rate",
        unit="fraction",
        meaning="Calls of a skill that was retired at their time ÷ calls whose name could be judged.",
        good="down",
        decision=NAMES_AND_REGISTRY,
        groupings=(*_SKILL, *_COMMON, *_RANKING),
        skill="the called, as called",
        warn=0.005,
        bad=0.02,
    ),
    Metric(
        name="unknown_argument_rate",
        kind="rate",
        unit="fraction",
        meaning="Calls with an argument name that the skill's schema lacks ÷ calls whose argument names and schema are"
        " known.",
        good="down",
        decision=NAMES_AND_REGISTRY,
        groupings=(*_SKILL, *_COMMON, *_RANKING),
        skill="the called",
        warn=0.02,
        bad=0.1,
    ),
    Metric(
        name="stage_latency_ms",
        kind="quantiles",
        unit="ms",
        meaning="Duration of each stage of a selection, and of calls (stage `call`). Negative or absent durations are"
        " left out and counted (`left_out`). By skill or domain there are only calls.",
        good="down",
        decision=DISCOVERY_HEALTH,
        groupings=("stage", *_SKILL, *_COMMON, *_RANKING),
        skill="the called",
        quantiles=(0.5, 0.95, 0.99),
    ),
    Metric(
        name="fallback_rate",
        kind="rate",
        unit="fraction",
        meaning="Ranked selections answered from the degraded path ÷ ranked selections.",
        good="down",
        decision=DISCOVERY_HEALTH,
        groupings=(*_COMMON, *_RANKING),
        warn=0.02,
        bad=0.1,
    ),
    Metric(
        name="degraded_seconds",
        kind="sum",
        unit="s",
        meaning="Seconds that instances of the discovery router were degraded, within the window; n counts the spells."
        " An instance silent for 5 minutes counts as lost from then on.",
        good="down",
        decision=DISCOVERY_HEALTH,
        groupings=("agent", "environment", "release"),
        warn=90.0,
        bad=600.0,
    ),
    Metric(
        name="half_failure",
        kind="sum",
        unit="spells",
        meaning="Spells in which an instance of the discovery router stayed degraded for more than 3 probes (90 s)"
        " without recovering. A spell belongs to its 90th second.",
        good="down",
        decision=DISCOVERY_HEALTH,
        groupings=("agent", "environment", "release", "hour", "day"),
        warn=0.0,
        bad=1.0,
    ),
    Metric(
        name="no_match_rate",
        kind="rate",
        unit="fraction",
        meaning="Selections answered with no match ÷ selections that were ranked or say whether there was a match.",
        good="down",
        decision=DISCOVERY_HEALTH,
        groupings=(*_COMMON, *_RANKING),
        warn=0.1,
        bad=0.3,
    ),
    Metric(
        name="menu_tokens",
        kind="quantiles",
        unit="tokens",
        meaning="Tokens of the menu that was shown to the model; `value` is the median.",
        good="down",
        decision=DISCOVERY_HEALTH,
        groupings=(*_COMMON, *_RANKING),
        quantiles=(0.5, 0.99),
    ),
    Metric(
        name="embedding_drift",
        kind="overlap",
        unit="fraction",
        meaning="What the lists of two index versions have in common, by version pair, over selections with a shadow"
        " list: mean overlap@10 as `value` (skills in the first 10 of both ÷ 10, or ÷ the longer list where that is"
        " shorter), mean rank-biased overlap as `rbo` (p = 0.9, extrapolated). Equal lists give 1. Selections without"
        " candidates, and shuffled ones, are left out.",
        good="up",
        decision=DISCOVERY_HEALTH,
        groupings=("shadow_embedding_version", *_COMMON, *_RANKING),
        always_by=("embedding_version", "shadow_embedding_version"),
        warn=0.8,
        bad=0.6,
    ),
)
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
