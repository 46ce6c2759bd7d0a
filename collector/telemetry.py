"""What the collector counts about itself, served as Prometheus text at ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_LAG_BUCKETS = (0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 30, 60, 300, 1_800)


class Telemetry:
    """The counters of one collector; safe to use from any thread. Counts start at 0 with the process."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self.requests = Counter(
            "pickwise_requests", "Requests by way in and outcome", ["way", "outcome"], registry=registry
        )
        self.accepted = Counter("pickwise_accepted", "Items acknowledged", ["kind"], registry=registry)
        self.rejected = Counter(
            "pickwise_rejected", "Items refused and named to the sender", ["kind"], registry=registry
        )
        self.duplicates = Counter("pickwise_duplicates", "Exact repeats dropped", ["table"], registry=registry)
        self.rows = Counter("pickwise_rows", "Rows committed", ["table"], registry=registry)
        self.unknown_fields = Counter(
            "pickwise_unknown_fields", "Fields of native events that are none of ours", registry=registry
        )
        self.dead_letters = Counter(
            "pickwise_dead_letters", "Acknowledged records or facts that could not be mapped", registry=registry
        )
        self.commit_failures = Counter(
            "pickwise_commit_failures", "Commits that failed and were tried again", ["table"], registry=registry
        )
        self.torn_bytes = Counter(
            "pickwise_wal_torn_bytes", "Bytes of interrupted writes cut from the log at start", registry=registry
        )
        self.damaged = Counter("pickwise_wal_damaged", "Bad places found in synced log segments", registry=registry)
        self.lag = Histogram(
            "pickwise_lag_seconds",
            "Time from receipt to visibility of the oldest record of a commit",
            buckets=_LAG_BUCKETS,
            registry=registry,
        )

    def watch(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Serve a value that is read when asked for."""
        Gauge(name, meaning, registry=self._registry).set_function(read)

    def watch_redactions(self, read: Callable[[], float]) -> None:
        self.watch("pickwise_redactions", "Values that redaction removed or masked", read)

    def exposition(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self._registry)
