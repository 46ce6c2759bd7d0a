"""docs/metrics.md, written from the declarations."""

from __future__ import annotations

from analytics.metrics.declarations import DECISIONS, GROUPINGS, METRICS, NOT_COMPUTED, Metric

_HEAD = """# Metrics

Written from `analytics/metrics/declarations.py` by `python -m analytics.metrics.document > docs/metrics.md`.

Ask with `pickwise metrics NAME [--by GROUPING …]` or `GET /v1/metrics/NAME?from&to&by&project`. Windows are
[from, to) by event time. Every value comes with `n`, its denominator; with n = 0 the value is null. Rates are fractions
with a 95 % Wilson interval (`low`, `high`). Groupings may be combined; one that a metric does not support is an error
that lists those it does. Final answers (`closing` selections) are no decisions and are left out where it says so.
Feedback of judges is left out unless asked for.
"""


def metrics_document() -> str:
    """The whole page, as Markdown."""
    parts = [_HEAD]
    for decision, question in DECISIONS.items():
        parts += [f"## {decision.capitalize()}", question, ""]
        parts += [_metric(metric) for metric in METRICS if metric.decision == decision]
    parts += ["## Groupings", "", _groupings()]
    return "\n".join(parts).rstrip() + "\n"


def _metric(metric: Metric) -> str:
    facts = [f"unit {metric.unit}", f"good is {metric.good}"]
    if metric.warn is not None and metric.bad is not None:
        facts.append(f"worth a look {'below' if metric.good == 'up' else 'above'} {metric.warn:g}, bad {metric.bad:g}")
    if metric.quantiles:
        facts.append("quantiles " + ", ".join(f"p{round(q * 100)}" for q in metric.quantiles))
    return f"### `{metric.name}`\n{metric.meaning}\n\n{'; '.join(facts)}.\n"


def _groupings() -> str:
    columns = [grouping for grouping in GROUPINGS if grouping not in NOT_COMPUTED]
    lines = [
        "| metric | " + " | ".join(f"`{column}`" for column in columns) + " | whose skill |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for metric in METRICS:
        marks = " | ".join("×" if column in metric.groupings else "" for column in columns)
        lines.append(f"| `{metric.name}` | {marks} | {metric.skill} |")
    lines += ["", f"Not computed yet: {', '.join(f'`{grouping}`' for grouping in NOT_COMPUTED)}."]
    return "\n".join(lines)


if __name__ == "__main__":
    print(metrics_document(), end="")
