"""Which path answers: the full one while it is healthy, keyword search while it is not.

Degraded and recovered come as a pair: each state change is sent once, and nothing is recovered that was not degraded.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from pickwise.events import RouteState

#: The dense path is unhealthy above these, over the newest ``WINDOW`` requests.
MAX_P99_MS = 300.0
MAX_ERROR_RATE = 0.01
WINDOW = 200
#: With fewer requests than this a rate says too little; single failures fall back one by one.
MIN_REQUESTS = 20
#: Nor do one or two bad requests make an outage: the first call of a service that still warms up is late.
MIN_TROUBLED = 3
PROBE_S = 30.0

Path = Literal["dense", "probe", "keyword"]


class RouteListener(Protocol):
    """What a router tells its changes to; ``SelectionTracer.route`` is one."""

    def __call__(
        self, instance: str, state: RouteState, *, reason: str | None, p99_ms: float | None, error_rate: float | None
    ) -> None: ...


@dataclass(frozen=True)
class Health:
    """Over the newest requests: p99 of the good ones in ms (None without any), the share that failed, and how many
    failed or were slower than the limit."""

    n: int
    p99_ms: float | None
    error_rate: float
    troubled: int

    def fault(self, max_p99_ms: float) -> str | None:
        """Why this is not healthy, or None."""
        if self.n < MIN_REQUESTS or self.troubled < MIN_TROUBLED:
            return None
        if self.error_rate > MAX_ERROR_RATE:
            return f"errors {self.error_rate:.1%} > {MAX_ERROR_RATE:.0%}"
        if self.p99_ms is not None and self.p99_ms > max_p99_ms:
            return f"p99 {self.p99_ms:.0f} ms > {max_p99_ms:.0f} ms"
        return None


class Router:
    """The state of one dense path. Safe to use from several threads."""

    def __init__(
        self,
        instance: str,
        listener: RouteListener | None = None,
        *,
        probe_s: float = PROBE_S,
        max_p99_ms: float = MAX_P99_MS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.instance = instance
        self._listener = listener
        self._probe_s = probe_s
        self._max_p99_ms = max_p99_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._requests: deque[tuple[float, bool]] = deque(maxlen=WINDOW)
        self._next_probe = 0.0
        #: Why the path is degraded; None while it is healthy.
        self.degraded_reason: str | None = None

    def choose(self) -> Path:
        """The path for the next request. A ``probe`` is a request that tries the dense path while it is degraded."""
        with self._lock:
            if self.degraded_reason is None:
                return "dense"
            if self._clock() < self._next_probe:
                return "keyword"
            self._next_probe = self._clock() + self._probe_s
            return "probe"

    def record(self, path: Path, latency_ms: float, ok: bool) -> None:
        """Say how a request on the ``dense`` or ``probe`` path went; may change the state."""
        with self._lock:
            if path == "probe":
                self._probed(latency_ms, ok)
            elif path == "dense" and self.degraded_reason is None:
                self._requests.append((latency_ms, ok))
                self._judge()

    def health(self) -> Health:
        good = [latency for latency, ok in self._requests if ok]
        n, slow = len(self._requests), sum(1 for latency in good if latency > self._max_p99_ms)
        failed = n - len(good)
        p99_ms = float(np.quantile(good, 0.99)) if good else None
        return Health(n, p99_ms, failed / n if n else 0.0, failed + slow)

    def _judge(self) -> None:
        health = self.health()
        fault = health.fault(self._max_p99_ms)
        if fault is None:
            return
        self.degraded_reason = fault
        self._next_probe = self._clock() + self._probe_s
        self._tell("degraded", fault, health.p99_ms, health.error_rate)

    def _probed(self, latency_ms: float, ok: bool) -> None:
        if self.degraded_reason is None:
            return
        good = ok and latency_ms <= self._max_p99_ms
        outcome = "good" if good else ("slow" if ok else "failed")
        self._tell("probe", outcome, latency_ms, None)
        if not good:
            return
        self.degraded_reason = None
        # What was seen before the outage says nothing about the path now.
        self._requests.clear()
        self._tell("recovered", "probe was good", latency_ms, 0.0)

    def _tell(self, state: RouteState, reason: str, p99_ms: float | None, error_rate: float | None) -> None:
        if self._listener is not None:
            self._listener(self.instance, state, reason=reason, p99_ms=p99_ms, error_rate=error_rate)
