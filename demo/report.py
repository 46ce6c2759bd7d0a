"""What the demo found, and how it is printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import httpx
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pickwise.training_text import training_lines

SIMULATED = (
    "The users and agents of this demo are simulated: questions from hand-written phrasings, picks by published curves "
    "of how language models look at ranks. Everything else is the real thing: retrieval, OpenTelemetry over loopback, "
    "tables, jobs, training, weights."
)


class Row(NamedTuple):
    """One line of the before/after table: a metric, and the direction that is better."""

    metric: str
    better: str = ""
    stage: str | None = None
    field: str = "value"


ROWS: tuple[Row, ...] = (
    Row("acceptance_rate", "up"),
    Row("top1_acceptance_rate", "up"),
    Row("mismatch_rate", "down"),
    Row("skip_rate", "down"),
    Row("off_list_rate", "down"),
    Row("corrected_rate", "down"),
    Row("picks_per_selection"),
    Row("zero_pick_rate", "down"),
    Row("over_pick_rate", "down"),
    Row("failed_tool_rate", "down"),
    Row("hallucinated_tool_rate", "down"),
    Row("near_miss_rate", "down"),
    Row("retired_call_rate", "down"),
    Row("fallback_rate", "down"),
    Row("stage_latency_ms", "down", "embed", "p50"),
    Row("stage_latency_ms", "down", "rerank", "p50"),
    Row("stage_latency_ms", "down", "total", "p50"),
    Row("stage_latency_ms", "down", "total", "p99"),
    Row("stage_latency_ms", "down", "call", "p99"),
)


@dataclass(frozen=True)
class Window:
    """Wall-clock window [start, end) in Unix nanoseconds."""

    start: int
    end: int


@dataclass(frozen=True)
class Measured:
    value: float | None
    n: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Comparison:
    """NDCG@5 of held-out lists against the simulated truth; each value is (mean, low, high).

    ``by_model`` is the share of the learned lists that the model ordered; others had the local score.
    """

    n: int
    retrieval: tuple[float, float, float]
    learned: tuple[float, float, float]
    difference: tuple[float, float, float]
    by_model: float


@dataclass
class RunReport:
    """All that one demo run found."""

    turns: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    metrics: list[tuple[Row, Measured, Measured]] = field(default_factory=list)
    healthy: list[tuple[Row, Measured, Measured]] = field(default_factory=list)
    ndcg: Comparison | None = None
    status_changes: list[dict[str, Any]] = field(default_factory=list)
    alerts: list[dict[str, Any]] = field(default_factory=list)
    deliveries: list[dict[str, Any]] = field(default_factory=list)
    training: dict[str, Any] = field(default_factory=dict)
    routes: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """As JSON types, for ``--json`` and for tests."""
        plain = asdict(self)
        for name, rows in (("metrics", self.metrics), ("healthy", self.healthy)):
            plain[name] = [
                {"metric": row.metric, "stage": row.stage, "field": row.field, "before": asdict(a), "after": asdict(b)}
                for row, a, b in rows
            ]
        return plain


def compare(http: httpx.Client, before: Window, after: Window) -> list[tuple[Row, Measured, Measured]]:
    """Every row of the table, asked from the service for both windows."""
    answers = {
        (name, window): _rows(http, name, window) for name in {row.metric for row in ROWS} for window in (before, after)
    }
    return [
        (row, _measured(row, answers[row.metric, before]), _measured(row, answers[row.metric, after])) for row in ROWS
    ]


#: Metrics that the outage itself makes worse: the fair comparison leaves its turns out.
_HIT_BY_OUTAGE = (Row("acceptance_rate", "up"), Row("top1_acceptance_rate", "up"), Row("mismatch_rate", "down"))


def compare_healthy(http: httpx.Client, before: Window, after: Window) -> list[tuple[Row, Measured, Measured]]:
    """The same for the turns that dense retrieval answered."""
    answers = {
        (row, window): [item for item in _rows(http, row.metric, window, by="strategy") if item["strategy"] == "hybrid"]
        for row in _HIT_BY_OUTAGE
        for window in (before, after)
    }
    return [(row, _measured(row, answers[row, before]), _measured(row, answers[row, after])) for row in _HIT_BY_OUTAGE]


def _rows(http: httpx.Client, name: str, window: Window, by: str | None = None) -> list[dict[str, Any]]:
    asked = {"from": str(window.start), "to": str(window.end)} | ({"by": by} if by else {})
    response = http.get(f"/v1/metrics/{name}", params=asked)
    response.raise_for_status()
    found: list[dict[str, Any]] = response.json()["rows"]
    return found


def _measured(row: Row, found: Sequence[Mapping[str, Any]]) -> Measured:
    chosen = [item for item in found if row.stage is None or item.get("stage") == row.stage]
    if not chosen:
        return Measured(None, 0)
    only = chosen[0]
    return Measured(only.get(row.field), int(only["n"]), only.get("low"), only.get("high"))


def show(report: RunReport, console: Console) -> None:
    """Print it all, the caveat first."""
    console.print()
    console.print(f"[italic]{SIMULATED}[/italic]")
    console.print(_metrics_table(report))
    for line in (
        *_healthy_lines(report.healthy),
        *_ndcg_lines(report.ndcg),
        *_status_lines(report.status_changes),
        *_alert_lines(report),
        *_training_lines(report.training),
    ):
        console.print(line)


def _metrics_table(report: RunReport) -> Table:
    """Fits into 80 columns."""
    table = Table(
        title="Before (logged turns) and after (turns on held-out phrasings, with what was learned)",
        caption="Rates with their 95 % Wilson interval. The questions differ, so only clear differences count.",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("metric", no_wrap=True)
    for title in ("before", "n", "after", "n"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row, before, after in report.metrics:
        name = row.metric if row.stage is None else f"{row.stage} {row.field}"
        table.add_row(
            name, _cell(row, before), str(before.n), _cell(row, after), str(after.n), _mark(row, before, after)
        )
    return table


def _cell(row: Row, measured: Measured) -> str:
    if measured.value is None:
        return "–"
    if row.metric == "stage_latency_ms":
        return f"{measured.value:.1f} ms"
    if measured.low is None or measured.high is None:
        return f"{measured.value:.3f}"
    return f"{measured.value:.1%} ({100 * measured.low:.1f}–{100 * measured.high:.1f})"


def _mark(row: Row, before: Measured, after: Measured) -> str:
    """Better or worse only where the intervals do not overlap."""
    bounds = (before.low, before.high, after.low, after.high)
    if not row.better or any(bound is None for bound in bounds):
        return ""
    low, high, new_low, new_high = (float(bound) for bound in bounds if bound is not None)
    if new_low > high:
        return "[green]better[/green]" if row.better == "up" else "[red]worse[/red]"
    if new_high < low:
        return "[green]better[/green]" if row.better == "down" else "[red]worse[/red]"
    return "[dim]in noise[/dim]"


def _healthy_lines(rows: Sequence[tuple[Row, Measured, Measured]]) -> Iterator[str]:
    if rows:
        yield "\nThe first column includes a planted outage. [bold]Without its turns:[/bold]"
    for row, before, after in rows:
        yield f"  {row.metric}: {_cell(row, before)} → {_cell(row, after)} {_mark(row, before, after)}"


def _ndcg_lines(comparison: Comparison | None) -> Iterator[str]:
    if comparison is None:
        return
    yield (
        f"\n[bold]NDCG@5 on the same {comparison.n} held-out questions[/bold] (against the simulated truth): "
        f"retrieval alone {_interval(comparison.retrieval)}, with what was learned {_interval(comparison.learned)}, "
        f"{comparison.by_model:.0%} of these lists ordered by the model, "
        f"difference {_interval(comparison.difference, sign=True)}"
    )


def _interval(values: tuple[float, float, float], sign: bool = False) -> str:
    form = "+.3f" if sign else ".3f"
    return f"{values[0]:{form}} ({values[1]:{form}} to {values[2]:{form}})"


#: Parts of a status change's evidence that its line says already or that are too long for it.
_UNSHOWN = frozenset({"rule", "window"})


def _status_lines(changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "\n[bold]Flagged skills[/bold]"
    for change in changes:
        shown = {name: value for name, value in (change.get("evidence") or {}).items() if name not in _UNSHOWN}
        evidence = _evidence(shown)
        yield (
            f"  {change['skill_id']}: {change.get('previous_status') or 'active'} → [bold]{change['status']}[/bold] "
            f"({change.get('reason')}; {escape(evidence)})"
        )
    if not changes:
        yield "  none"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _alert_lines(report: RunReport) -> Iterator[str]:
    yield "\n[bold]Alerts[/bold], oldest first"
    for alert in sorted(report.alerts, key=lambda item: str(item["time"])):
        message = escape(str(alert.get("message") or ""))
        yield f"  {str(alert['time'])[11:19]} {alert['rule']} {alert['state']}: {message}"
    if not report.alerts:
        yield "  none"
    if report.deliveries:
        told = ", ".join(f"{item['rule']} {item['state']}" for item in report.deliveries)
        yield f"  delivered to the webhook on loopback: {told}"
    if report.routes:
        yield f"  the router said: {' → '.join(report.routes)}"


def _training_lines(training: Mapping[str, Any]) -> Iterator[str]:
    if not training:
        return
    decision, *found = training_lines(training)
    yield f"\n[bold]Training[/bold]: {escape(decision)}"
    yield from map(escape, found)


def _evidence(value: Any) -> str:
    if isinstance(value, Mapping):
        shown = [f"{key} {_evidence(item)}" for key, item in list(value.items())[:8]]
        return ", ".join(shown) + (", …" if len(value) > 8 else "")
    if isinstance(value, list):
        return f"[{', '.join(_evidence(item) for item in value[:6])}{', …' if len(value) > 6 else ''}]"
    return _short(value)
