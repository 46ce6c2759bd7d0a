"""docs/metrics.md, written from the declarations."""

from __future__ import annotations

from analytics.metrics.declarations import DECISIONS, GROUPINGS, METRICS, Metric

_HEAD = """# Metrics

Written from `analytics/metrics/declarations.py` by `make docs`.

Ask with `pickwise metrics NAME [--by GROUPING …]` or `GET /v1/metrics/NAME?from&to&by&project`. Windows are
[from, to) by event time. Every value comes with `n`, its denominator; with n = 0 the value is null. Rates are fractions
with a 95 % Wilson interval (`low`, `high`); what is measured against [labels](labels.md) has a bootstrap interval over
queries. Groupings may be combined; one that a metric does not support is an error
that lists those it does. Final answers (`closing` selections) are no decisions and are left out where it says so.
Feedback of judges is left out unless asked for (`--judge`, `?judge=true`). Rows by `cluster` have its `cluster_name`
too: the id stays, a name may change; queries that fewer than 3 selections of their cluster asked are in none
(docs/nightly.md).
"""

_CONFUSION = """## Confusion
`pickwise confusion` tells for each skill what was picked instead of it when it stood first: `n` times of the `first`
that it led a ranked selection with a pick. `overlap` tells how alike the two descriptions are, from 0 to 1, as the
[review](registry.md) measures it; null where one has under 4 terms. Much overlap: say what sets them apart. Little: the
ranking is wrong, not the words. One skill's are in `GET /v1/skills/{id}` as `confused_with`.
"""


def metrics_document() -> str:
    """The whole page, as Markdown."""
    parts = [_HEAD]
    for decision, question in DECISIONS.items():
        parts += [f"## {decision.capitalize()}", question, ""]
        parts += [_metric(metric) for metric in METRICS if metric.decision == decision]
    parts += [_CONFUSION, "## Groupings", "", _groupings()]
    return "\n".join(parts).rstrip() + "\n"


def _metric(metric: Metric) -> str:
    facts = [f"unit {metric.unit}", f"good is {metric.good}"]
    if metric.warn is not None and metric.bad is not None:
        facts.append(f"worth a look {'below' if metric.good == 'up' else 'above'} {metric.warn:g}, bad {metric.bad:g}")
    if metric.quantiles:
        facts.append("quantiles " + ", ".join(f"p{round(q * 100)}" for q in metric.quantiles))
    return f"### `{metric.name}`\n{metric.meaning}\n\n{'; '.join(facts)}.\n"


def _groupings() -> str:
    lines = [
        "| metric | " + " | ".join(f"`{column}`" for column in GROUPINGS) + " | whose skill |",
        "|---" * (len(GROUPINGS) + 2) + "|",
    ]
    for metric in METRICS:
        marks = " | ".join("×" if column in metric.groupings else "" for column in GROUPINGS)
        lines.append(f"| `{metric.name}` | {marks} | {metric.skill} |")
    return "\n".join(lines)
