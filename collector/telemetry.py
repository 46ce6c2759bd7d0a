"""What the collector counts about itself, served as Prometheus text at ``/metrics``.

Each family is declared once, in the constructor, with its meaning and that of its labels; ``docs/telemetry.md`` is
written from these declarations. No label holds what a sender wrote, so the number of series is bounded.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector as MetricSource

from collector.self_traces import SelfTraces
from pickwise.events import EVENT_TYPES

_LAG_BUCKETS = (0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 30, 60, 300, 1_800)
_COMMIT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

#: Labels that several families have.
_KIND = {"kind": "`traces`, `logs`, `events` or `skills`"}
_TABLE = {"table": "the Delta table"}

#: What a reason begins with, as in ``candidates[3].score: expected a number``.
_REASON = re.compile(r"(?<![\w.])([A-Za-z_]+)(?:\[\d+\]|\.\w+)*: expected ")
_OTLP_FIELDS = (
    "trace_id span_id parent_span_id traceId spanId parentSpanId attributes name kind status events links body "
    "startTimeUnixNano endTimeUnixNano timeUnixNano observedTimeUnixNano"
)
#: Fields that a refusal is counted under: a word that only looks like a field may be a sender's text.
_FIELDS = frozenset(
    [
        *_OTLP_FIELDS.split(),
        "type",
        "project",
        *(name for event in EVENT_TYPES.values() for name in event.__struct_fields__),
    ]
)
_OTHER = "other"
#: Reasons of one request that are looked at.
_EXPLAINED = 100

Values = float | Mapping[str, float]


class Family(NamedTuple):
    """A declared family. ``name`` is that of its samples (a histogram's without the endings)."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: Mapping[str, str]


class Telemetry:
    """The counters of one collector; safe to use from any thread. Counts start at 0 with the process."""

    def __init__(self, self_traces: SelfTraces | None = None) -> None:
        self._registry = CollectorRegistry()
        self._watched = _Watched()
        self._registry.register(self._watched)
        self.families: list[Family] = []
        self.self_traces = self_traces or SelfTraces()
        self._started_ns = time.time_ns()
        self._declare_requests()
        self._declare_items()
        self._declare_log()
        self._declare_tables()

    # -- declarations -----------------------------------------------------------------------------------------------

    def _declare_requests(self) -> None:
        way = {"way": "`http_` or `grpc_` with the signal, `http_events`, `http_registry`"}
        outcome = {"outcome": "`accepted`, `refused`, or `overloaded` (503, `UNAVAILABLE`: the sender comes again)"}
        self.requests = self._counter("pickwise_requests", "Requests by way in and outcome", way | outcome)
        self.denied = self._counter(
            "pickwise_denied",
            "Requests refused for their key, its role or its project",
            {"reason": "`missing`, `unknown`, `revoked`, `expired`, `role` or `project`"},
        )
        self.throttled = self._counter(
            "pickwise_throttled",
            "Requests refused for a quota of their key",
            {"key": "id of the key", "quota": "`events_per_second` or `bytes_per_day`"},
        )
        self._watch("pickwise_inflight_bytes", "gauge", "Bytes of requests that are being read and judged")
        self._watch("pickwise_inflight_requests", "gauge", "Requests that are being read and judged")
        self._watch("pickwise_inflight_refused_total", "counter", "Requests refused for too many at once")

    def _declare_items(self) -> None:
        signal = {"kind": "`traces`, `logs`, `metrics`, `events` or `skills`"}
        self.accepted = self._counter("pickwise_accepted", "Items acknowledged", _KIND)
        self.rejected = self._counter("pickwise_rejected", "Items refused and named to the sender", signal)
        self.rejected_fields = self._counter(
            "pickwise_rejected_fields",
            "Refusals that an answer spells out, by the field that was wrong: tells what is wrong, not how often",
            _KIND | {"field": "the field, `other` for what is no single field"},
        )
        self.nonfinite = self._counter("pickwise_nonfinite", "NaN and infinite numbers that became null", _KIND)
        self.unknown_fields = self._counter(
            "pickwise_unknown_fields", "Fields of native events that are none of ours, left out"
        )
        self.last_accepted = self._gauge(
            "pickwise_last_accepted_timestamp_seconds", "Unix time of the last acknowledged items; 0: none yet"
        )
        self._watch(
            "pickwise_redactions_total",
            "counter",
            "Values that redaction removed or masked",
            {"kind": "`argument`, `query` (kept as a hash), or the mask: `email`, `api_key`, `phone` …"},
        )

    def _declare_log(self) -> None:
        self._watch("pickwise_queue_bytes", "gauge", "Bytes of requests that wait for the disk")
        self._watch("pickwise_queue_requests", "gauge", "Requests that wait for the disk")
        self._watch("pickwise_backlog_bytes", "gauge", "Bytes of the log that are not yet committed to the tables")
        self._watch("pickwise_backlog_requests", "gauge", "Acknowledged requests that are not yet committed")
        self.torn_bytes = self._counter(
            "pickwise_wal_torn_bytes", "Bytes of interrupted, never acknowledged writes cut from the log at start"
        )
        self.damaged = self._counter("pickwise_wal_damaged", "Bad places found in synced log segments at start")
        self.dead_letters = self._counter(
            "pickwise_dead_letters",
            "Acknowledged records, or parts of some, that could not be mapped and are set aside",
        )

    def _declare_tables(self) -> None:
        self.rows = self._counter("pickwise_rows", "Rows committed", _TABLE)
        self.duplicates = self._counter("pickwise_duplicates", "Rows dropped as exact repeats", _TABLE)
        self.lag = self._histogram(
            "pickwise_lag_seconds",
            "Time from receipt to visibility of the oldest record of a commit. What an earlier run left in the log "
            "does not count",
            _LAG_BUCKETS,
        )
        self.commit_seconds = self._histogram(
            "pickwise_commit_seconds", "Time that a commit to a table took, synced", _COMMIT_BUCKETS, _TABLE
        )
        self.commit_failures = self._counter(
            "pickwise_commit_failures",
            "Attempts to write something that failed and are made again until they succeed",
            {"table": "what was written: `commit to TABLE`, `writing the archive`, `setting a record aside`"},
        )
        self.compactions = self._counter(
            "pickwise_compactions", "Merges of a table's small files", _TABLE | {"outcome": "`done` or `put_off`"}
        )

    # -- what happens -----------------------------------------------------------------------------------------------

    def took(self, kind: str, count: int) -> None:
        """Items were acknowledged, or are about to be: the disk decides."""
        self.accepted.labels(kind).inc(count)
        self.last_accepted.set_to_current_time()

    def explain(self, kind: str, reasons: Iterable[str]) -> None:
        """Count why items were refused, from sentences that were written for the sender."""
        for reason in islice(reasons, _EXPLAINED):
            for field in _REASON.findall(reason) or ([_OTHER] if reason else []):
                self.rejected_fields.labels(kind, field if field in _FIELDS else _OTHER).inc()

    def visible(self, oldest_ns: int) -> float:
        """A commit is through whose oldest record came at that time; its lag, seconds."""
        lag = max(0.0, (time.time_ns() - oldest_ns) / 1e9)
        if oldest_ns >= self._started_ns:
            self.lag.observe(lag)
        return lag

    def watch(self, name: str, read: Callable[[], Values]) -> None:
        """Serve a declared value that is read when asked for: a number, or one by label value."""
        self._watched.read(name, read)

    def exposition(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self._registry)

    # -- how families are made --------------------------------------------------------------------------------------

    def _counter(self, name: str, meaning: str, labels: Mapping[str, str] | None = None) -> Counter:
        self.families.append(Family(f"{name}_total", "counter", meaning, labels or {}))
        return Counter(name, meaning, list(labels or ()), registry=self._registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        self.families.append(Family(name, "gauge", meaning, {}))
        return Gauge(name, meaning, registry=self._registry)

    def _histogram(
        self, name: str, meaning: str, buckets: tuple[float, ...], labels: Mapping[str, str] | None = None
    ) -> Histogram:
        self.families.append(Family(name, "histogram", meaning, labels or {}))
        return Histogram(name, meaning, list(labels or ()), buckets=buckets, registry=self._registry)

    def _watch(
        self, name: str, kind: Literal["counter", "gauge"], meaning: str, labels: Mapping[str, str] | None = None
    ) -> None:
        family = Family(name, kind, meaning, labels or {})
        self.families.append(family)
        self._watched.declare(family)


class _Watched(MetricSource):
    """Families whose values others hold."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._reads: dict[str, Callable[[], Values]] = {}

    def declare(self, family: Family) -> None:
        self._families[family.name] = family

    def read(self, name: str, read: Callable[[], Values]) -> None:
        if name not in self._families:
            raise ValueError(f"{name} is not declared")
        self._reads[name] = read

    def collect(self) -> Iterator[Metric]:
        for family in self._families.values():
            read = self._reads.get(family.name)
            made = CounterMetricFamily if family.type == "counter" else GaugeMetricFamily
            metric = made(family.name, family.meaning, labels=list(family.labels))
            values: Values = {} if read is None else read()
            for label, value in values.items() if isinstance(values, Mapping) else [(None, values)]:
                metric.add_metric([] if label is None else [label], value)
            yield metric
