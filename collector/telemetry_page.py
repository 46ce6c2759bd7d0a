"""``docs/telemetry.md``: what the collector tells of itself, from the declarations in ``telemetry``."""

from __future__ import annotations

from collector.self_traces import SERVICE
from collector.telemetry import Telemetry

_OPENING = """
`GET /metrics` serves the collector's own counters as Prometheus text, over all projects; with API keys on it takes one
with the role `read`. Counts start at 0 with the process. No label holds a query, a skill, a project or anything else
that a sender wrote. `pickwise doctor` reads them and says what is wrong, with the mend.

    scrape_configs:
      - job_name: pickwise
        static_configs: [{ targets: ["127.0.0.1:4318"] }]

Worth an alert: `rate(pickwise_commit_failures_total[5m]) > 0`; `increase(pickwise_dead_letters_total[1h]) > 0`;
`histogram_quantile(0.99, rate(pickwise_lag_seconds_bucket[5m])) > 3`;
`rate(pickwise_requests_total{outcome="overloaded"}[5m]) > 0`; `deriv(pickwise_backlog_bytes[10m]) > 0` for long.

## Metrics
"""

_TRACES = f"""
## Self-traces

Off by default. `PICKWISE_SELF_TRACES=http://127.0.0.1:4320` sends spans of the collector's own work to another
OTLP/HTTP receiver, to `/v1/traces` there. Nothing else switches them on: the `OTEL_*` variables of the process only
add to them (`OTEL_EXPORTER_OTLP_HEADERS` for a key, `OTEL_RESOURCE_ATTRIBUTES`; `OTEL_SDK_DISABLED` ends them).
`PICKWISE_SELF_TRACES_RATIO` traces a share of the commits. The service is called `{SERVICE}`. Spans hold counts, sizes
and names of tables, an error as its class alone; never what was received.

| span | what | attributes `pickwise.collector.…` |
|---|---|---|
| `flush` | a run of log records on its way into the tables | `records`, `events`, `bytes`, `lag_seconds` |
| `map and redact` | the wait for the rows and for what the archive keeps, whichever process makes them | |
| `dedup` | exact repeats are dropped | |
| `commit` | one table's commit; an attempt that fails is a span with an error | `table`, `rows` |
| `sync` | within `commit`: the files reach the disk | `table` |
| `archive` | the redacted requests are written | |
| `release` | the log lets go of what is committed | |
| `compact` | small files of a table are merged | `table` |

All but `sync` are children of `flush`. The collector does not trace itself into itself: an endpoint that is its own
port is refused with an error in its output, and a flush of nothing but self-traces is not traced, so two collectors may
trace into each other. Spans wait in a queue of bounded length and are lost beyond it; a receiver that is down costs
the way in nothing.
"""


def telemetry_page(mark: str) -> str:
    """The whole page; ``mark`` says below the title where it comes from."""
    lines = [
        "# The collector's own telemetry",
        mark,
        _OPENING,
        "| family | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    for family in Telemetry().families:
        labels = "; ".join(f"`{name}`: {meaning}" for name, meaning in family.labels.items())
        lines.append(f"| `{family.name}` | {family.type} | {labels} | {family.meaning} |")
    return "\n".join(lines) + "\n" + _TRACES
